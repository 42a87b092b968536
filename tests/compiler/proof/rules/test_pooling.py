"""Pools along padded frames."""

import pytest

from compiler.errors import Refused
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.judged import check_refused
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand

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


def test_a_pool_that_hangs_over_and_counts_padding_is_refused_with_a_cure() -> None:
    body = (
        CHANNELS + "y = AveragePool<kernel_shape = [3], pads = [1, 1], strides = [2], count_include_pad = 1, CEIL>(c)"
    )
    with pytest.raises(Refused, match="AveragePool in ceil mode that counts padding") as caught:
        verify_offline(offline(graph(body.replace("CEIL", "ceil_mode = 1")), WEIGHTS))
    assert caught.value.cure == "set count_include_pad or ceil_mode to 0"
    verify_offline(offline(graph(body.replace("CEIL", "ceil_mode = 0")), WEIGHTS), tolerance=1e-4)


def test_a_kernel_that_is_larger_than_its_axis_is_refused() -> None:
    pooled = Node("AveragePool", [Operand(("batch", 4, 2))], {"kernel_shape": [3], "strides": [2]})
    check_refused(pooled, "needs more entries")
