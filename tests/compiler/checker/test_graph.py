"""Parts of a graph run by themselves."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compiler.checker.graph import DoesNotRun, Graph, NoKernel, Part, Rejected, opened
from compiler.graph.runners.structure import split
from tests.kit.graphs import parse

TEXT = """(float[batch,time] x) => (float[batch,time] z) <float half = {0.5}>
{ a = Mul(x, half)  b = Relu(a)  z = Add(b, a) }"""

FACTS = ("in", "out", "needs", "in_shapes", "out_shapes")


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
    record: dict[str, list[object]] = {key: [] for key in ("inputs", *FACTS)}
    one, other = part_of(TEXT), part_of(TEXT.replace(" b = Relu(a)  z = Add(b, a)", " c = Relu(a)  z = Add(c, a)"))
    assert one.digest(record) == other.digest(record)
    assert one.digest(record) != one.digest({**record, "needs": [{"fill": 0}]})
    assert one.digest(record) != part_of(TEXT.replace("Relu", "Abs")).digest(record)


@pytest.mark.parametrize(
    ("other", "output", "is_distinct"),
    [
        ([-0.25, 0.5, False], ["-inf", "inf", True], False),  # of another size
        ([-0.25, 0.5, False], [-9.0, 9.0, False], True),  # which decides how large the results are
        ([0.0, 0.5, False], ["-inf", "inf", True], True),  # of another sign
        ([-0.5, "inf", False], ["-inf", "inf", True], True),
        ([-0.5, 0.5, True], ["-inf", "inf", True], True),
        ([0.5, 0.5, False], ["-inf", "inf", True], True),  # one number
    ],
)
@pytest.mark.parametrize("size", [4, 32])
def test_the_size_of_weights_makes_no_step_distinct(
    other: list[object], output: list[object], is_distinct: bool, size: int
) -> None:
    text = f"(float[batch,{size}] x, float[{size},{size}] w) => (float[batch,{size}] z) {{ z = MatMul(x, w) }}"
    part = Graph(ir.serde.serialize_model(parse(text, {"w": np.ones((size, size), np.float32)}))).part(["z"], {})
    anything = {"axes": {}, "contents": [[[], "-inf", "inf", True]]}
    one, two = (
        {
            **{key: [] for key in FACTS}, "inputs": ["x", "w"], "out": [{"axes": {}, "contents": [[[], *output]]}],
            "in": [anything, {"axes": {}, "contents": [[[], *content]]}],
        }
        for content in ([-0.5, 0.25, False], other)
    )  # fmt: skip
    assert (part.digest(one) != part.digest(two)) == (is_distinct or size == 4), "small constants count as they are"


def part_of(text: str) -> Part:
    return Graph(ir.serde.serialize_model(parse(text))).part(["z"], {})


def test_a_part_whose_kernel_stops_does_not_run() -> None:
    text = "(int64[k] at) => (float[k] y) <float[3] table = {0.0, 1.0, 2.0}> { y = Gather<axis = 0>(table, at) }"
    part = Graph(ir.serde.serialize_model(parse(text))).part(["y"], {})
    assert part.run({"at": np.array([2])})[0].tolist() == [2.0]
    with pytest.raises(DoesNotRun, match="out of data bounds"):
        part.run({"at": np.array([3])})
    with pytest.raises(KeyError):
        part.run({})


def test_results_in_bfloat16_are_given_in_float32() -> None:
    """A size that goes through bfloat16 was said to stop the original: NumPy has no such type."""
    text = "(int64[k] n) => (bfloat16[k] y, int64[k] z) { y = Cast<to = 16>(n) z = Cast<to = 7>(y) }"
    part = Graph(ir.serde.serialize_model(parse(text))).part(["z", "y"], {})
    whole, coarse = part.run({"n": np.array([3, 257])})
    assert (whole.dtype.name, whole.tolist()) == ("int64", [3, 256])
    assert (coarse.dtype.name, coarse.tolist()) == ("float32", [3.0, 256.0])


def test_a_part_without_a_kernel_is_rejected() -> None:
    text = "(bfloat16[k] x) => (bfloat16[k] y) { y = Conv(x, x) }"
    part = Graph(ir.serde.serialize_model(parse(text))).part(["y"], {})
    with pytest.raises(Rejected, match=r"does not open \['Conv'\]"):
        part.run({"x": np.zeros(1)})


def test_a_node_without_a_kernel_for_its_types_is_named_with_those_that_have_one() -> None:
    text = "(bfloat16[k] x) => (bfloat16[k] y) { y = Mul(x, x) }"
    part = Graph(ir.serde.serialize_model(parse(text))).part(["y"], {})
    with pytest.raises(NoKernel, match=r"node 'y_mul' cannot be run: .*Mul") as caught:
        part.run({"x": np.zeros(1)})
    assert "compute it in float32" in caught.value.cure


def test_large_weights_are_read_where_they_lie() -> None:
    wide = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    whole = parse("(float[2,16] x, float[16,16] w) => (float[2,16] y) { y = MatMul(x, w) }", {"w": wide})
    apart = split(whole)
    session = opened(apart.proto, apart.weights)
    assert np.shares_memory(session.weights["w"], next(iter(apart.weights.values())))
    x = np.ones((2, 16), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ wide, rtol=1e-5, atol=1e-5)
