"""pad_axes on what speech models do along time, written as exporters write it: proved, replayed and attacked."""

import dataclasses
import re

import numpy as np
import pytest

from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import Refused
from compiler.graph.stages import Array, Outcome, RowAxis
from compiler.passes.add_batch_axis import AddBatchAxis
from compiler.passes.pad_axes import PadAxes
from compiler.passes.simplify import simplify_model
from tests.kit.graphs import BATCH, copy_of, random_weights
from tests.kit.offline import check_padded, offline

CONSTANTS = """<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] last = {-1},
 int64[1] end = {9223372036854775807}, int64 first = {0}, int64 step = {1}, int64 twice = {2}, int64 thrice = {3},
 int64[1] four = {4}, int64[1] eight = {8}, int64[1] less_two = {-2},
 float half = {0.5}, float nought = {0.0}, float unit = {1.0}>"""
WEIGHTS = random_weights(
    {"w": (4, 4), "kernel": (4, 4, 3), "weigh": (4, 1), "gates": (2, 16, 4), "again": (2, 16, 4), "both": (8, 4)}
)
DECLARED = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in WEIGHTS.items())


def proved(
    body: str,
    given: str = "float[batch,time,4] x",
    result: str = "batch,r,4",
    *,
    shortest: int = 0,
    batch: str | None = BATCH,
    simplified: bool = False,
) -> Outcome:
    """The padded graph from x [batch, time, 4] to y, whose certificate holds and whose rows are those alone."""
    lowered = offline(f"({given}, {DECLARED}) => (float[{result}] y) {CONSTANTS} {{ {body} }}", _weights())
    lowered = dataclasses.replace(lowered, batch_axis=batch)
    if simplified:
        simplify_model(lowered.model)
    before = copy_of(lowered)
    outcome = PadAxes().apply(copy_of(lowered))
    assert replay_certificates(before, outcome)
    for seed in range(4):
        check_padded(lowered, outcome, seed=seed, rows=4 if batch else 1, shortest=shortest)
    return outcome


def _weights() -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in WEIGHTS.items()}


SIZE = "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)"
STRETCHED = f"""{SIZE}  m = Mul(n, twice)  i = Range(first, m, step)  f = Cast<to = 1>(i)  f1 = Add(f, half)
    f2 = Mul(f1, half)  f3 = Sub(f2, half)  f4 = Clip(f3, nought)  low = Cast<to = 7>(f4)  low1 = Add(low, step)
    top = Sub(n, step)  high = Clip(low1, , top)  t = Transpose<perm = [1, 0, 2]>(x)
    a = Unsqueeze(low, last)  va = GatherND(t, a)  v = Transpose<perm = [1, 0, 2]>(va)
    b = Unsqueeze(high, last)  ub = GatherND(t, b)  u = Transpose<perm = [1, 0, 2]>(ub)"""

INTERPOLATIONS = {
    "linear by two, as exported": STRETCHED
    + """ g = Cast<to = 1>(low)  g1 = Sub(f4, g)  share = Clip(g1, nought, unit)  column = Unsqueeze(share, last)
    d = Sub(u, v)  e = Mul(d, column)  y = Add(v, e)""",
    "neighbours in front of a convolution": STRETCHED
    + " d = Sub(u, v)  c = Transpose<perm = [0, 2, 1]>(d)  z = Conv<pads = [1, 1]>(c, kernel)  y = Relu(z)",
}


@pytest.mark.parametrize("body", INTERPOLATIONS.values(), ids=INTERPOLATIONS)
def test_linear_interpolation(body: str) -> None:
    proved(body)


POSITIONS = f"{SIZE}  i = Range(first, n, step)"
LOOKUPS = {
    "turned round by a lookup": f"{POSITIONS}  top = Sub(n, step)  j = Sub(top, i)  y = Gather<axis = 1>(x, j)",
    "turned round from the end": f"{POSITIONS}  m = Neg(i)  j = Sub(m, step)  y = Gather<axis = 1>(x, j)",
    "rolled by a lookup": f"{POSITIONS}  h = Sub(i, step)  j = Mod(h, n)  y = Gather<axis = 1>(x, j)",
    "the middle": f"{SIZE}  m = Div(n, twice)  j = Gather<axis = 1>(x, m)  y = Unsqueeze(j, one)",
    "three around the middle": f"""{SIZE}  m = Div(n, thrice)  around = Constant<value = int64[3] {{0, 1, 2}}>()
        j = Add(m, around)  top = Sub(n, step)  k = Min(j, top)  y = Gather<axis = 1>(x, k)""",
}


@pytest.mark.parametrize("body", LOOKUPS.values(), ids=LOOKUPS)
def test_entries_at_positions_that_follow_from_the_length_of_the_row(body: str) -> None:
    proved(body)


def test_a_grid_of_positions() -> None:
    outcome = proved(
        f"""{POSITIONS}  column = Unsqueeze(i, one)  pair = Constant<value = int64[2] {{0, 1}}>()
        grid = Add(column, pair)  top = Sub(n, step)  k = Min(grid, top)  z = Gather<axis = 1>(x, k)
        y = ReduceMax<keepdims = 0>(z, two)"""
    )
    assert outcome.records[0]["minimum"] == {"time": 1}


ROLLS = {
    "by one": "a = Slice(x, last, end, one)  b = Slice(x, zero, last, one)  y = Concat<axis = 1>(a, b)",
    "by two": "a = Slice(x, less_two, end, one)  b = Slice(x, zero, less_two, one)  y = Concat<axis = 1>(a, b)",
    "back by one": "a = Slice(x, one, end, one)  b = Slice(x, zero, one, one)  y = Concat<axis = 1>(a, b)",
    "back by two, in front of a convolution": """a = Slice(x, two, end, one)  b = Slice(x, zero, two, one)
        v = Concat<axis = 1>(a, b)  c = Transpose<perm = [0, 2, 1]>(v)  y = Conv<pads = [1, 1]>(c, kernel)""",
    "differences": """a = Slice(x, one, end, one)  b = Slice(x, zero, one, one)  v = Concat<axis = 1>(a, b)
        y = Sub(x, v)""",
}


@pytest.mark.parametrize("body", ROLLS.values(), ids=ROLLS)
def test_roll_along_time_wraps_at_the_length_of_the_row(body: str) -> None:
    proved(body)


ROWS_OF = "rows = Shape<start = 0, end = 1>(x)"
BEHIND = {
    "the next frame, and zeros behind the last": """a = Slice(x, one, end, one)
        shape = Concat<axis = 0>(rows, one, four)  b = Expand(nought, shape)
        v = Concat<axis = 1>(a, b)  y = Sub(x, v)""",
    "the frame after the next, and ones": """a = Slice(x, two, end, one)  shape = Concat<axis = 0>(rows, two, four)
        b = Expand(unit, shape)  v = Concat<axis = 1>(a, b)  y = Mul(x, v)""",
    "in front of a convolution": """a = Slice(x, one, end, one)  shape = Concat<axis = 0>(rows, one, four)
        b = Expand(half, shape)  v = Concat<axis = 1>(a, b)  c = Transpose<perm = [0, 2, 1]>(v)
        y = Conv<pads = [1, 1]>(c, kernel)""",
    "a frame more": """shape = Concat<axis = 0>(rows, one, four)  b = Expand(nought, shape)  v = Concat<axis = 1>(x, b)
        t = Transpose<perm = [0, 2, 1]>(v)  scores = MatMul(x, t)  w1 = Softmax<axis = -1>(scores)
        y = MatMul(w1, v)""",
}


@pytest.mark.parametrize("body", BEHIND.values(), ids=BEHIND)
def test_one_number_behind_the_last_frame_of_each_row(body: str) -> None:
    proved(f"{ROWS_OF}  {body}")


def test_zeros_with_a_sign_keep_it() -> None:
    """1 / -0.0 is -inf."""
    proved(
        f"""{ROWS_OF}  shape = Concat<axis = 0>(rows, one, four)  minus = Neg(nought)  b = Expand(minus, shape)
        a = Slice(x, one, end, one)  v = Concat<axis = 1>(a, b)  y = Div(x, v)"""
    )


WRITTEN = {
    "frames moved on": """t = Transpose<perm = [1, 0, 2]>(x)  z = Mul(t, nought)  n1 = Shape<start = 0, end = 1>(z)
        n = Squeeze(n1)  count = Range(first, n, step)  at = Slice(count, one, end, zero, one)
        places = Unsqueeze(at, last)  new = Slice(t, zero, last, zero)  w1 = ScatterND(z, places, new)
        y = Transpose<perm = [1, 0, 2]>(w1)""",
    "the last two frames": """t = Transpose<perm = [1, 0, 2]>(x)  n1 = Shape<start = 0, end = 1>(t)  n = Squeeze(n1)
        count = Range(first, n, step)  at = Slice(count, less_two, end, zero, one)  places = Unsqueeze(at, last)
        old = Slice(t, less_two, end, zero)  s = Shape(old)  new = Expand(unit, s)
        w1 = ScatterND(t, places, new)  y = Transpose<perm = [1, 0, 2]>(w1)""",
    "every other channel": """at = Constant<value = int64[2,1] {0, 2}>()  t = Transpose<perm = [2, 0, 1]>(x)
        pair = Slice(t, one, three, zero)  sines = Sin(pair)  w1 = ScatterND(t, at, sines)
        y = Transpose<perm = [1, 2, 0]>(w1)""",
    "negative entries": """is = Less(x, nought)  found = NonZero(is)  places = Transpose<perm = [1, 0]>(found)
        flat = Reshape(is, last)  ones = Cast<to = 7>(flat)  many = ReduceSum(ones)  new = Expand(half, many)
        y = ScatterND(x, places, new)""",
}


@pytest.mark.parametrize("body", WRITTEN.values(), ids=WRITTEN)
def test_assignments_as_exported(body: str) -> None:
    proved(body, simplified=True)


@pytest.mark.parametrize(("shift", "minimum"), [(1, 1), (2, 2), (3, 3), (-1, 2), (-2, 3), (-5, 6)])
def test_roll_as_exported_by_a_remainder_of_the_length(shift: int, minimum: int) -> None:
    outcome = proved(
        f"""{SIZE}  by = Constant<value_ints = [{-shift}]>()  at = Mod(by, s)  b = Slice(x, zero, at, one)
        a = Slice(x, at, s, one)  v = Concat<axis = 1>(a, b)  y = Sub(x, v)"""
    )
    assert outcome.records[0]["minimum"] == {"time": minimum}


def test_relative_shift_of_positions_counted_down_in_floating_point() -> None:
    """Distances by `torch.arange(T - 1, -T, -1.0)`, as relative attention has them, and the shift of their scores."""
    proved(
        f"""{SIZE}  top = Sub(n, step)  bottom = Neg(n)  from = Cast<to = 1>(top)  to = Cast<to = 1>(bottom)
        down = Constant<value_float = -1.0>()  i = Range(from, to, down)  column = Unsqueeze(i, last)
        sines = Sin(column)  flat = Concat<axis = 1>(sines, column, sines, sines)  p = MatMul(flat, w)
        turned = Transpose<perm = [1, 0]>(p)  scores = MatMul(x, turned)
        front = Constant<value_ints = [0, 0, 1, 0, 0, 0]>()  q = Pad(scores, front)
        rows = Shape<start = 0, end = 1>(x)  ss = Add(s, s)  long = Sub(ss, one)
        wide = Concat<axis = 0>(rows, ss, s)  a = Reshape(q, wide)  b = Slice(a, one, end, one)
        narrow = Concat<axis = 0>(rows, s, long)  c = Reshape(b, narrow)  d = Slice(c, zero, s, two)
        v = Softmax<axis = -1>(d)  y = MatMul(v, x)"""
    )


BATCH_SIZE = "s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)  rows = Shape<start = 0, end = 1>(x)"
WHOLE = f"""{BATCH_SIZE}  back = Neg(s)  rest = Mod(back, four)
    pads = Concat<axis = 0>(zero, zero, zero, zero, rest, zero)  p = Pad(x, pads)"""
CUT = f"{BATCH_SIZE}  m = Div(s, four)  k = Mul(m, four)  p = Slice(x, zero, k, one)"
DUAL_PATH = """shape = Concat<axis = 0>(rows, last, four, four)  c = Reshape(p, shape)
    in1 = Concat<axis = 0>(last, four, four)  i1 = Reshape(c, in1)  i2 = Transpose<perm = [1, 0, 2]>(i1)
    i3, ih, ic = LSTM<hidden_size = 4, direction = "bidirectional">(i2, gates, again)
    i4 = Transpose<perm = [2, 0, 1, 3]>(i3)  in2 = Concat<axis = 0>(last, four, eight)  i5 = Reshape(i4, in2)
    i6 = MatMul(i5, both)  i7 = Reshape(i6, shape)  inside = Add(i7, c)
    o1 = Transpose<perm = [0, 2, 1, 3]>(inside)  lanes = Mul(rows, four)  chunks = Shape<start = 1, end = 2>(inside)
    out1 = Concat<axis = 0>(lanes, chunks, four)  o2 = Reshape(o1, out1)  o3 = Transpose<perm = [1, 0, 2]>(o2)
    o4, oh, oc = LSTM<hidden_size = 4, direction = "bidirectional">(o3, gates, again)
    o5 = Transpose<perm = [2, 0, 1, 3]>(o4)  out2 = Concat<axis = 0>(lanes, chunks, eight)  o6 = Reshape(o5, out2)
    o7 = MatMul(o6, both)  out3 = Concat<axis = 0>(rows, four, chunks, four)  o8 = Reshape(o7, out3)
    o9 = Transpose<perm = [0, 2, 1, 3]>(o8)  across = Add(o9, inside)
    joined = Concat<axis = 0>(rows, last, four)  z = Reshape(across, joined)"""


@pytest.mark.parametrize(
    "body",
    [f"{WHOLE}  {DUAL_PATH}  y = Slice(z, zero, s, one)", f"{CUT}  {DUAL_PATH}  y = Relu(z)"],
    ids=["padded to whole chunks", "cut to whole chunks"],
)
def test_dual_path_recurrence(body: str) -> None:
    proved(body)


def test_dual_path_recurrence_with_initial_states_as_exported() -> None:
    """An exporter writes out the zeros that `nn.LSTM` begins with, as many rows as there are chunks in the batch."""
    made = r"""r\3 = Shape<start = 1, end = 2>(\3)  s\3 = Concat<axis = 0>(two, r\3, four)  h\3 = Expand(nought, s\3)
        \1 = LSTM<\2>(\3, gates, again, , , h\3, h\3)"""
    body, found = re.subn(
        r"(\w+, \w+, \w+) = LSTM<(.*)>\((\w+), gates, again\)", made, f"{CUT}  {DUAL_PATH}  y = Relu(z)"
    )
    assert found == 2
    proved(body, simplified=True)


FIRED = """s = Shape<start = 1, end = 2>(x)  n = Squeeze(s)  rows = Shape<start = 0, end = 1>(x)
    a0 = MatMul(x, weigh)  alpha = Sigmoid(a0)  a = Squeeze(alpha, two)  sums = CumSum(a, step)  fired = Floor(sums)
    at = Cast<to = 7>(fired)  top = Sub(n, step)  kept = Min(at, top)  d = Mul(x, alpha)  all = Shape(x)"""
INTEGRATED = {
    "scatter_add": """column = Unsqueeze(kept, two)  index = Expand(column, all)  none = ConstantOfShape(all)
        y = ScatterElements<axis = 1, reduction = "add">(none, index, d)""",
    "of a fixed number of tokens": """nine = Constant<value_int = 9>()  ten = Constant<value_ints = [10]>()
        few = Min(at, nine)  column = Unsqueeze(few, two)  index = Expand(column, all)
        tokens = Concat<axis = 0>(rows, ten, four)  none = ConstantOfShape(tokens)
        y = ScatterElements<axis = 1, reduction = "add">(none, index, d)""",
    "index_put": """r = Squeeze(rows)  i = Range(first, r, step)  i2 = Unsqueeze(i, one)  wide = Shape(kept)
        own = Expand(i2, wide)  own3 = Unsqueeze(own, two)  at3 = Unsqueeze(kept, two)
        index = Concat<axis = 2>(own3, at3)  none = ConstantOfShape(all)
        y = ScatterND<reduction = "add">(none, index, d)""",
    "split at what fires": """front = Constant<value_ints = [0, 1, 0, 0]>()  shorter = Slice(at, zero, last, one)
        left = Pad(shorter, front)  fires = Greater(at, left)  over = Sub(sums, fired)
        right = Where(fires, over, nought)  rest = Sub(a, right)  more = Add(s, one)
        shape = Concat<axis = 0>(rows, more, four)  none = ConstantOfShape(shape)  l = Unsqueeze(left, two)
        li = Expand(l, all)  r = Unsqueeze(at, two)  ri = Expand(r, all)  lw = Unsqueeze(rest, two)
        rw = Unsqueeze(right, two)  lx = Mul(x, lw)  rx = Mul(x, rw)
        o = ScatterElements<axis = 1, reduction = "add">(none, li, lx)
        y = ScatterElements<axis = 1, reduction = "add">(o, ri, rx)""",
}


@pytest.mark.parametrize("body", INTEGRATED.values(), ids=INTEGRATED)
def test_continuous_integrate_and_fire(body: str) -> None:
    proved(f"{FIRED}  {body}")


@pytest.mark.parametrize(("width", "hop"), [(4, 4), (4, 2), (3, 1), (5, 3)])
def test_overlapping_windows_along_time(width: int, hop: int) -> None:
    proved(
        f"""{SIZE}  width = Constant<value_int = {width}>()  hop = Constant<value_int = {hop}>()
        d = Sub(n, width)  l = Add(d, step)  i = Range(first, l, hop)  column = Unsqueeze(i, one)
        inside = Constant<value_ints = {list(range(width))}>()  index = Add(column, inside)
        z = Gather<axis = 1>(x, index)  y = ReduceMax<keepdims = 0>(z, two)""",
        shortest=width,
    )


SHARED = {
    "added": "v2 = MatMul(v, w)  y = Add(x, v2)",
    "summed up to every frame": "v2 = CumSum(v, first)  y = Mul(x, v2)",
    "against every frame": """e = Unsqueeze(v, zero)  m = Transpose<perm = [0, 2, 1]>(e)  s = MatMul(x, m)
        p = Softmax(s)  y = MatMul(p, x)""",
}


@pytest.mark.parametrize("body", SHARED.values(), ids=SHARED)
def test_an_input_that_all_rows_share_is_read_up_to_the_length_of_each(body: str) -> None:
    """One array as long as the longest row: alone, a row is given as many entries of it as it has itself."""
    proved(body, given="float[batch,time,4] x, float[time,4] v")


FILLED = {
    "Softmax": "v2 = Softmax<axis = AXIS>(v)  y = Add(x, v2)",
    "ReduceMean": "at = Constant<value_ints = [AXIS]>()  m = ReduceMean(v, at)  y = Mul(x, m)",
}


@pytest.mark.parametrize("body", FILLED.values(), ids=FILLED)
def test_what_has_to_be_filled_in_an_input_that_all_rows_share_asks_for_an_axis_of_rows(body: str) -> None:
    """Rows have lengths of their own, and such a value no place for them; the cure gives it one."""
    with pytest.raises(Refused) as caught:
        proved(body.replace("AXIS", "0"), given="float[batch,time,4] x, float[time,4] v")
    assert caught.value.cure == "give the value a leading axis of size 1, or the batch axis"
    proved(body.replace("AXIS", "1"), given="float[batch,time,4] x, float[1,time,4] v")
    proved(body.replace("AXIS", "1"), given="float[batch,time,4] x, float[batch,time,4] v")


ONE_ROW = {
    "Softmax of frames": ("time", "p", "y = Softmax<axis = 0>(x)"),
    "LogSoftmax over time": ("time,4", "p,q", "y = LogSoftmax<axis = 0>(x)"),
    "a mean that nothing is left of": ("time", "", "y = ReduceMean<keepdims = 0>(x)"),
    "centred by the mean": ("time,4", "p,q", "m = ReduceMean(x, zero)  y = Sub(x, m)"),
    "attention": ("time,4", "p,q", "t = Transpose(x)  s = MatMul(x, t)  p = Softmax(s)  y = MatMul(p, x)"),
    "turned round, and summed up": ("time,4", "p,q", "y = CumSum<reverse = 1>(x, first)"),
    "both ways": (
        "time,4",
        "p,q,r,s",
        'o = Unsqueeze(x, one)  y, h, c = LSTM<hidden_size = 4, direction = "bidirectional">(o, gates, again)',
    ),
}


@pytest.mark.parametrize(("dims", "result", "body"), ONE_ROW.values(), ids=ONE_ROW)
def test_a_graph_without_a_batch_is_one_row_of_one_length(dims: str, result: str, body: str) -> None:
    outcome = proved(body, f"float[{dims}] x", result, batch=None)
    assert outcome.records[0]["minimum"] == {"time": 1} and not outcome.lowered.rows_independent


def test_a_length_that_divides_what_callers_feed_builds_without_a_batch() -> None:
    lowered = offline(
        "(float[time,4] x) => (float[time,4] y) { s = Shape<end = 1>(x) n = Cast<to = 1>(s) y = Div(x, n) }"
    )
    alone = dataclasses.replace(copy_of(lowered), batch_axis=None)
    outcome = PadAxes().apply(copy_of(alone))
    assert replay_certificates(copy_of(alone), outcome)
    check_padded(alone, outcome, rows=1)


def test_a_length_as_data_without_a_batch_has_a_cure_that_serves() -> None:
    """A value repeated to a length is no data of the only row, so that no row tells which length divides it."""
    lowered = offline("""(float[time,4] x) => (float[time,4] y) <float weight = {2.5}> {
        whole = Shape(x)  weights = Expand(weight, whole)
        size = Shape<end = 1>(x)  length = Cast<to = 1>(size)  share = Div(weights, length)  y = Add(x, share)
    }""")
    with pytest.raises(Refused, match="Div uses an axis length as data") as caught:
        PadAxes().apply(dataclasses.replace(copy_of(lowered), batch_axis=None))
    assert "original: in the recipe" in caught.value.cure
    places = (RowAxis("x", None), RowAxis("y", None))
    batched = AddBatchAxis().apply(dataclasses.replace(copy_of(lowered), row_axes=places)).lowered
    outcome = PadAxes().apply(copy_of(batched))
    assert replay_certificates(copy_of(batched), outcome)
    check_padded(batched, outcome, rows=4)
