"""Lengths as data: what follows from the length of an axis is, in every row, made of the row's own length."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import symbol
from compiler.graph.runners.session import open_session
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from compiler.proof.facts.layout import Frames, Segment, Side
from compiler.proof.facts.row_value_plans import parted
from tests.kit.graphs import copy_of, parse, random_weights
from tests.kit.offline import check_padded

WEIGHTS = random_weights(
    {
        "w": (1, 16, 4),
        "r": (1, 16, 4),
        "gw": (1, 12, 4),
        "gr": (1, 12, 4),
        "rw": (1, 4, 4),
        "rr": (1, 4, 4),
        "v": (4, 4),
    }
)
GIVEN = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in WEIGHTS.items())
CONSTANTS = """<int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] first = {0}, int64[1] second = {1},
    int64 back1 = {-1}, int64[1] third = {2}, int64[1] fourth = {3}, int64[2] behind = {1, 2}, int64[2] outer = {0, 2},
    int64[1] last = {-1}, int64[1] least = {-9223372036854775807},
    float[4] rate = {1.0, 0.5, 0.25, 0.125}, int64[3] column = {-1, 1, 4}, int64[1] far = {9223372036854775807},
    float[2,1,1] slopes = {1.0, 0.5}, int64[4] halves = {0, 0, 2, 2}, int64[3] back4 = {0, 0, 4}>"""
SIZE = "s = Shape<start = 1, end = 2>(x)  T = Squeeze(s)  b = Shape<start = 0, end = 1>(x)  B = Squeeze(b)  "
RANGE = SIZE + "p = Range(zero, T, one)  "
TIME_FIRST = "t = Transpose<perm = [1, 0, 2]>(x)  "

ALONE = {
    "a fraction of the length": RANGE
    + "f = Cast<to = 1>(p)  l = Cast<to = 1>(T)  q = Div(f, l)  u = Unsqueeze(q, outer)  y = Add(x, u)",
    "a fraction of the length, in waves": RANGE
    + "f = Cast<to = 1>(p)  l = Cast<to = 1>(T)  q = Div(f, l)  u = Unsqueeze(q, second)  a = Mul(u, rate)  "
    "c = Sin(a)  e = MatMul(c, v)  y = Add(x, e)",
    "reversed positions": RANGE
    + "m = Sub(T, one)  d = Sub(m, p)  f = Cast<to = 1>(d)  u = Unsqueeze(f, outer)  y = Add(x, u)",
    "positions from the last down": SIZE
    + "m = Sub(T, one)  p = Range(m, back1, back1)  f = Cast<to = 1>(p)  u = Unsqueeze(f, outer)  y = Add(x, u)",
    "positions turned round": RANGE
    + "d = Slice(p, last, least, first, last)  f = Cast<to = 1>(d)  u = Unsqueeze(f, outer)  y = Add(x, u)",
    "parts of the length turned round": RANGE
    + "f = Cast<to = 1>(p)  l = Cast<to = 1>(T)  q = Div(f, l)  d = Slice(q, last, least, first, last)  "
    "u = Unsqueeze(d, outer)  y = Mul(x, u)",
    "centred positions": RANGE
    + "h = Div(T, two)  d = Sub(p, h)  f = Cast<to = 1>(d)  u = Unsqueeze(f, outer)  y = Add(x, u)",
    "the middle frame": SIZE + "h = Div(T, two)  g = Gather<axis = 1>(x, h)  y = Unsqueeze(g, second)",
    "the second half": SIZE + "h = Div(s, third)  y = Slice(x, h, s, second)",
    "turned round": "y = Slice(x, last, least, second, last)",
    "half the length": SIZE + "a = Add(T, one)  h = Div(a, two)  f = Cast<to = 1>(h)  y = Mul(x, f)",
    "a recurrence over turned frames": TIME_FIRST
    + "back = Slice(t, last, least, first, last)  o, h = GRU<hidden_size = 4>(back, gw, gr)  "
    "e = Squeeze(o, second)  z = Slice(e, last, least, first, last)  y = Transpose<perm = [1, 0, 2]>(z)",
    "the same for every row, repeated": RANGE
    + "f = Cast<to = 1>(p)  u = Unsqueeze(f, outer)  k = Concat<axis = 0>(b, second, second)  rep = Tile(u, k)  "
    "y = Add(x, rep)",
    "slopes of parts of a row, repeated for every row": RANGE
    + "f = Cast<to = 1>(p)  l = Cast<to = 1>(T)  q = Div(f, l)  u = Unsqueeze(q, outer)  a = Mul(u, slopes)  "
    "k = Concat<axis = 0>(b, second, second)  rep = Tile(a, k)  h = Reshape(x, halves)  "
    "t = Transpose<perm = [0, 2, 1, 3]>(h)  m = Concat<axis = 0>(last, s, third)  w2 = Reshape(t, m)  "
    "c = Add(w2, rep)  n2 = Concat<axis = 0>(b, third, s, third)  e = Reshape(c, n2)  "
    "g = Transpose<perm = [0, 2, 1, 3]>(e)  y = Reshape(g, back4)",
    "the last two of positions that go on": RANGE
    + "m = Add(T, two)  o = Range(zero, m, one)  f = Cast<to = 1>(o)  l = Cast<to = 1>(T)  q = Div(f, l)  "
    "w2 = Unsqueeze(q, first)  d = Slice(w2, s, far, second)  c = Slice(x, first, third, third)  y = Add(c, d)",
    "shares of the length at every second frame": RANGE
    + "f = Cast<to = 1>(p)  l = Cast<to = 1>(T)  q = Div(f, l)  d = Slice(q, first, far, first, third)  "
    "u = Unsqueeze(d, outer)  c = Slice(x, first, far, second, third)  y = Add(c, u)",
    "a mask of every second frame": RANGE
    + "h = Div(T, two)  m = GreaterOrEqual(p, h)  w2 = Unsqueeze(m, first)  d = Slice(w2, first, far, second, third)  "
    "u = Unsqueeze(d, third)  c = Slice(x, first, far, second, third)  n2 = Neg(c)  y = Where(u, n2, c)",
    "divided by how many frames are left": RANGE
    + "d = Sub(T, p)  i = Cast<to = 7>(x)  u = Unsqueeze(d, outer)  q = Div(i, u)  y = Cast<to = 1>(q)",
}
"""Graphs of x [batch, time, 4] alone."""

BY_LENGTH = {
    "LSTM": TIME_FIRST
    + 'i = Cast<to = 6>(n)  o, h = LSTM<hidden_size = 4, direction = "reverse">(t, w, r, , i)  e = Squeeze(o, second)  '
    "y = Transpose<perm = [1, 0, 2]>(e)",
    "GRU": TIME_FIRST
    + "i = Cast<to = 6>(n)  o, h = GRU<hidden_size = 4>(t, gw, gr, , i)  y = Transpose<perm = [1, 0, 2]>(h)",
    "RNN": TIME_FIRST + 'i = Cast<to = 6>(n)  o, h = RNN<hidden_size = 4, direction = "reverse">(t, rw, rr, , i)  '
    "y = Transpose<perm = [1, 0, 2]>(h)",
    "GRU of half the frames": TIME_FIRST + "a = Add(n, one)  d = Div(a, two)  i = Cast<to = 6>(d)  "
    'o, h = GRU<hidden_size = 4, direction = "reverse">(t, gw, gr, , i)  y = Transpose<perm = [1, 0, 2]>(h)',
    "ReverseSequence": "y = ReverseSequence<batch_axis = 0, time_axis = 1>(x, n)",
    "the last frame of every row": SIZE
    + "k = Range(zero, B, one)  i = Sub(n, one)  c = Unsqueeze(k, second)  d = Unsqueeze(i, second)  "
    "e = Concat<axis = 1>(c, d)  g = GatherND(x, e)  y = Unsqueeze(g, second)",
    "the last frame of every row, gathered": SIZE
    + "i = Sub(n, one)  d = Reshape(i, column2)  m = Expand(d, wide)  y = GatherElements<axis = 1>(x, m)",
    "the last frame of every row, by a sum": RANGE
    + "i = Sub(n, one)  d = Unsqueeze(i, second)  q = Unsqueeze(p, first)  e = Equal(q, d)  f = Cast<to = 1>(e)  "
    "u = Unsqueeze(f, third)  m = Mul(x, u)  y = ReduceSum(m, second)",
    "output lengths": "a = Sub(n, one)  d = Div(a, two)  y = Add(d, one)",
    "the lengths themselves": "y = Identity(n)",
    "half the length of every row": "a = Add(n, one)  d = Div(a, two)  f = Cast<to = 1>(d)  u = Unsqueeze(f, behind)  "
    "y = Mul(x, u)",
    "a row of a table by length": "m = Unsqueeze(n, second)  f = Cast<to = 1>(m)  c = Mul(f, rate)  e = MatMul(c, v)  "
    "u = Unsqueeze(e, second)  y = Add(x, u)",
}
"""Graphs of x [batch, time, 4] and the lengths n [batch]."""

WITH_LENGTHS = PaddedAxis("time", "n", length_inputs=("n",))


def graph(body: str, *, lengths: bool) -> Lowered:
    """A graph whose result is y."""
    extra = "int64[3] column2 = {-1, 1, 1}, int64[3] wide = {1, 1, 4}, "
    result = "int64[batch] y" if body.endswith(("y = Add(d, one)", "y = Identity(n)")) else "float[batch,r,4] y"
    head = f"(float[batch,time,4] x, {'int64[batch] n, ' if lengths else ''}{GIVEN}) => ({result}) "
    text = head + CONSTANTS.replace("<", f"<{extra}", 1) + f"{{ {body} }}"
    axis = WITH_LENGTHS if lengths else PaddedAxis("time", "time_length")
    return Lowered("tiny", parse(text, dict(WEIGHTS)), batch_axis="batch", padded_axes=(axis,))


def prove(lowered: Lowered) -> None:
    """Padded with others as alone, at every length up to 9, and the checker finds so, too."""
    graphs.infer_shapes(lowered.model)
    before = copy_of(lowered)
    outcome = PadAxes().apply(lowered)
    assert replay_certificates(before, outcome) > 0
    assert outcome.lowered.padded_axes[0].minimum == 1
    for seed in range(3):
        check_padded(before, outcome, seed=seed)


@pytest.mark.parametrize("name", ALONE)
def test_a_length_is_that_of_the_row(name: str) -> None:
    prove(graph(ALONE[name], lengths=False))


@pytest.mark.parametrize("name", BY_LENGTH)
def test_a_declared_length_is_that_of_the_row(name: str) -> None:
    given = graph(BY_LENGTH[name], lengths=True)
    origin = copy_of(given)
    folded = RemoveMaskInputs().apply(given).lowered
    sessions = [open_session(graphs.serialized(each.model)) for each in (origin, folded)]
    for length in (1, 2, 5):
        x = np.random.default_rng(length).standard_normal((1, length, 4)).astype(np.float32)
        feeds = [{"x": x, "n": np.array([length])}, {"x": x}]
        expected, got = (session.run(None, feed)[0] for session, feed in zip(sessions, feeds, strict=True))
        assert np.array_equal(expected, got)
    prove(dataclasses.replace(folded, padded_axes=(dataclasses.replace(WITH_LENGTHS, length_inputs=()),)))


REFUSED = {
    "the length of all rows is returned": (SIZE + "y = Identity(T)", "expand it to the batch"),
    "numbers of rows are data": (
        SIZE
        + "k = Range(zero, B, one)  f = Cast<to = 1>(k)  u = Unsqueeze(f, behind)  y = Mul(x, u)", "row i for row i",
    ),
    "the size of the batch is data": (SIZE + "f = Cast<to = 1>(B)  y = Mul(x, f)", "row i for row i"),
    "sorted positions": (
        RANGE + "d = Sub(T, p)  k = Shape(p)  t, i = TopK(d, k)  f = Cast<to = 1>(t)  u = Unsqueeze(f, outer)  "
        "y = Add(x, u)",
        "compute it of",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_per_row_is_refused_with_a_cure(name: str) -> None:
    body, cure = REFUSED[name]
    lowered = graph(body, lengths=False)
    if "returned" in name:
        lowered.model.graph.outputs[0].shape = ir.Shape([])
        lowered.model.graph.outputs[0].dtype = ir.DataType.INT64
    with pytest.raises(Refused) as raised:
        PadAxes().apply(lowered)
    assert cure in raised.value.cure


PAST_AND_NEW = (Segment(symbol("past"), Side.RIGHT), Segment(symbol("time")))


def test_what_is_joined_has_its_part_of_the_axis() -> None:
    letters, past, time = (symbol(name) for name in ("letters", "past", "time"))
    text = Segment(letters)
    whole = (Frames((text, *PAST_AND_NEW)),)
    assert parted(whole, [letters, past + time]) == [(Frames((text,)),), (Frames(PAST_AND_NEW),)]
    assert parted(whole, [letters + past, time]) == [(Frames((text, PAST_AND_NEW[0])),), (Frames(PAST_AND_NEW[1:]),)]
    assert parted(whole, [letters, past]) is None
    assert parted(whole, [2 * letters, past + time]) is None
