"""pad_axes on whole utterances: axes padded behind, with a true length per row."""

import dataclasses

import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import copy_of, ops_of, random_weights
from tests.kit.offline import check_padded, offline, verify_offline

WEIGHTS = random_weights(
    {"w": (4, 4), "v": (4, 4), "table": (1, 40, 4), "kernel": (4, 4, 3), "gamma": (4,), "beta": (4,), "up": (4, 4, 4)}
)
CONSTANTS = """<int64[1] middle = {20}, int64[6] column = {0, 0, 1, 0, 0, 0},
 int64[6] front = {0, 0, 2, 0, 0, 0}, int64[1] zero = {0},
 int64[1] one = {1}, int64[1] two = {2}, int64[1] end = {9223372036854775807},
 int64 last = {-1}, float half = {0.5}, int64[1] less = {-1}, float[1] low = {-1e30}, int64 first = {0},
 int64 step = {1}, int64[3] flat = {0, -1, 2}, int64[6] pads = {0, 0, 0, 0, 0, 2}>"""


def graph(body: str, dims: str = "batch,time,4", result: str = "batch,r,4") -> str:
    """A graph from x [batch, time, 4] to y."""
    names = {
        "w": "float[4,4] w", "v": "float[4,4] v", "table": "float[1,40,4] table", "kernel": "float[4,4,3] kernel",
        "gamma": "float[4] gamma", "beta": "float[4] beta", "up": "float[4,4,4] up",
    }  # fmt: skip
    return f"(float[{dims}] x, {', '.join(names.values())}) => (float[{result}] y) {CONSTANTS} {{ {body} }}"


ATTENTION = """q = MatMul(x, w)  k = MatMul(x, v)  t = Transpose<perm = [0, 2, 1]>(k)  s = MatMul(q, t)  """
CHANNELS = "c = Transpose<perm = [0, 2, 1]>(x)  "
ACCEPTED = {
    "attention": (ATTENTION + "p = Softmax<axis = -1>(s)  y = MatMul(p, x)", 2),
    "causal attention": (
        ATTENTION
        + """n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  i = Range(first, m, step)  rows = Unsqueeze(i, one)
        seen = GreaterOrEqual(rows, i)  h = Where(seen, s, low)  p = Softmax<axis = -1>(h)
        z = LayerNormalization<axis = -1>(x, gamma, beta)  y = MatMul(p, z)""",
        2,  # a mask of the model's own may hide a row whole, so the scores are filled, too
    ),
    "positions": (
        """n = Shape<start = 1, end = 2>(x)  rows = Slice(table, zero, n, one)  y = Add(x, rows)""",
        0,
    ),
    "convolution": (CHANNELS + "d = Conv<pads = [1, 1], strides = [2]>(c, kernel)  y = Relu(d)", 1),
    "convolution without pads": (CHANNELS + "y = Conv(c, kernel)", 0),
    "two convolutions": (CHANNELS + "d = Conv<pads = [1, 1]>(c, kernel)  y = Conv<pads = [1, 1]>(d, kernel)", 2),
    "transposed convolution": (CHANNELS + "y = ConvTranspose<strides = [2], pads = [1, 1]>(c, up)", 1),
    "mean": ("y = ReduceMean<keepdims = 1>(x, one)", 1),
    "maximum": ("y = ReduceMax<keepdims = 1>(x, one)", 1),
    "instance normalisation": (CHANNELS + "y = InstanceNormalization(c, gamma, beta)", 2),
    "divided by the length": (
        """n = Shape<start = 1, end = 2>(x)  f = Cast<to = 1>(n)  z = ReduceSum<keepdims = 1>(x, one)  y = Div(z, f)""",
        1,
    ),
    "last entry": ("l = Gather<axis = 1>(x, last)  y = Unsqueeze(l, one)", 0),
    "first entry": ("l = Gather<axis = 1>(x, first)  y = Unsqueeze(l, one)", 0),
    "without the last entry": ("y = Slice(x, zero, less, one)", 0),
    "every second entry": ("y = Slice(x, zero, end, one, two)", 0),
    "padded behind": (CHANNELS + "y = Pad(c, pads, half)", 1),
    "cumulative sum": ("a = Squeeze(one)  y = CumSum(x, a)", 0),
    "scores by distance": (
        """n = Shape<start = 1, end = 2>(x)  b = Shape<start = 0, end = 1>(x)  from = Sub(middle, n)  d = Sub(n, one)
        to = Add(middle, d)  rows = Slice(table, from, to, one)  t = Transpose<perm = [0, 2, 1]>(rows)
        s = MatMul(x, t)  p = Pad(s, column)  nn = Add(n, n)  wide = Concat<axis = 0>(b, nn, n)  e = Reshape(p, wide)
        f = Slice(e, one, end, one)  long = Sub(nn, one)  narrow = Concat<axis = 0>(b, n, long)
        g = Reshape(f, narrow)  h = Slice(g, zero, n, two)  i = Softmax<axis = -1>(h)  y = MatMul(i, x)""",
        2,
    ),
    "frames merged with the batch": (
        "m = Reshape(x, rows_only)  z = MatMul(m, w)  s = Shape(x)  y = Reshape(z, s)", 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_rows_of_any_length_are_as_alone(name: str) -> None:
    body, fills = ACCEPTED[name]
    text = graph(body).replace("int64[1] zero", "int64[2] rows_only = {-1, 4}, int64[1] zero")
    outcome = verify_offline(offline(text, WEIGHTS))
    assert outcome.lowered.rows_independent
    assert ops_of(outcome.lowered.model).count("Where") - body.count("Where") == fills, "masks only where needed"


REFUSED = {
    "a length that is too short for one node and too long for another": (
        """n = Shape<start = 1, end = 2>(x)  rows = Slice(table, zero, n, one)  a = Add(x, rows)
        forty = Shape<start = 1, end = 2>(table)  late = Sub(n, forty)  d = Cast<to = 1>(late)  r = Reciprocal(d)
        y = Mul(a, r)""",
        "Slice", "at most 40 are allowed",
    ),
    "rows mixed by a mean": ("y = ReduceMean<keepdims = 1>(x, zero)", "ReduceMean", "batch"),
    "rows mixed by attention": (
        "t = Transpose<perm = [1, 0, 2]>(x)  u = Transpose<perm = [1, 2, 0]>(x)  s = MatMul(t, u)  "
        "p = Softmax<axis = -1>(s)  z = MatMul(p, t)  y = Transpose<perm = [1, 0, 2]>(z)",
        "MatMul", "batch",
    ),
    "the largest of two numbers of each row": (
        """n = Shape<start = 1, end = 2>(x)  less_one = Sub(n, one)  both = Concat<axis = 0>(less_one, n)
        b = Shape<start = 0, end = 1>(x)  wide = Concat<axis = 0>(b, two)  e = Expand(both, wide)
        r = ReduceMin<keepdims = 0>(e)  f = Cast<to = 1>(r)  y = Mul(x, f)""",
        "ReduceMin", "axis lengths",
    ),
    "one scale for all rows": ("q, s, z = DynamicQuantizeLinear(x)  y = DequantizeLinear(q, s, z)", "Dynamic", "mix"),
    "an unknown operator": ("y = com.acme.Turn(x)", "Turn", "no rule"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shown_is_refused_by_name(name: str) -> None:
    body, op, part = REFUSED[name]
    with pytest.raises(Refused) as raised:
        PadAxes().apply(offline(graph(body), WEIGHTS))
    assert op in f"{raised.value.place.op} {raised.value}"
    assert part in str(raised.value)
    assert raised.value.place.source.startswith("tiny.py:")


def test_lengths_are_limited_by_tables_and_by_what_must_hold_an_entry() -> None:
    table = offline(graph(ACCEPTED["positions"][0]), WEIGHTS)
    assert PadAxes().apply(table).lowered.padded_axes[0].maximum == 40
    conv = offline(graph(CHANNELS + "d = Conv(c, kernel)  y = ReduceMax<keepdims = 1>(d, two)"), WEIGHTS)
    assert PadAxes().apply(conv).lowered.padded_axes[0].minimum == 3


def test_entries_from_both_ends_are_looked_up_by_numbers_of_each_row() -> None:
    text = graph(
        """n = Shape<start = 1, end = 2>(x)  m = Squeeze(n)  i = Range(first, m, step)  k = Sub(last, i)
        u = Unsqueeze(i, one)  o = Unsqueeze(k, one)  j = Concat<axis = 1>(u, o)  y = Gather<axis = 1>(x, j)""",
        result="batch,r,2,4",
    )
    verify_offline(offline(text, WEIGHTS))


@pytest.mark.parametrize("rows", ["table", "computed"])
def test_one_row_looks_up_the_rows_of_a_table_by_its_own_positions(rows: str) -> None:
    """Of a constant table, and of one that is computed, whose first axis holds no rows of a batch."""
    body = "n = Shape<start = 1, end = 2>(x)  m = Add(n, n)  computed = Sigmoid(table)  "
    text = graph(f"{body} behind = Slice({rows}, n, m, one)  y = Add(x, behind)", "1,time,4")
    lowered = dataclasses.replace(offline(text, WEIGHTS), batch_axis=None)
    outcome = PadAxes().apply(copy_of(lowered))
    for length in (1, 3, 7):
        check_padded(lowered, outcome, rows=1, shortest=length)


def test_a_size_that_a_reshape_would_copy_limits_lengths_where_shape_inference_does_not_know_it() -> None:
    """Three eighths of the frames, by way of float: told 0, a Reshape takes the 4 of its operand instead."""
    text = graph(
        """n = Shape<start = 1, end = 2>(x)  f = Cast<to = 1>(n)  g = Mul(f, three)  i = Cast<to = 7>(g)
        few = Div(i, eight)  c = Slice(x, zero, few, one)  s = Shape(c)  m = Reshape(c, rows)  e = Exp(m)
        y = Reshape(e, s)"""
    )
    text = text.replace(
        "<int64[1] middle", "<float three = {3.0}, int64[1] eight = {8}, int64[2] rows = {-1, 4}, int64[1] middle"
    )
    assert verify_offline(offline(text, WEIGHTS)).lowered.padded_axes[0].minimum == 3


def test_two_lengths_that_fit_a_table_one_by_one_need_not_fit_it_together() -> None:
    """Of 8 rows, the original sums 8 for 5 + 6 frames; by positions of each row the last one would count four times."""
    text = """(float[batch,time,4] x, float[batch,late,4] w, float[1,8,4] few) => (float[batch,1,4] y)
        <int64[1] zero = {0}, int64[1] one = {1}>
        { c = Concat<axis = 1>(x, w)  n = Shape<start = 1, end = 2>(c)  r = Slice(few, zero, n, one)
          p = ReduceSum<keepdims = 1>(r, one)  q = ReduceSum<keepdims = 1>(c, one)  y = Add(p, q) }"""
    lowered = offline(text, random_weights({"few": (1, 8, 4)}), axes=("time", "late"))
    with pytest.raises(Refused, match="no limit of late or time alone"):
        PadAxes().apply(lowered)


def test_a_mask_that_is_left_out_is_noticed() -> None:
    lowered = offline(graph(ACCEPTED["attention"][0]), WEIGHTS)
    other = offline(graph(ACCEPTED["attention"][0]), WEIGHTS)
    outcome = PadAxes().apply(other)
    for node in list(outcome.lowered.model.graph):
        if node.op_type == "Softmax":
            filled = node.inputs[0]
            assert filled is not None
            where = filled.producer()
            assert where is not None
            node.replace_input_with(0, where.inputs[1])
    with pytest.raises(AssertionError):
        check_padded(lowered, outcome)
