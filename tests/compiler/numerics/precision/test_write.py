"""Types come from the graph alone; every value is cast at most once per type."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.stages import Lowered, State
from compiler.numerics.precision.write import write_types
from tests.kit.graphs import node_named, ops_of, parse

HALF = ir.DataType.FLOAT16
WEIGHTS = {"w": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}
FAN = """(float[2,2] x, float[2,2] w) => (float[2,2] y, float[2,2] z)
{ a = MatMul(x, w) b = Exp(a) c = Tanh(a) d = Sqrt(b) y = Add(d, c) z = Neg(b) }"""


def written(text: str, *float32: str, kind: ir.DataType = HALF, **given: object) -> Lowered:
    return write_types(Lowered("tiny", parse(text, WEIGHTS), **given), float32, kind)  # type: ignore[arg-type]


def check_types(lowered: Lowered) -> None:
    onnx.checker.check_model(ir.serde.serialize_model(lowered.model), full_check=True)
    casts = [(node.inputs[0], node.attributes["to"].value) for node in lowered.model.graph if node.op_type == "Cast"]
    assert len(casts) == len(set(casts)), "one Cast per value and type"
    made = {node.outputs[0] for node in lowered.model.graph if node.op_type == "Cast"}
    assert not any(value in made for value, _ in casts), "no Cast of a Cast"


@pytest.mark.parametrize("float32", [(), ("b_exp",), ("b_exp", "c_tanh"), ("a_matmul",), ("d_sqrt", "a_matmul")])
@pytest.mark.parametrize("kind", [HALF, ir.DataType.BFLOAT16])
def test_any_choice_gives_a_well_typed_graph_with_float32_outside(float32: tuple[str, ...], kind: ir.DataType) -> None:
    lowered = written(FAN, *float32, kind=kind)
    check_types(lowered)
    graph = lowered.model.graph
    assert {value.dtype for value in (*graph.inputs, *graph.outputs)} == {ir.DataType.FLOAT}
    for node in graph:
        if node.op_type != "Cast":
            assert node.outputs[0].dtype == (ir.DataType.FLOAT if node.name in float32 else kind), node.name
    got = session_of(lowered.model).run(None, {"x": np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)})
    expected = session_of(parse(FAN, WEIGHTS)).run(None, {"x": np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)})
    assert all(np.allclose(a, b, rtol=5e-2) for a, b in zip(got, expected, strict=True))


def test_an_island_is_entered_and_left_by_one_cast_each() -> None:
    lowered = written(FAN, "b_exp")
    assert ops_of(lowered.model).count("Cast") == 5  # x; a to float32; b to float16 for d and z; y and z for the caller


def test_weights_are_written_in_both_types_only_if_both_read_them() -> None:
    text = "(float[2,2] x, float[2,2] w) => (float[2,2] y) { a = MatMul(x, w) y = MatMul(a, w) }"
    assert len(written(text).model.graph.initializers) == 1
    both = written(text, "y_matmul").model.graph.initializers
    assert {value.dtype for value in both.values()} == {HALF, ir.DataType.FLOAT}


def test_a_state_is_of_one_type_on_both_sides() -> None:
    text = "(float[2] x, float[2] s) => (float[2] y, float[2] t) { t = Add(x, s) y = Neg(t) }"
    states = (State("s", "t", None),)
    half = written(text, states=states)
    inputs, outputs = graphs.inputs_named(half.model), graphs.outputs_named(half.model)
    assert inputs["s"].dtype == outputs["t"].dtype == HALF
    mixed = written(text, "state s", states=states)
    assert graphs.outputs_named(mixed.model)["t"].dtype == ir.DataType.FLOAT
    check_types(half)
    check_types(mixed)


def test_what_masks_fill_in_stays_finite() -> None:
    weights = {"low": np.array(-3.4e38, np.float32), "m": np.array([True, False])}
    model = parse("(float[2] x, float low, bool[2] m) => (float[2] y) { a = Where(m, x, low) y = Exp(a) }", weights)
    lowered = write_types(Lowered("tiny", model), (), HALF)
    fill = graphs.array_of(node_named(lowered.model, "a").inputs[2])
    assert fill is not None and fill == np.float16(-65504)


def test_casts_of_the_model_change_their_type_and_integers_stay() -> None:
    text = "(int64[2] n) => (float[2] y) { a = Cast<to = 1>(n) b = Exp(a) y = Neg(b) }"
    lowered = written(text)
    assert node_named(lowered.model, "a").attributes["to"].value == int(HALF)
    check_types(lowered)
    assert lowered.model.graph.inputs[0].dtype == ir.DataType.INT64


def test_the_original_is_not_changed() -> None:
    before = Lowered("tiny", parse(FAN, WEIGHTS))
    write_types(before, (), HALF)
    assert {output.dtype for node in before.model.graph for output in node.outputs} == {ir.DataType.FLOAT}
