"""Convolutions along padded frames, with any pads, strides and dilations."""

import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.offline import offline, verify_offline

ACCEPTED = [
    CHANNELS + "y = Conv<pads = [0, 0], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [1, 1], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [2, 0], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [0, 2], strides = [2], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [2, 2], strides = [2], dilations = [2]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [1, 0], strides = [3], dilations = [1]>(c, kernel)",
    CHANNELS + "y = ConvTranspose<pads = [0, 0], strides = [2], output_padding = [0]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [1, 1], strides = [2], output_padding = [1]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [1, 1], strides = [4], output_padding = [0]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [0, 1], strides = [3], output_padding = [2]>(c, up)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)


REFUSED = {
    "y = Conv(x, kernel)": "channel|sums",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_shown_is_refused(body: str) -> None:
    with pytest.raises(Refused, match=REFUSED[body]):
        PadAxes().apply(offline(graph(body), WEIGHTS))
