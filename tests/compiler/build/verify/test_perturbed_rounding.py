"""perturbed: roundings are off, what is exact is not."""

import numpy as np
import onnx_ir as ir

from compiler.build.verify.perturbed_rounding import FINE, SIZE, perturbed
from compiler.graph import model as graphs
from compiler.graph.runners.session import run_model
from compiler.graph.stages import Array, Lowered
from tests.kit.graphs import parse

TEXT = """(float[2,n] x, int64[2,n] seen) => (float[2,n] y, float[2,n] weights, float[2,n] same, int64[1] half)
    <float one = {1}, float far = {-1e30}, float two = {2}> {
    y = Exp(x)
    real = Cast<to = 1>(seen)  hidden = Sub(one, real)  penalty = Mul(hidden, far)
    scores = Add(x, penalty)  weights = Softmax<axis = 1>(scores)
    same = Relu(x)
    size = Shape<start = 1, end = 2>(x)  length = Cast<to = 1>(size)  ratio = Div(length, two)  up = Ceil(ratio)
    half = Cast<to = 7>(up)
}"""


def answers(feed: dict[str, Array], *, off: bool) -> dict[str, Array]:
    lowered = Lowered("net", parse(TEXT))
    if not off:
        return run_model(lowered.model, feed)
    return run_model(perturbed(lowered).model, {**feed, SIZE: np.array(FINE, np.float32)})


def test_rounded_results_are_off_by_about_a_rounding_and_exact_ones_are_not() -> None:
    x = np.array([[0.5, -1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
    feed = {"x": x, "seen": np.array([[1, 1, 0, 0], [1, 1, 1, 1]])}
    right, off = answers(feed, off=False), answers(feed, off=True)
    moved = np.abs(off["y"] / right["y"] - 1)
    assert 0 < moved.max() < 2e-6
    assert np.array_equal(off["same"], right["same"])
    assert np.allclose(off["weights"], right["weights"], atol=1e-5) and np.all(off["weights"][0, 2:] == 0)
    assert off["half"] == right["half"] == 2


def test_names_of_inputs_and_outputs_stay() -> None:
    lowered = Lowered("net", parse(TEXT))
    names = [[value.name for value in values] for values in (lowered.model.graph.inputs, lowered.model.graph.outputs)]
    graph = perturbed(lowered).model.graph
    assert [[value.name for value in values] for values in (graph.inputs[:-1], graph.outputs)] == names
    assert graph.inputs[-1].name == SIZE


def test_pieces_of_a_sequence_are_left_alone() -> None:
    text = """(float[2,6] x) => (float[2,3] y) <int64 first = {0}, int64[2] sizes = {3, 3}> {
        z = Exp(x)  pieces = SplitToSequence<axis = 1>(z, sizes)  y = SequenceAt(pieces, first) }"""
    feed = {"x": np.ones((2, 6), np.float32)}
    moved = run_model(perturbed(Lowered("net", parse(text))).model, {**feed, SIZE: np.array(FINE, np.float32)})["y"]
    assert 0 < np.abs(moved / np.exp(feed["x"][:, :3]) - 1).max() < 4e-6


def test_weights_are_turned_once_and_nothing_else_is() -> None:
    text = """(float[2,n] x, float[3,2] w, float[3,2] given) => (float[n,3] y, float[2,3] shown, float[n,3] z) {
        turned = Transpose<perm = [1, 0]>(w)  across = Transpose(x)  y = MatMul(across, turned)
        shown = Transpose(w)  asked = Transpose(given)  z = MatMul(across, asked) }"""
    rng = np.random.default_rng(0)
    w, x, given = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 2), (2, 5), (3, 2)))
    model = parse(text, {"w": w})
    default = graphs.inputs_named(model)["given"]
    default.const_value = ir.tensor(np.zeros((3, 2), np.float32), name="given")
    model.graph.initializers["given"] = default
    copy = perturbed(Lowered("net", model)).model
    assert [node.outputs[0].name for node in copy.graph if node.op_type == "Transpose"] == ["across", "shown", "asked"]
    got = run_model(copy, {"x": x, "given": given, SIZE: np.array(0.0, np.float32)})
    assert np.array_equal(got["shown"], w.T)
    assert np.allclose(got["y"], x.T @ w.T, atol=1e-5) and np.allclose(got["z"], x.T @ given.T, atol=1e-5)
