"""Windows that read a fixed distance past an entry, in chains."""

import pytest

from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.offline import offline, verify_offline

ACCEPTED = [
    CHANNELS
    + "d = Conv<pads = [1, 1]>(c, kernel)  e = MaxPool<kernel_shape = [2], pads = [0, 1]>(d)  y = Conv<strides = [2]>(e, kernel)",  # noqa: E501
    CHANNELS + "d = ConvTranspose<strides = [2]>(c, up)  y = Conv<pads = [2, 2], dilations = [2]>(d, kernel)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)
