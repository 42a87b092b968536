"""Rewrites a graph so that a cache holds its oldest frame first, and reads cached and new frames separately.

The graph has the newest cached frame in the last slot, free slots in front; now free slots lie behind. Of a row with L
frames in W slots, slot s holds what slot (s - L) mod W held. Every value along the slots of a cache is followed:

- computed entry by entry, moved along other axes, or a softmax along any: it lies in the same order, and what lies
  beside it there, a mask or a bias in the order of before, is brought into it;
- summed over the slots, beside others in that order: nothing of the order is left.

Cached and new frames, joined along one axis, stay two values for as long as nothing reads across them: products with
keys are joined as scores, products with values are summed. What lies in front of them, as a text, is put between
slots and new frames, so that there are two values still.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import AxisMap, NotMapped, axis_map_of
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import ENTRYWISE, REDUCTIONS
from compiler.graph.sizes.expressions import Dim
from runtime_lite.format.cache_axis import CacheAxis

CURE = "leave this pass out: states are given whole then"

Lies: TypeAlias = Callable[[ir.Value, int, bool], bool]


@dataclasses.dataclass(frozen=True)
class Cached:
    """A state along the cache.

    Attributes:
        value: the graph input; its free slots hold zeros.
        new: its new frames.
        axis: of its frames.
    """

    value: ir.Value
    new: ir.Value
    axis: int


@dataclasses.dataclass(frozen=True)
class Frames:
    """A value along the slots of the cache.

    Attributes:
        axis: where they lie.
        parts: one value, or cached and new frames apart, joined along the axis.
        is_joined: whether new frames lie behind the slots.
        is_clean: whether the first part, of slots alone, holds zeros where no frame lies.
        ahead: how many entries lay in front of the slots in the order of before, int64 [1]; None for none. They lie
            between slots and new frames now.
    """

    axis: int
    parts: tuple[ir.Value, ...]
    is_joined: bool
    is_clean: bool = False
    ahead: ir.Value | None = None

    def like(self, axis: int, *parts: ir.Value) -> "Frames":
        """Return frames along an axis with these values as parts."""
        return dataclasses.replace(self, axis=axis, parts=parts, is_clean=False)


def write_apart(
    model: ir.Model, cache: CacheAxis, cached: Sequence[Cached], lies: Lies, stamp: str, is_alike: Lies | None = None
) -> None:
    """Rewrite a graph in place for caches that have their first frame in the first slot.

    Args:
        model: the graph, with rows as first axis of everything along the cache.
        cache: the cache axis.
        cached: the states along it.
        lies: whether a condition, by the axis of the slots and whether others lie in front of them, is true where a
            frame lies in them, and nowhere else.
        stamp: name of the pass.
        is_alike: whether a value, by the same, has one entry for all slots of a cache that is full: asked of all that
            lies beside cached frames where the oldest of a full cache may lie in any slot. None where it is the first.

    Raises:
        Refused: a node depends on the order of cached frames; the message names it.
    """
    work = _Writer(model, cache, lies, stamp, is_alike)
    for cached_state in cached:
        work.frames[cached_state.value] = Frames(
            cached_state.axis, (cached_state.value,), is_joined=False, is_clean=True
        )
    for node in list(model.graph):
        if any(value in work.frames for value in (*node.inputs, *graphs.read_inside(node))):
            work.follow(node)
    for value in model.graph.outputs:
        if value in work.frames:
            raise Refused(
                f"{value.name!r} is given in the order of slots", cure=CURE, place=Location(tensor=str(value.name))
            )


class _Writer:
    def __init__(self, model: ir.Model, cache: CacheAxis, lies: Lies, stamp: str, is_alike: Lies | None) -> None:
        self.model, self.cache, self.lies, self.stamp, self.is_alike = model, cache, lies, stamp, is_alike
        self.frames: dict[ir.Value | None, Frames] = {}
        self.ordered: dict[tuple[ir.Value, int, int, ir.Value | None], tuple[ir.Value, ...]] = {}
        self.joined: dict[tuple[ir.Value, ...], ir.Value] = {}
        self.counted: dict[Dim, ir.Value] = {}
        self.entries: ir.Value | None = None

    def follow(self, node: ir.Node) -> None:
        """Rewrite a node that reads cached frames, and record its result."""
        if graphs.has_body(node) or len(node.outputs) != 1:
            self._refuse(node, "no rule is known for it")
        kinds: tuple[tuple[bool, Callable[[ir.Node], Frames | None]], ...] = (
            (node.op_type in ENTRYWISE, self._entrywise),
            (node.op_type in ("Reshape", "Expand"), self._sized),
            (node.op_type == "Transpose", self._moved),
            (node.op_type in ("Squeeze", "Unsqueeze"), self._moved),
            (node.op_type == "Concat", self._concat),
            (node.op_type == "MatMul", self._product),
            (node.op_type in ("Softmax", "LogSoftmax"), self._softmax),
            (node.op_type in REDUCTIONS, self._reduced),
            (node.op_type == "Shape", self._measured),
        )
        rule = next((rule for is_so, rule in kinds if is_so and node.domain in ("", "ai.onnx")), None)
        if rule is None:
            self._refuse(node, "no rule is known for it")
        frames = rule(node)
        if frames is None:
            return
        if frames.axis == 0 or _dims(node.outputs[0])[0] != self._rows():
            self._refuse(node, "rows do not lie in front")
        self.frames[node.outputs[0]] = frames

    def _refuse(self, node: ir.Node, why: str) -> NoReturn:
        raise Refused(
            f"cached frames are read by {node.op_type} {node.name}, and {why}",
            cure=CURE,
            place=Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)),
        )

    # Rules

    def _entrywise(self, node: ir.Node) -> Frames:
        """Rewrite an elementwise node, whose operands are aligned from the right."""
        result = node.outputs[0]
        rank, cached_operands = len(_dims(result)), [operand for operand in node.inputs if operand in self.frames]
        behind = {len(_dims(value)) - self.frames[value].axis for value in cached_operands if value is not None}
        if len(behind) != 1:
            self._refuse(node, "it reads them along two axes")
        axis = rank - behind.pop()
        is_joined = any(self.frames[value].is_joined for value in cached_operands)
        count = len(self.frames[cached_operands[0]].parts) if len(cached_operands) == 1 else 1
        ahead = {self.frames[value].ahead for value in cached_operands}
        if len(ahead) != 1:
            self._refuse(node, "not the same lies in front of them")
        before = ahead.pop()
        operands = [
            (None,) * count if operand is None
            else (self.frames[operand].parts if count > 1 else (self._whole(operand),)) if operand in self.frames
            else self._in_order(operand, axis, rank, before, count)
            for operand in node.inputs
        ]  # fmt: skip
        parts = [self._again(node, part_operands) for part_operands in zip(*operands, strict=True)]
        is_clean = self._cleans(node, axis, rank)
        if is_clean:
            parts[0] = self.frames[node.inputs[1]].parts[0]
        return Frames(axis, tuple(parts), is_joined, is_clean, before)

    def _cleans(self, node: ir.Node, axis: int, rank: int) -> bool:
        """Whether a Where writes zeros into slots without a frame, which hold zeros already."""
        if not graphs.is_op(node, "Where") or node.inputs[0] in self.frames:
            return False
        condition, value, zero = node.inputs[0], node.inputs[1], graphs.array_of(node.inputs[2])
        frames = self.frames.get(value)
        if condition is None or frames is None or zero is None or zero.size != 1 or zero.any():
            return False
        has_slots = frames.is_clean and (not frames.is_joined or len(frames.parts) == 2)
        own = len(_dims(condition))
        return has_slots and own == rank and self.lies(condition, axis, frames.ahead is not None)

    def _moved(self, node: ir.Node) -> Frames:
        """Rewrite a node that moves the axis of frames to another index."""
        frames = self.frames[node.inputs[0]]
        axis = self._axis_map(node).after(0, frames.axis)
        if axis is None:
            self._refuse(node, "it takes their axis off")
        return dataclasses.replace(frames, axis=axis, parts=self._each_part(node, frames))

    def _axis_map(self, node: ir.Node) -> AxisMap:
        try:
            return axis_map_of(node)
        except NotMapped as unknown:
            self._refuse(node, str(unknown))

    def _sized(self, node: ir.Node) -> Frames:
        """Rewrite a Reshape or Expand with target sizes that hold for each part."""
        value = node.inputs[0]
        assert value is not None
        frames, dims, wanted = self.frames[value], _dims(value), _dims(node.outputs[0])
        if node.op_type == "Expand":
            axis = frames.axis + len(wanted) - len(dims)
            padded = [*[1] * (len(wanted) - len(dims)), *dims]
            sizes = [1 if old == size else size for old, size in zip(padded, wanted, strict=True)]
        else:
            moved = self._axis_map(node).after(0, frames.axis)
            if moved is None or dims[0] != wanted[0]:
                self._refuse(node, "it puts their axis together with others")
            axis = moved
            sizes = [0, *wanted[1:]]
        if any(not isinstance(size, int) for position, size in enumerate(sizes) if position != axis):
            self._refuse(node, "its sizes are not constant")
        parts = []
        for number, part in enumerate(frames.parts):
            size_of_part = (
                1 if node.op_type == "Expand" else -1 if frames.is_joined and number + 1 == len(frames.parts) else None
            )
            shape = [
                int(size) if position != axis else self.cache.slots if size_of_part is None else size_of_part
                for position, size in enumerate(sizes)
            ]
            insert = graphs.Inserter(self.model, self.stamp, before=node)
            parts.append(self._again(node, [part, insert.int64s(*shape)]))
        return dataclasses.replace(frames, axis=axis, parts=tuple(parts))

    def _concat(self, node: ir.Node) -> Frames:
        """Rewrite a Concat of cached and new frames, or of other entries in front of both."""
        axis = axis_of(node, len(_dims(node.outputs[0])))
        first, last = self.frames.get(node.inputs[0]), self.frames.get(node.inputs[-1])
        frames, other = (first, node.inputs[-1]) if last is None else (last, node.inputs[0])
        is_one = len(node.inputs) == 2 and frames is not None and frames.axis == axis and frames.ahead is None
        if not is_one or frames is None or other is None or (len(frames.parts) == 2) == (frames is first):
            self._refuse(node, "it joins them in another way than with new ones behind or others in front of them")
        if other in self.frames:
            self._refuse(node, "it joins them with others of their kind")
        if frames is first and not frames.is_joined:
            return Frames(axis, (self._whole(node.inputs[0]), other), is_joined=True, is_clean=frames.is_clean)
        insert = graphs.Inserter(self.model, self.stamp, before=node)
        behind = insert.op("Concat", [other, frames.parts[1]], {"axis": axis}, name=f"{node.outputs[0].name}_behind")
        return dataclasses.replace(frames, parts=(frames.parts[0], behind), ahead=self._counted(other, axis))

    def _counted(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the number of entries of a value along an axis, int64 [1], shared by values of equal size."""
        size = _dims(value)[axis]
        if size not in self.counted:
            insert = graphs.Inserter.behind(self.model, self.stamp, value)
            self.counted[size] = insert.op("Shape", [value], {"start": axis, "end": axis + 1}, name="entries_ahead",
                                           shape=[1], dtype=ir.DataType.INT64)  # fmt: skip
        return self.counted[size]

    def _product(self, node: ir.Node) -> Frames | None:
        left, right = node.inputs
        assert left is not None and right is not None
        ranks, rank = (len(_dims(left)), len(_dims(right))), len(_dims(node.outputs[0]))
        if min(ranks) < 2:
            self._refuse(node, "an operand is a vector")
        rows, columns = self.frames.get(left), self.frames.get(right)
        if columns is not None and columns.axis == ranks[1] - 1 and rows is None:
            parts = [self._again(node, [left, part]) for part in columns.parts]
            return columns.like(rank - 1, self._join(node, parts, rank - 1))
        if rows is not None and rows.axis == ranks[0] - 2 and columns is None:
            return rows.like(rank - 2, *self._each_part(node, rows))
        summed_left = rows is None or rows.axis == ranks[0] - 1
        if not summed_left or (columns is not None and columns.axis != ranks[1] - 2):
            self._refuse(node, "it multiplies along two of their axes")
        self._sum(node, left, right)
        return None

    def _sum(self, node: ir.Node, left: ir.Value, right: ir.Value) -> None:
        """Rewrite a product that sums over frames as the sum of products over cached and over new frames."""
        ranks = len(_dims(left)), len(_dims(right))
        rows, columns = self.frames.get(left), self.frames.get(right)
        ahead = next(operand_frames.ahead for operand_frames in (rows, columns) if operand_frames is not None)
        weights = self._whole(left) if rows is not None else self._in_order(left, ranks[0] - 1, ranks[0], ahead)[0]
        if columns is None or len(columns.parts) == 1:
            is_other = columns is None
            values = self._in_order(right, ranks[1] - 2, ranks[1], ahead)[0] if is_other else self._whole(right)
            self._replace(node, self._again(node, [weights, values], node.outputs[0].shape))
            return
        insert = graphs.Inserter(self.model, self.stamp, before=node)
        axis = insert.int64s(ranks[0] - 1)
        bounds = (
            (insert.int64s(0), insert.int64s(self.cache.slots)),
            (insert.int64s(self.cache.slots), insert.int64s(graphs.END)),
        )
        parts = [
            self._again(node, [insert.op("Slice", [weights, *bound, axis], name=f"{node.name}_weights"), part])
            for bound, part in zip(bounds, columns.parts, strict=True)
        ]
        total = insert.op("Add", parts, name=f"{node.outputs[0].name}_of_both", shape=node.outputs[0].shape)
        self._replace(node, total)

    def _softmax(self, node: ir.Node) -> Frames:
        frames = self.frames[node.inputs[0]]
        value = self._again(node, [self._whole(node.inputs[0])], node.outputs[0].shape)
        return frames.like(frames.axis, value)

    def _measured(self, node: ir.Node) -> None:
        """Rewrite a Shape: the sizes of the last part, plus the slots in front of it."""
        value = node.inputs[0]
        assert value is not None
        frames = self.frames[value]
        shape_of_both = self._again(node, [frames.parts[-1]], node.outputs[0].shape)
        if len(frames.parts) == 2:
            more = np.zeros(len(_dims(value)), np.int64)
            more[frames.axis] = self.cache.slots
            read = more[list(graphs.dims_read(node, len(more)))]
            insert = graphs.Inserter(self.model, self.stamp, before=node)
            shape_of_both = insert.op(
                "Add", [shape_of_both, insert.int64s(*read)], name=f"{node.outputs[0].name}_of_both"
            )
        self._replace(node, shape_of_both)

    def _reduced(self, node: ir.Node) -> Frames | None:
        value = node.inputs[0]
        assert value is not None
        frames, axis_map = self.frames[value], self._axis_map(node)
        made = self._again(node, [self._whole(value), *node.inputs[1:]], node.outputs[0].shape)
        axis = axis_map.after(0, frames.axis)
        if axis is not None:
            return frames.like(axis, made)
        self._replace(node, made)
        return None

    # Writing

    def _replace(self, node: ir.Node, made: ir.Value) -> None:
        graphs.take_over(self.model, node.outputs[0], made)

    def _each_part(self, node: ir.Node, frames: Frames) -> tuple[ir.Value, ...]:
        """Return the node applied to every part of its only operand along the slots."""
        return tuple(
            self._again(node, [part if each in self.frames else each for each in node.inputs]) for part in frames.parts
        )

    def _again(self, node: ir.Node, operands: Sequence[ir.Value | None], shape: ir.Shape | None = None) -> ir.Value:
        """Return the output of a copy of the node on other operands."""
        name = graphs.fresh_name(self.model.graph, f"{node.outputs[0].name}_by_slot")
        made = ir.Value(name=name, shape=shape, type=node.outputs[0].type)
        copy = ir.Node(node.domain, node.op_type, operands, list(node.attributes.values()), outputs=[made],
                       name=f"{name}_node", version=node.version)  # fmt: skip
        copy.metadata_props.update(node.metadata_props)
        graphs.Inserter(self.model, self.stamp, before=node).place(copy)
        return made

    def _whole(self, value: ir.Value | None) -> ir.Value:
        """Return cached and new frames as one value."""
        frames = self.frames[value]
        assert value is not None and value in self.frames
        return self._join(None, frames.parts, frames.axis)

    def _join(self, node: ir.Node | None, parts: Sequence[ir.Value], axis: int) -> ir.Value:
        if len(parts) == 1:
            return parts[0]
        key = tuple(parts)
        if key not in self.joined:
            insert = graphs.Inserter.behind(self.model, self.stamp, parts[-1])
            self.joined[key] = insert.op("Concat", list(parts), {"axis": axis}, name=f"{parts[0].name}_and_new")
        return self.joined[key]

    # The order of what is not cached

    def _is_alike(self, value: ir.Value, from_right: int) -> bool:
        """Whether an operand has one entry for all slots."""
        dims = _dims(value)
        return len(dims) < -from_right or dims[from_right] == 1

    def _in_order(
        self, value: ir.Value, axis: int, rank: int, ahead: ir.Value | None, count: int = 1
    ) -> tuple[ir.Value, ...]:
        """Return the entries beside each part of cached frames, in slot order; those of new frames stay in place."""
        if self._is_alike(value, axis - rank):
            return (value,) * count
        own_axis = axis - rank + len(_dims(value))
        if (value, own_axis, rank, ahead) not in self.ordered:
            self.ordered[value, own_axis, rank, ahead] = self._brought(value, own_axis, rank, ahead)
        parts = self.ordered[value, own_axis, rank, ahead]
        if len(parts) == count:
            return parts
        if {str(_dims(value)[0]), len(_dims(value))} != {str(self._rows()), rank}:
            raise Refused(
                f"{value.name!r} lies beside cached and new frames, and is the same for all rows", cure=CURE,
                place=Location(tensor=str(value.name), source=graphs.source_of(value.producer())),
            )  # fmt: skip
        return (self._join(None, parts, own_axis),)

    def _rows(self) -> Dim:
        """Return the number of rows."""
        return next(_dims(each)[0] for each in self.frames if each is not None)

    def _brought(self, value: ir.Value, axis: int, rank: int, ahead: ir.Value | None) -> tuple[ir.Value, ...]:
        dims, slots = _dims(value), self.cache.slots
        is_behind = ahead is not None and dims[axis] != slots
        if self.is_alike is not None and not self.is_alike(value, axis, is_behind):
            raise Refused(
                f"{value.name!r} lies beside cached frames and differs from slot to slot of a full cache, where the "
                "oldest frame may lie in any",
                cure=CURE, place=Location(tensor=str(value.name), source=graphs.source_of(value.producer())),
            )  # fmt: skip
        insert = graphs.Inserter.behind(self.model, self.stamp, value)
        has_rows, name = len(dims) == rank and dims[0] != 1, str(value.name)
        if dims[axis] == slots:
            return (self._looked_up(insert, value, axis, len(dims), rank, has_rows=has_rows),)
        first, bound, axis_value = insert.int64s(0), insert.int64s(slots), insert.int64s(axis)
        front: list[ir.Value] = []
        if ahead is not None:
            front = [insert.op("Slice", [value, first, ahead, axis_value], name=f"{name}_ahead")]
            first, bound = ahead, insert.op("Add", [ahead, bound], name="end_of_slots", shape=[1], dtype=ahead.dtype)
        old = insert.op("Slice", [value, first, bound, axis_value], name=f"{name}_slots")
        brought = self._looked_up(insert, old, axis, len(dims), rank, has_rows=has_rows)
        new = insert.op("Slice", [value, bound, insert.int64s(graphs.END), axis_value], name=f"{name}_new")
        if not front:
            return brought, new
        behind = insert.op("Concat", [*front, new], {"axis": axis}, name=f"{name}_behind")
        self.model.graph.sort()  # what is counted ahead may be made behind what lies beside
        return brought, behind

    def _looked_up(
        self, insert: graphs.Inserter, value: ir.Value, axis: int, own: int, rank: int, *, has_rows: bool
    ) -> ir.Value:
        """Return entries reordered by each row's slots; a value shared by all rows gets an axis of rows."""
        entries, name = self._entries(), str(value.name)
        if not has_rows:
            places = insert.op("Squeeze", [entries, insert.int64s(2)], name="slot_before")
            looked_up = insert.op("Gather", [value, places], {"axis": axis}, name=f"{name}_of_rows", dtype=value.dtype)
            order = (axis, *range(axis), *range(axis + 1, own + 1))
            looked_up = insert.op("Transpose", [looked_up], {"perm": order}, name=f"{name}_rows_first")
            if own == rank:
                return insert.op("Squeeze", [looked_up, insert.int64s(1)], name=f"{name}_by_slot")
            return insert.op("Unsqueeze", [looked_up, insert.int64s(*range(1, rank - own))], name=f"{name}_by_slot")
        order = (0, axis, *(other_axis for other_axis in range(1, own) if other_axis != axis))
        back = tuple(order.index(result_axis) for result_axis in range(own))
        turned = insert.op("Transpose", [value], {"perm": order}, name=f"{name}_slots_first")
        looked_up = insert.op("GatherND", [turned, entries], {"batch_dims": 1}, name=f"{name}_found", dtype=value.dtype)
        return insert.op("Transpose", [looked_up], {"perm": back}, name=f"{name}_ordered")

    def _entries(self) -> ir.Value:
        """Return where a right-aligned cache has the frame of each slot, for every row, int64 [rows, slots, 1]."""
        if self.entries is None:
            length = graphs.inputs_named(self.model)[self.cache.length_input]
            insert = graphs.Inserter(self.model, self.stamp, before=next(iter(self.model.graph)))
            count = length
            if length.dtype != ir.DataType.INT64:
                count = insert.op("Cast", [length], {"to": int(ir.DataType.INT64)}, name="cached_frames")
            column = insert.op("Unsqueeze", [count, insert.int64s(1)], name="cached_frames_of_row")
            slots = insert.constant(np.arange(self.cache.slots, dtype=np.int64)[np.newaxis], "slots")
            behind = insert.op("Sub", [slots, column], name="slot_behind_first")
            size = insert.constant(np.array(self.cache.slots, np.int64), "slots_of_cache")
            places = insert.op("Mod", [behind, size], name="slot_before")
            self.entries = insert.op("Unsqueeze", [places, insert.int64s(2)], name="entry_before")
        return self.entries


def _dims(value: ir.Value) -> tuple[Dim, ...]:
    found = graphs.dims_of(value)
    if found is None:
        raise Refused(f"the shape of {value.name!r} is unknown", cure=CURE, place=Location(tensor=str(value.name)))
    return found
