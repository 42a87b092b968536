"""Replaces cache lookups by fixed Slices, and drops needless zero fills, where every chunk has the same length.

Before (one frame per call):
    clean = Where(valid, cache, 0);  joined = Concat(clean, new)
    next = Where(still_valid, GatherND(joined, slots), 0)
After:
    clean = Where(valid, cache, 0);  next = Slice(Concat(clean, new), 1, 129)

A bucket of as many slots as the shortest chunk that the graph has a meaning for takes chunks of that length alone. What
depends on nothing but true lengths is then computed for every length that a cache can have, from none to all of its
slots: which frames are kept, and where a selection writes zeros.

Requires: sizes of the axes.
Ensures: nothing; a step moves its caches fewer times.
Keeps: a GatherND whose frames depend on the length of the cache; a selection that any length needs.
Numerics: exact.
Source: evaluation at every length.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.lengths.every_length import EveryLength
from compiler.graph.operators.axes import axis_of, order_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.stages import Lowered, Outcome
from compiler.states.free_slots import Slots, selected_slots


@dataclasses.dataclass(frozen=True)
class FoldChunkLengths:
    """Fixed slices for chunks of one length.

    Attributes:
        sizes: (axis, size) pairs.
    """

    name: ClassVar[str] = "fold_chunk_lengths"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False
    sizes: tuple[tuple[str, int], ...] = ()

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite lookups of the newest frames as fixed slices where every chunk has one length; drop zero fills."""
        sizes = dict(self.sizes)
        settled = {
            padded_axis.length_input: padded_axis.minimum
            for padded_axis in lowered.padded_axes
            if sizes.get(padded_axis.axis) == padded_axis.minimum
        }
        if len(settled) < len(lowered.padded_axes) or not settled or len(lowered.caches) != 1:
            return Outcome(lowered)
        (cache,) = lowered.caches
        work = _Folding(lowered.model, EveryLength(lowered.model, cache, settled), self.name)
        matched, changed = work.slice_lookups()
        wrote, dropped = work.drop_selections()
        graphs.prune(lowered.model)
        return Outcome(lowered, matched + wrote, changed + dropped)


class _Folding:
    def __init__(self, model: ir.Model, at_every_length: EveryLength, stamp: str) -> None:
        self.model, self.at_every_length, self.stamp = model, at_every_length, stamp
        self.known: dict[ir.Value, Slots | None] = {}

    def slice_lookups(self) -> tuple[int, int]:
        """Replace lookups of frames by fixed slices; return how many lookups there were, and how many were replaced."""
        nodes = [node for node in self.model.graph if graphs.is_op(node, "GatherND")]
        return len(nodes), sum(self._slice_lookup(node) for node in nodes)

    def _slice_lookup(self, node: ir.Node) -> bool:
        data, places = node.inputs[0], node.inputs[1]
        if graphs.int_attribute(node, "batch_dims", 0) != 1 or data is None or places is None:
            return False
        indices = self.at_every_length.of(places)
        if indices is None or indices.ndim != 3 or indices.shape[2] != 1:
            return False
        first, count = int(indices.flat[0]), indices.shape[1]
        if not np.array_equal(indices[..., 0], np.broadcast_to(first + np.arange(count), indices.shape[:2])):
            return False
        turn, back = data.producer(), graphs.consumers_of(node.outputs[0])
        insert = graphs.Inserter(self.model, self.stamp, before=node, source=graphs.source_of(node))
        bounds = [insert.int64s(first), insert.int64s(first + count)]
        name = f"{node.outputs[0].name}_cut"
        if (
            turn is not None
            and graphs.is_op(turn, "Transpose")
            and len(back) == 1
            and graphs.is_op(back[0], "Transpose")
        ):
            order, again = order_of(turn), order_of(back[0])
            if order and again and [order[axis] for axis in again] == list(range(len(order))):
                old = back[0].outputs[0]
                sliced = insert.op(
                    "Slice", [turn.inputs[0], *bounds, insert.int64s(order[1])], name=name, dtype=old.dtype
                )
                sliced.shape = old.shape
                graphs.take_over(self.model, old, sliced)
                return True
        old = node.outputs[0]
        sliced = insert.op("Slice", [data, *bounds, insert.int64s(1)], name=name, dtype=old.dtype)
        sliced.shape = old.shape
        graphs.take_over(self.model, old, sliced)
        return True

    def drop_selections(self) -> tuple[int, int]:
        """Remove selections that write zeros over zeros; return how many select zeros, and how many were removed."""
        matched = dropped = 0
        for node in list(self.model.graph):
            selected = self._selected(node)
            if selected is None:
                continue
            matched += 1
            value = node.inputs[1]
            assert value is not None
            before = self.zeros(value)
            if before is not None and before.axis == selected.axis and bool((before.which | ~selected.which).all()):
                graphs.take_over(self.model, node.outputs[0], value)
                dropped += 1
        return matched, dropped

    def _selected(self, node: ir.Node | None) -> Slots | None:
        """Return where a selection writes positive zeros; None for other nodes."""
        found = None if node is None else selected_slots(node, self.at_every_length)
        zero = None if found is None or node is None else graphs.array_of(node.inputs[2])
        return None if zero is None or np.any(zero != 0) or np.any(np.signbit(zero)) else found

    def zeros(self, value: ir.Value) -> Slots | None:
        """Return which entries of a value are zero because a selection wrote them; None where unknown."""
        if value not in self.known:
            self.known[value] = self._zeros(value)
        return self.known[value]

    def _zeros(self, value: ir.Value) -> Slots | None:
        node = value.producer()
        selected = self._selected(node)
        if selected is not None or node is None:
            return selected
        if graphs.is_op(node, "Concat"):
            return self._joined(node)
        if graphs.is_op(node, "Slice") and node.inputs[0] is not None:
            operand_zeros = self.zeros(node.inputs[0])
            view = slice_of(node)
            sliced = None if view is None else view.only_axis_slice(graphs.integers_of)
            if operand_zeros is None or sliced is None or sliced.as_slice is None:
                return None
            return (
                Slots(operand_zeros.axis, operand_zeros.which[:, sliced.as_slice])
                if sliced.axis == operand_zeros.axis
                else operand_zeros
            )
        return None

    def _joined(self, node: ir.Node) -> Slots | None:
        axis, parts, count = 0, [], self.at_every_length.count
        for value in node.inputs:
            dims = None if value is None else graphs.dims_of(value)
            given = None if value is None else self.zeros(value)
            if not dims or not isinstance(dims[axis := axis_of(node, len(dims))], int):
                return None
            known = given is not None and given.axis == axis
            parts.append(given.which if known and given else np.zeros((count, int(dims[axis])), np.bool_))
        return Slots(axis, np.concatenate(parts, axis=1))
