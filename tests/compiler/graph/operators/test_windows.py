"""windows: every legal spelling of a window is one view, and the view says what ONNX Runtime computes."""

import dataclasses

import numpy as np
import onnx_ir as ir
import pytest

from compiler.graph.operators.windows import Window, window_of, with_pads
from tests.kit.graphs import parse
from tests.kit.whole_sequences import session

PLAIN = Window((3,), (1,), (1,), ((0, 0),), 1, False, output_padding=(0,))


@pytest.mark.parametrize(
    "attributes",
    ["strides = [1]", "pads = [0, 0], dilations = [1]", 'auto_pad = "VALID"', 'auto_pad = "NOTSET", group = 1',
     "kernel_shape = [3]"],
)  # fmt: skip
def test_spellings_of_a_plain_convolution_are_one_view(attributes: str) -> None:
    model = parse(f"(float[1,2,9] x, float[4,2,3] w) => (float[1,4,7] y) {{ y = Conv<{attributes}>(x, w) }}")
    assert window_of(model.graph[0], 3) == PLAIN


def test_a_convolution_without_attributes_is_the_same_view() -> None:
    model = parse("(float[1,2,9] x, float[4,2,3] w) => (float[1,4,7] y) { y = Conv(x, w) }")
    assert window_of(model.graph[0], 3) == PLAIN


def test_a_window_of_one_entry_needs_no_pads_to_keep_sizes() -> None:
    model = parse('(float[1,2,9] x, float[4,2,1] w) => (float[1,4,9] y) { y = Conv<auto_pad = "SAME_LOWER">(x, w) }')
    view = window_of(model.graph[0], 3)
    assert view is not None and view.pads == ((0, 0),) and not view.has_pads


def test_pads_that_follow_from_sizes_are_not_known() -> None:
    model = parse('(float[1,2,9] x, float[4,2,3] w) => (float[1,4,9] y) { y = Conv<auto_pad = "SAME_UPPER">(x, w) }')
    view = window_of(model.graph[0], 3)
    assert view is not None and view.pads is None and view.has_pads and view.automatic == "SAME_UPPER"
    assert not view.keeps(0)


@pytest.mark.parametrize("attributes", ["strides = [1, 1]", "pads = [1, 1, 1]", "output_padding = [0, 0]"])
def test_attributes_of_another_rank_are_no_window(attributes: str) -> None:
    model = parse(f"(float[1,2,9] x, float[2,4,3] w) => (float[1,4,11] y) {{ y = ConvTranspose<{attributes}>(x, w) }}")
    assert window_of(model.graph[0], 3) is None


@pytest.mark.parametrize("stated", ["", "<pads = [1, 2]>", '<auto_pad = "VALID">', "<pads = [0, 0], dilations = [1]>"])
def test_pads_are_exchanged_whatever_they_were(stated: str) -> None:
    model = parse(f"(float[1,2,9] x, float[4,2,3] w) => (float[1,4,k] y) {{ y = Conv{stated}(x, w) }}")
    node = model.graph[0]
    changed = ir.node("Conv", node.inputs, {attribute.name: attribute for attribute in with_pads(node, [(4, 5)])})
    view = window_of(changed, 3)
    assert view == dataclasses.replace(PLAIN, pads=((4, 5),))


def test_what_a_transposed_convolution_adds_behind() -> None:
    model = parse(
        "(float[1,2,9] x, float[2,4,3] w) => (float[1,4,k] y) "
        "{ y = ConvTranspose<strides = [2], output_padding = [1], pads = [1, 1]>(x, w) }"
    )
    assert window_of(model.graph[0], 3) == Window((3,), (2,), (1,), ((1, 1),), 1, False, output_padding=(1,))


def test_weights_of_a_quantized_convolution_are_its_fourth_operand() -> None:
    model = parse(
        "(uint8[1,2,9] x, float s, uint8 z, uint8[4,2,3] w, float t, uint8 v, float r, uint8 q) => (uint8[1,4,7] y) "
        "{ y = QLinearConv(x, s, z, w, t, v, r, q) }"
    )
    assert window_of(model.graph[0], 3) == PLAIN


def test_other_nodes_have_no_window() -> None:
    assert window_of(parse("(float[4] x) => (float[4] y) { y = Relu(x) }").graph[0], 3) is None
    assert window_of(None, 3) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_convolution_by_hand_from_the_view_is_that_of_onnx_runtime(seed: int) -> None:
    draw = np.random.default_rng(seed)
    size, kernel, stride, dilation = 24, int(draw.integers(1, 4)), int(draw.integers(1, 4)), int(draw.integers(1, 4))
    front, behind = (int(each) for each in draw.integers(0, 4, 2))
    named = {"strides": f"[{stride}]", "dilations": f"[{dilation}]", "pads": f"[{front}, {behind}]"}
    plain = {"strides": "[1]", "dilations": "[1]", "pads": "[0, 0]"}
    written = [f"{name} = {text}" for name, text in named.items() if text != plain[name] or draw.integers(2)]
    count = (size + front + behind - dilation * (kernel - 1) - 1) // stride + 1
    attributes = f"<{', '.join(written)}>" if written else ""
    model = parse(
        f"(float[1,1,{size}] x, float[1,1,{kernel}] w) => (float[1,1,{count}] y) {{ y = Conv{attributes}(x, w) }}"
    )
    view = window_of(model.graph[0], 3)
    assert view is not None and view.pads is not None and view.kernel == (kernel,)
    x, w = (draw.standard_normal(shape).astype(np.float32) for shape in ((1, 1, size), (1, 1, kernel)))
    (wanted,) = session(model).run(None, {"x": x, "w": w})
    padded = np.pad(x[0, 0], view.pads[0])
    got = [
        sum(w[0, 0, k] * padded[at * view.strides[0] + k * view.dilations[0]] for k in range(kernel))
        for at in range(count)
    ]
    np.testing.assert_allclose(got, wanted[0, 0], rtol=1e-5, atol=1e-5)
