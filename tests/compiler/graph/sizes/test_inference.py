"""What the inference library is taught besides."""

import concurrent.futures
import subprocess
import sys

import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.model import expression
from compiler.graph.sizes.expressions import normal_form
from tests.kit.graphs import parse, random_weights

LIBRARY = """
import onnx_ir, onnx_shape_inference

def answers():
    model = onnx_ir.from_onnx_text('''<ir_version: 10, opset_import: ["" : 20]> g (float[n,4] x, float["Min(1, n)",4] z)
        => (float[p,q] y, int64[k] half) <int64[1] two = {2}> {
            y = Add(z, x)  e = Expand(z, s)  s = Shape<end = 1>(x)  half = Div(s, two)
        }''')
    onnx_shape_inference.infer_symbolic_shapes(model)
    return [(str(value.shape), dict(value.metadata_props)) for node in model.graph for value in node.outputs]

before = answers()
from compiler.graph import model as graphs
model = onnx_ir.from_onnx_text('''<ir_version: 10, opset_import: ["" : 20]>
    g (float[n,4] x) => (int64[k] y) <int64[1] two = {2}> { s = Shape<end = 1>(x)  y = Div(s, two) }''')
graphs.infer_shapes(model)
assert graphs.integers_of(model.graph.outputs[0]) == (graphs.expression("floor(n/2)"),)
assert answers() == before
"""


def test_whoever_else_asks_the_library_gets_its_own_answers() -> None:
    # regression: an import taught the library for good, for whatever else the process did with it
    subprocess.run([sys.executable, "-c", LIBRARY], check=True)


def test_graphs_are_inferred_in_several_threads_at_once() -> None:
    text = """(float[batch,time] x) => (int64[1] d) <int64[1] two = {2}>
        { n = Shape<start = 1, end = 2>(x)  d = Div(n, two) }"""
    models = [parse(text) for _ in range(8)]
    with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(graphs.infer_shapes, models))
    halves = {graphs.integers_of(model.graph.outputs[0]) for model in models}
    assert halves == {(expression("floor(time/2)"),)}


SIZES = {
    "d = Div(n, two)": "floor(time/2)",
    "m = Mul(n, two)  d = Div(m, two)": "time",
    "m = Neg(n)  o = Add(m, n)  q = Sub(o, two)  p = Sub(q, one)  d = Div(p, two)": "-1",
    "d = Mod(n, two)": "Mod(time, 2)",
    "m = Neg(n)  d = Neg(m)": "time",
    "d = Abs(n)": "time",
}


@pytest.mark.parametrize("body", SIZES)
def test_numbers_computed_from_sizes_are_known(body: str) -> None:
    text = f"""(float[batch,time] x) => (int64[1] d) <int64[1] one = {{1}}, int64[1] two = {{2}}>
        {{ n = Shape<start = 1, end = 2>(x)  {body} }}"""
    model = parse(text)
    assert graphs.integers_of(model.graph.outputs[0]) == (expression(SIZES[body]),)


@pytest.mark.parametrize("start", ["Sub(zero, n)", "Sub(rows, n)"])
def test_the_last_entries_of_a_table_are_counted(start: str) -> None:
    text = f"""(float[batch,time] x, float[1,9,4] table) => (float[1,r,4] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] rows = {{9}}, int64[1] end = {{9223372036854775807}}>
        {{ n = Shape<start = 1, end = 2>(x)  from = {start}  y = Slice(table, from, end, one) }}"""
    model = parse(text, random_weights({"table": (1, 9, 4)}))
    assert graphs.dims_of(model.graph.outputs[0]) == (1, expression("time"), 4)


def test_nothing_is_said_of_an_expansion_of_what_has_no_shape() -> None:
    # regression: the sizes asked for were taken for the result, where a one keeps what is there
    text = """(float[batch,time] x, int64[k] sizes) => (float[batch,time,2] y) <int64[3] as_is = {1, 1, 1}>
        { r = Reshape(x, sizes)  e = Expand(r, as_is)  y = Neg(e) }"""
    model = parse(text)
    graphs.infer_shapes(model)
    (expanded,) = (node.outputs[0] for node in model.graph if node.op_type == "Expand")
    assert expanded.shape is None


def test_an_axis_that_is_turned_round_keeps_its_size() -> None:
    model = parse(
        """(float[batch,time] x) => (float[batch,t] y)
        <int64[1] last = {-1}, int64[1] one = {1}, int64[1] end = {-9223372036854775807}>
        { y = Slice(x, last, end, one, last) }"""
    )
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("time"))


def test_an_axis_padded_by_a_computed_amount_has_a_size() -> None:
    model = parse(
        """(float[batch,time] x) => (float[batch,t] y) <int64[3] none = {0, 2, 0}, int64[1] two = {2}>
        { n = Shape<start = 1, end = 2>(x)  rest = Mod(n, two)
        pads = Concat<axis = 0>(none, rest)  y = Pad(x, pads) }"""
    )
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("time + Mod(time, 2) + 2"))


@pytest.mark.parametrize(("count", "size"), [(3, "3"), (4, "4"), (5, None)])
def test_the_last_entries_of_a_growing_axis_are_counted_where_there_are_always_as_many(
    count: int, size: str | None
) -> None:
    model = parse(
        f"""(float[batch,cache] old, float[batch,4] x) => (float[batch,t] y)
        <int64[1] last = {{-{count}}}, int64[1] end = {{9223372036854775807}}, int64[1] one = {{1}}>
        {{ joined = Concat<axis = 1>(old, x)  y = Slice(joined, last, end, one) }}"""
    )
    dims = graphs.dims_of(model.graph.outputs[0])
    assert dims is not None
    assert (str(dims[1]) == size) is (size is not None)


@pytest.mark.parametrize(
    ("count", "size"),
    [
        pytest.param("Neg(n)", "time", id="as many as were joined"),
        pytest.param("Sub(one, n)", None, id="none of one, which is all"),
        pytest.param("Sub(none, twice)", None, id="more than there are"),
    ],
)
def test_so_many_last_entries_as_are_counted_have_that_size(count: str, size: str | None) -> None:
    model = parse(
        f"""(float[batch,letters] text, float[batch,time] x) => (float[batch,t] y)
        <int64[1] end = {{9223372036854775807}}, int64[1] none = {{0}}, int64[1] one = {{1}}>
        {{ joined = Concat<axis = 1>(text, x)  n = Shape<start = 1, end = 2>(x)  twice = Add(n, n)
          last = {count}  y = Slice(joined, last, end, one) }}"""
    )
    dims = graphs.dims_of(model.graph.outputs[0])
    assert dims is not None
    assert (str(dims[1]) == size) is (size is not None)


def test_what_is_left_over_for_a_reshape_is_a_number() -> None:
    # regression: the library left it as a name, "17", which is no size that a static graph may have
    model = parse(
        "(float[batch,1,4,17,4] x) => (float[p,q,r,s] y) <int64[4] to = {0, 4, -1, 4}> { y = Reshape(x, to) }"
    )
    shape = model.graph.outputs[0].shape
    assert shape is not None and shape[2] == 17


def test_entries_behind_a_start_that_is_never_before_the_first_are_so_many_at_most() -> None:
    model = parse(
        """(float[batch,cache] old, float[batch,4] x) => (float[batch,t] y)
        <int64[1] five = {5}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] end = {9223372036854775807}>
        { joined = Concat<axis = 1>(old, x)  n = Shape<start = 1>(joined)  more = Sub(n, five)
          from = Max(more, zero)  y = Slice(joined, from, end, one) }"""
    )
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("Min(5, cache + 4)"))


def test_a_tensor_of_computed_sizes_has_a_shape() -> None:
    model = parse(
        """(float[batch,time] x) => (float[a,b,c] y) <int64[1] one = {1}, int64 first = {0}, int64[1] front = {0}>
        { s = Shape(x)  n = Gather<axis = 0>(s, first)  u = Unsqueeze(n, front)
          shape = Concat<axis = 0>(one, u, one)  y = ConstantOfShape(shape) }"""
    )
    assert graphs.dims_of(model.graph.outputs[0]) == (1, expression("batch"), 1)


@pytest.mark.parametrize("body", ["y = Slice(x, zero, end, one)", "m = Sub(n, two)  y = Range(first, m, step)"])
def test_entries_are_as_many_as_counted(body: str) -> None:
    shape = "batch,t" if "Slice" in body else "t"
    text = f"""(float[batch,time] x) => ({"float" if "Slice" in body else "int64"}[{shape}] y)
        <int64[1] zero = {{0}}, int64[1] end = {{-2}}, int64[1] one = {{1}},
         int64 two = {{2}}, int64 first = {{0}}, int64 step = {{1}}, int64[0] none = {{}}>
        {{ l = Shape<start = 1, end = 2>(x)  n = Reshape(l, none)  {body} }}"""
    dims = graphs.dims_of(parse(text).graph.outputs[0])
    assert dims is not None and dims[-1] == expression("time - 2")


def test_axes_that_a_cut_by_a_computed_bound_does_not_name_keep_their_sizes() -> None:
    model = parse(
        """(float[batch,time,3] x, int64[1] from) => (float[batch,t,3] y)
        <int64[1] one = {1}, int64[1] end = {9223372036854775807}>
        { y = Slice(x, from, end, one) }"""
    )
    batch, _, channels = graphs.dims_of(model.graph.outputs[0]) or ()
    assert (batch, channels) == (expression("batch"), 3)


@pytest.mark.parametrize("body", ["y = Sub(x, s)", "y = Sub(s, x)", "f = Cast<to = 9>(s)  y = Where(f, s, x)"])
def test_the_last_entry_meets_all_of_an_axis(body: str) -> None:
    model = parse(
        f"""(float[batch,time,4] x) => (float[p,q,r] y)
        <int64[1] last = {{-1}}, int64[1] end = {{9223372036854775807}}, int64[1] one = {{1}}>
        {{ s = Slice(x, last, end, one)  {body} }}"""
    )
    graphs.infer_shapes(model)
    assert str(model.graph.outputs[0].shape) == "[batch,time,4]"


BROADCAST = {
    ("floor(Min(2, time)/2)", "Min(2, time)"): "Min(2, time)",
    ("Min(1, time)", "time"): "time",
    ("Min(3, time)", "Max(1, Min(3, time) - 2)"): "Min(3, time)",
    ("Max(1, 4 - time)", "Max(1, time - 4)"): "Max(1, 4 - time, time - 4)",
    ("time", "later"): None,
    ("time", "time - 1"): None,
    ("floor(time/4)", "floor(time/3)"): None,
}


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "in reverse"])
@pytest.mark.parametrize("sizes", BROADCAST, ids=" and ".join)
def test_of_two_sizes_of_one_length_the_one_that_is_broadcast_against_counts(
    sizes: tuple[str, str], *, reverse: bool
) -> None:
    # regression: the library took the first of floor(Min(2, time)/2), which is 1 from two frames on, and Min(2, time)
    first, second = reversed(sizes) if reverse else sizes
    model = parse(f"""(float[batch,"{first}"] x, float[batch,"{second}"] z) => (float[p,q] y) {{ y = Add(x, z) }}""")
    graphs.infer_shapes(model)
    _, size = graphs.dims_of(model.graph.outputs[0]) or ()
    assert size == expression(BROADCAST[sizes] or first)


def test_sizes_that_cannot_be_compared_are_those_of_the_data_of_a_where() -> None:
    model = parse("""(float[time] x, float[time] z, float[later] m) => (float[t] y)
        { c = Cast<to = 9>(m)  y = Where(c, x, z) }""")
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("time"),)


ROUNDED_UP = {
    "r = Range(first, c, step)  f = Cast<to = 1>(r)  y = Unsqueeze(f, zero)": "every second of a window, counted",
    "f = Unsqueeze(a, zero)  y = Reshape(f, merged)": "every second of a window, merged with the rows",
}


@pytest.mark.parametrize("body", ROUNDED_UP, ids=ROUNDED_UP.values())
def test_sizes_that_are_rounded_up_are_computed_with(body: str) -> None:
    # regression: a size such as ceiling(Min(8, time)/2) was written so that the library failed to read it again
    model = parse(
        f"""(float[batch,time] x) => (float[p,q] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] eight = {{8}},
         int64 first = {{0}}, int64 step = {{1}}, int64[0] none = {{}}, int64[2] merged = {{1, -1}}>
        {{ a = Slice(x, zero, eight, one, two)  n = Shape<start = 1, end = 2>(a)  c = Reshape(n, none)  {body} }}"""
    )
    dims = graphs.dims_of(model.graph.outputs[0])
    rounded_up = expression("ceiling(Min(8, time)/2)")
    assert dims is not None and dims[1] in (rounded_up, normal_form(rounded_up * graphs.symbol("batch")))


def test_amounts_for_named_axes_are_added_to_these() -> None:
    # regression: where axes were named, computed amounts were not looked at
    model = parse(
        """(float[batch,time,4] x) => (float[batch,t,4] y)
        <int64[1] none = {0}, int64[1] axis = {-2}, int64[1] two = {2}>
        { n = Shape<start = 1, end = 2>(x)  rest = Mod(n, two)  pads = Concat<axis = 0>(none, rest)
        y = Pad(x, pads, , axis) }"""
    )
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("time + Mod(time, 2)"), 4)


WITHOUT_ROUNDING_UP = {
    "p = MaxPool<kernel_shape = [2], strides = [2], ceil_mode = 1>(x)": "ceiling((time - 2)/2) + 1",
    'p = AveragePool<kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER">(x)': "ceiling(time/2)",
}


@pytest.mark.parametrize("pool", WITHOUT_ROUNDING_UP)
def test_what_a_pool_rounds_up_is_computed_with(pool: str) -> None:
    model = parse(
        f"""(float[1,4,time] x) => (float[1,4,n] y, int64[1] size) <int64[1] two = {{2}}>
        {{ {pool}  y = Concat<axis = 2>(p, p)  n = Shape<start = 2>(p)  size = Mul(n, two) }}"""
    )
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    twice = normal_form(2 * expression(WITHOUT_ROUNDING_UP[pool]))
    (*_, joined), (size,) = (
        graphs.dims_of(model.graph.outputs[0]) or (),
        graphs.integers_of(model.graph.outputs[1]) or (),
    )
    assert joined == size == twice


def test_distances_are_computed_with() -> None:
    model = parse(
        """(float[time,later] x) => (int64[1] d) { n = Shape<end = 1>(x)  m = Shape<start = 1>(x)
        gap = Sub(n, m)  far = Abs(gap)  d = Add(far, n) }"""
    )
    (distance,) = graphs.integers_of(model.graph.outputs[0]) or ()
    assert not isinstance(distance, int)
    time, later = graphs.symbol("time"), graphs.symbol("later")
    assert [distance.subs({time: 3, later: number}) for number in (1, 3, 8)] == [5, 3, 8]


def test_declared_sizes_that_are_rounded_up_are_read() -> None:
    model = parse("(float[batch,time] x) => (float[batch,t] y) { z = Relu(x)  y = Neg(z) }")
    model.graph.inputs[0].shape = ir.Shape(["batch", "ceiling(time/2)"])
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    assert graphs.dims_of(model.graph.outputs[0]) == (expression("batch"), expression("floor(time/2 + 1/2)"))


@pytest.mark.parametrize("body", ["y = Squeeze(x, two)", "y = Reshape(x, twice)"])
def test_where_the_library_fails_nothing_is_known(body: str) -> None:
    # regression: whatever the library could not do ended the build
    model = parse(
        f"""(float[batch,time,4] x) => (float[p,q,r] y)
        <int64[1] two = {{2}}, int64[2] twice = {{-1, -1}}> {{ z = Relu(x)  {body} }}"""
    )
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    (before, after) = model.graph
    assert str(before.outputs[0].shape) == "[batch,time,4]" and after.outputs[0].shape is None


@pytest.mark.parametrize(
    ("pieces", "sizes"),
    [
        ("SplitToSequence<axis = -1>(x, four)", ["[batch,time,4]", "[batch,time,2]"]),
        ("SplitToSequence<axis = 2>(x, some)", ["[batch,time,1]", "[batch,time,5]"]),
        ("SplitToSequence<axis = 1>(x, four)", ["[batch,Min(4, time),6]", "[batch,Min(4, time - 4),6]"]),
        ("SplitToSequence<axis = -1>(x)", ["[batch,time,1]", "[batch,time,1]"]),
        ("SplitToSequence<axis = 1, keepdims = 0>(x)", ["[batch,6]", "[batch,6]"]),
    ],
)
def test_pieces_of_a_sequence_have_the_sizes_that_they_are_cut_to(pieces: str, sizes: list[str]) -> None:
    """As the exporter writes `x.chunk(2, -1)`: in front of a cache, they tell how many frames a call adds."""
    text = f"""(float[batch,time,6] x) => (float[b,t,c] first, float[b,t,c] last)
        <int64 four = {{4}}, int64[2] some = {{1, 5}}, int64 zero = {{0}}, int64 one = {{1}}> {{
            pieces = {pieces}  first = SequenceAt(pieces, zero)  last = SequenceAt(pieces, one)
        }}"""
    shapes = [graphs.dims_of(value) for value in parse(text).graph.outputs]
    assert [f"[{','.join(map(str, dims or ()))}]" for dims in shapes] == sizes


@pytest.mark.parametrize(
    ("pieces", "size"),
    [
        ("SplitToSequence<axis = 2>(x, four)", "[batch,time,2]"),
        ("SplitToSequence<axis = 2>(x, some)", "[batch,time,5]"),
        ("SplitToSequence<axis = -1, keepdims = 0>(x)", "[batch,time]"),
        ("SplitToSequence<axis = 1>(x, four)", "[batch,_d0,6]"),
        ("SplitToSequence<axis = 2>(x, one_size)", "[batch,time,3]"),
    ],
)
def test_pieces_counted_from_the_end_have_sizes_where_their_number_is_known(pieces: str, size: str) -> None:
    text = f"""(float[batch,time,6] x) => (float[b,t,c] last)
        <int64 four = {{4}}, int64[2] some = {{1, 5}}, int64[1] one_size = {{3}}, int64 behind = {{-1}}> {{
            pieces = {pieces}  piece = SequenceAt(pieces, behind)  last = Identity(piece)
        }}"""
    shape = graphs.dims_of(next(node for node in parse(text).graph if node.op_type == "SequenceAt").outputs[0])
    assert f"[{','.join(map(str, shape or ()))}]" == size


def test_sizes_that_cannot_be_read_are_inferred_anew() -> None:
    model = parse("(float[batch,time] x) => (float[batch,time] y) { z = Relu(x)  y = Neg(z) }")
    first = next(iter(model.graph)).outputs[0]
    first.shape = ir.Shape(["batch", "8 - Min(8, CeilToInt(IntTrueDiv(u0, 4)))"])
    graphs.infer_shapes(model)
    assert graphs.dims_of(first) == (graphs.symbol("batch"), graphs.symbol("time"))


def test_numbers_are_cut_out_backwards() -> None:
    model = parse(
        """(float[batch,time,4] x) => (int64[3] y)
        <int64[1] last = {-1}, int64[1] front = {-5}, int64[1] zero = {0}, int64[1] back = {-1}>
        { n = Shape(x)  y = Slice(n, last, front, , back) }"""
    )
    assert graphs.integers_of(model.graph.outputs[0]) == (4, graphs.symbol("time"), graphs.symbol("batch"))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_a_column_and_a_row_make_a_table(op: str) -> None:
    model = parse(
        f"""(float[time,3] x) => (int64[p,q] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}>
        {{ s = Shape(x)  row = Unsqueeze(s, zero)  column = Unsqueeze(s, one)  y = {op}(row, column) }}"""
    )
    (y,) = model.graph.outputs
    assert graphs.dims_of(y) == (2, 2) and graphs.integers_of(y) is None


def test_a_size_that_is_derived_as_the_name_of_a_number_is_that_number_to_the_nodes_behind() -> None:
    """The last frame, alone and beside itself: the sum has the two frames of the wider one."""
    model = parse(
        """(float[batch,time,4] x) => (float[batch,n,4] y, float[batch,m,4] z)
        <int64[1] last = {-1}, int64[1] end = {9223372036854775807}, int64[1] one = {1}, int64[4] heads = {0, -1, 2, 2},
         int64[3] merged = {0, -1, 4}>
        {
            frame = Slice(x, last, end, one, one)
            parted = Reshape(frame, heads)
            again = Reshape(parted, merged)
            both = Concat<axis = 1>(frame, again)
            y = Add(again, both)
            z = Mul(both, again)
        }"""
    )
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    assert [graphs.dims_of(value) for value in model.graph.outputs] == [(graphs.symbol("batch"), 2, 4)] * 2
