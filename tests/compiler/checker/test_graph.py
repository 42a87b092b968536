"""Parts of a graph run by themselves."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.checker.graph import Graph, Part, Rejected
from tests.kit.graphs import parse

TEXT = """(float[batch,time] x) => (float[batch,time] z) <float half = {0.5}>
{ a = Mul(x, half)  b = Relu(a)  z = Add(b, a) }"""


def model() -> onnx.ModelProto:
    return ir.serde.serialize_model(parse(TEXT))


def test_a_part_reads_what_is_given_and_constants() -> None:
    part = Graph(model()).part(["z"], {"a": onnx.TensorProto.FLOAT})
    assert list(part.sources) == ["a"] and [node.op_type for node in part.nodes] == ["Relu", "Add"]
    (result,) = part.run({"a": np.array([[-2.0, 3.0]], np.float32)})
    assert result.tolist() == [[-2.0, 6.0]]


def test_a_part_goes_back_to_graph_inputs() -> None:
    part = Graph(model()).part(["b"], {})
    assert list(part.sources) == ["x"] and len(part.constants) == 1


def test_a_value_that_is_nowhere_is_rejected() -> None:
    with pytest.raises(Rejected, match="does not exist"):
        Graph(model()).part(["other"], {})


def test_constants_are_read_and_other_values_are_none() -> None:
    graph = Graph(model())
    half = graph.constant("half")
    assert half is not None and float(half) == 0.5 and graph.constant("a") is None


def test_steps_differ_by_operators_and_facts_not_by_names() -> None:
    record: dict[str, list[object]] = {"in": [], "out": [], "needs": [], "in_shapes": [], "out_shapes": []}
    one, other = part_of(TEXT), part_of(TEXT.replace(" b = Relu(a)  z = Add(b, a)", " c = Relu(a)  z = Add(c, a)"))
    assert one.digest(record) == other.digest(record)
    assert one.digest(record) != one.digest({**record, "needs": [{"fill": 0}]})
    assert one.digest(record) != part_of(TEXT.replace("Relu", "Abs")).digest(record)


def part_of(text: str) -> Part:
    return Graph(ir.serde.serialize_model(parse(text))).part(["z"], {})
