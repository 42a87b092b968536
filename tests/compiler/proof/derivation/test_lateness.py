"""A graph that reads frames ahead, written so that it answers later, answers the same, and reads none ahead."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.checker.later import check_later
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.derivation.derive import derive
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.lateness import NotLate, write_late
from tests.kit.graphs import parse
from tests.kit.whole_sequences import session

HEAD = """(float[batch, 4, time] x) => (float[batch, m, n] y)
    <float[4, 4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8, 1, 0, 3, 0, 5, 0, 7, 0,
                         0, 2, 0, 4, 0, 6, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8},
     float[4, 4, 1] one = {1, 2, 3, 4, -1, 0, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8},
     int64[3] wide = {0, 2, -1}, int64[3] narrow = {0, 4, -1}, int64 axis = {2}, int64[6] back = {0, 0, 1, 0, 0, -1},
     int64[6] ahead = {0, 0, -1, 0, 0, 1}, int64[1] last = {2}, float[4] bias = {1, 2, 3, 4}>"""

LATE = {
    "a convolution": ("y = Conv<pads = [1, 1]>(x, w, bias)", 1),
    "two convolutions": ("a = Conv<pads = [1, 1]>(x, w, bias) y = Conv<pads = [0, 2]>(a, w)", 3),
    "a causal one behind it": ("a = Conv<pads = [1, 1]>(x, w, bias) y = Conv<pads = [2, 0]>(a, w)", 1),
    "what goes round it": ("a = Conv<pads = [1, 1]>(x, w, bias) b = Add(a, x) c = Tanh(b) y = Mul(c, x)", 1),
    "a transposed convolution": ("y = ConvTranspose<strides = [2], pads = [1, 0]>(x, w)", 1),
    "entries of half a frame": (
        "a = ConvTranspose<strides = [2], pads = [0, 1]>(x, w) b = Conv<pads = [1, 1]>(a, w) "
        "y = Conv<pads = [1, 1]>(b, w)", 1,
    ),
    "frames that are parted again": (
        "a = ConvTranspose<strides = [2], pads = [0, 1]>(x, w) b = Conv<pads = [1, 1]>(a, w, bias) "
        "c = Conv<strides = [2], pads = [1, 0]>(b, w, bias) y = Add(c, x)", 1,
    ),
    "a sum over late frames": ("a = Conv<pads = [1, 1]>(x, w, bias) y = CumSum(a, axis)", 1),
    "late frames that are moved back": ("a = Conv<pads = [1, 1]>(x, w, bias) y = Pad(a, back)", 1),
}  # fmt: skip


def graph(text: str) -> ir.Model:
    model = parse(f"{HEAD} {{ {text} }}")
    graphs.infer_shapes(model)
    return model


@pytest.mark.parametrize("name", LATE)
def test_answers_come_later_and_are_the_same(name: str) -> None:
    text, delay = LATE[name]
    model = graph(text)
    early = graphs.clone(model)
    assert write_late(model, Judging(model, "time", 32), "marks") == delay
    x = np.random.default_rng(0).standard_normal((2, 4, 9)).astype(np.float32)
    expected = session(early).run(["y"], {"x": x})[0]
    behind = np.concatenate([x, 100 * x[..., :delay]], axis=2)
    marks = np.repeat(np.array([[1, 0]], np.float32), [9, delay], axis=1).repeat(2, axis=0)
    got = session(model).run(["y"], {"x": behind, "marks": marks})[0]
    front = got.shape[2] - expected.shape[2]
    assert front == delay * expected.shape[2] // 9 and not got[..., :front].any()
    np.testing.assert_allclose(got[..., front:], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LATE)
def test_steps_that_answer_later_are_derived_and_checked(name: str) -> None:
    text, delay = LATE[name]
    model = graph(text)
    with pytest.raises(Refused, match="reads frames"):
        derive(graphs.clone(model), "time", "past", 16)
    made = derive(model, "time", "past", 16, later=True)
    assert made.early is not None and made.certificate["delay"] == delay
    early, late = (ir.serde.serialize_model(each) for each in (made.early, model))
    assert check_later(early, late, made.certificate) == 12


NOT_LATE = {
    "a mean over all frames": ("a = Conv<pads = [1, 1]>(x, w) b = ReduceMean(a, last) y = Sub(a, b)", "are mixed"),
    "frames that are moved ahead": ("a = Conv<pads = [1, 1]>(x, w) y = Pad(a, ahead)", "are mixed|late frames"),
}


@pytest.mark.parametrize("name", NOT_LATE)
def test_what_reads_all_frames_is_not_written_later(name: str) -> None:
    text, told = NOT_LATE[name]
    model = graph(text)
    with pytest.raises(NotLate, match=told):
        write_late(model, Judging(model, "time", 32), "marks")
