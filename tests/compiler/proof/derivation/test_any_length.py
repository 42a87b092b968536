"""What is known of masks in sequences of any length holds at every place of long ones."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.proof.derivation.any_length import AnyLength, Places
from compiler.proof.derivation.judging import Judging
from tests.kit.graphs import parse
from tests.kit.whole_sequences import CHUNKED, LONGEST, RETURNING, Drawing, session, whole_graph


def judged(drawing: Drawing) -> tuple[Judging, int]:
    judging = Judging(whole_graph(drawing), "time", LONGEST, chunk=drawing.chunk)
    return judging, max(count for count, *_ in judging.recent.values())


@pytest.mark.parametrize("writing", ["select", "add", "late", "linear", "divided"])
@pytest.mark.parametrize("mask", ["band", "chunks", CHUNKED])
def test_masks_that_slide_along_are_known_of_any_length(mask: str, writing: str) -> None:
    judging, kept = judged(Drawing(mask=mask, width=4, writing=writing))
    assert AnyLength(judging, kept).why_not() == ""
    assert "is not known of sequences longer than 24" in AnyLength(judging, kept - 1).why_not()


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(mask=RETURNING, width=4),
        Drawing(mask="band", width=4, hiding="others", join="behind", low=-1.0e9, hidden=-np.inf, is_guarded=True),
        Drawing(mask="band", width=4, positions="linear_bias", writing="linear"),
    ],
    ids=["returning", "own frame seen", "unbounded"],
)
def test_what_is_not_decided_is_not_known(drawing: Drawing) -> None:
    judging, kept = judged(drawing)
    is_known = AnyLength(judging, kept).why_not() == ""
    assert is_known == (drawing.hiding == "others")


def test_places_lie_within_their_bounds() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        drawn = [[int(each) for each in random.integers(-3, 4, 3)] for _ in range(2)]
        ends = [sorted(float(each) for each in random.integers(-9, 9, 2)) for _ in range(2)]
        numbers = [Places(c, w, a, low, high, last=3) for (c, w, a), (low, high) in zip(drawn, ends, strict=True)]
        calls, within, apart = int(random.integers(9)), int(random.integers(4)), int(random.integers(9))
        held = [each.calls * calls + each.within * within + each.apart * apart + random.choice([each.low, each.high])
                for each in numbers]  # fmt: skip
        first, second = numbers
        factor, divisor = int(random.integers(-3, 4)), int(random.integers(1, 5))
        found = {
            first.plus(second): held[0] + held[1],
            first.plus(second, -1): held[0] - held[1],
            first.times(factor): held[0] * factor,
            first.over(divisor): held[0] // divisor,
        }
        for places, number in found.items():
            assert places.span.low <= number <= places.span.high


def test_places_in_narrow_types_are_not_counted_on() -> None:
    whole = whole_graph(Drawing(mask="band", width=4))
    for node in [node for node in whole.graph if node.op_type in ("LessOrEqual", "Greater")]:
        insert = graphs.Inserter(whole, "test", node)
        for at, value in enumerate(node.inputs):
            assert value is not None
            node.replace_input_with(at, insert.op("Cast", [value], {"to": int(ir.DataType.FLOAT)}, name="real"))
    graphs.infer_shapes(whole)
    judging = Judging(whole, "time", LONGEST)
    assert "is not known" in AnyLength(judging, 3).why_not()


MASKS = {
    "band": ("near = Less(behind, four)", True),
    "absolute": ("far = Abs(behind)  near = Less(far, four)", True),
    "negated": ("less = Neg(four)  over = Neg(behind)  near = Greater(over, less)", True),
    "denied": ("d = GreaterOrEqual(behind, four)  e = Not(past)  f = Or(d, e)  near = Not(f)", True),
    "added": ("late = Add(j, four)  near = Greater(late, i)", True),
    "doubled": ("d = Mul(i, two)  e = Mul(two, j)  f = Sub(d, e)  near = Less(f, four)", True),
    "quotients": ("d = Div(i, four)  e = Div(j, four)  f = Sub(d, e)  near = Less(f, two)", True),
    "at most": ("d = Min(behind, thirty)  near = Less(d, four)", True),
    "triangles": ("d = Expand(yes, sizes)  e = Trilu<upper = 0>(d)  near = Trilu(e, back)", True),
    "int32": ("d = Cast<to = 6>(behind)  e = Cast<to = 6>(four)  near = Less(d, e)", True),
    "int8": ("d = Cast<to = 3>(behind)  e = Cast<to = 3>(four)  near = Less(d, e)", False),
    "returns": ("d = Less(behind, four)  e = Greater(behind, thirty)  near = Or(d, e)", False),
    "returns again": ("d = Mod(behind, thirty)  near = Less(d, four)", False),
    "quotients of one": ("d = Div(past_only, sixty)  e = Equal(d, zero)  f = Greater(behind, thirty)  g = And(e, f)"
                         "  h = Less(behind, four)  near = Or(g, h)", False),
    "begins later": ("d = Less(behind, four)  e = Greater(i, thirty)  near = Or(d, e)", False),
    "float": ("d = Cast<to = 1>(i)  e = Cast<to = 1>(j)  f = Sub(d, e)  near = Less(f, real)", False),
}  # fmt: skip
"""Masks of rows i and columns j, and whether they are known of any length; all of them are bands up to 24 frames."""

ATTENDING = """(float[batch,time,4] x) => (float[batch,time,4] y) <int64 zero = {0}, int64 one = {1}, int64 two = {2},
     int64 four = {4}, int64 thirty = {30}, int64 sixty = {60}, int64[1] front = {0}, int64[1] last = {1},
     float low = {-1e9},
     bool yes = {1}, int64 back = {-3},
     float real = {4.0}>
    { n = Shape<start = 1, end = 2>(x)  l = Squeeze(n, front)  p = Range(zero, l, one)  i = Unsqueeze(p, last)
      j = Unsqueeze(p, front)  behind = Sub(i, j)  past = GreaterOrEqual(behind, zero)  past_only = Max(behind, zero)
      sizes = Concat<axis = 0>(n, n)
      MASK
      seen = And(past, near)  k = Transpose<perm = [0, 2, 1]>(x)  s = MatMul(x, k)  z = Where(seen, s, low)
      w = Softmax<axis = -1>(z)  y = MatMul(w, x) }"""


@pytest.mark.parametrize("name", MASKS)
def test_what_is_known_of_any_length_is_so_of_a_long_sequence(name: str) -> None:
    text, is_known = MASKS[name]
    whole = parse(ATTENDING.replace("MASK", text))
    graphs.infer_shapes(whole)
    judging = Judging(whole, "time", LONGEST)
    kept = max(count for count, *_ in judging.recent.values())
    assert (AnyLength(judging, kept).why_not() == "") == is_known
    weights = next(value for node in whole.graph for value in node.outputs if value.name == "w")
    whole.graph.outputs[:] = [weights]
    (found,) = session(whole).run(None, {"x": np.zeros((1, 80, 4), np.float32)})
    behind = np.arange(80)[:, None] - np.arange(80)
    is_hidden = not found[0][(behind > kept) | (behind < 0)].any()
    assert is_hidden or not is_known
