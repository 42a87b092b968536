"""What is proved of a graph hangs on no spelling of its operators."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler import ir as house
from tests.kit.graphs import parse
from tests.property.respelled import compare
from tests.property.spelling import Respelling


@pytest.mark.parametrize("first", [0, 6, 12])
def test_the_same_is_proved_of_every_spelling(first: int) -> None:
    assert {compare(seed) for seed in range(first, first + 4)} <= {"accepted", "refused", "as before"}


@pytest.mark.slow
def test_the_same_is_proved_of_many_spellings() -> None:
    assert {compare(seed) for seed in range(500, 1500)} <= {"accepted", "refused", "as before"}


def test_every_spelling_of_a_slice_is_drawn() -> None:
    drawn = set()
    for seed in range(60):
        model = parse(
            """(float[batch,time,8] x) => (float[a,time,8] y) <int64[1] zero = {0}, int64[1] end = {3}>
            { y = Slice(x, zero, end, zero) }"""
        )
        Respelling(model, np.random.default_rng(seed)).apply()
        (node,) = model.graph
        drawn.add(tuple(_shown(value) for value in node.inputs[3:]))
    assert drawn == {(), (None,), (0,), (-3,), (None, 1), (0, 1), (-3, 1)} | (
        drawn & {(None, None), (0, None), (-3, None)}
    )


def _shown(value: ir.Value | None) -> int | None:
    array = house.array_of(value)
    return None if array is None else int(array[0])
