"""Writes masks of the valid slots of each row, and their number, from the length inputs; each mask is written once.

real_length int64 [batch] -> true size of any padded axis, int64 [batch]
                          -> mask over its slots, bool [batch, slots]; shaped to the value it covers
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.model import Dim, Inserter
from compiler.proof.facts.facts import Fact, refuse
from compiler.proof.facts.layout import Axis, Factor, Frames, Rows, Side, size_of
from compiler.proof.padding.arithmetic import Arithmetic


@dataclasses.dataclass(frozen=True)
class Length:
    """How the true length of one padded axis reaches the graph.

    Attributes:
        axis: name of the axis.
        value: graph input, int64 [batch].
        slots: number of slots when it is known already, else None; the graph reads it from shapes all the same.
        mask: graph input, float32 [batch, slots of `mask_size`], 1 at valid slots; or None.
        mask_size: the size expression that the mask input covers.
    """

    axis: str
    value: ir.Value
    slots: int | None = None
    mask: ir.Value | None = None
    mask_size: Dim = 0


class ValidSlots:
    """Masks and true sizes of a graph.

    Args:
        model: the graph; nodes go in front of its first node.
        lengths: the length inputs.
        batch: size of the batch: the axis name, or 1 when the graph has no batch axis.
        stamp: name of the pass.
    """

    def __init__(self, model: ir.Model, lengths: Sequence[Length], batch: str | int, stamp: str) -> None:
        self.model, self.batch = model, batch
        self.lengths = {length.axis: length for length in lengths}
        self.sizes = _inputs_by_axis(model)
        self.insert = Inserter(model, stamp, before=next(iter(model.graph), None))
        self.rows = Arithmetic(self.insert, {name: length.value for name, length in self.lengths.items()})
        self.slots = Arithmetic(self.insert, _Slots(self))
        self.made: dict[tuple[object, ...], ir.Value] = {}

    def settle(self) -> None:
        """Forget values that pruning has removed, and insert further nodes behind the remaining own ones."""
        self.made = {key: value for key, value in self.made.items() if not is_removed(value)}
        for arithmetic in (self.rows, self.slots):
            arithmetic.made = {key: value for key, value in arithmetic.made.items() if not is_removed(value)}
        self.slots.symbols = _Slots(self)
        stamp = self.insert.stamp
        own = (node for node in self.model.graph if node.metadata_props.get(graphs.PASS_KEY) != stamp)
        self.insert.before = next(own, None)

    def count(self, size: Dim, rank: int = 1, rows_axis: int = 0, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Return an axis's true size per row, shaped [1, .., batch, .., 1] of `rank`, the batch at `rows_axis`."""
        key = ("count", size, rank, rows_axis, dtype)
        if key not in self.made:
            zero = self.insert.constant(np.array(0, np.int64), "zero")
            value = self.rows.value(size)
            if not (isinstance(size, int) or size.is_Symbol):  # floor((L - k)/s) + 1 is negative for the shortest rows
                value = self.insert.op("Max", [value, zero], name="true_size")
            if isinstance(size, int):
                shaped = value
            else:
                shape = [1] * rank
                shape[rows_axis] = -1
                shaped = self._reshape(value, shape, "true_size_per_row")
            if dtype != ir.DataType.INT64:
                shaped = self.insert.op("Cast", [shaped], {"to": dtype}, name="true_size_cast", dtype=dtype)
            self.made[key] = shaped
        return self.made[key]

    def slot_count(self, size: Dim) -> ir.Value:
        """Return the number of slots of an axis, as an int64 scalar."""
        return self.slots.value(size)

    def iota(self, size: Dim) -> ir.Value:
        """Return 0, 1, ... over the slots of an axis, int64 [slots]."""
        key = ("iota", size)
        if key not in self.made:
            zero, one = (self.insert.constant(np.array(n, np.int64), "bound") for n in (0, 1))
            self.made[key] = self.insert.op("Range", [zero, self.slot_count(size), one], name="slots")
        return self.made[key]

    def fixed(self, size: Dim) -> int | None:
        """Return the number of slots of an axis where it is fixed already, else None."""
        if isinstance(size, int):
            return size
        known = {graphs.symbol(name): length.slots for name, length in self.lengths.items() if length.slots is not None}
        value = size.subs(known)
        return int(value) if value.is_Integer else None

    def valid(self, frames: Frames) -> ir.Value:
        """Return the validity of every slot of a padded axis, bool [batch, slots]."""
        key = ("valid", frames)
        if key not in self.made:
            self.made[key] = self._from_mask_input(frames) or self._computed(frames)
        return self.made[key]

    def _from_mask_input(self, frames: Frames) -> ir.Value | None:
        for length in self.lengths.values():
            if length.mask is None or len(frames.segments) != 1:
                continue
            behind = sympy.sympify(length.mask_size - frames.size)  # new frames that the mask covers besides
            if not behind.is_Integer or behind < 0 or (behind > 0 and frames.segments[0].side is not Side.RIGHT):
                continue
            mask = length.mask
            if behind > 0:
                bounds = [self.insert.int64s(number) for number in (0, -int(behind), 1)]
                mask = self.insert.op("Slice", [mask, *bounds], name="mask_in_front")
            to_bool = {"to": ir.DataType.BOOL}  # no comparison: targets that take the mask as input may lack it
            return self.insert.op("Cast", [mask], to_bool, name="valid", dtype=ir.DataType.BOOL)
        return None

    def _computed(self, frames: Frames) -> ir.Value:
        parts = []
        for segment in frames.segments:
            slots = self._unsqueezed(self.iota(segment.size))
            if segment.is_full:
                none = self.insert.constant(np.array([[0]], np.int64), "none")
                parts.append(self.insert.op("GreaterOrEqual", [slots, none], name="valid", dtype=ir.DataType.BOOL))
                continue
            count = self.count(segment.size, rank=2)
            if segment.side is Side.LEFT:
                parts.append(self.insert.op("Less", [slots, count], name="valid", dtype=ir.DataType.BOOL))
            else:
                first = self.insert.op("Sub", [self.slot_count(segment.size), count], name="first_slot")
                parts.append(self.insert.op("GreaterOrEqual", [slots, first], name="valid", dtype=ir.DataType.BOOL))
        if len(parts) == 1:
            return parts[0]
        batch = [self.all_rows(part) for part in parts]
        return self.insert.op("Concat", batch, {"axis": 1}, name="valid", dtype=ir.DataType.BOOL)

    def all_rows(self, value: ir.Value) -> ir.Value:
        """Return a value [batch or 1, ...] expanded to the batch."""
        any_length = next(iter(self.lengths.values())).value
        rows = self.insert.op("Shape", [any_length], name="batch_size", dtype=ir.DataType.INT64)
        others = self.insert.op("Shape", [value], {"start": 1}, name="sizes_behind", dtype=ir.DataType.INT64)
        shape = self.insert.op("Concat", [rows, others], {"axis": 0}, name="all_rows", dtype=ir.DataType.INT64)
        return self.insert.op("Expand", [value, shape], name=f"{value.name}_rows", dtype=value.dtype)

    def _unsqueezed(self, value: ir.Value) -> ir.Value:
        return self._reshape(value, [1, -1], "slots_row")

    def _reshape(self, value: ir.Value, shape: Sequence[int], name: str) -> ir.Value:
        return self.insert.op("Reshape", [value, self.insert.int64s(*shape)], name=name, dtype=value.dtype)

    def mask(self, fact: Fact, axis: int, dims: Sequence[Dim]) -> ir.Value:
        """Return the validity along one padded axis of a value, bool, broadcastable to it.

        Args:
            fact: the value's fact; the batch may be merged with other axes.
            axis: the padded axis.
            dims: the value's shape.

        Raises:
            Refused: the value is shared by rows of different lengths.
        """
        layout = fact.axis(axis)
        assert layout is not None
        rows_axis = fact.rows_axis
        rows_layout = fact.axis(rows_axis) if rows_axis is not None else None
        key = ("mask", layout, axis, rows_axis, rows_layout, len(dims))
        if key not in self.made:
            self.made[key] = self._shaped(layout, axis, rows_axis, rows_layout, len(dims))
        return self.made[key]

    def _shaped(self, layout: Axis, axis: int, rows_axis: int | None, rows_layout: Axis | None, rank: int) -> ir.Value:
        (frames,) = [factor for factor in layout if isinstance(factor, Frames)]
        base = self.valid(frames)
        if rows_axis is None:
            if isinstance(self.batch, str):
                raise refuse("a mask per row is needed on a value that all rows share", "give the value a batch axis")
            if len(layout) > 1:
                base = self._spread(self._reshape(base, [-1], "mask_of_row"), layout, [_place_of_frames(layout)])
            return self._reshape(base, [1] * axis + [-1] + [1] * (rank - axis - 1), "mask")
        placed = {axis: layout} if axis == rows_axis else {axis: layout, rows_axis: rows_layout or ()}
        factors = [(axis_number, factor) for axis_number in sorted(placed) for factor in placed[axis_number]]
        remaining = [
            position
            for position, (axis_number, factor) in enumerate(factors)
            if isinstance(factor, Rows) or (axis_number == axis and isinstance(factor, Frames))
        ]
        if isinstance(factors[remaining[0]][1], Frames):  # frames before rows
            base = self.insert.op("Transpose", [base], {"perm": [1, 0]}, name="mask_turned", dtype=ir.DataType.BOOL)
        if len(factors) > len(remaining):
            base = self._spread(base, [factor for _, factor in factors], remaining)
        if all(len(layout) == 1 for layout in placed.values()) and axis != rows_axis:
            inserted = [axis_number for axis_number in range(rank) if axis_number not in placed]
            if not inserted:
                return base
            axes = self.insert.int64s(*inserted)
            return self.insert.op("Unsqueeze", [base, axes], name="mask", dtype=ir.DataType.BOOL)
        return self._merged(base, placed, rank)

    def _spread(self, base: ir.Value, factors: Sequence[Factor], kept: Sequence[int]) -> ir.Value:
        """Return the mask repeated over the other factors of merged axes."""
        others = [at for at in range(len(factors)) if at not in kept]
        base = self.insert.op("Unsqueeze", [base, self.insert.int64s(*others)], name="mask_apart", dtype=base.dtype)
        sizes = []
        for at, factor in enumerate(factors):
            size = factor.size if at in others else 1
            sizes.append(self._reshape(self.slot_count(size), [1], "repeat"))
        shape = self.insert.op("Concat", sizes, {"axis": 0}, name="repeats", dtype=ir.DataType.INT64)
        return self.insert.op("Expand", [base, shape], name="mask_repeated", dtype=ir.DataType.BOOL)

    def _merged(self, base: ir.Value, placed: Mapping[int, Axis], rank: int) -> ir.Value:
        """Return the mask reshaped to the axes of the value; the first merged axis is inferred."""
        merged = [merged_axis for merged_axis, axis in placed.items() if len(axis) > 1]
        inferred = min(merged, default=min(placed))
        shape = self.insert.op("Shape", [base], name="mask_shape", dtype=ir.DataType.INT64)
        sizes = []
        position = 0
        for axis in range(rank):
            if axis not in placed:
                sizes.append(self.insert.int64s(1))
                continue
            if axis == inferred:
                sizes.append(self.insert.int64s(-1))
            elif axis in merged:
                sizes.append(self._reshape(self.slot_count(size_of(placed[axis])), [1], "mask_size"))
            else:
                index = self.insert.int64s(position)
                sizes.append(self.insert.op("Gather", [shape, index], {"axis": 0}, name="mask_size"))
            position += len(placed[axis])
        target = self.insert.op("Concat", sizes, {"axis": 0}, name="mask_target", dtype=ir.DataType.INT64)
        return self.insert.op("Reshape", [base, target], name="mask", dtype=ir.DataType.BOOL)


def _place_of_frames(layout: Axis) -> int:
    return next(at for at, factor in enumerate(layout) if isinstance(factor, Frames))


def is_removed(value: ir.Value) -> bool:
    """Whether a value, or the node that produces it, is no longer in its graph."""
    node = value.producer()
    return value.graph is None if node is None else node.graph is None


class _Slots(Mapping[str, ir.Value]):
    """The number of slots of every axis as an int64 scalar: fixed, or read from the shape of an input."""

    def __init__(self, valid_slots: ValidSlots) -> None:
        self.valid_slots = valid_slots
        self.read: dict[str, ir.Value] = {}

    def __getitem__(self, name: str) -> ir.Value:
        if name not in self.read:
            self.read[name] = self._make(name)
        return self.read[name]

    def _make(self, name: str) -> ir.Value:
        insert = self.valid_slots.insert
        value, axis = self.valid_slots.sizes[name]
        span = {"start": axis, "end": axis + 1}
        size = insert.op("Shape", [value], span, name=f"{name}_slots", dtype=ir.DataType.INT64)
        return insert.op("Reshape", [size, insert.constant(np.zeros(0, np.int64), "scalar")], name=f"{name}_slots")

    def __iter__(self) -> Iterator[str]:
        return iter(self.valid_slots.sizes)

    def __len__(self) -> int:
        return len(self.valid_slots.sizes)

    def __contains__(self, name: object) -> bool:
        return name in self.valid_slots.sizes


def _inputs_by_axis(model: ir.Model) -> dict[str, tuple[ir.Value, int]]:
    """Return, for every axis name that is a dimension by itself, an input and its axis."""
    found: dict[str, tuple[ir.Value, int]] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(graphs.dims_of(value) or ()):
            if not isinstance(dim, int) and dim.is_Symbol:
                found.setdefault(str(dim), (value, axis))
    return found
