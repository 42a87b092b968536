"""Kernels that slide along padded frames, with any strides, dilations and pads, under attack."""

from collections.abc import Callable

import numpy as np
import pytest

from compiler.graph.model import symbol
from compiler.proof.facts.interval import ANYTHING, ZERO
from compiler.proof.facts.layout import Segment, Side, joined
from tests.compiler.passes.test_pad_axes_offline import CHANNELS, WEIGHTS, graph
from tests.kit.judged import attack
from tests.kit.offline import offline, verify_offline
from tests.kit.soundness import Node, Operand, constant

ACCEPTED = [
    CHANNELS
    + "d = Conv<pads = [1, 1]>(c, kernel)  e = MaxPool<kernel_shape = [2], pads = [0, 1]>(d)  y = Conv<strides = [2]>(e, kernel)",  # noqa: E501
    CHANNELS + "d = ConvTranspose<strides = [2]>(c, up)  y = Conv<pads = [2, 2], dilations = [2]>(d, kernel)",
    CHANNELS + 'y = Conv<auto_pad = "SAME_UPPER">(c, kernel)',
]


@pytest.mark.parametrize("body", ACCEPTED)
def test_padded_rows_are_as_alone(body: str) -> None:
    verify_offline(offline(graph(body), WEIGHTS), tolerance=1e-4)


BESIDE = joined([Segment(symbol("cache"), Side.RIGHT), Segment(symbol("time"))])


def _frames(rng: np.random.Generator) -> tuple[Operand, list[str]]:
    """[batch, 2, frames] padded behind, in front, in front with new frames behind, or on both sides."""
    padding = ANYTHING if rng.integers(0, 3) else ZERO
    if not rng.integers(0, 4):
        return Operand(("batch", 2, "cache + time"), axes={2: BESIDE}, padding=padding), ["cache"]
    size, right = [("time", []), ("2*time + 1", []), ("cache", ["cache"]), ("cache + 4", ["cache"])][rng.integers(4)]
    return Operand(("batch", 2, size), padding=padding), right


def _weights(rng: np.random.Generator, kernel: int) -> Operand:
    return constant(rng.standard_normal((2, 2, kernel)))


def _window(rng: np.random.Generator, kernel: int) -> dict[str, list[int]]:
    pads = [int(each) for each in rng.integers(0, kernel, 2)]
    return {"strides": [int(rng.integers(1, 4))], "pads": pads}


def convolution(rng: np.random.Generator) -> Node:
    (frames, right), kernel = _frames(rng), int(rng.integers(1, 4))
    operands = [frames, _weights(rng, kernel), *([constant([0.5, -1.0])] if rng.integers(0, 2) else [])]
    attributes = _window(rng, kernel + 1) | {"dilations": [int(rng.integers(1, 3))]}
    return Node("Conv", operands, attributes, right=right, least=dict.fromkeys(("time", "cache"), 5), most={"time": 9})


def transposed(rng: np.random.Generator) -> Node:
    (frames, right), kernel = _frames(rng), int(rng.integers(1, 5))
    window = _window(rng, (kernel + 1) // 2)
    extra = int(rng.integers(0, window["strides"][0]))
    attributes = window | {"output_padding": [extra], "dilations": [int(rng.integers(1, 3))]}
    return Node(
        "ConvTranspose", [frames, _weights(rng, kernel)], attributes, right=right, least={"time": 2, "cache": 2}
    )


def pool(rng: np.random.Generator) -> Node:
    (frames, right), kernel = _frames(rng), int(rng.integers(1, 4))
    op = str(rng.choice(["MaxPool", "AveragePool"]))
    attributes = _window(rng, kernel) | {"kernel_shape": [kernel], "ceil_mode": int(rng.integers(0, 2))}
    if op == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(0, 2))
    return Node(op, [frames], attributes, right=right, least={"time": 3, "cache": 3})


@pytest.mark.parametrize(("draw", "fewest"), [(convolution, 20), (transposed, 15), (pool, 20)])
def test_random_windows_are_sound_or_refused(draw: Callable[[np.random.Generator], Node], fewest: int) -> None:
    attack(draw, 50, fewest, extremes=False, tolerance=1e-4)
