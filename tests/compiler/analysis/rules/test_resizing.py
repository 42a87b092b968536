"""Entries added to padded frames."""

import pytest

from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.offline import offline, verify_offline

ACCEPTED = [
    CHANNELS + "y = Pad(c, pads, half)",
    CHANNELS + "y = Pad(c, front)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)
