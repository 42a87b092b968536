"""ir: functions over onnx_ir that all passes share."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from tests.kit.graphs import copy_of, node_named, ops_of, parse, streaming

TEXT = """(float[batch,cache,4] x) => (int64[1] size, float[batch,cache,4] y, int64[3] whole)
<int64[1] two = {2}>
{
    length = Shape<start = 1, end = 2>(x)
    size = Add(length, two)
    whole = Shape(x)
    y = Relu(x)
    unread = Neg(y)
}"""


def test_lengths_are_known_symbolically() -> None:
    model = parse(TEXT)
    outputs = graphs.outputs_named(model)
    assert graphs.integers_of(outputs["size"]) == (graphs.symbol("cache") + 2,)
    assert graphs.integers_of(outputs["whole"]) == (graphs.symbol("batch"), graphs.symbol("cache"), 4)
    assert graphs.integers_of(outputs["y"]) is None
    assert graphs.integers_of(None) is None
    assert graphs.mentions(graphs.symbol("cache") + 2, "cache")
    assert not graphs.mentions(7, "cache")


def test_sizes_keep_their_shape_as_constants() -> None:
    # regression: a column of sizes became a row of as many, and what it met no longer fitted
    model = parse("""(float[2,5] x) => (int64[2,1] column, int64[2,3] y)
        <int64[1] one = {1}, int64[3] all = {1, 2, 3}> {
          size = Shape(x)  tall = Unsqueeze(size, one)  column = Identity(tall)
          y = Add(tall, all) }""")
    graphs.infer_shapes(model)
    assert graphs.fold_sizes(model) > 0
    array = graphs.array_of(node_named(model, "y").inputs[0])
    assert array is not None and array.tolist() == [[2], [5]]


@pytest.mark.parametrize(
    ("attributes", "read"),
    [
        ("", (0, 1, 2)),
        ("<start = 1>", (1, 2)),
        ("<start = 1, end = 2>", (1,)),
        ("<end = -1>", (0, 1)),
        ("<start = -1>", (2,)),
    ],
)
def test_dimensions_that_a_shape_reads(attributes: str, read: tuple[int, ...]) -> None:
    model = parse(f"(float[2,3,4] x) => (int64[n] y) {{ y = Shape{attributes}(x) }}")
    assert graphs.dims_read(node_named(model, "y"), 3) == read


def test_pruning_removes_what_nothing_reads() -> None:
    model = parse(TEXT)
    assert graphs.prune(model) == 1
    assert "Neg" not in ops_of(model)


def test_what_the_bodies_of_an_unread_node_read_goes_with_it() -> None:
    text = """(float[n] x, bool which, float[1] w) => (float[n] y) { a = Abs(x) z = If(which)<
        then_branch = t () => (float[n] b) { b = Mul(a, w) }, else_branch = e () => (float[n] c) { c = Neg(x) }>
        y = Relu(x) }"""
    model = parse(text, {"w": np.ones(1, np.float32)})
    assert graphs.prune(model) == 2
    assert ops_of(model) == ["Relu"] and not model.graph.initializers


def test_names_stay_unique() -> None:
    model = parse(TEXT)
    assert [graphs.fresh_name(model.graph, "y") for _ in range(3)] == ["y_2", "y_3", "y_4"]


def test_names_of_nodes_stay_unique() -> None:
    # regression: a value took another name, as an output does, and the next one's node was called as its node
    model = parse(TEXT)
    insert = graphs.Inserter(model, "test")
    insert.op("Relu", [model.graph.inputs[0]], name="made").name = "kept"
    graphs.recount_names(model.graph)
    insert.op("Relu", [model.graph.inputs[0]], name="made")
    names = [node.name for node in model.graph]
    assert len(names) == len(set(names))


def test_a_copy_names_new_values_as_the_original_does() -> None:
    # regression: copies shared the set of names, so that the second of two equal runs named its values otherwise
    model = parse(TEXT)
    graphs.fresh_name(model.graph, "warm")
    first, second = graphs.clone(model), graphs.clone(model)
    assert graphs.fresh_name(first.graph, "mask") == graphs.fresh_name(second.graph, "mask") == "mask"


NESTED = """<ir_version: 10, opset_import: ["" : 20]>
g (float[3] x, bool flag) => (float[3] y)
{
    outside = Relu(x)
    y = If (flag) <
        then_branch = then () => (float[3] a) {
            count = Constant<value_int = 2>()
            go = Constant<value = bool {1}>()
            a = Loop (count, go, x) <body = body (int64 i, bool again, float[3] carried) => (bool more, float[3] next) {
                more = Identity(again)
                next = Add(carried, outside)
            }>
        },
        else_branch = otherwise () => (float[3] b) { b = Identity(x) }
    >
}"""


def test_bodies_are_found_however_deep() -> None:
    model = ir.from_proto(onnx.parser.parse_model(NESTED))
    relu, branch = model.graph
    assert [body.name for body in graphs.bodies_of(branch)] == ["then", "body", "otherwise"]
    assert graphs.has_body(branch) and not graphs.has_body(relu)


def test_what_bodies_read_of_the_graph_around_them() -> None:
    # regression: inputs of a loop inside of a branch counted as values from outside
    model = ir.from_proto(onnx.parser.parse_model(NESTED))
    relu, branch = model.graph
    assert [value.name for value in graphs.read_inside(branch)] == ["x", "outside"]
    assert graphs.read_inside(relu) == []


def test_a_body_without_nodes_is_a_body() -> None:
    model = ir.from_proto(onnx.parser.parse_model(NESTED))
    _, branch = model.graph
    body = branch.attributes["else_branch"].as_graph()
    body.outputs.clear()
    body.remove(list(body), safe=True)
    del branch.attributes["then_branch"]
    assert graphs.has_body(branch)
    assert graphs.read_inside(branch) == []


def test_a_copy_can_be_changed_alone() -> None:
    lowered = streaming()
    copy = copy_of(lowered)
    node_named(copy.model, "y").op_type = "Sub"
    assert node_named(lowered.model, "y").op_type == "Add"
    assert graphs.serialized(lowered.model) == graphs.serialized(streaming().model)


@pytest.mark.parametrize(
    ("shown", "read", "found"),
    [
        ("y", "y = Neg(h)", "y"),
        ("y", "y = Add(h, h)", None),
        ("y", "n = Neg(h)  y = Sub(n, h)", None),
        ("h", "y = Neg(h)", None),
    ],
)
def test_a_node_reads_a_value_alone_that_is_read_once_and_not_given_out(
    shown: str, read: str, found: str | None
) -> None:
    outputs = "float[2] y" if shown == "y" else "float[2] y, float[2] h"
    model = parse(f"(float[2] x) => ({outputs}) {{ h = Relu(x)  {read} }}")
    relu = next(node for node in model.graph if node.op_type == "Relu")
    reader = graphs.only_reader(relu.outputs[0])
    assert (None if reader is None else reader.outputs[0].name) == found


def test_nodes_go_right_behind_what_makes_a_value() -> None:
    model = parse("(float[3] x) => (float[3] y) { a = Relu(x) b = Neg(a) y = Abs(b) }")
    made, given = node_named(model, "a").outputs[0], model.graph.inputs[0]
    for value in (made, given):
        insert = graphs.Inserter.behind(model, "test", value)
        insert.op("Exp", [insert.op("Sqrt", [value], name="root")], name="power")
    assert ops_of(model) == ["Sqrt", "Exp", "Relu", "Sqrt", "Exp", "Neg", "Abs"]


def test_serialising_is_deterministic_and_comes_back() -> None:
    model = streaming().model
    content = graphs.serialized(model)
    assert graphs.serialized(ir.from_proto(onnx.load_model_from_string(content))) == content


def test_new_nodes_are_stamped_and_placed() -> None:
    model = parse(TEXT)
    relu = node_named(model, "y")
    insert = graphs.Inserter(model, "some_pass", before=relu)
    made = insert.op("Neg", [relu.inputs[0]], name="y", shape=[2]).producer()
    assert made is not None
    assert (made.outputs[0].name, made.outputs[0].dtype) == ("y_2", ir.DataType.FLOAT)
    assert made.metadata_props == {graphs.PASS_KEY: "some_pass", graphs.SOURCE_KEY: graphs.source_of(relu)}
    assert list(model.graph).index(made) == list(model.graph).index(relu) - 1


def test_a_cast_has_the_type_that_it_gives() -> None:
    model = parse(TEXT)
    insert = graphs.Inserter(model, "some_pass", before=node_named(model, "y"))
    count = insert.op("Shape", [model.graph.inputs[0]], name="n", dtype=ir.DataType.INT64)
    assert insert.op("Cast", [count], {"to": ir.DataType.FLOAT}, name="count").dtype == ir.DataType.FLOAT


def test_equal_constants_are_shared_and_others_are_not() -> None:
    insert = graphs.Inserter(parse(TEXT), "some_pass")
    zero = np.array(0, np.float32)
    assert insert.constant(zero, "zero") is insert.constant(zero.copy(), "zero")
    assert insert.constant(zero, "zero") is not insert.constant(np.array(0, np.float64), "zero")
    assert insert.constant(zero, "zero") is not insert.constant(np.zeros(1, np.float32), "zero")


def test_only_default_operators_are_recognised() -> None:
    model = parse("(float[2] x) => (float[2] y) { z = com.acme.Relu(x)  y = Relu(z) }")
    assert graphs.is_op(node_named(model, "y"), "Relu", "Neg")
    assert not graphs.is_op(node_named(model, "z"), "Relu")
    assert not graphs.is_op(None, "Relu")


@pytest.mark.parametrize(("place", "order"), [("before", "ab12"), ("after", "1ab2"), ("neither", "12ab")])
def test_nodes_are_inserted_in_order(place: str, order: str) -> None:
    model = parse("(float[2] x) => (float[2] z) { y = Relu(x) z = Neg(y) }")
    first = next(iter(model.graph))
    first.metadata_props[graphs.SOURCE_KEY] = "model.py:1"
    insert = graphs.Inserter(
        model, "test", first if place == "before" else None, after=first if place == "after" else None
    )
    for name in "ab":
        insert.op("Abs", [model.graph.inputs[0]], name=name)
    names = {"y": "1", "z": "2"}
    assert "".join(names.get(str(node.outputs[0].name), str(node.outputs[0].name)) for node in model.graph) == order
    sources = {graphs.source_of(node) for node in model.graph if node.op_type == "Abs"}
    assert sources == ({""} if place == "neither" else {"model.py:1"})


def test_what_a_value_is_made_by() -> None:
    model = parse("(float[2] x) => (float[2] y, float[2] z) { a = Neg(x)  b = Abs(a)  y = Add(a, b)  z = Sub(x, a) }")
    made = {node.op_type for node in graphs.makers_of([graphs.outputs_named(model)["y"]])}
    assert made == {"Neg", "Abs", "Add"}


def test_what_a_body_reads_is_what_its_value_is_made_by() -> None:
    model = parse("""(float[2] x, bool c) => (float[2] y) {
        a = Neg(x)
        y = If (c) <then_branch = one () => (float[2] t) { t = Abs(a) },
                    else_branch = two () => (float[2] e) { e = Exp(x) }>
    }""")
    assert {node.op_type for node in graphs.makers_of([graphs.outputs_named(model)["y"]])} == {"If", "Neg"}


@pytest.mark.parametrize(
    ("bias", "line", "is_found"),
    [
        ((3,), "z = Add(y, b)", True),
        ((1, 3), "z = Add(b, y)", True),
        ((1, 1, 1, 3), "z = Add(y, b)", False),
        ((1,), "z = Add(y, b)", False),
        ((3,), "z = Sub(y, b)", False),
        ((3,), "z = Add(y, y)", False),
        ((3,), "u = Add(y, b)  z = Add(y, u)", False),
    ],
)
def test_a_bias_is_a_number_per_column_that_the_only_reader_adds(
    bias: tuple[int, ...], line: str, is_found: bool
) -> None:
    declared = ",".join(map(str, bias))
    model = parse(
        f"""(float[n,t,2] x, float[2,3] w, float[{declared}] b) => (float[n,t,3] z) {{ y = MatMul(x, w)  {line} }}""",
        {"w": np.ones((2, 3), np.float32), "b": np.ones(bias, np.float32)},
    )
    behind = graphs.bias_behind(node_named(model, "y"))
    assert (behind is not None) == is_found
    if behind is not None:
        add, operand = behind
        assert add is node_named(model, "z") and str(add.inputs[operand].name) == "b"  # type: ignore[union-attr]
