"""Decodes a Slice: which entries of each axis it keeps, with operands left out and axes counted from the back.

    Slice(x, starts, ends), Slice(x, starts, ends, "", steps), axes [-1] or [2]:  one view, with axes from the front
    Slice of all axes, most of them from 0 to the end; ends of 2**31 - 1 or 2**63 - 1:  the same as of one axis

A reader returns the content of an operand, so the caller decides how it is derived.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import onnx_ir as ir
import sympy

Number: TypeAlias = int | sympy.Expr
"""A whole number, or what follows from lengths."""

Reader: TypeAlias = Callable[[ir.Value], Sequence[Number | None] | None]
"""The whole numbers that an operand holds, in order; None for one, or for all, that are not known."""


Entry = TypeVar("Entry")

FAR = 2**31 - 1
"""A bound from here on lies behind the end of every axis: int32 has no larger one."""

END = 2**63 - 1
"""How a view spells such a bound; one in front of every axis is -END."""


@dataclasses.dataclass(frozen=True)
class AxisSlice:
    """The part of one axis that a Slice keeps.

    Attributes:
        axis: counted from the front.
        start: the first entry; negative ones count from the end. None where it is not known. Of an axis of known size
            it counts from the front where the step is positive.
        end: the entry after the last, likewise; of an axis of unknown size END and -END for bounds beyond it.
        step: the distance of kept entries, likewise.
    """

    axis: int
    start: Number | None
    end: Number | None
    step: Number | None

    @property
    def as_slice(self) -> slice | None:
        """Return the kept entries as a slice, where all bounds are numbers; else None."""
        start, end, step = self.start, self.end, self.step
        known = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
        return slice(start, end, step) if known else None

    def within(self, size: object) -> "AxisSlice":
        """Return the cut in normal form for an axis of `size` entries, or for any size where that is no integer."""
        bounds = self.as_slice
        if bounds is not None and isinstance(size, int) and bounds.step > 0:
            first, last, _ = bounds.indices(size)
            return AxisSlice(self.axis, first, max(first, last), bounds.step)
        start, end = (_beyond(each) for each in (self.start, self.end))
        if isinstance(self.step, int) and abs(start if isinstance(start, int) else 0) == END:
            first = 0 if self.step > 0 else -1
            start = first if (start == END) == (self.step < 0) else start
        return AxisSlice(self.axis, start, end, self.step)

    def keeps_all(self, size: object) -> bool:
        """Whether the cut, as written by `within`, keeps every entry of an axis of `size` entries."""
        return (self.start, self.step) == (0, 1) and self.end in (END, size)


def _beyond(bound: Number | None) -> Number | None:
    far = isinstance(bound, int) and abs(bound) >= FAR
    return (END if bound > 0 else -END) if far and isinstance(bound, int) else bound


@dataclasses.dataclass(frozen=True, eq=False)
class Slice:
    """ai.onnx Slice 10, 11 and 13.

    Attributes:
        data: the sliced value.
        starts: the first entries.
        ends: the entries after the last.
        axes: the axes that are cut; None for the first ones, as many as there are starts.
        steps: distances of kept entries; None for 1.
        rank: how many axes the data have; None where it is not known.
    """

    data: ir.Value
    starts: ir.Value
    ends: ir.Value
    axes: ir.Value | None
    steps: ir.Value | None
    rank: int | None

    @property
    def kind(self) -> ir.DataType:
        """Return the type of the bounds, which is also that of axes and steps."""
        return self.starts.dtype or ir.DataType.INT64

    def sliced_axes(self, read: Reader) -> tuple[int, ...] | None:
        """Return the axes that are sliced, from the front, in the order of the bounds; None where unknown."""
        if self.axes is None:
            shape = self.starts.shape
            count = shape[0] if shape is not None and len(shape) == 1 else len(read(self.starts) or ())
            return tuple(range(count)) if isinstance(count, int) and count else None
        named, rank = read(self.axes) or (), self.rank
        axes = [axis for axis in named if isinstance(axis, int) and (axis >= 0 or rank is not None)]
        known = bool(axes) and len(axes) == len(named)
        return tuple(axis + (rank or 0) * (axis < 0) for axis in axes) if known else None

    def axis_slices(self, read: Reader) -> tuple[AxisSlice, ...] | None:
        """Return the cut of every axis of which not all is kept, in the order of axes; None where unknown."""
        axes = self.sliced_axes(read)
        if axes is None:
            return None
        unknown = [None] * len(axes)
        starts, ends = read(self.starts) or unknown, read(self.ends) or unknown
        steps = [1] * len(axes) if self.steps is None else read(self.steps) or unknown
        if {len(starts), len(ends), len(steps)} != {len(axes)}:
            return None
        shape = self.data.shape
        sizes = [None] * (max(axes) + 1) if shape is None or len(shape) != self.rank else list(shape)
        axis_slices = [
            AxisSlice(*bounds).within(sizes[bounds[0]]) for bounds in zip(axes, starts, ends, steps, strict=True)
        ]
        return tuple(
            sorted(
                (sliced for sliced in axis_slices if not sliced.keeps_all(sizes[sliced.axis])),
                key=lambda sliced: sliced.axis,
            )
        )

    def only_axis_slice(self, read: Reader) -> AxisSlice | None:
        """Return the cut of the only axis that is sliced; None where there are several or none, or it is unknown."""
        axis_slices = self.axis_slices(read)
        return axis_slices[0] if axis_slices is not None and len(axis_slices) == 1 else None

    def picked(self, entries: Sequence[Entry], read: Reader) -> Sequence[Entry] | None:
        """Return the entries of a list that the slice keeps; None where they are unknown."""
        axis_slices = self.axis_slices(read)
        kept = None if axis_slices is None else [sliced.as_slice for sliced in axis_slices if sliced.axis == 0]
        if kept is None or len(kept) != len(axis_slices or ()) or len(kept) > 1:
            return None
        bounds = kept[0] if kept else slice(None)
        return None if bounds is None else entries[bounds]

    def along(self, data: ir.Value | None, axes: ir.Value) -> list[ir.Value | None]:
        """Return the operands of a Slice of other data by the same bounds along other axes."""
        return [data, self.starts, self.ends, axes, *([] if self.steps is None else [self.steps])]


def slice_of(node: ir.Node | None, rank: int | None = None) -> Slice | None:
    """Return the view of a Slice; None for other nodes, and for those of older operator sets with attributes.

    Args:
        node: any node.
        rank: rank of the data; by default from their shape.
    """
    if node is None or node.op_type != "Slice" or node.domain not in ("", "ai.onnx") or len(node.inputs) < 3:
        return None
    data, starts, ends, axes, steps = (*node.inputs, None, None)[:5]
    if data is None or starts is None or ends is None:
        return None
    known = len(data.shape) if rank is None and data.shape is not None else rank
    return Slice(data, starts, ends, axes, steps, known)
