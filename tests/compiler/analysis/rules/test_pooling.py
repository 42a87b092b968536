"""Pools along padded frames."""

import pytest

from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.offline import offline, verify_offline

ACCEPTED = [
    CHANNELS + "y = MaxPool<kernel_shape = [3], pads = [0, 0], strides = [1]>(c)",
    CHANNELS + "y = MaxPool<kernel_shape = [3], pads = [1, 1], strides = [1]>(c)",
    CHANNELS + "y = MaxPool<kernel_shape = [3], pads = [1, 1], strides = [2]>(c)",
    CHANNELS + "y = MaxPool<kernel_shape = [3], pads = [0, 1], strides = [2]>(c)",
    CHANNELS + "y = AveragePool<kernel_shape = [2], strides = [2]>(c)",
    CHANNELS + "y = AveragePool<kernel_shape = [3], pads = [1, 1], count_include_pad = 1>(c)",
    CHANNELS + "y = GlobalAveragePool(c)",
    CHANNELS + "y = GlobalLpPool<p = 3>(c)",
    CHANNELS + "y = GlobalMaxPool(c)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)
