"""split_hidden_channels: a wide layer between two products, block by block."""

import pytest

from compiler.graph.stages import Lowered
from compiler.passes import split_hidden_channels
from compiler.passes.split_hidden_channels import SplitHiddenChannels
from tests.kit.contract import ContractBroken, verify_pass, verify_untouched
from tests.kit.graphs import ops_of, parse, random_weights

SHAPES = {"a": (4, 12), "e": (4, 12), "b": (12, 4), "c": (12,), "d": (4,), "row": (1, 12)}
ALMOST = 1e-6


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four channels are a block."""
    monkeypatch.setattr("compiler.passes.split_hidden_channels.BLOCK", 4)


def lowered_of(body: str, results: str = "float[batch,4] y") -> Lowered:
    inputs = ", ".join(f"float{list(shape)} {name}" for name, shape in SHAPES.items())
    text = f"(float[batch,4] x, float[batch,12] other, {inputs}) => ({results}) <float half = {{0.5}}> {{ {body} }}"
    return Lowered("tiny", parse(text, random_weights(SHAPES)), batch_axis="batch")


LAYER = "m = MatMul(x, a)  h = Add(m, c)  s = Sigmoid(h)  g = Mul(h, s)  p = MatMul(g, b)  y = Add(p, d)"


def test_three_blocks_are_added_to_the_bias() -> None:
    outcome = verify_pass(SplitHiddenChannels(), lowered_of(LAYER), tolerance=ALMOST, steps=2)
    assert ops_of(outcome.lowered.model) == ["MatMul", "Add", "Sigmoid", "Mul", "Gemm"] * 3
    assert (outcome.matched, outcome.rewritten) == (1, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = Add(p, d)", "y = Add(p, x)"),
        ("y = Add(p, d)", "z = Add(d, p)  t = Neg(p)  y = Add(z, t)"),
        ("p = MatMul(g, b)  y = Add(p, d)", "y = MatMul(g, b)"),
        ("s = Sigmoid(h)", "n = MatMul(x, e)  s = Relu(n)"),
        ("h = Add(m, c)", "v = Mul(row, m)  h = Mul(v, half)"),
    ],
    ids=["no bias", "read twice", "an output", "two products", "constants of other shapes"],
)
def test_other_layers_are_split_too(old: str, new: str) -> None:
    outcome = verify_pass(SplitHiddenChannels(), lowered_of(LAYER.replace(old, new)), tolerance=ALMOST, steps=2)
    assert outcome.rewritten == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = Add(p, d)", "r = ReduceSum(h)  z = Add(p, r)  y = Add(z, d)"),
        ("h = Add(m, c)", "h = Add(m, other)"),
        ("s = Sigmoid(h)", "s = Softmax(h)"),
        ("m = MatMul(x, a)", "m = Identity(other)"),
    ],
    ids=["read by another", "an input added", "not entry by entry", "made by no product"],
)
def test_others_stay(old: str, new: str) -> None:
    verify_untouched(SplitHiddenChannels(), lowered_of(LAYER.replace(old, new)))


def test_channels_that_are_no_blocks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for block in (5, 12):
        monkeypatch.setattr("compiler.passes.split_hidden_channels.BLOCK", block)
        verify_untouched(SplitHiddenChannels(), lowered_of(LAYER))


def test_a_block_that_is_forgotten_breaks_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_hidden_channels, "range", lambda *_: [0, 4], raising=False)
    with pytest.raises(ContractBroken, match="meaning"):
        verify_pass(SplitHiddenChannels(), lowered_of(LAYER), tolerance=ALMOST, steps=2)
