"""Half precision is rounded as the types say: overflow, lost bits, and nothing where a node only moves."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.half_precision import uses_half, with_rounding
from compiler.graph.runners.session import open_session

MODEL = """
<ir_version: 10, opset_import: ["" : 20]>
net (float[2] x, float16[2] cache, float16[2] w) => (float[2] y, float16[2] next_cache)
<int64[1] zero = {0}, int64[1] two = {2}>
{
   h = Cast<to: int = 10>(x)
   s = Mul(h, h)
   t = Concat<axis: int = 0>(s, cache)
   u = Slice(t, zero, two)
   next_cache = Mul(cache, w)
   r = Sqrt(u)
   y = Cast<to: int = 1>(r)
}
"""


def _model(text: str = MODEL) -> ir.Model:
    model = ir.from_onnx_text(text)
    weights = model.graph.inputs.pop()
    weights.const_value = ir.tensor(np.array([2.0, 3.0], np.float16), name="w")
    model.graph.register_initializer(weights)
    graphs.infer_shapes(model)
    return model


def _run(model: ir.Model, x: list[float]) -> list[np.ndarray]:
    session = open_session(graphs.serialized(model), optimize=True)
    feed = {"x": np.array(x, np.float32), "cache": np.array([1.0, 60000.0], np.float16)}
    return list(session.run(["y", "next_cache"], feed))


def test_the_runtime_alone_does_not_round_and_the_copy_does() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> n (float[1] x) => (float[1] y)
    { h = Cast<to: int = 10>(x) s = Mul(h, h) r = Sqrt(s) y = Cast<to: int = 1>(r) }"""
    model = ir.from_onnx_text(text)
    graphs.infer_shapes(model)
    feed = {"x": np.array([300.0], np.float32)}
    plain, rounded = (
        open_session(graphs.serialized(each), optimize=True).run(None, feed) for each in (model, with_rounding(model))
    )
    assert plain[0].tolist() == [300.0]  # what makes the copy necessary
    assert np.isinf(rounded[0][0])


def test_values_are_those_of_half_precision() -> None:
    rounded = _run(with_rounding(_model()), [300.0, 0.1])
    assert np.isinf(rounded[0][0])
    exact = np.sqrt((np.float16(0.1) * np.float16(0.1)).astype(np.float16)).astype(np.float16)
    assert rounded[0][1] == np.float32(exact)
    assert rounded[1].dtype == np.float16 and np.isinf(rounded[1][1]) and rounded[1][0] == 2


def test_inputs_and_outputs_keep_names_types_and_order() -> None:
    before, after = _model(), with_rounding(_model())
    for side in ("inputs", "outputs"):
        pairs = zip(getattr(before.graph, side), getattr(after.graph, side), strict=True)
        assert all((a.name, a.dtype) == (b.name, b.dtype) for a, b in pairs)
    inner = [node for node in after.graph if node.op_type != "Cast"]
    assert all(output.dtype == ir.DataType.FLOAT for node in inner for output in node.outputs)


def test_what_only_moves_is_not_rounded() -> None:
    casts = [node for node in with_rounding(_model()).graph if node.op_type == "Cast"]
    read = {str(value.name) for node in casts for value in node.inputs if value is not None}
    assert "s" in read and not read & {"t", "u"}


def test_a_graph_in_float32_is_left_alone() -> None:
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> n (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    assert not uses_half(model) and with_rounding(model) is model


def test_bfloat16_is_rounded_to_eight_bits() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> n (float[2] x) => (float[2] y)
    { h = Cast<to: int = 16>(x) s = Mul(h, h) y = Cast<to: int = 1>(s) }"""
    model = ir.from_onnx_text(text)
    graphs.infer_shapes(model)
    session = open_session(graphs.serialized(with_rounding(model)))
    got = session.run(None, {"x": np.array([1.0078125, 300.0], np.float32)})[0]
    assert got.tolist() == [1.015625, 90112.0]


def test_subgraphs_in_half_precision_are_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> n (bool c, float16[2] x) => (float16[2] y)
    { y = If (c) <
        then_branch = a () => (float16[2] p) { p = Mul(x, x) },
        else_branch = b () => (float16[2] q) { q = Add(x, x) }> }"""
    with pytest.raises(Refused, match="subgraph"):
        with_rounding(ir.from_onnx_text(text))
