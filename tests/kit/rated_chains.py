"""Chains of layers that make several entries of every frame, and of entries fewer again, as decoders of codecs do.

Everything reads earlier entries alone; one spoiled link reads later ones, or all.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from tests.kit.spelled_masks import Ops

LINKS = (
    "conv", "spread", "repeat", "split", "down", "pool", "sum", "moved", "gru", "snake", "residual", "swapped",
)  # fmt: skip
"""Layers of a chain; `RatedChains` has a method for each."""

CHAIN_SPOILERS = (
    "conv_ahead", "spread_ahead", "down_ahead", "moved_ahead", "sum_backwards", "gru_backwards", "mean", "linear",
    "edge",
)  # fmt: skip
"""What reads later entries: each in the place of the chain's last link."""

AHEAD = ("conv_ahead", "spread_ahead", "down_ahead")
"""Those of them that read a few entries ahead, so that answers may come later."""

WIDTH, MOST_RATE = 4, 24


class Chained(Ops, Protocol):
    """Writes nodes of one graph over frames."""

    random: np.random.Generator
    insert: graphs.Inserter

    def weights(self, *shape: int) -> ir.Value:
        """A random float32 constant."""
        ...


class RatedChains:
    """Writes one chain over frames.

    Args:
        frames: writes nodes.
    """

    def __init__(self, frames: Chained) -> None:
        self.frames, self.ints, self.rate = frames, frames.ints, 1

    def of(self, x: ir.Value, links: Sequence[str], spoiler: str = "") -> ir.Value:
        """Return [batch, rate * time, 4], of frames [batch, time, width].

        Args:
            x: frames, whose width the first weights have.
            links: some of `LINKS`.
            spoiler: one of `CHAIN_SPOILERS`, which comes last, or nothing; those of `AHEAD` may be links, too.
        """
        y = self.op("Transpose", x, perm=[0, 2, 1])
        for link in links:
            y = self._link(link)(y)
        if spoiler:
            y = self._link(spoiler)(y)
        return self.op("Transpose", y, perm=[0, 2, 1])

    def _link(self, name: str) -> Callable[[ir.Value], ir.Value]:
        link: Callable[[ir.Value], ir.Value] = getattr(self, f"_{name}")
        return link

    def op(self, op_type: str, *operands: ir.Value | None, **attributes: int | str | Sequence[int]) -> ir.Value:
        return self.frames.op(op_type, *operands, **attributes)

    def _drawn(self, low: int, high: int) -> int:
        """Return a number from `low` to `high`, both included."""
        return int(self.frames.random.integers(low, high + 1))

    def _bias(self) -> ir.Value:
        return self.frames.weights(WIDTH)

    def _padded(self, x: ir.Value, front: int, behind: int = 0, mode: str = "constant") -> ir.Value:
        return self.op("Pad", x, self.ints(0, 0, front, 0, 0, behind), mode=mode)

    def _cut(self, x: ir.Value, start: int, end: int) -> ir.Value:
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(2))

    # Links

    def _conv(self, x: ir.Value, ahead: int = 0, stride: int = 1) -> ir.Value:
        taps, apart = self._drawn(1, 4), self._drawn(1, 3)
        weights, reach = self.frames.weights(WIDTH, WIDTH, taps), apart * (taps - 1)
        front = max(reach + 1 - stride, 0)
        given = {"dilations": [apart], "strides": [stride]}
        match self._drawn(0, 2 if stride == 1 else 1):
            case 0:
                return self.op("Conv", x, weights, self._bias(), pads=[front, ahead], **given)
            case 1:
                return self.op("Conv", self._padded(x, front, ahead), weights, self._bias(), **given)
            case _:
                y = self.op("Conv", x, weights, self._bias(), pads=[front, front + ahead], **given)
                return self._cut(y, 0, -front) if front else y

    def _conv_ahead(self, x: ir.Value) -> ir.Value:
        taps = self._drawn(2, 4)
        ahead = self._drawn(1, taps - 1)
        weights = self.frames.weights(WIDTH, WIDTH, taps)
        return self.op("Conv", x, weights, self._bias(), pads=[taps - 1 - ahead, ahead])

    def _spread(self, x: ir.Value) -> ir.Value:
        stride = self._drawn(1, max(min(4, MOST_RATE // self.rate), 1))
        taps, apart = self._drawn(1, 7), self._drawn(1, 2)
        reach = apart * (taps - 1)
        while reach + 1 < stride:
            taps, reach = taps + 1, reach + apart
        weights, behind = self.frames.weights(WIDTH, WIDTH, taps), reach + 1 - stride
        given = {"dilations": [apart], "strides": [stride]}
        self.rate *= stride
        match self._drawn(0, 2):
            case 0:
                return self.op("ConvTranspose", x, weights, self._bias(), pads=[0, behind], **given)
            case 1 if behind:
                return self._cut(self.op("ConvTranspose", x, weights, self._bias(), **given), 0, -behind)
            case 2 if stride > 1:
                added = {"output_padding": [1]}
                return self.op("ConvTranspose", x, weights, self._bias(), pads=[0, behind + 1], **given, **added)
        y = self.op("ConvTranspose", x, weights, pads=[0, behind // 2], **given)
        return self._cut(y, 0, behind // 2 - behind) if behind - behind // 2 else y

    def _spread_ahead(self, x: ir.Value) -> ir.Value:
        stride = self._drawn(1, max(min(4, MOST_RATE // self.rate), 1))
        self.rate *= stride
        taps = stride + self._drawn(1, 4)
        front = self._drawn(1, taps - stride)
        weights, behind = self.frames.weights(WIDTH, WIDTH, taps), taps - stride - front
        if self._drawn(0, 1):
            return self.op("ConvTranspose", x, weights, self._bias(), pads=[front, behind], strides=[stride])
        y = self.op("ConvTranspose", x, weights, self._bias(), strides=[stride])
        return self._cut(y, front, -behind) if behind else self._cut(y, front, 2**63 - 1)

    def _repeat(self, x: ir.Value) -> ir.Value:
        times = self._drawn(1, max(min(3, MOST_RATE // self.rate), 1))
        self.rate *= times
        if self._drawn(0, 1):
            scales = self.frames.insert.constant(np.array([1.0, 1.0, times], np.float32), "scales")
            way = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            return self.op("Resize", x, None, scales, **way)
        wide = self.op("Expand", self.op("Unsqueeze", x, self.ints(3)), self.ints(1, 1, 1, times))
        return self.op("Reshape", wide, self.ints(0, WIDTH, -1))

    def _linear(self, x: ir.Value) -> ir.Value:
        scales = self.frames.insert.constant(np.array([1.0, 1.0, 2.0], np.float32), "scales")
        return self.op("Resize", x, None, scales, mode="linear")

    def _split(self, x: ir.Value) -> ir.Value:
        times = 2 if self.rate * 2 <= MOST_RATE else 1
        self.rate *= times
        y = self.op("Conv", x, self.frames.weights(WIDTH * times, WIDTH, 1))
        apart = self.op("Reshape", y, self.ints(0, times, WIDTH, -1))
        return self.op("Reshape", self.op("Transpose", apart, perm=[0, 2, 3, 1]), self.ints(0, WIDTH, -1))

    def _strides(self) -> list[int]:
        return [stride for stride in (2, 3, 4) if self.rate % stride == 0]

    def _down(self, x: ir.Value) -> ir.Value:
        strides = self._strides()
        if not strides:
            return self._conv(x)
        stride = strides[self._drawn(0, len(strides) - 1)]
        self.rate //= stride
        taps = stride + self._drawn(0, 3)
        weights, front = self.frames.weights(WIDTH, WIDTH, taps), taps - stride
        return self.op("Conv", self._padded(x, front), weights, self._bias(), strides=[stride])

    def _down_ahead(self, x: ir.Value) -> ir.Value:
        stride = (*self._strides(), 1)[0]
        self.rate //= stride
        taps = stride + self._drawn(1, 3)
        weights, behind = self.frames.weights(WIDTH, WIDTH, taps), self._drawn(1, taps - stride)
        return self.op("Conv", x, weights, self._bias(), strides=[stride], pads=[taps - stride - behind, behind])

    def _pool(self, x: ir.Value) -> ir.Value:
        strides = self._strides()
        if not strides:
            return x
        stride = strides[self._drawn(0, len(strides) - 1)]
        self.rate //= stride
        kind = ("AveragePool", "MaxPool")[self._drawn(0, 1)]
        return self.op(kind, x, kernel_shape=[stride], strides=[stride])

    def _sum(self, x: ir.Value) -> ir.Value:
        total = self.op("CumSum", self.op("Tanh", x), self._axis(), exclusive=self._drawn(0, 1))
        return self.op("Sin", total)

    def _sum_backwards(self, x: ir.Value) -> ir.Value:
        return self.op("CumSum", self.op("Tanh", x), self._axis(), reverse=1)

    def _axis(self) -> ir.Value:
        return self.frames.insert.constant(np.array((2, -1)[self._drawn(0, 1)], np.int64), "axis")

    def _moved(self, x: ir.Value) -> ir.Value:
        count = self._drawn(1, 2)  # a sequence has two frames at least
        match self._drawn(0, 2):
            case 0:
                return self._padded(x, count, -count)
            case 1:
                return self._cut(self._padded(x, count), 0, -count)
            case _:
                return self._padded(self._cut(x, 0, -count), count)

    def _moved_ahead(self, x: ir.Value) -> ir.Value:
        return self._padded(x, -1, 1)

    def _gru(self, x: ir.Value, way: str = "forward") -> ir.Value:
        first = self.op("Transpose", x, perm=[2, 0, 1])
        weights = [self.frames.weights(1, 3 * WIDTH, WIDTH) for _ in range(2)]
        y = self.op("GRU", first, *weights, hidden_size=WIDTH, direction=way)
        return self.op("Transpose", self.op("Squeeze", y, self.ints(1)), perm=[1, 2, 0])

    def _gru_backwards(self, x: ir.Value) -> ir.Value:
        return self._gru(x, "reverse")

    def _snake(self, x: ir.Value) -> ir.Value:
        wave = self.op("Sin", self.op("Mul", x, self.frames.weights(WIDTH, 1)))
        return self.op("Add", x, self.op("Mul", wave, wave))

    def _residual(self, x: ir.Value) -> ir.Value:
        return self.op("Add", x, self.op("Tanh", self._conv(self._conv(self.op("LeakyRelu", x)))))

    def _swapped(self, x: ir.Value) -> ir.Value:
        """Frames as pictures of one row: a convolution of two axes, of which one is time."""
        weights, taps = self.frames.weights(WIDTH, WIDTH, 1, 3), 3
        y = self.op("Conv", self.op("Unsqueeze", x, self.ints(2)), weights, pads=[0, taps - 1, 0, 0])
        return self.op("Squeeze", y, self.ints(2))

    def _mean(self, x: ir.Value) -> ir.Value:
        return self.op("Sub", x, self.op("ReduceMean", x, self.ints(2), keepdims=1))

    def _edge(self, x: ir.Value) -> ir.Value:
        return self.op("Conv", self._padded(x, 2, mode="edge"), self.frames.weights(WIDTH, WIDTH, 3))
