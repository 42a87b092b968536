"""Convolutions along padded frames, with any pads, strides and dilations."""

import numpy as np
import onnx_ir as ir
import pytest

from compiler.errors import Refused
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.facts import Fill
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.judged import attack, check, check_refused
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, constant

ACCEPTED = [
    CHANNELS + "y = Conv<pads = [0, 0], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [1, 1], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [2, 0], strides = [1], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [0, 2], strides = [2], dilations = [1]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [2, 2], strides = [2], dilations = [2]>(c, kernel)",
    CHANNELS + "y = Conv<pads = [1, 0], strides = [3], dilations = [1]>(c, kernel)",
    CHANNELS + "y = ConvTranspose<pads = [0, 0], strides = [2], output_padding = [0]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [1, 1], strides = [2], output_padding = [1]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [1, 1], strides = [4], output_padding = [0]>(c, up)",
    CHANNELS + "y = ConvTranspose<pads = [0, 1], strides = [3], output_padding = [2]>(c, up)",
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)


@pytest.mark.parametrize(
    "convolved",
    [
        "y = Conv<pads = [1, 1]>(c, kernel)",
        "point = Slice(kernel, zero, one, two)  y = Conv<dilations = [2]>(c, point)",
    ],
)
def test_what_is_convolved_has_an_entry(convolved: str) -> None:
    # regression: a convolution of single entries was claimed for an axis without entries, which ONNX Runtime refuses
    late = offline(graph(f"s = Slice(x, two, end, one)  c = Transpose<perm = [0, 2, 1]>(s)  {convolved}"), WEIGHTS)
    assert PadAxes().apply(late).lowered.padded_axes[0].minimum == 3


REFUSED = {
    "y = Conv(x, kernel)": "channel|sums",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_shown_is_refused(body: str) -> None:
    with pytest.raises(Refused, match=REFUSED[body]):
        PadAxes().apply(offline(graph(body), WEIGHTS))


TRACKED = "0: rows(batch), 2: [time, left]"
LEVELS = Interval(0.0, 255.0)


def weights(*shape: int, seed: int = 0) -> Operand:
    return constant(np.random.default_rng(seed).standard_normal(shape))


@pytest.mark.parametrize("padding", [ANYTHING, Interval(-5.0, 7.0), ZERO])
def test_kernels_of_one_entry_are_pointwise(padding: Interval) -> None:
    frames = Operand(("batch", 4, "time"), valid=Interval(-1.0, 2.0), padding=padding)
    verdict = check(Node("Conv", [frames, weights(3, 4, 1), constant([0.5, -9.0, 2.0])]), "CV3", TRACKED)
    assert verdict.pointwise
    assert not verdict.needs


def test_frames_in_rows_beside_a_window_over_a_fixed_axis() -> None:
    sheet = Operand(("batch", 2, "time", 6))
    attributes = {"kernel_shape": [1, 3], "pads": [0, 1, 0, 1], "strides": [1, 2]}
    check(Node("Conv", [sheet, weights(3, 2, 1, 3)], attributes), "CV3", TRACKED, extremes=False)


def test_only_the_axis_whose_window_reaches_padding_is_filled() -> None:
    sheet = Operand(("batch", 2, "time", "late"))
    attributes = {"kernel_shape": [1, 3], "pads": [0, 1, 0, 1]}
    node = Node("Conv", [sheet, weights(3, 2, 1, 3)], attributes, least={"late": 2})
    assert check(node, "CV5", f"{TRACKED}, 3: [late, left]", extremes=False).needs == (Fill(0, 3, 0.0),)


def test_computed_weights_bound_what_comes_out() -> None:
    frames = Operand(("batch", 2, "time"), valid=Interval(-2.0, 2.0), padding=Interval(-3.0, 3.0))
    kernel = Operand((4, 2, 2), valid=Interval(-2.0, 2.0))
    fact = check(Node("Conv", [frames, kernel, Operand((4,), valid=Interval(-1.0, 1.0))], least={"time": 3}),
                 "CV4", "0: rows(batch), 2: [time - 1, left]").outputs[0]  # fmt: skip
    assert fact.valid == Interval(-17.0, 17.0)
    check_refused(Node("Conv", [frames, Operand((4, 2, 2), valid=ANYTHING)]), "infinite or NaN")
    check_refused(Node("Conv", [frames, constant(np.full((4, 2, 2), np.inf))]), "infinite weights or NaN")


def test_a_computed_bias_bounds_what_comes_out() -> None:
    frames = Operand(("batch", 2, "time"), valid=Interval(-2.0, 2.0), padding=Interval(-3.0, 3.0))
    node = Node("Conv", [frames, constant(np.zeros((4, 2, 1))), Operand((4,), valid=Interval(-1.0, 1.0))])
    assert check(node, "CV3", TRACKED).outputs[0].valid == Interval(-1.0, 1.0)


def test_weights_of_unknown_sign_spread_a_constant_both_ways() -> None:
    frames = Operand(("batch", 2, "time"), valid=Interval(2.0, 3.0), padding=Interval(5.0, 5.0))
    node = Node("Conv", [frames, Operand((4, 2, 1), valid=Interval(-2.0, 2.0))])
    fact = check(node, "CV3", TRACKED).outputs[0]
    assert (fact.valid, fact.padding(2)) == (Interval(-12.0, 12.0), Interval(-20.0, 20.0))


def drawn(rng: np.random.Generator) -> Node:
    """One convolution of any kind: in groups, of quantised numbers, with a bias, over one or two tracked axes."""
    op = str(rng.choice(["Conv", "ConvInteger", "QLinearConv", "ConvTranspose"]))
    kernel, group = int(rng.integers(1, 4)), int(rng.choice([1, 2]))
    held = Interval(-float(rng.integers(0, 4)), float(rng.integers(0, 4)))
    padding = [ANYTHING, ZERO, Interval(-1.0, 9.0)][rng.integers(3)]
    pads = [int(each) for each in rng.integers(0, kernel, 2)]
    attributes = {"kernel_shape": [kernel], "pads": pads, "strides": [int(rng.integers(1, 3))], "group": group}
    least = {"time": 4}
    if op in ("Conv", "ConvTranspose"):
        shape = (4, 4 // group, kernel) if op == "Conv" else (4, 2, kernel)
        bias = [weights(4 if op == "Conv" else 2 * group)] if rng.integers(0, 2) else []
        frames = Operand(("batch", 4, "time"), valid=held, padding=padding)
        return Node(op, [frames, weights(*shape, seed=int(rng.integers(9))), *bias], attributes, least=least)
    frames = Operand(("batch", 4, "time"), ir.DataType.UINT8, LEVELS, LEVELS if padding is ANYTHING else ZERO)
    kernels = constant(rng.integers(0, 255, (4, 4 // group, kernel)), np.uint8)
    zero, other = (constant(int(rng.integers(0, 200)), np.uint8) for _ in range(2))
    if op == "ConvInteger":
        return Node(op, [frames, kernels, *([zero] if rng.integers(0, 2) else [])], attributes, least=least, opset=10)
    scale = constant(0.05)
    return Node(op, [frames, scale, zero, kernels, scale, other, scale, zero], attributes, least=least)


def test_random_convolutions_are_sound_or_refused() -> None:
    attack(drawn, 50, 25, tolerance=1e-4)
