"""widen_depthwise_convolutions: along time as over images of one line."""

import onnx_ir as ir
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.sink_transposes import SinkTransposes
from compiler.passes.widen_depthwise_convolutions import WidenDepthwiseConvolutions
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import copy_of, node_named, ops_of, parse, random_weights, streaming

TEXT = "(float[batch,4,9] x, float[4,1,3] w, float[4] bias) => (float[batch,4,n] y) { y = Conv<group = 4>(x, w, bias) }"
ALMOST = 1e-6


def lowered_of(text: str, shape: tuple[int, ...] = (4, 1, 3)) -> Lowered:
    return Lowered("tiny", parse(text, random_weights({"w": shape, "bias": (4,)})), batch_axis="batch")


@pytest.mark.parametrize(
    "attributes",
    [
        "group = 4",
        "group = 4, strides = [2], pads = [2, 1]",
        "group = 4, dilations = [2], kernel_shape = [3]",
        'group = 4, auto_pad = "NOTSET"',
    ],
    ids=["plain", "strides and padding", "dilations", "a rule that says nothing"],
)
def test_a_line_is_an_image_of_one_line(attributes: str) -> None:
    lowered = lowered_of(TEXT.replace("group = 4", attributes))
    outcome = verify_pass(WidenDepthwiseConvolutions(), lowered, tolerance=ALMOST, steps=2)
    turns = ["Transpose", "Unsqueeze", "Transpose", "Conv", "Transpose", "Squeeze", "Transpose"]
    assert ops_of(outcome.lowered.model) == turns


def test_a_convolution_with_a_carried_context_is_widened() -> None:
    outcome = verify_pass(WidenDepthwiseConvolutions(), streaming(), tolerance=ALMOST)
    assert outcome.rewritten == 1


def test_with_frames_that_lie_channel_behind_channel_only_what_is_carried_is_turned() -> None:
    lowered = WidenDepthwiseConvolutions().apply(copy_of(streaming())).lowered
    outcome = verify_pass(SinkTransposes(), lowered, tolerance=ALMOST)
    conv = node_named(outcome.lowered.model, "convolved_image")
    image = conv.inputs[0].producer() if conv.inputs[0] is not None else None
    assert image is not None and image.inputs[0] is not None
    line = image.inputs[0].producer()
    assert line is not None and line.inputs[0] is not None
    joined = line.inputs[0].producer()
    assert joined is not None and joined.op_type == "Concat"
    assert [value.producer() is not None for value in joined.inputs if value is not None] == [True, True]


@pytest.mark.parametrize(
    ("old", "new", "shape"),
    [
        ("group = 4", "group = 2", (4, 2, 3)),
        ("group = 4", 'group = 4, auto_pad = "SAME_LOWER"', (4, 1, 3)),
        ("[4,1,3] w", "[8,1,3] w", (8, 1, 3)),
    ],
    ids=["groups of two", "a rule for padding", "two results of a channel"],
)
def test_other_convolutions_stay(old: str, new: str, shape: tuple[int, ...]) -> None:
    text = TEXT.replace(old, new).replace("[4,1,3]", str(list(shape)))
    if shape[0] == 8:
        text = text.replace(", bias)", ")")
    assert verify_untouched(WidenDepthwiseConvolutions(), lowered_of(text, shape)).matched == 0


def test_a_line_along_the_wrong_axis_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.passes.widen_depthwise_convolutions.SWAPPED", (0, 1, 2))
    with pytest.raises(ContractBroken):
        verify_pass(WidenDepthwiseConvolutions(), lowered_of(TEXT), tolerance=ALMOST, steps=2)


def test_weights_that_are_an_input_stay() -> None:
    model: ir.Model = parse(TEXT.replace("float[4] bias", "float[4] b").replace("w, bias", "w, b"))
    assert verify_untouched(WidenDepthwiseConvolutions(), Lowered("tiny", model, batch_axis="batch")).matched == 0
