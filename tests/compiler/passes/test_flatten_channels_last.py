"""flatten_channels_last: weights change places so that channels need not."""

import numpy as np
import pytest

from compiler.graph.stages import Lowered
from compiler.passes.flatten_channels_last import CHANNELS_LAST, FlattenChannelsLast
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import node_named, parse, random_weights

SHAPES = {"kernel": (3, 1, 2, 2), "w": (12, 5)}
IMAGE = """(float[batch,1,6,5] x, float[3,1,2,2] kernel, float[12,5] w) => (float[batch,5,5] y)
<int64[3] flat = {0, 5, 12}>
{
    c = Conv(x, kernel)
    r = Relu(c)
    t = Transpose<perm = [0, 2, 1, 3]>(r)
    f = Reshape(t, flat)
    y = MatMul(f, w)
}"""
ALMOST = 1e-6


def lowered_of(text: str) -> Lowered:
    return Lowered("tiny", parse(text, random_weights(SHAPES)), batch_axis="batch")


def test_channels_lie_last_and_weights_follow() -> None:
    outcome = verify_pass(FlattenChannelsLast(), lowered_of(IMAGE), tolerance=ALMOST, steps=2)
    flat = node_named(outcome.lowered.model, "f")
    turn = flat.inputs[0].producer() if flat.inputs[0] is not None else None
    assert turn is not None and tuple(turn.attributes["perm"].as_ints()) == CHANNELS_LAST
    assert (outcome.matched, outcome.rewritten) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("perm = [0, 2, 1, 3]", "perm = [0, 2, 3, 1]"),
        ("r = Relu(c)", "r = Transpose<perm = [0, 1, 3, 2]>(c)"),
        ("y = MatMul(f, w)", "z = MatMul(f, w)  s = ReduceSum(f)  y = Add(z, s)"),
        ("y = MatMul(f, w)", "v = Neg(w)  y = MatMul(f, v)"),
    ],
    ids=["channels last already", "made by no convolution", "read twice", "weights that are computed"],
)
def test_others_stay(old: str, new: str) -> None:
    text = IMAGE.replace(old, new)
    if "[0, 1, 3, 2]" in text:
        text = (
            text.replace("{0, 5, 12}", "{0, 4, 15}").replace("[12,5]", "[15,5]").replace("[batch,5,5]", "[batch,4,5]")
        )
        lowered = Lowered("tiny", parse(text, random_weights({**SHAPES, "w": (15, 5)})), batch_axis="batch")
        verify_untouched(FlattenChannelsLast(), lowered)
    else:
        verify_untouched(FlattenChannelsLast(), lowered_of(text))


def test_weights_that_stay_break_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: np.array(array[::-1]))
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(FlattenChannelsLast(), lowered_of(IMAGE), tolerance=ALMOST, steps=2)
