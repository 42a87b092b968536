"""rules: the same bits before and after, on edge inputs."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import ops_of, parse
from tests.kit.same_bits import agree

EDGES = np.array([0.0, -0.0, 1.0, -1.0, 1e-9, -1e-9, 1e-30, 1e-45, 3.4e38, np.inf, -np.inf, np.nan], np.float32)
FLOATS = "(float[n] x) => (float[n] y)"

CASES = {
    "an addition of 1e-9 stays": f"{FLOATS} <float c = {{1e-9}}> {{ a = Add(x, c)  y = Log(a) }}",
    "an addition of 1e-30 stays": f"{FLOATS} <float c = {{1e-30}}> {{ a = Add(x, c)  y = Log(a) }}",
    "a subtraction of 1e-9 stays": f"{FLOATS} <float c = {{1e-9}}> {{ a = Sub(x, c)  y = Reciprocal(a) }}",
    "a factor of nearly 1 stays": f"{FLOATS} <float c = {{1.00000012}}> {{ y = Mul(x, c) }}",
    "a divisor of nearly 1 stays": f"{FLOATS} <float c = {{1.00000012}}> {{ y = Div(x, c) }}",
    "an addition of 0.0 makes 0.0 of -0.0": f"{FLOATS} <float c = {{0.0}}> {{ a = Add(x, c)  y = Reciprocal(a) }}",
    "an addition of -0.0 changes nothing": f"{FLOATS} <float c = {{-0.0}}> {{ a = Add(x, c)  y = Reciprocal(a) }}",
    "a subtraction of 0.0 changes nothing": f"{FLOATS} <float c = {{0.0}}> {{ a = Sub(x, c)  y = Reciprocal(a) }}",
    "a subtraction of -0.0 makes 0.0 of -0.0": f"{FLOATS} <float c = {{-0.0}}> {{ a = Sub(x, c)  y = Reciprocal(a) }}",
    "a factor that adds an axis stays": "(float[n] x) => (float[1,n] y) <float[1,1] c = {1}> { y = Mul(x, c) }",
    "Relu of a Clip below zero": f"{FLOATS} <float a = {{-3}}, float b = {{-1}}> {{ c = Clip(x, a, b)  y = Relu(c) }}",
    "Clips whose ranges do not meet": f"""{FLOATS} <float a = {{-1}}, float b = {{1}}, float c = {{2}}, float d = {{5}}>
        {{ e = Clip(x, a, b)  y = Clip(e, c, d) }}""",
    "Min of a Max": f"{FLOATS} <float a = {{3}}, float b = {{-1}}> {{ c = Max(x, a)  y = Min(c, b) }}",
    "constants that differ in the sign of zero": f"""{FLOATS} <float a = {{0.0}}, float b = {{-0.0}}>
        {{ c = Div(x, a)  d = Div(x, b)  y = Sub(c, d) }}""",
    "attributes that differ in the sign of zero": f"""{FLOATS}
        {{ a = LeakyRelu<alpha = 0.0>(x)  b = LeakyRelu<alpha = -0.0>(x)
        c = Reciprocal(a)  d = Reciprocal(b)  y = Sub(c, d) }}""",
    "halves of an odd size": """(float[n] x) => (float[3] y) <int64[1] zero = {0}, int64[1] two = {2}, int64[1] five =
        {5}, int64[1] axis = {0}, int64[1] five_sizes = {5}> { f = Slice(x, zero, five, axis)
        g = Reshape(f, five_sizes) a = Slice(g, zero, two, axis)  b = Slice(g, two, five, axis)
        s = ReduceSum<keepdims = 1>(a)  y = Add(b, s) }""",
    "a scatter that adds": """(float[n] x) => (float[2] y) <int64[1] zero = {0}, int64[1] two = {2},
        int64[2,1] rows = {0, 1}, float[2] ones = {1, 2}> { a = Slice(x, zero, two)  b = Reshape(a, two)
        y = ScatterND<reduction = "add">(b, rows, ones) }""",
    "a scatter that adds to everything": """(float[n] x) => (float[2] y) <int64[2,1] rows = {0, 1},
        int64[2] at = {0, 2}, float[2] ones = {1, 2}>
        { a = Gather(x, at)  y = ScatterND<reduction = "add">(a, rows, ones) }""",
    "zero padding before a convolution": """(float[n] x) => (float[1,1,t] y) <int64[3] s = {1, 1, 12},
        float[1,1,3] w = {1, -2, 3}, int64[6] p = {0, 0, 2, 0, 0, 0}>
        { a = Reshape(x, s)  b = Pad(a, p)  y = Conv<pads = [1, 0]>(b, w) }""",
    "zero padding before an infinite weight": """(float[n] x) => (float[1,1,t] y) <int64[3] s = {1, 1, 12},
        float[1,1,3] c = {0, 1, 1}, int64[6] p = {0, 0, 2, 0, 0, 0}>
        { w = Reciprocal(c)  a = Reshape(x, s)  b = Pad(a, p)  y = Conv(b, w) }""",
    "a zero bias": """(float[n] x) => (float[1,1,t] y) <int64[3] s = {1, 1, 12}, float[1,1,1] w = {-1},
        float[1] b = {0}>
        { a = Reshape(x, s)  z = Conv(a, w, b)  y = Reciprocal(z) }""",
    "Cast rounds twice": """(float[n] x) => (double[n] y) <double c = {1.00048828125000001}, double e = {1e-11}>
        { a = Cast<to = 11>(x)  b = Add(a, c)  b2 = Add(b, e)  d = Cast<to = 1>(b2)  f = Cast<to = 10>(d)
        y = Cast<to = 11>(f) }""",
    "Cast there and back through a narrow type": f"{FLOATS} {{ a = Cast<to = 10>(x)  y = Cast<to = 1>(a) }}",
    "Cast there and back through a wide type": f"{FLOATS} {{ a = Cast<to = 11>(x)  y = Cast<to = 1>(a) }}",
    "Cast of a filling that wraps": """(float[n] x) => (uint8[n] y) { s = Shape(x)
        a = ConstantOfShape<value = int64[1] {-1}>(s)  y = Cast<to = 2>(a) }""",
    "a size that a slice cuts short": """(float[n] x) => (int64[1] y) <int64[1] zero = {0}, int64[1] end = {1000}>
        { a = Slice(x, zero, end)  y = Shape(a) }""",
    "a number of a size that a slice cuts short": """(float[n] x) => (float[n] y) <int64[1] zero = {0},
        int64[1] end = {1000}> { a = Slice(x, zero, end)  b = Shape(a)  c = Cast<to = 1>(b)  y = Div(x, c) }""",
    "the difference to a size that is cut off": """(float[n] x) => (float[n] y) <int64[1] s = {20},
        int64[1] end = {9223372036854775807}> { a = Slice(x, s, end)  b = Shape(a)  c = Shape(x)  d = Sub(b, c)
        e = Cast<to = 1>(d)  y = Mul(x, e) }""",
    "a piece beside given sizes": """(float[n] x) => (float[k,1] y) <int64[2] sizes = {4, 8}, int64 one = {1},
        int64[2] flat = {-1, 1}> { a = SplitToSequence<keepdims = 0>(x, sizes)  b = SequenceAt(a, one)
        y = Reshape(b, flat) }""",
    "the last piece of an uneven cut": """(float[n] x) => (float[k] y) <int64 five = {5}, int64 two = {2}>
        { a = SplitToSequence(x, five)  y = SequenceAt(a, two) }""",
    "a piece counted from the end": """(float[n] x) => (float[3,k] y) <int64[2] s = {3, 4}, int64 three = {3},
        int64 last = {-1}> { r = Reshape(x, s)  a = SplitToSequence<axis = 1>(r, three)  y = SequenceAt(a, last) }""",
    "an entry of an axis": """(float[n] x) => (float[3] y) <int64[2] s = {3, 4}, int64 last = {-1}>
        { r = Reshape(x, s)  a = SplitToSequence<axis = 1, keepdims = 0>(r)  y = SequenceAt(a, last) }""",
    "an entry that keeps its axis": """(float[n] x) => (float[1] y) <int64 two = {2}>
        { a = SplitToSequence(x)  y = SequenceAt(a, two) }""",
    "stacked parts": """(float[n] x) => (float[n,2] y) { a = Relu(x)  s = SequenceConstruct(x, a)
        y = ConcatFromSequence<axis = 1, new_axis = 1>(s) }""",
    "a branch on a constant": """(float[n] x) => (float[n] y) <bool yes = {1}>
        { y = If(yes)<then_branch = t () => (float[n] a) { a = Neg(x) }, else_branch = e () => (float[n] b)
        { b = Abs(x) }> }""",
    "two turns": """(float[n] x) => (float[a,b,c] y) <int64[3] s = {2, 3, 2}> { r = Reshape(x, s)
        t = Transpose<perm = [1, 2, 0]>(r)  y = Transpose<perm = [1, 2, 0]>(t) }""",
    "a reshape that copies a size": """(float[n] x) => (float[a,b] y) <int64[2] s = {3, 4}, int64[2] z = {0, -1},
        int64[3] u = {6, 2, 1}> { a = Reshape(x, s)  b = Reshape(a, u)  y = Reshape(b, z) }""",
    "equal outputs": f"{FLOATS} {{ a = Abs(x)  b = Abs(x)  y = Add(a, b) }}",
}


@pytest.mark.parametrize("name", CASES)
def test_every_bit_is_kept(name: str) -> None:
    agree(parse(CASES[name]), {"x": EDGES})


@pytest.mark.parametrize("opset", [13, 15, 17, 18, 21, 23])
def test_every_bit_is_kept_in_other_opsets(opset: int) -> None:
    for name in (
        "an addition of 1e-9 stays",
        "two turns",
        "a piece beside given sizes",
        "an entry of an axis",
        "stacked parts",
    ):
        agree(parse(CASES[name], opset=opset), {"x": EDGES})


WRAPPED = """(uint8[n] x) => (uint8[n] y) <uint8 c = {0}, uint8 one = {1}>
    { a = Add(x, c)  b = Sub(a, one)  d = Mul(b, one)  y = Add(d, one) }"""


def test_bytes_wrap_as_before() -> None:
    simple = agree(parse(WRAPPED, opset=14), {"x": np.arange(256, dtype=np.uint8)})
    assert ops_of(simple) == ["Sub", "Add"]


@pytest.mark.parametrize("zero_point", [0, 7])
def test_padding_of_integers_keeps_its_zero_point(zero_point: int) -> None:
    text = f"""(uint8[1,1,n] x) => (int32[1,1,m] y) <uint8[1,1,3] w = {{1, 2, 3}}, uint8 z = {{{zero_point}}},
        int64[6] p = {{0, 0, 2, 0, 0, 0}}> {{ a = Pad(x, p)  y = ConvInteger(a, w, z) }}"""
    agree(parse(text), {"x": np.arange(9, dtype=np.uint8).reshape(1, 1, 9)})


def test_the_taken_rules_still_shorten() -> None:
    text = """(float[batch,time,4] x) => (float[batch,time,4] y) <float one = {1}, int64[3] all = {0, -1, 4},
        int64[3] ones = {1, 1, 1}, int64[1] start = {0}, int64[1] end = {9223372036854775807}, int64[1] axis = {1},
        float[1,0,4] empty = {}>
        { a = Mul(x, one)  b = Cast<to = 1>(a)  c = Transpose<perm = [0, 2, 1]>(b)  d = Transpose<perm = [0, 2, 1]>(c)
        e = Reshape(d, all)  f = Expand(e, ones)  g = Slice(f, start, end, axis)  h = Unsqueeze(g, axis)
        i = Squeeze(h, axis)  j = Concat<axis = 0>(i)  k = Dropout(j)  l = CastLike(k, one)  y = Relu(l) }"""
    simple = agree(parse(text), {"x": np.resize(EDGES, (3, 2, 4))})
    assert ops_of(simple) == ["Reshape", "Relu"]


CAUSAL = """(float[1,1,time] x) => (float[1,1,cut] y) <float[1,1,3] w = {1, -2, 3}, int64[1] start = {START},
    int64[1] axis = {AXIS}, int64[1] step = {STEP}, int64[1] one = {1}>
    { n = Shape<start = 2, end = 3>(x)  less = Sub(n, one)  a = Conv<HOW>(x, w)
    y = Slice(a, start, END, axis, step) }"""
PLAIN = {"HOW": "pads = [2, 2]", "START": "0", "AXIS": "2", "STEP": "1", "END": "n"}


@pytest.mark.parametrize(
    ("change", "pads"),
    [
        ({}, (2, 0)),
        ({"AXIS": "-1"}, (2, 0)),
        ({"HOW": "pads = [4, 5], dilations = [2]"}, (4, 0)),
        ({"HOW": "pads = [1, 2]"}, (1, 1)),
        ({"HOW": "pads = [0, 2]"}, (0, 2)),  # as many come out as go in
        ({"HOW": "pads = [3, 3]"}, None),  # the cut takes true entries away
        ({"HOW": "pads = [1, 0]"}, None),  # fewer come out than go in
        ({"HOW": "pads = [2, 2], strides = [2]"}, None),
        ({"HOW": 'auto_pad = "SAME_UPPER"'}, None),
        ({"START": "1"}, None),
        ({"STEP": "2"}, None),
        ({"END": "less"}, None),
        ({"AXIS": "1"}, None),
    ],
)
@pytest.mark.parametrize("length", [2, 9])
def test_what_a_convolution_makes_of_padding_is_not_made_where_it_is_cut_off(
    change: dict[str, str], pads: tuple[int, int] | None, length: int
) -> None:
    text = CAUSAL
    for word, value in {**PLAIN, **change}.items():
        text = text.replace(word, value)
    simple = agree(parse(text), {"x": EDGES[-length:].reshape(1, 1, length)})
    (node,) = [node for node in simple.graph if node.op_type == "Conv"]
    assert ("Slice" not in ops_of(simple)) == (pads is not None)
    assert pads is None or graphs.ints_attribute(node, "pads") == pads


def test_all_that_a_convolution_gives_is_not_cut() -> None:
    text = CAUSAL
    for word, value in {**PLAIN, "HOW": "pads = [0, 1]", "END": "far"}.items():
        text = text.replace(word, value)
    text = text.replace("int64[1] one =", "int64[1] far = {9223372036854775807}, int64[1] one =")
    assert ops_of(agree(parse(text), {"x": EDGES.reshape(1, 1, -1)})) == ["Conv"]


@pytest.mark.parametrize(("step", "stays"), [(", steps", True), ("", False)])
def test_a_cut_by_steps_that_callers_say_stays(step: str, stays: bool) -> None:
    text = CAUSAL.replace(", step)", f"{step})").replace("time] x)", "time] x, int64[1] steps)")
    for word, value in PLAIN.items():
        text = text.replace(word, value)
    simple = agree(parse(text), {"x": EDGES.reshape(1, 1, -1), "steps": np.array([2])})
    assert ("Slice" in ops_of(simple)) == stays


def test_a_convolution_that_others_read_pads_as_before() -> None:
    text = CAUSAL.replace("float[1,1,cut] y)", "float[1,1,cut] y, float[1,1,all] a)")
    for word, value in PLAIN.items():
        text = text.replace(word, value)
    assert "Slice" in ops_of(agree(parse(text), {"x": EDGES.reshape(1, 1, -1)}))


RECURRENT = """(float[time,batch,2] x, float[1,8,2] w, float[1,8,2] r) => (float[a,b,c,d] y)
    <int64[1] one = {1}, int64[1] two = {2}, float none = {NONE}>
    { rows = Shape<start = 1, end = 2>(x)  sizes = Concat<axis = 0>(one, rows, two)  h = MADE
    y, last, cell = LSTM<hidden_size = 2>(x, w, r, , , h, h) }"""


@pytest.mark.parametrize(
    ("made", "none", "dropped"),
    [
        ("Expand(none, sizes)", "0.0", True),
        ("ConstantOfShape(sizes)", "0.0", True),
        ("Expand(none, sizes)", "-0.0", False),
        ("Expand(none, sizes)", "1e-9", False),
        ("ConstantOfShape<value = float[1] {1.0}>(sizes)", "0.0", False),
    ],
)
def test_initial_states_of_zeros_are_those_of_a_recurrence_without_any(made: str, none: str, dropped: bool) -> None:
    weights = {name: np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 8, 2) for name in "wr"}
    model = parse(RECURRENT.replace("NONE", none).replace("MADE", made), weights)
    simple = agree(model, {"x": EDGES.reshape(3, 2, 2)})
    (node,) = [node for node in simple.graph if node.op_type == "LSTM"]
    assert any(value is not None for value in node.inputs[5:7]) != dropped


POOLED = "(float[1,2,time] x) => (float[1,2,pooled] y) { y = AveragePool<kernel_shape = [3], strides = [2], HOW>(x) }"


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ("ceil_mode = 1, count_include_pad = 1", False),
        ("ceil_mode = 1, count_include_pad = 1, pads = [0, 0]", False),
        ("ceil_mode = 1, count_include_pad = 1, pads = [0, 1]", True),
        ('ceil_mode = 1, count_include_pad = 1, auto_pad = "SAME_UPPER"', True),
        ("ceil_mode = 0, count_include_pad = 1", True),
    ],
)
@pytest.mark.parametrize("length", [3, 6])
def test_a_pool_that_pads_nothing_counts_no_padding(how: str, counts: bool, length: int) -> None:
    x = EDGES[: 2 * length].reshape(1, 2, length)
    simple = agree(parse(POOLED.replace("HOW", how)), {"x": x})
    (node,) = simple.graph
    assert ("count_include_pad" in node.attributes) == counts


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("y = Mul(x, ones)", []),
        ("y = Div(x, ones)", []),
        ("y = Add(x, below)", []),
        ("y = Mul(ones, x)", []),
        ("y = Mul(x, wide)", ["Mul"]),  # ones that make more of it
        ("y = Mul(x, mostly)", ["Mul"]),
        ("y = Div(ones, x)", ["Div"]),
    ],
)
def test_a_constant_that_is_one_everywhere_multiplies_nothing(body: str, left: list[str]) -> None:
    constants = {
        "ones": np.ones((1, 3), np.float32),
        "below": np.full((1, 1, 3), -0.0, np.float32),
        "wide": np.ones((4, 1, 3), np.float32),
        "mostly": np.array([1, 1, 2], np.float32),
    }
    given = ", ".join(f"float{list(array.shape)} {name}" for name, array in constants.items() if name in body)
    text = (
        f"(float[1,batch,3] x, {given}) => (float[p,batch,3] y) {{ a = Relu(x)  b = Neg(a)  {body.replace('x', 'b')} }}"
    )
    simple = agree(parse(text, constants), {"x": np.arange(-3, 3, dtype=np.float32).reshape(1, 2, 3)})
    assert ops_of(simple) == ["Relu", "Neg", *left]
