"""One small graph per rule of the TensorRT linter that breaks the rule, and the nearest graph that keeps it."""

import dataclasses

import ml_dtypes
import numpy as np
import onnx_ir as ir

from compiler.graph.stages import Array
from compiler.targets.tensorrt.lint import lint
from compiler.targets.tensorrt.rule import DeviceLimits, Violation
from tests.kit.graphs import parse

T4 = DeviceLimits((7, 5), 24)

ONE, ZERO8 = np.array(1, np.float32), np.array(0, np.int8)
ONES = np.ones((4, 4), np.float32)
WEIGHT: dict[str, Array] = {
    "w": np.arange(-8, 8, dtype=np.int8).reshape(4, 4),
    "ws": np.full(4, 0.1, np.float32),
    "wz": np.zeros(4, np.int8),
    "s": ONE,
    "z": ZERO8,
}
QDQ = "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)"
MATMUL = f"""(float[2,4] x, int8[4,4] w, float[4] ws, int8[4] wz, float s, int8 z) => (float[2,4] y)
    {{ {QDQ}  dw = DequantizeLinear<axis = 1>(w, ws, wz)  y = MatMul(d, dw) }}"""
BOTH = "(float[2,4] x) => (float[2,4] y)"


@dataclasses.dataclass(frozen=True)
class Case:
    """A graph in ONNX text, its constants, and where its types cannot be inferred, the types of values."""

    text: str
    weights: dict[str, Array] = dataclasses.field(default_factory=dict)
    opset: int = 20
    open_axis: str | None = None
    types: dict[str, ir.DataType] = dataclasses.field(default_factory=dict)

    def model(self) -> ir.Model:
        model = parse(self.text, self.weights, self.opset)
        for node in ir.traversal.RecursiveGraphIterator(model.graph):
            for value in node.outputs:
                if value.name in self.types:
                    value.type = ir.TensorType(self.types[value.name])
        return model

    def found(self) -> tuple[Violation, ...]:
        return lint(self.model(), dataclasses.replace(T4, open_axis=self.open_axis))

    def with_weights(self, **weights: Array) -> "Case":
        return dataclasses.replace(self, weights=self.weights | weights)


def axis_of(op: str, constant: bool) -> Case:
    """An operator whose axes are an initializer or computed."""
    text = f"(float[2,4] x, int64[1] at) => (float[2,1] y) {{ y = {op}(x, {'at' if constant else 'there'}) }}"
    if not constant:
        text = text.replace("{ y", "{ there = Identity(at)  y")
    return Case(text, {"at": np.array([1])} if constant else {})


def branch(first: str, second: str, rank: int = 1) -> Case:
    """Two branches whose outputs have given names, the second with a rank of its own."""
    shape, other = ("[2]", "[2]") if rank == 1 else ("[2]", "[2,1]")
    make = "Relu(x)" if rank == 1 else "Unsqueeze(x, one)"
    return Case(
        f"""(bool c, float[2] x, int64[1] one) => (float[2] y) {{
            y = If(c) <then_branch = a () => (float{shape} {first}) {{ {first} = Neg(x) }},
                       else_branch = b () => (float{other} {second}) {{ {second} = {make} }}> }}""",
        {"one": np.array([1])},
    )


def loop(constant: bool, condition: str = "went") -> Case:
    """A loop that stacks an output."""
    return Case(
        f"""(int64 n, bool go, float[2] x) => (float[2] last, float[k,2] all) {{
            went = Not(go)
            last, all = Loop(n, {condition}, x) <body = b (int64 i, bool c, float[2] h)
                => (bool again, float[2] next, float[2] out) {{
                again = Identity(c)  next = Neg(h)  out = Abs(h) }}> }}""",
        {"n": np.array(3)} if constant else {},
        types={"all": ir.DataType.FLOAT, "last": ir.DataType.FLOAT},
    )


def lengths(op: str, kind: str) -> Case:
    """A recurrence over rows of lengths of their own."""
    return Case(
        f"""({kind}[3,1,4] x, {kind}[1,6,4] w, {kind}[1,6,2] r, int32[1] n) => ({kind}[3,1,1,2] y)
            {{ y = {op}<hidden_size = 2>(x, w, r, , n) }}"""
    )


def hidden(kind: str) -> Case:
    """Scores that a mask of the caller hides, as a compiled attention has them."""
    half = kind == "float16"
    return Case(
        f"""({kind}[1,4,16,36] q, {kind}[1,4,36,144] k, {kind}[1,4,144,36] v, {kind}[1,4,16,144] c,
             bool[1,1,1,144] m, {kind} low) => ({kind}[1,4,16,36] y)
            {{ s = MatMul(q, k)  t = Add(s, c)  h = Where(m, t, low)  p = Softmax(h)  y = MatMul(p, v) }}""",
        {"low": np.array(-np.inf, np.float16 if half else np.float32)},
    )


def stft(parts: int, given: str = "") -> Case:
    """A spectrum of frames, one of whose operands may be fed; a signal has one part, or a real and an imaginary one."""
    constants: dict[str, Array] = {"step": np.array(4), "window": np.ones(8, np.float32), "length": np.array(8)}
    return Case(
        f"""(float[1,32,{parts}] x, int64 step, float[8] window, int64 length) => (float[1,7,8,2] y)
            {{ y = STFT<onesided = 0>(x, step, window, length) }}""",
        {name: array for name, array in constants.items() if name != given},
        types={"y": ir.DataType.FLOAT},
    )


def pair(body: str, **weights: Array) -> Case:
    """A weighted graph whose pairs are written out."""
    text = f"(float[2,4] x, int8[4,4] w, float[4] ws, int8[4] wz, float s, int8 z) => (float[2,4] y) {{ {body} }}"
    return Case(text, WEIGHT).with_weights(**weights)


DW = "dw = DequantizeLinear<axis = 1>(w, ws, wz)"
PLANTED: dict[str, tuple[Case, Case]] = {
    "opset": (Case(f"{BOTH} {{ y = Relu(x) }}", opset=25), Case(f"{BOTH} {{ y = Relu(x) }}", opset=24)),
    "domain": (
        Case(f"{BOTH} {{ y = com.acme.Relu(x) }}", types={"y": ir.DataType.FLOAT}),
        Case(f"{BOTH} {{ y = Relu(x) }}"),
    ),
    "data-size": (
        Case(
            "(float[4] x, int64[1] last) => (int64[1,1] y) { at = NonZero(x)  y = ReduceSum(at, last) }",
            {"last": np.array([1])},
        ),
        Case("(float[4] x, float z) => (float[4] y) { n = Equal(x, z)  y = Where(n, z, x) }", {"z": ONE}),
    ),
    "operator": (
        Case(
            "(float[2,4] x, uint8 z, float s) => (int32[2,2] y) { y = Det(x) }",
            types={"y": ir.DataType.FLOAT},
        ),
        Case(f"{BOTH} {{ y = Abs(x) }}"),
    ),
    "operand-type": (
        Case("(int64[2,4] x) => (int64[2,4] y) { a = Constant<value_int = 1>()  y = CumSum(x, a) }"),
        Case("(float[2,4] x) => (float[2,4] y) { a = Constant<value_int = 1>()  y = CumSum(x, a) }"),
    ),
    "attention": (
        Case(
            "(float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Attention(x, x, x) }",
            opset=23,
            types={"y": ir.DataType.FLOAT},
        ),
        Case("(float[1,2,3,4] x) => (float[1,2,3,4] y) { y = Softmax(x) }", opset=23),
    ),
    "real-signal": (stft(parts=2), stft(parts=1)),
    "constant-operand": (axis_of("ReduceSum", constant=False), axis_of("ReduceSum", constant=True)),
    "cumsum-axis": (
        Case("(float[2,4] x, int64 a) => (float[2,4] y) { y = CumSum(x, a) }"),
        Case("(float[2,4] x, int64 a) => (float[2,4] y) { y = CumSum(x, a) }", {"a": np.array(1)}),
    ),
    "topk-k": (
        Case("(float[4000] x, int64[1] k) => (float[k] y) { y, i = TopK(x, k) }", {"k": np.array([3840])}),
        Case("(float[4000] x, int64[1] k) => (float[k] y) { y, i = TopK(x, k) }", {"k": np.array([3839])}),
    ),
    "topk-sorted": (
        Case("(float[4] x, int64[1] k) => (float[2] y) { y, i = TopK<sorted = 0>(x, k) }", {"k": np.array([2])}),
        Case("(float[4] x, int64[1] k) => (float[2] y) { y, i = TopK<sorted = 1>(x, k) }", {"k": np.array([2])}),
    ),
    "first-output": (
        Case(
            "(float[2,4] x, float[4] g) => (float[2,4] y, float[2,1] mean) { y, mean = LayerNormalization(x, g) }",
            {"g": np.ones(4, np.float32)},
        ),
        Case("(float[2,4] x, float[4] g) => (float[2,4] y) { y = LayerNormalization(x, g) }", {"g": ONES[0]}),
    ),
    "scatter-reduction": (
        Case("(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = ScatterND<reduction = \"add\">(x, i, u) }"),
        Case("(float[4] x, int64[2,1] i, float[2] u) => (float[4] y) { y = ScatterND(x, i, u) }"),
    ),
    "loop-length": (loop(constant=False), loop(constant=True)),
    "loop-condition": (loop(constant=True, condition="go"), loop(constant=True)),
    "if-branches": (branch("p", "q", rank=2), branch("p", "q")),
    "rotary-positions": (
        Case(
            "(float[1,2,3,4] x, float[8,2] c, float[8,2] s, int32[1,3] p) => (float[1,2,3,4] y)"
            " { y = RotaryEmbedding(x, c, s, p) }",
            opset=23,
            types={"y": ir.DataType.FLOAT},
        ),
        Case(
            "(float[1,2,3,4] x, float[8,2] c, float[8,2] s, int64[1,3] p) => (float[1,2,3,4] y)"
            " { y = RotaryEmbedding(x, c, s, p) }",
            opset=23,
            types={"y": ir.DataType.FLOAT},
        ),
    ),
    "tensor-scatter": (
        Case(
            "(float[1,6,4] x, float[1,2,4] u) => (float[1,6,4] y) { y = TensorScatter(x, u) }",
            opset=24,
            types={"y": ir.DataType.FLOAT},
        ),
        Case(
            "(float[1,1,6,4] x, float[1,1,2,4] u) => (float[1,1,6,4] y) { y = TensorScatter(x, u) }",
            opset=24,
            types={"y": ir.DataType.FLOAT},
        ),
    ),
    "recurrent": (
        Case(
            "(float[1,3,4] x, float[1,6,4] w, float[1,6,2] r) => (float[1,3,1,2] y)"
            " { y = GRU<hidden_size = 2, layout = 1>(x, w, r) }"
        ),
        Case(
            "(float[3,1,4] x, float[1,6,4] w, float[1,6,2] r) => (float[3,1,1,2] y)"
            " { y = GRU<hidden_size = 2>(x, w, r) }"
        ),
    ),
    "half-lengths": (lengths("GRU", "float16"), lengths("GRU", "float")),
    "hidden-scores": (hidden("float16"), hidden("float")),
    "dilated-pool": (
        Case("(float[1,1,8,8] x) => (float[1,1,k,k] y) { y = MaxPool<kernel_shape = [2, 2], dilations = [2, 2]>(x) }"),
        Case("(float[1,1,8,8] x) => (float[1,1,k,k] y) { y = MaxPool<kernel_shape = [2, 2], dilations = [1, 1]>(x) }"),
    ),
    "same-types": (
        Case("(float[2,4] x, float16[4] h) => (float[2,4] y) { y = Add(x, h) }", {"h": np.ones(4, np.float16)}),
        Case("(float[2,4] x, float[4] h) => (float[2,4] y) { y = Add(x, h) }", {"h": np.ones(4, np.float32)}),
    ),
    "quantized-inner": (
        Case(
            """(bool c, float[2] x, float s, int8 z) => (float[2] y) {
            y = If(c) <then_branch = a () => (float[2] p) { q = QuantizeLinear(x, s, z)
                                                                 p = DequantizeLinear(q, s, z) },
                       else_branch = b () => (float[2] o) { o = Neg(x) }> }""",
            {"s": ONE, "z": ZERO8},
            types={"q": ir.DataType.INT8, "p": ir.DataType.FLOAT},
        ),
        branch("p", "q"),
    ),
    "element-type": (
        Case("(float[2] x) => (double[2] y) { d = Cast<to = 11>(x)  y = Identity(d) }"),
        Case("(float[2] x) => (float16[2] y) { d = Cast<to = 10>(x)  y = Identity(d) }"),
    ),
    "tensors-only": (
        Case("(float[2] x) => (float[2] y)"
            " { s = SequenceConstruct(x)  p = Constant<value_int = 0>()  y = SequenceAt(s, p) }"),
        Case("(float[2] x) => (float[2] y) { y = Identity(x) }"),
    ),
    "known-type": (
        Case("(float[2] x) => (float[2] y) { u = com.acme.Unknown(x)  y = Identity(u) }"),
        Case("(float[2] x) => (float[2] y) { u = Identity(x)  y = Identity(u) }"),
    ),
    "uint8-border": (
        Case("(uint8[2] x) => (uint8[2] y) { y = Identity(x) }"),
        Case("(uint8[2] x) => (uint8[2] y) { f = Cast<to = 1>(x)  g = Relu(f)  y = Cast<to = 2>(g) }"),
    ),
    "int8-quantized": (
        Case("(float[2] x) => (float[2] y) { i = Cast<to = 3>(x)  y = Cast<to = 1>(i) }"),
        Case("(float[2] x) => (float[2] y) { i = Cast<to = 6>(x)  y = Cast<to = 1>(i) }"),
    ),
    "profile": (
        Case("(float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }"),
        Case("(float[batch,4] x) => (float[batch,4] y) { y = Relu(x) }", open_axis="batch"),
    ),
    "quantized-type": (
        Case(
            "(float[2,4] x, float s) => (float[2,4] y) { q = QuantizeLinear(x, s)  y = DequantizeLinear(q, s) }",
            {"s": ONE},
        ),
        Case(f"(float[2,4] x, float s, int8 z) => (float[2,4] d) {{ {QDQ} }}", {"s": ONE, "z": ZERO8}),
    ),
    "zero-point": (Case(MATMUL, WEIGHT).with_weights(z=np.array(1, np.int8)), Case(MATMUL, WEIGHT)),
    "scale": (Case(MATMUL, WEIGHT).with_weights(s=np.array(0, np.float32)), Case(MATMUL, WEIGHT)),
    "scale-lengths": (
        Case(MATMUL.replace("int8[4] wz", "int8[1] wz"), WEIGHT).with_weights(wz=np.zeros(1, np.int8)),
        Case(MATMUL, WEIGHT),
    ),
    "scale-channels": (
        Case(MATMUL.replace("[4] w", "[3] w"), WEIGHT).with_weights(
            ws=np.full(3, 0.1, np.float32), wz=np.zeros(3, np.int8)
        ),
        Case(MATMUL, WEIGHT),
    ),
    "scale-blocks": (
        Case(
            """(float[2,4] x, int8[4,4] w, float[2,4] ws, int8[2,4] wz, float s, int8 z) => (float[2,4] y)
            { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)
              dw = DequantizeLinear<axis = 0, block_size = 2>(w, ws, wz)  y = MatMul(d, dw) }""",
            WEIGHT | {"ws": np.full((2, 4), 0.1, np.float32), "wz": np.zeros((2, 4), np.int8)},
            opset=21,
        ),
        Case(MATMUL, WEIGHT, opset=21),
    ),
    "activation-per-tensor": (
        pair(
            "q = QuantizeLinear<axis = 1>(x, ws, wz)  d = DequantizeLinear<axis = 1>(q, ws, wz)"
            f"  {DW}  y = MatMul(d, dw)"
        ),
        pair(f"{QDQ}  {DW}  y = MatMul(d, dw)"),
    ),
    "weight-axis": (
        pair(f"{QDQ}  dw = DequantizeLinear<axis = 0>(w, ws, wz)  y = MatMul(d, dw)"),
        pair(f"{QDQ}  dw = DequantizeLinear<axis = 0>(w, ws, wz)  y = Gemm<transB = 1>(d, dw)"),
    ),
    "weight-range": (
        Case(MATMUL, WEIGHT).with_weights(w=np.full((4, 4), -128, np.int8)),
        Case(MATMUL, WEIGHT).with_weights(w=np.full((4, 4), -127, np.int8)),
    ),
    "float-only": (pair(f"{QDQ}  y = Softmax(d)"), pair(f"{QDQ}  y = Relu(d)")),
    "float-bias": (
        Case(
            f"""(float[2,4] x, int8[4,4] w, float[4] ws, int8[4] wz, float s, int8 z, int8[4] b) => (float[2,4] y)
            {{ {QDQ}  {DW}  db = DequantizeLinear(b, s, z)  m = MatMul(d, dw)  y = Add(m, db) }}""",
            WEIGHT | {"b": np.ones(4, np.int8)},
        ),
        Case(
            f"""(float[2,4] x, int8[4,4] w, float[4] ws, int8[4] wz, float s, int8 z, float[4] b) => (float[2,4] y)
            {{ {QDQ}  {DW}  m = MatMul(d, dw)  y = Add(m, b) }}""",
            WEIGHT | {"b": np.ones(4, np.float32)},
        ),
    ),
    "both-halves": (
        pair("q = QuantizeLinear(x, s, z)  r = Relu(x)  y = Neg(r)"),
        pair(f"{QDQ}  r = Relu(d)  y = Neg(r)"),
    ),
}  # fmt: skip
"""By rule: a graph that breaks it, and one that keeps it as narrowly as can be."""

BFLOAT16 = Case(
    "(float[4] x, bfloat16[4] h) => (float[4] y) { w = Cast<to = 1>(h)  y = Add(x, w) }",
    {"h": np.ones(4, ml_dtypes.bfloat16)},
)

STAYS: dict[str, str] = {
    "opset": "TensorRT documents opset 25 from 11.5 on, and drivers of a T4 may come with 10.9",
    "domain": "the parser takes an operator of any other domain for the standard one of its name, without a word",
    "operand-type": "the table of TensorRT's parser lacks these types",
    "topk-k": "TensorRT documents that limit",
    "topk-sorted": "the order of the results changes: it sorts them all the same",
    "rotary-positions": "TensorRT documents INT64 alone",
    "recurrent": "TensorRT documents the values 0 alone",
    "quantized-inner": "what is quantised inside loops and branches computes in floating point: noise for nothing",
    "element-type": "DOUBLE is computed in FLOAT without a word",
    "uint8-border": "TensorRT documents UINT8 for network inputs and outputs alone",
    "int8-quantized": "TensorRT documents INT8 between Q/DQ pairs alone",
    "quantized-type": "TensorRT documents INT8 alone",
    "scale-blocks": "TensorRT documents blocks for 4-bit weights alone",
    "activation-per-tensor": "NVIDIA's rules know one scale per activation",
    "weight-axis": "NVIDIA's rules know scales along the outputs alone",
    "weight-range": "NVIDIA's guide keeps weights at -127 to 127",
    "float-only": "a pair in front of what computes in floating point costs a kernel and noise",
    "float-bias": "NVIDIA's rules leave a bias in floating point: noise for nothing",
    "both-halves": "half a pair computes nothing on integers",
}
"""Rules that graphs break which TensorRT-RTX 1.7 builds all the same, and why each stays."""
