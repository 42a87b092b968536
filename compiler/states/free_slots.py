"""Follows the content of a cache's free slots through a graph, and decides whether any of it reaches a result.

Where a row's cache holds fewer frames than there are slots, the others are free, and hold anything. Entries along one
axis of a value are followed, by length: through moves, through what is done entry by entry, and through products, of
which another axis is summed over. They end where a selection takes something else in their place, where they are
multiplied by a code of zero while they are codes themselves, and in free slots of the state of the next call.

Source: an entry of a result depends on those entries of the operands alone that its operator reads for it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of
from compiler.graph.lengths.every_length import EveryLength
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import OF_ALIKE_SHAPES
from compiler.graph.runners.coded_states import Codes, grid_of
from compiler.graph.stages import Lowered

LOWEST, FINEST = -1e30, 1e-30
"""Scores of which a softmax makes shares below the second number, and what a scale of shares must be above of."""


@dataclasses.dataclass(frozen=True)
class Slots:
    """Entries of a value along one axis.

    Attributes:
        axis: counted from the front, never that of the rows.
        which: bool [lengths, entries], for every length of a row's cache.
    """

    axis: int
    which: npt.NDArray[np.bool_]

    def at(self, axis: int) -> "Slots":
        """Return the same slots along another axis."""
        return Slots(axis, self.which)


def selected_slots(node: ir.Node, at_every_length: EveryLength) -> Slots | None:
    """Return the slots of one axis in which a Where selects its constant; None for other nodes."""
    if not graphs.is_op(node, "Where") or graphs.array_of(node.inputs[2]) is None:
        return None
    seen, dims = _condition(node, at_every_length), graphs.dims_of(node.outputs[0])
    if seen is None or dims is None:
        return None
    axes = [at for at in range(1, seen.ndim) if seen.shape[at] > 1]
    if len(axes) != 1 or dims[axes[0]] != seen.shape[axes[0]]:
        return None
    return Slots(axes[0], ~seen.reshape(len(seen), -1))


def _condition(node: ir.Node, at_every_length: EveryLength) -> npt.NDArray[np.bool_] | None:
    """Return the condition of a Where at every length, [lengths, ...], broadcast to its result; None if unknown."""
    condition, rank = node.inputs[0], len(node.outputs[0].shape or ())
    found = None if condition is None else at_every_length.of(condition)
    return None if found is None or found.ndim != rank or rank < 2 else found.astype(np.bool_)


Next = list[tuple[ir.Value, Slots]] | None
"""Where entries go from a node; None where they may spread to others."""


class FreeSlots:
    """Follows entries of values.

    Args:
        lowered: the graph.
        at_every_length: its values at every length of one of its caches.
    """

    def __init__(self, lowered: Lowered, at_every_length: EveryLength) -> None:
        self.lowered, self.at_every_length = lowered, at_every_length
        self.fed = {state.output: state for state in lowered.states}
        lengths = graphs.inputs_named(lowered.model).get(at_every_length.cache.length_input)
        mask = graphs.inputs_named(lowered.model).get(str(at_every_length.cache.mask_input))
        self.rows = next(((graphs.dims_of(each) or (None,))[0] for each in (lengths, mask) if each is not None), None)

    def filled(self, node: ir.Node) -> Slots | None:
        """Return the slots into which a node writes a constant, by cache length; None for other nodes."""
        slots, value = selected_slots(node, self.at_every_length), node.inputs[1] if len(node.inputs) > 1 else None
        dims = graphs.dims_of(node.outputs[0])
        if slots is None or value is None or dims is None or graphs.dims_of(value) != dims or dims[0] != self.rows:
            return None
        return slots if slots.which.any() else None

    def are_hidden(self, value: ir.Value, slots: Slots) -> bool:
        """Whether the entries of a value in these slots never affect a valid entry of an output."""
        work, done = [(value, slots)], set[tuple[ir.Value, int, bytes]]()
        while work:
            value, slots = work.pop()
            key = (value, slots.axis, slots.which.tobytes())
            if key in done or not slots.which.any():
                continue
            done.add(key)
            if value.is_graph_output() and not self._are_free(value, slots):
                return False
            for use in value.uses():
                next_work = self._behind(use.node, use.idx, slots)
                if next_work is None:
                    return False
                work += next_work
        return True

    def _are_free(self, value: ir.Value, slots: Slots) -> bool:
        """Whether the slots are free slots of a state in the next call."""
        state, cache = self.fed.get(str(value.name)), self.at_every_length.cache
        if state is None or state.cache != cache.axis or state.frames_axis != slots.axis:
            return False
        moves_on = (cache.kind.is_given_whole, cache.added, cache.is_whole, cache.chunk)
        if moves_on != (True, None, False, 1) or slots.which.shape[1] != cache.slots:
            return False
        valid = cache.after_call(np.arange(len(slots.which)), cache.step)
        return not (slots.which & (np.arange(cache.slots) >= cache.slots - valid[:, None])).any()

    def _behind(self, node: ir.Node, operand: int, slots: Slots) -> Next:
        if node.graph is not self.lowered.model.graph or node.domain not in ("", "ai.onnx"):
            return None
        if any(graphs.dims_of(value) is None for value in (*node.inputs, *node.outputs) if value is not None):
            return None
        if graphs.is_op(node, "Where"):
            return self._selected(node, operand, slots)
        if graphs.is_op(node, "MatMul"):
            return self._multiplied(node, operand, slots)
        if graphs.is_op(node, *OF_ALIKE_SHAPES) or (_one_grid(node) is not None and operand == 0):
            return _entry_by_entry(node, operand, slots)
        rule = MOVES.get(node.op_type)
        return None if rule is None or (operand and node.op_type != "Concat") else rule(node, operand, slots)

    def _selected(self, node: ir.Node, operand: int, slots: Slots) -> Next:
        """Return the slots of a Where's result that read these slots of an operand."""
        if operand == 0:
            return None
        seen = _condition(node, self.at_every_length)
        result = node.outputs[0]
        if seen is None or not _has_rank_of(result, node.inputs[operand]):
            return _entry_by_entry(node, operand, slots)
        chosen = seen if operand == 1 else ~seen
        along = chosen.any(axis=tuple(at for at in range(1, seen.ndim) if at != slots.axis))
        return [(result, Slots(slots.axis, slots.which & along))]

    def _multiplied(self, node: ir.Node, operand: int, slots: Slots) -> Next:
        """Return the slots of a product that read these slots; none where they are multiplied by zero codes alone."""
        ranks = [len(value.shape or ()) for value in node.inputs if value is not None]
        rank, result = ranks[operand], node.outputs[0]
        if min(ranks) < 2:
            return None
        if slots.axis == (rank - 1, rank - 2)[operand]:
            alone = operand == 1 and _are_codes(node.inputs[1]) and self._are_no_shares(node.inputs[0], slots)
            return [] if alone else None
        return [(result, slots)] if rank == len(result.shape or ()) else None

    def _are_no_shares(self, value: ir.Value | None, slots: Slots) -> bool:
        """Whether quantized attention weights are zero codes in these slots, by a selection before the softmax."""
        node, scale = None if value is None else value.producer(), 0.0
        while node is not None and (grid := _one_grid(node)) is not None:
            if node.op_type == "QuantizeLinear":
                scale = float(grid.scales)
            node = node.inputs[0].producer() if node.inputs[0] is not None else None
        if scale <= FINEST or node is None or not graphs.is_op(node, "Softmax") or node.inputs[0] is None:
            return False
        rank, chosen = len(node.outputs[0].shape or ()), node.inputs[0].producer()
        if axis_of(node, rank) != rank - 1 or not graphs.is_op(chosen, "Where"):
            return False
        assert chosen is not None
        number, seen = graphs.array_of(chosen.inputs[2]), _condition(chosen, self.at_every_length)
        if number is None or seen is None or np.any(number > LOWEST) or not seen.any(axis=-1).all():
            return False
        along = seen.any(axis=tuple(range(1, seen.ndim - 1)))
        return along.shape == slots.which.shape and not (slots.which & along).any()


def _are_codes(value: ir.Value | None) -> bool:
    """Whether a value is dequantized with finite scales, so that every code gives a finite number."""
    maker = None if value is None else value.producer()
    scales = graphs.array_of(maker.inputs[1]) if maker is not None and graphs.is_op(maker, "DequantizeLinear") else None
    return scales is not None and bool(np.isfinite(scales).all())


def _one_grid(node: ir.Node) -> Codes | None:
    """Return the per-tensor grid of a QuantizeLinear or DequantizeLinear; None for other nodes."""
    grid = grid_of(node) if graphs.is_op(node, "DequantizeLinear", "QuantizeLinear") else None
    return None if grid is None or grid.scales.ndim else grid


def _has_rank_of(result: ir.Value, given: ir.Value | None) -> bool:
    return given is not None and len(result.shape or ()) == len(given.shape or ())


def _entry_by_entry(node: ir.Node, operand: int, slots: Slots) -> Next:
    return [(node.outputs[0], slots)] if _has_rank_of(node.outputs[0], node.inputs[operand]) else None


def _joined(node: ir.Node, operand: int, slots: Slots) -> Next:
    axis = axis_of(node, len(node.outputs[0].shape or (0,)))
    if axis != slots.axis:
        return [(node.outputs[0], slots)] if axis else None
    sizes = [(graphs.dims_of(value) or ())[slots.axis] for value in node.inputs if value is not None]
    if not all(isinstance(size, int) for size in sizes):
        return None
    starts = np.cumsum([0, *sizes])
    which = np.zeros((len(slots.which), starts[-1]), np.bool_)
    which[:, starts[operand] : starts[operand + 1]] = slots.which
    return [(node.outputs[0], Slots(slots.axis, which))]


def _sliced(node: ir.Node, operand: int, slots: Slots) -> Next:
    view = slice_of(node)
    found = None if view is None else view.axis_slices(graphs.integers_of)
    axis_slices = {sliced.axis: sliced.as_slice for sliced in found or ()}
    if found is None or 0 in axis_slices or None in axis_slices.values():
        return None
    kept = axis_slices.get(slots.axis)
    which = slots.which if kept is None else slots.which[:, kept]
    return [(node.outputs[0], Slots(slots.axis, which))]


def _parted(node: ir.Node, operand: int, slots: Slots) -> Next:
    axis = axis_of(node, len(node.outputs[0].shape or (0,)))
    if axis != slots.axis:
        return [(each, slots) for each in node.outputs] if axis else None
    sizes = [(graphs.dims_of(value) or ())[slots.axis] for value in node.outputs]
    if not all(isinstance(size, int) for size in sizes):
        return None
    starts = np.cumsum([0, *sizes])
    return [
        (each, Slots(slots.axis, slots.which[:, first:last]))
        for each, first, last in zip(node.outputs, starts[:-1], starts[1:], strict=True)
    ]


def _moved(node: ir.Node, operand: int, slots: Slots) -> Next:
    """Return the slots behind a node that moves their axis as a whole, and leaves the rows in front."""
    try:
        axis_map = axis_map_of(node)
    except NotMapped:
        return None
    axis, rows = axis_map.after(operand, slots.axis), axis_map.after(operand, 0)
    return None if axis is None or rows != 0 else [(node.outputs[0], slots.at(axis))]


MOVES: Mapping[str, Callable[[ir.Node, int, Slots], Next]] = {
    "Concat": _joined,
    "Reshape": _moved,
    "Slice": _sliced,
    "Split": _parted,
    "Squeeze": _moved,
    "Transpose": _moved,
    "Unsqueeze": _moved,
}


def fills(lowered: Lowered, at_every_length: EveryLength) -> Iterator[tuple[ir.Node, bool]]:
    """Yield the nodes that write a constant into free slots, and whether removing them leaves outputs unchanged.

    The graph may be changed between two of them.
    """
    free = FreeSlots(lowered, at_every_length)
    for node in graphs.nodes_of(lowered.model):
        slots = free.filled(node)
        if slots is not None:
            yield node, free.are_hidden(node.outputs[0], slots)
