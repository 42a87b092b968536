"""lower_pointwise_convolutions: what looks at one place is a product over channels."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.lower_pointwise_convolutions import LowerPointwiseConvolutions
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

LINE = "(float[batch,4,6] x, float[8,4,1] w, float[8] bias) => (float[batch,8,6] y) { y = Conv(x, w, bias) }"
IMAGE = "(float[batch,4,6,5] x, float[8,4,1,1] w) => (float[batch,8,6,5] y) { y = Conv<group = 1>(x, w) }"
ALMOST = 1e-6


def lowered_of(text: str, shape: tuple[int, ...] = (8, 4, 1)) -> Lowered:
    return Lowered("tiny", parse(text, random_weights({"w": shape, "bias": (8,)})), batch_axis="batch")


def test_frames_are_multiplied_by_a_matrix() -> None:
    outcome = verify_pass(LowerPointwiseConvolutions(), lowered_of(LINE), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model) == ["Transpose", "MatMul", "Add", "Transpose"]
    assert (outcome.matched, outcome.rewritten) == (1, 1)


def test_places_of_an_image_are_multiplied_by_a_matrix() -> None:
    outcome = verify_pass(LowerPointwiseConvolutions(), lowered_of(IMAGE, (8, 4, 1, 1)), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model) == ["Transpose", "MatMul", "Transpose"]


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ("", (8, 4, 3)),
        ("<strides = [2]>", (8, 4, 1)),
        ("<pads = [1, 0]>", (8, 4, 1)),
        ("<group = 2>", (8, 2, 1)),
        ('<auto_pad = "SAME_UPPER", strides = [2]>', (8, 4, 1)),
    ],
    ids=["three places", "strides", "padding", "groups", "a rule for padding"],
)
def test_other_convolutions_stay(attributes: str, shape: tuple[int, ...]) -> None:
    text = LINE.replace("Conv(", f"Conv{attributes}(").replace("[8,4,1]", str(list(shape)))
    assert verify_untouched(LowerPointwiseConvolutions(), lowered_of(text, shape)).matched == 0


def test_weights_that_are_computed_stay() -> None:
    text = LINE.replace("y = Conv(x, w, bias)", "v = Identity(given)  y = Conv(x, v, bias)").replace(
        "float[8,4,1] w", "float[8,4,1] given"
    )
    assert verify_untouched(LowerPointwiseConvolutions(), lowered_of(text)).matched == 0


def test_a_matrix_that_is_not_turned_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    square = LINE.replace("[8,4,1]", "[4,4,1]").replace("float[8]", "float[4]").replace("batch,8", "batch,4")
    lowered = Lowered("tiny", parse(square, random_weights({"w": (4, 4, 1), "bias": (4,)})), batch_axis="batch")
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: np.array(array.T))
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(LowerPointwiseConvolutions(), lowered, tolerance=ALMOST, steps=2)
