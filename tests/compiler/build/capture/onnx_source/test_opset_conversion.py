"""Graphs of old operator sets mean the same in the set that passes write."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.build.capture.onnx_source.opset_conversion import LARGEST, raised
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import OLDEST_OPSET
from compiler.graph.runners.session import open_session
from tests.kit.graphs import ops_of, parse

X = "(float[batch,time,4] x) => (float[p,q,r] y)"


def same(model: ir.Model) -> ir.Model:
    """The converted graph, which gives what the graph gave."""
    converted = raised(model)
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    (wanted,), (got,) = (open_session(graphs.serialized(each)).run(None, {"x": x}) for each in (model, converted))
    np.testing.assert_array_equal(got, wanted)
    return converted


def test_softmax_of_opset_11_runs_over_all_axes_from_one_on() -> None:
    converted = same(parse(f"{X} {{ y = Softmax<axis = 1>(x) }}", opset=11))
    assert converted.graph.opset_imports[""] == OLDEST_OPSET
    assert ops_of(converted) == ["Shape", "Flatten", "Softmax", "Reshape"]


def test_new_nodes_are_named_and_located_after_the_node_that_they_serve() -> None:
    converted = same(parse(f"{X} {{ a = Relu(x)  y = ReduceSum<axes = [1]>(a) }}", opset=11))
    assert [node.name for node in converted.graph] == ["a_relu", "y_reducesum_constant", "y_reducesum"]
    lines = [graphs.source_of(node) for node in converted.graph]
    assert lines[0].startswith("tiny.py:1 ") and lines[1] == lines[2] and lines[2].startswith("tiny.py:2 ")


def test_a_node_that_gives_way_to_others_hands_its_line_on() -> None:
    text = "(float[batch,time,4] x, float[3] scales) => (float[p,q,r] y) { y = Upsample(x, scales) }"
    converted = same(parse(text, {"scales": np.array([1, 2, 1], np.float32)}, opset=9))
    assert ops_of(converted) == ["Constant", "Resize"]
    assert all(node.name and graphs.source_of(node).startswith("tiny.py:1 ") for node in converted.graph)


def test_weights_stay_as_they_are() -> None:
    weights = np.random.default_rng(0).standard_normal((4, LARGEST)).astype(np.float32)
    model = parse("(float[batch,time,4] x, float[4,n] w) => (float[p,q,r] y) { y = MatMul(x, w) }", {"w": weights}, 12)
    kept = same(model).graph.initializers["w"].const_value
    assert kept is model.graph.initializers["w"].const_value


def test_a_new_graph_is_left_alone() -> None:
    model = parse(f"{X} {{ y = Relu(x) }}", opset=OLDEST_OPSET)
    assert raised(model) is model


def test_what_cannot_be_converted_is_refused_in_one_line() -> None:
    with pytest.raises(Refused, match="is of operator set 9, and its conversion to 18 fails: ") as caught:
        raised(parse("(float[2] x, int64[1] k) => (float[p] y) { y, i = TopK<axis = 0>(x, k) }", opset=9))
    assert caught.value.cure == "export the model with opset 18 or newer"


EDGES = np.array([0, -0.0, 1, 1, -1, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 0.5, 1.5, 2.5, -0.5], np.float32)
STRETCH = {"s": np.array([1, 2.5, 1], np.float32)}
SHRINK = {"s": np.array([1, 0.6, 1], np.float32)}
SCALES = {"r": np.zeros(0, np.float32), **STRETCH}
PADS = {"p": np.array([0, 1, 0, 0, 2, 0])}
CUT = {"a": np.array([1]), "b": np.array([4]), "at": np.array([1])}
COUNT = {"k": np.array([3])}
NORMS = {name: np.arange(1, 6, dtype=np.float32) for name in ("a", "b", "mean", "var")}
PRODUCT = {"w": np.ones((3, 4), np.float32), "b": np.ones(3, np.float32)}
BOUNDS = {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)}

OLD: dict[str, tuple[int, str, dict[str, np.ndarray]]] = {
    "Softmax": (12, "y = Softmax<axis = 1>(x)", {}),
    "Softmax by default": (9, "y = Softmax(x)", {}),
    "LogSoftmax": (12, "y = LogSoftmax<axis = 1>(x)", {}),
    "Hardmax": (12, "y = Hardmax<axis = 1>(x)", {}),
    "Hardmax by default": (9, "y = Hardmax(x)", {}),
    "Hardmax of one axis": (11, "y = Hardmax<axis = 2>(x)", {}),
    "Hardmax from the end, between others": (12, "a = Neg(x)  h = Hardmax<axis = -2>(a)  y = Add(h, x)", {}),
    "Squeeze": (11, "a = Unsqueeze<axes = [0, 2]>(x)  y = Squeeze<axes = [0]>(a)", {}),
    "Unsqueeze from the end": (12, "y = Unsqueeze<axes = [-1]>(x)", {}),
    "ReduceSum": (11, "y = ReduceSum<axes = [1], keepdims = 0>(x)", {}),
    "ReduceMean": (17, "y = ReduceMean<axes = [1]>(x)", {}),
    "ReduceLogSumExp": (9, "y = ReduceLogSumExp<axes = [2]>(x)", {}),
    "Pad": (10, "y = Pad<pads = [0, 1, 0, 0, 2, 0], value = 2.5>(x)", {}),
    "Pad that cuts": (9, "y = Pad<pads = [0, -1, 0, 0, 1, 0]>(x)", {}),
    "Pad by reflection": (9, 'y = Pad<pads = [0, 1, 0, 0, 2, 0], mode = "reflect">(x)', {}),
    "Pad by an input": (12, "y = Pad(x, p)", PADS),
    "Slice": (9, "y = Slice<starts = [-3], ends = [9], axes = [1]>(x)", {}),
    "Slice by inputs": (10, "y = Slice(x, a, b, at)", CUT),
    "Upsample": (9, "y = Upsample(x, s)", STRETCH),
    "Upsample, linear": (9, 'y = Upsample<mode = "linear">(x, s)', STRETCH),
    "Resize of opset 10": (10, "y = Resize(x, s)", SHRINK),
    "Resize of opset 10, linear": (10, 'y = Resize<mode = "linear">(x, s)', STRETCH),
    "Resize of opset 11, linear": (11, 'y = Resize<mode = "linear">(x, r, s)', SCALES),
    "Clip": (10, "y = Clip<min = -1.0, max = 1.0>(x)", {}),
    "Clip on one side": (9, "y = Clip<min = 0.0>(x)", {}),
    "Clip by inputs": (11, "y = Clip(x, low, high)", BOUNDS),
    "TopK": (10, "y, i = TopK<axis = 1>(x, k)", COUNT),
    "BatchNormalization": (9, "y = BatchNormalization(x, a, b, mean, var)", NORMS),
    "Dropout": (9, "y = Dropout<ratio = 0.3>(x)", {}),
    "Dropout with a mask": (9, "y, mask = Dropout<ratio = 0.3>(x)", {}),
    "Gemm": (9, "f = Flatten<axis = 2>(x)  y = Gemm<alpha = 0.5, transB = 1>(f, w, b)", PRODUCT),
    "Split": (12, "a, y = Split<axis = 1, split = [2, 3]>(x)", {}),
    "Split in halves": (17, "a, y = Split<axis = 2>(x)", {}),
}


@pytest.mark.parametrize(("opset", "body", "constants"), OLD.values(), ids=OLD)
def test_an_old_operator_gives_what_it_gave(opset: int, body: str, constants: dict[str, np.ndarray]) -> None:
    """On ordinary numbers, zeros, ties, infinities and NaN."""
    kinds = {"f": "float", "i": "int64"}
    shapes = {name: ",".join(map(str, array.shape)) for name, array in constants.items()}
    declared = [f", {kinds[array.dtype.kind]}[{shapes[name]}] {name}" for name, array in constants.items()]
    text = f"(float[batch,time,4] x{''.join(declared).replace('[]', '')}) => (float y) {{ {body} }}"
    model = parse(text, constants, opset)
    converted = raised(model)
    assert [str(value.name) for value in converted.graph.outputs] == ["y"]
    before, after = (open_session(graphs.serialized(each)) for each in (model, converted))
    rng = np.random.default_rng(0)
    drawn = [rng.choice(EDGES, (2, 5, 4)) for _ in range(4)]
    for x in (rng.standard_normal((2, 5, 4)).astype(np.float32), np.zeros((2, 5, 4), np.float32), *drawn):
        (wanted,), (got,) = (session.run(None, {"x": x}) for session in (before, after))
        np.testing.assert_array_equal(got, wanted)


def test_a_mask_of_numbers_is_refused_by_name() -> None:
    text = "(float[batch,time,4] x) => (float y) { a, mask = Dropout(x)  y = Mul(a, mask) }"
    with pytest.raises(Refused, match=r"op Dropout.*tiny\.py:1 .*the mask of 'a_dropout' .Dropout. is read"):
        raised(parse(text, opset=9))
