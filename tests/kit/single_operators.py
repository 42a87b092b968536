"""Operators that compute something of every frame alone, each written in several ways; spoiled, along time.

What is computed is added to frames [batch, time, width], and has their shape or one that is spread to it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from tests.kit.spelled_masks import Ops

SINGLES = (
    "product", "largest", "picked_at", "picked", "picked_each", "regrouped", "padded", "cut", "joined", "running",
    "normal", "reduced", "window", "tiled", "einsum", "counted", "sized", "triangle",
)  # fmt: skip
"""What is computed; `SingleOperators` has a method for each."""

ENDLESS = 2**63 - 1
"""Where a cut ends that goes on to the end."""


DEFAULTS = {"transA": 0, "transB": 0, "keepdims": 1, "exclusive": 0, "reverse": 0, "upper": 1}
"""What operators take for attributes that are not there."""

AXES = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "LayerNormalization"), -1),
    **dict.fromkeys(("Gather", "GatherElements", "ArgMax", "ArgMin"), 0),
}
"""The axis that they take."""


class Frames(Ops, Protocol):
    """Writes nodes of one graph over frames."""

    tokens: ir.Value

    def weights(self, *shape: int) -> ir.Value:
        """A random float32 constant."""
        ...

    def whole(self, numbers: object) -> ir.Value:
        """An int64 constant of nested lists."""
        ...


class SingleOperators:
    """Writes what is added to frames.

    Args:
        frames: writes nodes.
        width: of frames.
        is_spoiled: whether it is computed along time.
    """

    def __init__(self, frames: Frames, width: int, *, is_spoiled: bool) -> None:
        self.frames, self.width, self.is_spoiled = frames, width, is_spoiled
        self.ints = frames.ints

    def of(self, x: ir.Value, name: str) -> ir.Value:
        """Frames with one of `SINGLES` added to them.

        Args:
            x: frames [batch, time, width].
            name: what is computed.
        """
        ways: dict[str, Callable[[ir.Value], ir.Value]] = {name: getattr(self, f"_{name}") for name in SINGLES}
        return self.op("Add", x, self.op("Tanh", ways[name](x)))

    def _product(self, x: ir.Value) -> ir.Value:
        width, is_turned = self.width, [self._drawn(2), self._drawn(2)]
        if self.is_spoiled:  # every channel with every other one, over all frames
            flat = self.op("Gather", x, self.frames.number(0), axis=0)
            given = self._turned(flat, self._drawn(2))
            other = self._turned(flat, self._drawn(2))
            among = self.op("Gemm", given[0], other[0], transA=1 - given[1], transB=other[1])
            return self.op("MatMul", x, among)
        flat, turned = self._turned(self.op("Reshape", x, self.ints(-1, width)), is_turned[0])
        more = [self.frames.weights(width)] if self._drawn(2) else []
        found = self.op("Gemm", flat, self.frames.weights(width, width), *more, transA=turned, transB=is_turned[1])
        return self._reshaped(found, self.width)

    def _turned(self, x: ir.Value, is_turned: int) -> tuple[ir.Value, int]:
        """A matrix or its transpose, and which it is."""
        return (self.op("Transpose", x, perm=(1, 0)) if is_turned else x), is_turned

    def _largest(self, x: ir.Value) -> ir.Value:
        """A learnt row for the channel that is largest, or smallest."""
        is_kept, name = self._drawn(2), ("ArgMax", "ArgMin")[self._drawn(2)]
        if self.is_spoiled:  # the place at which a channel is largest
            found = self.op(name, x, axis=(1, -2)[self._drawn(2)], keepdims=is_kept)
            return self._among_rows(self.frames.floats(found), is_kept)
        found = self.op(name, x, axis=(2, -1)[self._drawn(2)], keepdims=is_kept)
        found = self.op("Squeeze", found, self.ints(2)) if is_kept else found
        return self.op("Gather", self.frames.weights(self.width, self.width), found, axis=0)

    def _picked_at(self, x: ir.Value) -> ir.Value:
        """Some channels, by GatherND."""
        if self.is_spoiled:
            turned = self.op("Transpose", x, perm=(1, 0, 2))
            picked = self.op("GatherND", turned, self._places([[0]], [[-1]], [[0], [0]]))
            return self.op("ReduceSum", self.op("Transpose", picked, perm=(1, 0, 2)), self.ints(1), keepdims=1)
        turned = self.op("Transpose", x, perm=(2, 0, 1))
        picks: list[list[Any]] = [[[0], [5], [-1]], [[[0], [3]], [[1], [7]]], [3]]
        picks += [[[0, 1], [1, 3]], [[[1, 2]], [[0, 0]]]]  # of pairs of axes
        pick = np.array(picks[self._drawn(len(picks))])
        if pick.shape[-1] == 2:
            shape = self.op("Concat", self.ints(2, self.width // 2), self._rows(), self._length(), axis=0)
            turned = self.op("Reshape", turned, shape)
        found = self.op("GatherND", turned, self._places(pick))
        rank = pick.ndim + 1
        perm = (rank - 2, rank - 1, *range(rank - 2))
        return self._projected(self.op("Transpose", found, perm=perm), math.prod(pick.shape[:-1]))

    def _picked(self, x: ir.Value) -> ir.Value:
        """Some channels, by Gather; spoiled, some frames."""
        if not self.is_spoiled:
            picks: list[list[Any]] = [[[0, 1], [2, 5]], [3, 3, 0], [[[7]], [[1]]]]
            pick = np.array(picks[self._drawn(3)])
            found = self.op("Gather", x, self._places(pick), axis=(2, -1)[self._drawn(2)])
            return self._projected(found, pick.size)
        way = self._drawn(5)
        if way == 0:
            return self.op("Gather", x, self._places([0], [-1]), axis=1)
        if way == 1:
            return self.op("Unsqueeze", self.op("Gather", x, self._places(0, -1), axis=1), self.ints(1))
        if way == 2:
            return self.op("ReduceSum", self.op("Gather", x, self.ints(0, 0), axis=1), self.ints(1), keepdims=1)
        backwards = self.op("Sub", self.op("Sub", self.frames.length, self.frames.number(1)), self.frames.places)
        if way == 3:
            return self.op("Gather", x, backwards, axis=1)
        own = self.frames.floats(self.frames.places)
        return self.op("Gather", own, self._places([0], [-1], -1), axis=0)

    def _picked_each(self, x: ir.Value) -> ir.Value:
        """An entry of every frame that its own numbers choose."""
        axis = 1 if self.is_spoiled else 2
        which = self.op("ArgMax", x, axis=axis, keepdims=1)
        return self.op("GatherElements", x, which, axis=axis - 3 * self._drawn(2))

    def _regrouped(self, x: ir.Value) -> ir.Value:
        half = self.width // 2
        if self.is_spoiled:  # rows and frames, or frames and channels, in another order
            perm = [(0, 2, 1), (1, 0, 2), (1, 2, 0)][self._drawn(3)]
            turned = self.op("Transpose", x, perm=perm)
            turned = self.op("Reshape", turned, self.ints(-1, self.width)) if perm == (1, 0, 2) else turned
            return self._reshaped(turned, self.width)
        way = self._drawn(5)
        if way == 0:
            parted = self.op("Transpose", self.op("Reshape", x, self.ints(0, 0, 2, half)), perm=(0, 1, 3, 2))
            return self.op("Reshape", parted, self.ints(0, -1, self.width))
        if way == 1:
            flat = self.op("Reshape", x, self.ints(-1, half))
            return self._reshaped(self.op("MatMul", flat, self.frames.weights(half, half)), self.width)
        if way == 2:
            turned = self.op("Reshape", self.op("Transpose", x, perm=(0, 2, 1)), self.ints(0, 2, half, -1))
            summed = self.op("ReduceSum", turned, self.ints(1), keepdims=0)
            return self._projected(self.op("Transpose", summed, perm=(0, 2, 1)), half)
        if way == 3:
            turned = self.op("Reshape", self.op("Transpose", x, perm=(1, 0, 2)), self.ints(-1, self.width))
            order = self.op("Concat", self._length(), self._rows(), self.ints(self.width), axis=0)
            return self.op("Transpose", self.op("Reshape", turned, order), perm=(1, 0, 2))
        wide = self.op("Flatten", x, axis=2)
        return self._reshaped(self.op("Unsqueeze", wide, self.ints(1)), self.width)

    def _padded(self, x: ir.Value) -> ir.Value:
        """More channels on one side, or frames that are moved back; spoiled, they are moved ahead."""
        if not self.is_spoiled and self._drawn(3) == 0:
            far, axis = 1 + self._drawn(2), self.ints((1, -2)[self._drawn(2)])
            return self.op("Pad", x, self.ints(far, -far), self.frames.real(float(self._drawn(2))), axis)
        if not self.is_spoiled:
            pads, axes = [(0, 1), (2, 0), (1, -2)][self._drawn(3)], self.ints((2, -1)[self._drawn(2)])
            mode = "edge" if min(pads) >= 0 and self._drawn(2) else "constant"
            value = self.frames.real(float(self._drawn(2))) if mode == "constant" else None
            return self._projected(self.op("Pad", x, self.ints(*pads), value, axes, mode=mode), self.width + sum(pads))
        axes = self.ints((1, -2)[self._drawn(2)])
        if self._drawn(2):
            return self.op("Pad", x, self.ints(-1, 1), self.frames.real(float(self._drawn(2))), axes)
        more = self.op("Pad", x, self.ints(0, 1), None, axes, mode=("edge", "constant")[self._drawn(2)])
        return self._cut_from(more, 1)

    def _cut(self, x: ir.Value) -> ir.Value:
        """Some channels, or in turned order; spoiled, frames in turned order, or every frame the first or last one."""
        axis, back = (1, -2)[self._drawn(2)], -ENDLESS
        if not self.is_spoiled:
            way, axis = self._drawn(3), axis + 1  # of channels
            if way == 0:
                return self.op("Slice", x, self.ints(-1), self.ints(back), self.ints(axis), self.ints(-1))
            ends = [(1, ENDLESS, 2, self.width // 2), (-3, ENDLESS, 1, 3)][way - 1]
            found = self.op("Slice", x, *(self.ints(each) for each in (ends[0], ends[1], axis, ends[2])))
            return self._projected(found, ends[3])
        way = self._drawn(3)
        if way == 0:
            return self.op("Slice", x, self.ints(-1), self.ints(back), self.ints(axis), self.ints(-1))
        start, end = [(0, 1), (-1, ENDLESS)][way - 1]
        return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis))

    def _joined(self, x: ir.Value) -> ir.Value:
        """Frames behind a prefix that is cut off again; spoiled, the cut or the order is another one."""
        count = 1 + self._drawn(3)
        front = self._front(count)
        if not self.is_spoiled:
            wide = self.op("Concat", front, x, axis=1)
            if self._drawn(2):
                wide, count = self.op("Concat", self._front(2), wide, axis=-2), count + 2
            wide = self.op("Sin", wide) if self._drawn(2) else wide
            if count > 1 and self._drawn(2):
                wide, count = self._cut_off(wide, 1), count - 1
            return self._cut_off(wide, count)
        way = self._drawn(4)
        if way == 0:
            return self._cut_from(self.op("Concat", x, front, axis=1), 1)
        if way == 1:
            return self._cut_from(self.op("Concat", front, x, self._front(2), axis=1), count + 1)
        if way == 2:
            return self.op("ReduceMean", self.op("Concat", front, x, axis=1), self.ints(1), keepdims=1)
        return self._cut_from(self.op("Concat", x, x, axis=1), 1)

    def _running(self, x: ir.Value) -> ir.Value:
        axis = (1, -2)[self._drawn(2)] if self.is_spoiled else (2, -1, 1)[self._drawn(3)]
        reverse = 1 if self.is_spoiled else self._drawn(2) * (axis != 1)
        return self.op("CumSum", x, self.frames.number(axis), exclusive=self._drawn(2), reverse=reverse)

    def _normal(self, x: ir.Value) -> ir.Value:
        axis = (1, -2)[self._drawn(2)] if self.is_spoiled else (2, -1)[self._drawn(2)]
        names = ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "LayerNormalization")
        name = names[self._drawn(len(names) - self.is_spoiled)]
        more = [self.frames.weights(self.width)] if name == "LayerNormalization" else []
        return self.op(name, x, *more, axis=axis)

    def _reduced(self, x: ir.Value) -> ir.Value:
        is_kept, way = self._drawn(2), self._drawn(4)
        names = ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceLogSumExp")
        name = names[self._drawn(3 if way == 0 else 5)]
        if not self.is_spoiled:
            if way == 0:
                return self.op(name, x, noop_with_empty_axes=1)
            found = self.op(name, x, self.ints((2, -1)[self._drawn(2)]), keepdims=is_kept)
            return found if is_kept else self.op("Unsqueeze", found, self.ints(-1))
        if way == 0:
            return self.op(name, x, keepdims=is_kept)
        if way == 1:
            found = self.op(name, x, self.ints(2, -2), keepdims=is_kept)
            return found if is_kept else self.op("Unsqueeze", found, self.ints(1, 2))
        found = self.op(name, x, self.ints((1, -2)[self._drawn(2)]), keepdims=is_kept)
        return self._among_rows(found, is_kept)

    def _window(self, x: ir.Value) -> ir.Value:
        """A convolution or pool over channels-first frames; spoiled, with a window that reaches ahead."""
        turned, far, taps = self.op("Transpose", x, perm=(0, 2, 1)), 1 + self._drawn(2), 2 + self._drawn(2)
        reach = far * (taps - 1)
        if not self.is_spoiled:
            if self._drawn(3) == 0:
                found = self.op(("MaxPool", "AveragePool")[self._drawn(2)], turned, kernel_shape=(1,))
            else:
                groups = (1, self.width)[self._drawn(2)]
                kernel = self.frames.weights(self.width, self.width // groups, taps)
                found = self.op("Conv", turned, kernel, pads=(reach, 0), dilations=(far,), group=groups)
            return self.op("Transpose", found, perm=(0, 2, 1))
        kernel, way = self.frames.weights(self.width, self.width, taps), self._drawn(4)
        if way == 0:
            found = self.op("Conv", turned, kernel, pads=(reach - 1, 1), dilations=(far,))
        elif way == 1:
            wide = self.frames.weights(self.width, self.width, 3)
            found = self.op("Conv", turned, wide, auto_pad=("SAME_UPPER", "SAME_LOWER")[self._drawn(2)])
        elif way == 2:
            found = self.op(
                ("MaxPool", "AveragePool")[self._drawn(2)], turned, kernel_shape=(taps,), pads=(0, taps - 1)
            )
        else:
            found = self.op("Conv", turned, kernel, pads=(0, reach), dilations=(far,))
        return self.op("Transpose", found, perm=(0, 2, 1))

    def _tiled(self, x: ir.Value) -> ir.Value:
        """Channels again; spoiled, frames again, of which others are cut out."""
        if not self.is_spoiled:
            return self._projected(self.op("Tile", x, self.ints(1, 1, 2)), 2 * self.width)
        return self._cut_from(self.op("Tile", x, self.ints(1, 2, 1)), 1)

    def _einsum(self, x: ir.Value) -> ir.Value:
        weights = self.frames.weights(self.width, self.width)
        if not self.is_spoiled:
            equation = ("btw,wv->btv", "btw,vw->btv", "btw,wv->tbv")[self._drawn(3)]
            found = self.op("Einsum", x, weights, equation=equation)
            return self.op("Transpose", found, perm=(1, 0, 2)) if equation.endswith("tbv") else found
        if self._drawn(2):
            return self._among_rows(self.op("Einsum", x, weights, equation="btw,wv->bv"), 0)
        return self.op("MatMul", self.op("Einsum", x, x, equation="btw,bsw->bts"), x)

    def _counted(self, _: ir.Value) -> ir.Value:
        """Places, counted in other ways; spoiled, from the end, or by their number."""
        op, number, length = self.op, self.frames.number, self.frames.length
        places = self.frames.floats(self.frames.places)
        ones = op("Expand", number(1), self._length())
        way = self._drawn(4)
        if not self.is_spoiled:
            own = [
                lambda: op("Range", number(2), op("Add", length, number(2)), number(1)),
                lambda: op("CumSum", ones, number(0), exclusive=self._drawn(2)),
                lambda: op("Sub", op("CumSum", self.frames.places, number(0)), number(1)),
                lambda: op("Mod", op("Mul", self.frames.places, number(3)), number(7)),
            ][way]()
        else:
            own = [
                lambda: op("Range", length, number(0), number(-1)),
                lambda: op("CumSum", ones, number(0), reverse=1, exclusive=self._drawn(2)),
                lambda: op("Range", op("Neg", length), number(0), number(1)),
                lambda: op(("Softmax", "ReduceMax", "ReduceSum")[self._drawn(3)], places),
            ][way]()
        column = op("Mul", self.frames.floats(own), self.frames.real(0.1))
        return op("Mul", op("Reshape", column, self.ints(-1, 1)), self.frames.weights(1, self.width))

    def _sized(self, x: ir.Value) -> ir.Value:
        """Numbers that are spread over frames; spoiled, by how many these are."""
        op = self.op
        shape = op("Concat", self._length(), self.ints(1), axis=0)
        if not self.is_spoiled:
            ones = op("Expand", self.frames.real(0.3), shape)
            made = op("ConstantOfShape", shape) if self._drawn(2) else ones
            return op("Mul", x, op("Cos", made))
        length, tokens = self.frames.length, self.frames.tokens
        count = [
            lambda: op("ReduceSum", op("Expand", self.frames.real(0.1), shape)),
            lambda: op("ReduceMax", self.frames.floats(op("Shape", tokens))),
            lambda: self.frames.floats(op("Size", tokens)),
            lambda: self.frames.floats(self._length()),
            lambda: self.frames.floats(op("Mul", length, length)),
        ][self._drawn(5)]()
        return op("Mul", x, op("Reciprocal", count))

    def _triangle(self, x: ir.Value) -> ir.Value:
        """Products of frames with earlier ones, by Trilu; spoiled, with later ones, or channels by the place."""
        op, number, way = self.op, self.frames.number, self._drawn(4)
        among = op("MatMul", x, op("Transpose", x, perm=(0, 2, 1)))
        if self.is_spoiled and way == 3:
            return op("Trilu", x, number(self._drawn(3) - 1), upper=self._drawn(2))
        if self.is_spoiled:
            diagonal = op("Sub", self.frames.length, number(2)) if way == 0 else number(1 + self._drawn(3))
            low = op("Trilu", among, upper=1) if way == 1 else op("Trilu", among, diagonal, upper=0)
            return op("MatMul", low, x)
        if way < 3:
            low = op("Trilu", among, number(-way), upper=0) if way else op("Trilu", among, upper=0)
            return op("MatMul", low, x)
        turned = op("Trilu", op("Transpose", among, perm=(0, 2, 1)), upper=1)
        return op("MatMul", op("Transpose", turned, perm=(0, 2, 1)), x)

    # Parts

    def op(self, op_type: str, *operands: ir.Value | None, **attributes: int | str | Sequence[int]) -> ir.Value:
        """One node, whose attributes are left out where they are what the operator takes without them."""
        taken = {**DEFAULTS, "axis": AXES.get(op_type)}
        kept = {name: each for name, each in attributes.items() if taken.get(name) != each}
        return self.frames.op(op_type, *operands, **kept)

    def _rows(self) -> ir.Value:
        return self.op("Shape", self.frames.tokens, start=0, end=1)

    def _length(self) -> ir.Value:
        return self.op("Unsqueeze", self.frames.length, self.ints(0))

    def _reshaped(self, x: ir.Value, width: int) -> ir.Value:
        return self.op("Reshape", x, self.op("Concat", self._rows(), self._length(), self.ints(width), axis=0))

    def _projected(self, x: ir.Value, width: int) -> ir.Value:
        """Project [batch, time, ...] with `width` entries per frame to [batch, time, `self.width`]."""
        flat = self.op("Reshape", x, self.ints(0, 0, width))
        return self.op("MatMul", flat, self.frames.weights(width, self.width))

    def _among_rows(self, found: ir.Value, is_kept: int) -> ir.Value:
        """What every row of the batch has, [batch, 1, width]."""
        return found if is_kept else self.op("Unsqueeze", found, self.ints(1))

    def _front(self, count: int) -> ir.Value:
        """Learnt frames, [batch, count, width]."""
        shape = self.op("Concat", self._rows(), self.ints(count, self.width), axis=0)
        return self.op("Expand", self.frames.weights(1, count, self.width), shape)

    def _cut_off(self, wide: ir.Value, count: int) -> ir.Value:
        """Return `wide` without its first `count` frames."""
        return self.op("Slice", wide, self.ints(count), self.ints(ENDLESS), self.ints((1, -2)[self._drawn(2)]))

    def _cut_from(self, wide: ir.Value, start: int) -> ir.Value:
        """As many entries as there are frames, from one on."""
        end = self.op("Add", self._length(), self.ints(start))
        return self.op("Slice", wide, self.ints(start), end, self.ints(1))

    def _places(self, *of: object) -> ir.Value:
        """One of some arrays of whole numbers, as a constant."""
        return self.frames.whole(of[self._drawn(len(of))])

    def _drawn(self, end: int) -> int:
        return int(self.frames.random.integers(end))
