"""operators: torch computes every node as ONNX Runtime does, whatever its spelling."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

from compiler.errors import Refused
from compiler.graph.torch_graphs.module import GraphModule, example_inputs
from compiler.graph.torch_graphs.operators import RULES, refused_nodes
from tests.compiler.graph.test_axis_map import OPERATORS, texts
from tests.kit.graphs import parse
from tests.kit.whole_sequences import session

UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Tanh", "Log",
)  # fmt: skip

BINARY = ("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "PRelu", "Sub", "Sum")

COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")

NEWER = """
(float[2,3] x) => (float[2,3] y) { y = Swish(x) }
(float[2,3,4] x) => (float[2,3,4] y) <float[4] w = {1, 2, 3, 4}> { y = RMSNormalization(x, w) }
"""
"""Since operator sets 23 and 24."""

OTHERS = """
(int64[4] x, int64[4] w) => (int64[4] y) { y = Div(x, w) }
(int64[4] x, int64[4] w) => (int64[4] y) { y = Mod(x, w) }
(int64[4] x, int64[4] w) => (int64[4] y) { y = Mod<fmod = 1>(x, w) }
(float[4] x) => (int64[4] y) { y = Cast<to = 7>(x) }
(float[4] x) => (bool[4] y) { y = Cast<to = 9>(x) }
(float[4] x) => (float[4] y) <float l = {-0.5}> { y = Clip(x, l) }
(float[4] x) => (float[4] y) <float h = {0.5}> { y = Clip(x, , h) }
(float[4] x) => (float[4] y)
    { a = Cast<to = 9>(x) b = Not(a) c = Or(a, b) d = Xor(a, c) e = And(c, d) y = Cast<to = 1>(e) }
(float[4] x) => (bool[4] y) { r = Log(x) y = IsNaN(r) }
(float[4] x) => (bool[4] y) { z = Sub(x, x) r = Div(x, z) y = IsInf(r) }
(float[3] x, float[2,3] w) => (float[2,3] y) { c = Greater(w, x) y = Where(c, x, w) }
(float[2,3,4] x) => (float[2,2,3,8] y) <int64[4] r = {2, 1, 1, 2}, int64[4] s = {1, 2, 3, 4}>
    { z = Reshape(x, s) y = Tile(z, r) }
(float[2,3,4] x) => (float[2,3,4] y) { y = Trilu<upper = 0>(x) }
(float[2,3,4] x) => (float[2,3,4] y) <int64 k = {1}> { y = Trilu(x, k) }
(float[2,3,4] x) => (float[2,1,4] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }
(float[2,3,4] x) => (float[2,4] y) <int64[1] a = {-2}> { y = ReduceMin<keepdims = 0>(x, a) }
(float[2,3,4] x) => (float[2,3,1] y) <int64[1] a = {2}> { y = ReduceL2(x, a) }
(float[2,3,4] x) => (float[2,3,1] y) <int64[1] a = {2}> { y = ReduceLogSumExp(x, a) }
(float[2,3,4] x) => (float[2,3,1] y) <int64[1] a = {2}> { y = ReduceSumSquare(x, a) }
(int64[2,3] x) => (int64[2,1] y) <int64[1] a = {1}> { y = ReduceSum(x, a) }
(float[2,3] x, float[3,4] w) => (float[2,4] y) { y = Gemm<alpha = 0.5>(x, w) }
(float[2,4,9] x, float[4,3,3] w) => (float[2,3,17] y) { y = ConvTranspose<strides = [2], pads = [1, 1]>(x, w) }
(float[2,4,9] x, float[4,3,3] w) => (float[2,3,18] y) { y = ConvTranspose<strides = [2], pads = [0, 1]>(x, w) }
(float[2,4,9] x, float[4,2,3] w, float[2] b) => (float[2,2,11] y) { y = ConvTranspose(x, w, b) }
(float[2,4,9] x, float[6,2,3] w, float[6] b) => (float[2,6,4] y) { y = Conv<group = 2, strides = [2]>(x, w, b) }
(float[2,4,9] x, float[4,1,3] w) => (float[2,4,9] y) { y = Conv<group = 4, pads = [4, 0], dilations = [2]>(x, w) }
(float[2,3,9] x) => (float[2,3,5] y) { y = MaxPool<kernel_shape = [3], strides = [2], pads = [1, 1]>(x) }
(float[2,3,4] x) => (float[2,3,4] y) <int64 a = {-2}> { y = CumSum(x, a) }
(float[2,3] x) => (float[5,3] y) <int64[5] i = {0, -1, 1, -2, 0}> { y = Gather(x, i) }
(float[2,3] x) => (float[2,2] y) <int64[2,2] i = {0, -1, 2, 1}> { y = GatherElements<axis = 1>(x, i) }
(float[2,3] x) => (float[2,3] y) <int64[2] s = {2, 3}> { z = ConstantOfShape(s) y = Add(x, z) }
(float[2,3] x) => (float[2,3] y) { c = Constant<value = float[3] {1, 2, 3}>() y = Add(x, c) }
(float[2,4,5] x, float[4] s, float[4] b, float[4] m, float[4] v) => (float[2,4,5] y)
    { w = Abs(v) y = BatchNormalization(x, s, b, m, w) }
"""


def results(model: ir.Model) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What ONNX Runtime and torch answer to the same random inputs."""
    draw, feeds = np.random.default_rng(3), dict[str, np.ndarray]()
    for value in model.graph.inputs:
        numbers = draw.standard_normal([int(str(size)) for size in value.shape or ()]) * 3
        kind = (value.dtype or ir.DataType.FLOAT).numpy()
        is_whole = kind.kind == "i"
        feeds[str(value.name)] = (np.sign(numbers) * np.ceil(np.abs(numbers)) if is_whole else numbers).astype(kind)
    expected = session(model).run(None, feeds)
    with torch.no_grad():
        got = GraphModule(model, "net")(*(torch.from_numpy(feeds[str(value.name)]) for value in model.graph.inputs))
    return expected, [each.numpy() for each in got]


def models() -> list[ir.Model]:
    unary = [f"(float[2,3] x) => (float[2,3] y) {{ y = {name}(x) }}" for name in UNARY]
    binary = [f"(float[2,3] x, float[3] w) => (float[2,3] y) {{ y = {name}(x, w) }}" for name in BINARY]
    compared = [f"(float[2,3] x, float[2,1] w) => (bool[2,3] y) {{ y = {name}(x, w) }}" for name in COMPARED]
    taken = [text for text in texts(OPERATORS) if not refused_nodes(parse(text))]
    older = [parse(text) for text in (*unary, *binary, *compared, *texts(OTHERS), *taken)]
    return [*older, *(parse(text, opset=24) for text in texts(NEWER))]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.graph[-1].op_type)
def test_torch_computes_what_onnx_runtime_does(model: ir.Model) -> None:
    expected, got = results(model)
    for one, other in zip(expected, got, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(other, one, rtol=2e-5, atol=2e-5)


def test_every_function_is_tried() -> None:
    tried = {node.op_type for model in models() for node in model.graph}
    assert set(RULES) - tried == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(float[4] x) => (int64[1,4] y) { y = NonZero(x) }", "NonZero"),
        (
            "(float[4,4] x, int64 k) => (float[4,4] y) { y = Trilu(x, k) }",
            "Trilu reads sizes or positions that are computed",
        ),
        ("(float[4] x) => (float[4] y) <int64[2] p = {1, -1}> { y = Pad<mode = \"edge\">(x, p) }", "Pad has a mode"),
    ],
)  # fmt: skip
def test_what_torch_has_no_counterpart_for_is_refused_by_name(text: str, words: str) -> None:
    model = parse(text)
    with pytest.raises(Refused, match=words):
        GraphModule(model, "net")(*example_inputs(model))
