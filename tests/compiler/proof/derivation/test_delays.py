"""Frames that are moved back, as authors write it, become one Pad or the pads of a convolution, and say the same."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.derivation.delays import write_delays
from compiler.proof.derivation.derive import derive
from tests.kit.graphs import parse
from tests.kit.whole_sequences import in_calls, session

HEAD = """
(float[batch, time, 4] x) => (float[batch, time, 4] y)
<int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}, int64[1] two = {2}, int64[1] last = {-1},
 int64[1] but_two = {-2}, int64[6] one_back = {0, 1, 0, 0, -1, 0},
 int64[6] front = {0, 1, 0, 0, 0, 0},
 int64[6] ahead = {0, 0, 0, 0, 1, 0}, int64[6] both = {0, 2, 0, 0, -2, 0}, int64[2] fronts = {2, 0},
 int64[6] behind = {0, 0, 1, 0, 0, 1}, float nothing = {0.0}, int64[1] end = {9223372036854775807},
 float[4, 4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8, 1, 0, 3, 0, 5, 0, 7, 0,
                    0, 2, 0, 4, 0, 6, 0, 8},
 float[1, 1, 4] first = {1, 2, 3, 4}>
"""

DELAYS = {
    "a Pad": "y = Pad(x, both)",
    "a Pad and a cut": "a = Pad(x, front) y = Slice(a, zero, last, one)",
    "a Pad of one axis and a cut at the length":
        "a = Pad(x, fronts, nothing, one) n = Shape<start = 1, end = 2>(x) y = Slice(a, zero, n, one)",
    "a cut behind zeros":
        "b = Shape<start = 0, end = 1>(x) s = Concat<axis = 0>(b, two, four) z = Expand(nothing, s) "
        "a = Slice(x, zero, but_two, one) y = Concat<axis = 1>(z, a)",
    "a Pad behind a cut": "a = Slice(x, zero, last, one) y = Pad(a, front)",
    "turned": "a = Pad(x, front) b = Transpose<perm = [0, 2, 1]>(a) c = Slice(b, zero, last, two) "
              "y = Transpose<perm = [0, 2, 1]>(c)",
    "zeros in front of a convolution":
        "a = Pad(x, front) b = Transpose<perm = [0, 2, 1]>(a) c = Conv(b, w) y = Transpose<perm = [0, 2, 1]>(c)",
    "a convolution that is cut":
        "a = Transpose<perm = [0, 2, 1]>(x) b = Conv<pads = [1, 1]>(a, w) c = Relu(b) d = Slice(c, zero, last, two) "
        "y = Transpose<perm = [0, 2, 1]>(d)",
    "zeros on both sides of a convolution that is cut":
        "a = Transpose<perm = [0, 2, 1]>(x) b = Pad(a, behind) c = Conv(b, w) d = Slice(c, zero, last, two) "
        "y = Transpose<perm = [0, 2, 1]>(d)",
}  # fmt: skip


def graph(text: str) -> ir.Model:
    model = parse(f"{HEAD}{{ {text} }}")
    graphs.infer_shapes(model)
    return model


@pytest.mark.parametrize("name", DELAYS)
def test_a_delay_is_found_and_its_steps_say_the_same(name: str) -> None:
    model = graph(DELAYS[name])
    x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    derived = derive(model, "time", "past", 16)
    (kept,) = derived.cached
    assert (kept.kept in (1, 2), kept.is_state, kept.is_joined) == (True, False, False)
    got = in_calls(derived.model, {kept.input: kept.output}, {"x": x}, [1, 3, 1, 4], "y")
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_convolution_reads_zeros_behind_frames_that_are_cut_off() -> None:
    model = graph(
        "a = Pad(x, one_back) b = Transpose<perm = [0, 2, 1]>(a) c = Conv<pads = [0, 1]>(b, w) "
        "y = Transpose<perm = [0, 2, 1]>(c)"
    )
    x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    write_delays(model, graphs.symbol("time"))
    np.testing.assert_array_equal(session(model).run(["y"], {"x": x})[0], expected)
    with pytest.raises(Refused, match="reads frames"):
        derive(model, "time", "past", 16)


SPREAD = {
    "cut off behind": ("y = Slice(b, zero, last_two, two)", 0),
    "cut off in front and behind": ("y = Slice(b, one, last, two)", 1),
    "cropped by a Pad": ("y = Pad(b, cropped)", 1),
    "activated and cut off behind": ("c = Relu(b) y = Slice(c, zero, last_two, two)", 0),
    "turned and cut off in front": (
        "c = Transpose<perm = [0, 2, 1]>(b) d = Slice(c, one, last, one) y = Transpose<perm = [0, 2, 1]>(d)",
        1,
    ),
}


@pytest.mark.parametrize("name", SPREAD)
def test_a_transposed_convolution_cuts_off_itself(name: str) -> None:
    text, front = SPREAD[name]
    model = parse(f"""(float[batch, 4, time] x) => (float[batch, m, n] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] last = {{-1}},
         int64[1] last_two = {{-2}}, int64[6] cropped = {{0, 0, -1, 0, 0, -1}},
         float[4, 1, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8}}>
        {{ b = ConvTranspose<strides = [2]>(x, w) {text} }}""")
    graphs.infer_shapes(model)
    x = np.random.default_rng(0).standard_normal((2, 4, 9)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    assert write_delays(model, graphs.symbol("time")) == 1
    np.testing.assert_allclose(session(model).run(["y"], {"x": x})[0], expected, rtol=1e-6)
    (node,) = [each for each in model.graph if each.op_type == "ConvTranspose"]
    assert node.attributes["pads"].as_ints() == (front, 2 - front)


@pytest.mark.parametrize("axis", ["channels", "rows"])
def test_a_convolution_cuts_off_no_channels_and_no_rows(axis: str) -> None:
    shape, cut = {"channels": ("batch, 4, time", 1), "rows": ("time, 4, 6", 0)}[axis]
    model = parse(f"""(float[{shape}] x) => (float[a, b, c] y)
        <int64[1] one = {{1}}, int64[1] end = {{9223372036854775807}}, int64[1] axis = {{{cut}}},
         float[4, 2, 2] w = {{1, 2, 3, 4, 5, 6, 7, 8, -1, 2, -3, 4, -5, 6, -7, 8}}>
        {{ b = ConvTranspose<strides = [2]>(x, w) y = Slice(b, one, end, axis) }}""")
    graphs.infer_shapes(model)
    x = np.random.default_rng(0).standard_normal((5, 4, 6)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    write_delays(model, graphs.symbol("time"))
    np.testing.assert_array_equal(session(model).run(["y"], {"x": x})[0], expected)


def test_a_sum_without_its_own_entry_is_one_with_it_moved_back() -> None:
    model = graph("y = CumSum<exclusive = 1>(x, one)")
    x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    derived = derive(model, "time", "past", 16)
    assert [each.kept for each in derived.cached] == [1, 1]
    caches = {each.input: each.output for each in derived.cached}
    np.testing.assert_array_equal(in_calls(derived.model, caches, {"x": x}, [1, 3, 1, 4], "y"), expected)


def test_zeros_that_are_computed_with_are_no_delay() -> None:
    model = graph("a = Pad(x, front) b = Sigmoid(a) y = Slice(b, zero, last, one)")
    assert write_delays(model, graphs.symbol("time")) == 0
    with pytest.raises(Refused, match="Pad acts along time"):
        derive(model, "time", "past", 16)


def test_other_first_frames_are_selected_by_their_places() -> None:
    model = graph(
        "b = Shape<start = 0, end = 1>(x) s = Concat<axis = 0>(b, one, four) z = Expand(first, s) "
        "a = Slice(x, zero, last, one) y = Concat<axis = 1>(z, a)"
    )
    x = np.random.default_rng(0).standard_normal((2, 9, 4)).astype(np.float32)
    expected = session(model).run(["y"], {"x": x})[0]
    assert write_delays(model, graphs.symbol("time")) == 1
    np.testing.assert_array_equal(session(model).run(["y"], {"x": x})[0], expected)
    with pytest.raises(Refused, match="nothing is cached whose frames could be counted"):
        derive(model, "time", "past", 16)


def test_frames_that_are_moved_forwards_are_refused() -> None:
    model = graph("a = Pad(x, ahead) y = Slice(a, one, end, one)")
    assert write_delays(model, graphs.symbol("time")) == 0
    with pytest.raises(Refused):
        derive(model, "time", "past", 16)
