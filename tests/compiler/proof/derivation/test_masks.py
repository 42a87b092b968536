"""Supports of masks are what the arithmetic says, whoever wrote them."""

import numpy as np
import pytest

from compiler.proof.derivation.dependence import Kind
from compiler.proof.derivation.judging import Judging
from tests.kit.graphs import parse
from tests.kit.whole_sequences import LONGEST, MASKS, Drawing, whole_graph

ROWS, COLUMNS = np.indices((LONGEST, LONGEST))
CAUSAL = COLUMNS <= ROWS

EXPECTED = dict.fromkeys(MASKS, CAUSAL) | {
    "band": CAUSAL & (COLUMNS > ROWS - 5),
    "chunks": CAUSAL & (COLUMNS // 5 > ROWS // 5 - 2),
}


@pytest.mark.parametrize("low", [-np.inf, float(np.finfo(np.float32).min), -1.0e9])
@pytest.mark.parametrize("writing", ["select", "add"])
@pytest.mark.parametrize("mask", MASKS)
def test_the_support_behind_a_softmax_is_that_of_the_mask(mask: str, writing: str, low: float) -> None:
    judging = Judging(whole_graph(Drawing(mask=mask, writing=writing, low=low, width=5)), "time", LONGEST)
    (softmax,) = (node for node in judging.model.graph if node.op_type == "Softmax")
    outside = judging.masks.outside(softmax.outputs[0], "zero")
    assert outside is not None
    assert np.array_equal(outside.support, EXPECTED[mask])


def test_a_mask_that_is_not_low_enough_is_none() -> None:
    judging = Judging(whole_graph(Drawing(low=-100.0)), "time", LONGEST)
    data = [value for value, fact in judging.known.items() if fact.is_data]
    assert all(judging.masks.outside(value, "zero") is None for value in data)
    assert judging.offences


MASKED = """(float[batch,time,4] x) => (float[batch,time,time] y)
    <int64 none = {0}, int64 one = {1}, int64[1] first = {0}, int64[1] second = {1}, float zero = {0.0},
     int64[1] second2 = {2}, float one_real = {1.0},
     float b = {-1e9}, float half = {0.5}, float two = {2.0}, float[1] less = {-0.5}, float tiny = {1e-6},
     float low = {-1e8}, float near = {-5.0}, float huge = {-1e38}, float ten = {-1e5}>
    {
        size = Shape<start = 1, end = 2>(x)  length = Squeeze(size)  places = Range(none, length, one)
        rows = Unsqueeze(places, second)  columns = Unsqueeze(places, first)  seen = LessOrEqual(columns, rows)
        hidden = Greater(columns, rows)  turned = Transpose<perm = [0, 2, 1]>(x)  scores = MatMul(x, turned)
        bias = Where(seen, zero, b)  kept = Cast<to = 1>(seen)  ones = Relu(scores)
        limit = ReduceMax<keepdims = 1>(x, second2)  told = Greater(limit, zero)  both = And(seen, told)
        told_kept = Cast<to = 1>(told)  either = Or(told, hidden)  neither = Not(told)
        some = Not(both)  part = Mul(kept, told_kept)  left = Sub(one_real, part)  lowered = Mul(left, b)
        few = Less(part, half)  z = Where(seen, scores, b)  flat = Where(hidden, b, zero)
        TAIL
    }"""

MADE = {
    "Mul(z, half)": ("low", -5e8),
    "Div(z, two)": ("low", -5e8),
    "Mul(half, z)": ("low", -5e8),
    "Mul(z, less)": None,
    "Mul(z, tiny)": None,
    "Div(z, tiny)": ("low", -1e15),
    "Div(two, z)": None,
    "Mul(z, scores)": None,
    "Add(z, scores)": ("low", -1e9),
    "Sub(z, scores)": ("low", -1e9),
    "Sub(scores, z)": None,
    "Sub(scores, bias)": None,
    "Sub(bias, scores)": ("low", -1e9),
    "Add(bias, scores)": ("low", -1e9),
    "Add(scores, flat)": ("low", -1e9),
    "Max(z, low)": ("low", -1e8),
    "Max(low, z)": ("low", -1e8),
    "Max(z, huge)": ("low", -1e9),
    "Max(z, near)": None,
    "Max(z, scores)": None,
    "Clip(z, low)": ("low", -1e8),
    "Clip(z, low, two)": ("low", -1e8),
    "Clip(z, near)": None,
    "Mul(ones, kept)": ("zero", 0.0),
    "Mul(kept, ones)": ("zero", 0.0),
    "Div(kept, ones)": ("zero", 0.0),
    "Div(ones, kept)": None,
    "Where(hidden, zero, ones)": ("zero", 0.0),
    "Where(seen, ones, zero)": ("zero", 0.0),
    "Where(hidden, near, ones)": None,
    "Where(seen, z, ten)": ("low", -1e5),
    "Softmax(z)": ("zero", 0.0),
    "Softmax <axis = 1> (z)": ("zero", 0.0),
    "Trilu<upper = 0>(scores)": ("zero", 0.0),
    "Where(told, b, z)": ("low", -1e9),
    "Where(told, z, b)": ("low", -1e9),
    "Where(told, z, scores)": None,
    "Where(told, b, scores)": None,
    "Where(both, scores, b)": ("low", -1e9),
    "Where(either, b, scores)": ("low", -1e9),
    "Where(some, b, scores)": ("low", -1e9),
    "Where(neither, b, scores)": None,
    "Add(scores, lowered)": ("low", -1e9),
    "Where(few, b, scores)": ("low", -1e9),
    "Mul(scores, part)": ("zero", 0.0),
    "Cast <to = 11> (z)": ("low", -1e9),
}
"""What is left outside of a causal mask, by what is done to masked scores, weights or the mask: kind and largest."""


@pytest.mark.parametrize("made", MADE)
def test_what_is_done_to_masked_scores_leaves_them_masked_or_not(made: str) -> None:
    judging = Judging(parse(MASKED.replace("TAIL", f"y = {made}")), "time", LONGEST)
    kinds: tuple[Kind, ...] = ("low", "zero")
    found = {kind: judging.masks.outside(judging.model.graph.outputs[0], kind) for kind in kinds}
    kind, level = MADE[made] or (None, 0.0)
    assert [each for each, outside in found.items() if outside is not None] == ([] if kind is None else [kind])
    outside = next((each for each in found.values() if each is not None), None)
    if outside is not None:
        assert outside.level == pytest.approx(level)
        assert (outside.row, outside.column) == (1, 2)
        assert np.array_equal(outside.support, CAUSAL)
