"""Statistics over the valid entries alone."""

import pytest

from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.offline import offline, verify_offline

ACCEPTED = [
    "y = ReduceMean<keepdims = 1>(x, one)",
    CHANNELS + "y = InstanceNormalization(c, gamma, beta)",
    "m = ReduceMean<keepdims = 0>(x, one)  y = Unsqueeze(m, one)",
    CHANNELS + "y = GlobalAveragePool(c)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)
