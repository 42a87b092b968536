"""same_every_call: what follows from inputs that stay, whatever computes it."""

import onnx.parser
import onnx_ir as ir
import pytest

from compiler.graph import model as graphs
from compiler.states.same_every_call import SameEveryCall, same_every_call


def graph(nodes: str) -> ir.Model:
    text = f"""
    <ir_version: 10, opset_import: ["": 20]>
    g (float[batch, letters, 4] text, float[batch, time, 4] frames) => (float[batch, time, 4] y)
    <float[4, 4] w = {{0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}}, int64[3] wide = {{0, 0, 4}}>
    {{ {nodes} }}"""
    model = ir.serde.deserialize_model(onnx.parser.parse_model(text))
    graphs.infer_shapes(model)
    return model


def followed(nodes: str) -> SameEveryCall:
    model = graph(nodes)
    return same_every_call(model, {graphs.inputs_named(model)["text"]}, {"batch", "letters"})


ATTENDED = "p = MatMul(frames, t) y = MatMul(p, k)"


@pytest.mark.parametrize(
    ("nodes", "read"),
    [
        pytest.param(f"k = MatMul(text, w) t = Transpose<perm=[0, 2, 1]>(k) {ATTENDED}", ["k", "t"], id="keys"),
        pytest.param(f"k = Relu(text) t = Transpose<perm=[0, 2, 1]>(k) {ATTENDED}", [], id="no work went into it"),
        pytest.param(
            f"m = ReduceMax<keepdims=1>(frames) a = Add(text, m) k = MatMul(a, w) t = Transpose<perm=[0, 2, 1]>(k) "
            f"{ATTENDED}",
            [],
            id="frames go into it",
        ),
        pytest.param(
            f"r = RandomNormalLike(text) k = MatMul(r, w) t = Transpose<perm=[0, 2, 1]>(k) {ATTENDED}", [], id="drawn"
        ),
        pytest.param(
            f"n = Shape<start=0, end=1>(frames) one = Constant<value_ints=[-1, 4]>() s = Concat<axis=0>(n, one) "
            f"r = Reshape(text, s) k = MatMul(r, w) t = Transpose<perm=[0, 2, 1]>(k) {ATTENDED}",
            ["k", "t"],
            id="rows may be counted anywhere",
        ),
        pytest.param(
            f"n = Shape<start=1, end=2>(frames) f = Cast<to=1>(n) a = Mul(text, f) k = MatMul(a, w) "
            f"t = Transpose<perm=[0, 2, 1]>(k) {ATTENDED}",
            [],
            id="frames are counted",
        ),
    ],
)
def test_what_others_read_and_is_alike(nodes: str, read: list[str]) -> None:
    assert [value.name for value in followed(nodes).read_by_others()] == read


def test_what_makes_a_value_is_found_in_order_and_what_it_is_moved_from() -> None:
    same = followed(f"a = Relu(text) k = MatMul(a, w) t = Transpose<perm=[0, 2, 1]>(k) other = Relu(a) {ATTENDED}")
    by_name = {str(value.name): value for value in same.computed}
    assert same.spread_from(by_name["t"]) is by_name["k"]
    assert same.spread_from(by_name["k"]) is None
