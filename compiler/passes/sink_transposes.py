"""Moves transposes behind elementwise nodes, until two of them meet and merge or cancel.

Before:
    a = Transpose(x, (0, 2, 1)); b, c = Split(a, axis 1); d = Mul(b, Sigmoid(c)); y = Transpose(d, (0, 2, 1))
After:
    b, c = Split(x, axis 2); y = Mul(b, Sigmoid(c))

Parts of a Concat that are not transposed alike are transposed in front of it where fewer entries are moved then, as
those of a short cache. The context of a convolution is carried in the order in which its new frames are computed.

Requires: known ranks.
Ensures: no operator that works entry by entry, and no Concat, Slice or Split, reads transposed values alone.
Keeps: transposes that something else reads, too; operators of which one operand is not transposed alike.
Numerics: exact; only movement.
Source: an elementwise operator's result does not depend on an entry's position.
"""

import dataclasses
import math
from collections.abc import Collection
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, order_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import OF_ALIKE_SHAPES
from compiler.graph.stages import Lowered, Outcome
from compiler.rewriting.rounds import Rounds, until_settled
from compiler.states.state_rewriting.transposed import Permutation, in_front, permutation_alone, transpose_states

ALONG_AN_AXIS = frozenset({"Concat", "Slice", "Split"})
"""A list of its own: take whole parts along an axis that they name."""

OF_A_NAME = 64
"""Entries that an axis with a name is taken to have, where moves are weighed against each other."""


@dataclasses.dataclass(frozen=True)
class SinkTransposes:
    """Transposes as late as can be, each at most once.

    Attributes:
        turns_states: whether contexts may be carried in another order of axes; see
            `compiler.states.state_rewriting.transposed`.
    """

    name: ClassVar[str] = "sink_transposes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    turns_states: bool = True

    def apply(self, lowered: Lowered) -> Outcome:
        """Move transposes towards the outputs, and transpose states where allowed; in place."""
        model = lowered.model
        graphs.infer_shapes(model)
        matched = sum(order_of(node) is not None for node in model.graph)
        rounds, transposed = [_sunk(model)], 0
        if self.turns_states:
            lowered, transposed = transpose_states(lowered, self.name)
        if transposed:
            graphs.prune(model)
            graphs.infer_shapes(model)
            rounds.append(_sunk(model))
        count = transposed + sum(round_.changes for round_ in rounds)
        detail = f"{transposed} states turned" if transposed else ""
        return Outcome(lowered, max(matched, count), count, rounds[-1].refused, detail=detail)


def _sunk(model: ir.Model) -> Rounds:
    """Move transposes until none can be moved further; shapes are known.

    No move adds to the entries that are transposed in a call (`_entries`). A move that removes none brings them nearer
    to the end, over an elementwise operator, or shortens a chain of transposes: so the moves end.
    """

    def change() -> int:
        moved = sum(_join(model, node) or _sink(model, node) for node in graphs.nodes_of(model))
        if moved:
            graphs.prune(model)
            graphs.infer_shapes(model)
        return moved

    return until_settled(change)


def _join(model: ir.Model, node: ir.Node) -> bool:
    """Merge two consecutive transposes into one or none; return whether there were two."""
    permutation, value = order_of(node), node.inputs[0] if node.inputs else None
    first = None if value is None else value.producer()
    before = order_of(first)
    if permutation is None or before is None or first is None or first.inputs[0] is None:
        return False
    source, old = first.inputs[0], node.outputs[0]
    joined = tuple(before[axis] for axis in permutation)
    if joined == tuple(range(len(joined))):
        if old.is_graph_output() and (source.is_graph_input() or source.is_graph_output() or source.is_initializer()):
            return False
        graphs.take_over(model, old, source)
    else:
        graphs.take_over(model, old, _transposed(model, node, source, joined, old))
    _forget(model, node)
    return True


def _forget(model: ir.Model, node: ir.Node) -> None:
    """Remove an unread node, with the transposes that it alone has read."""
    makers = [maker for value in node.inputs if value is not None and (maker := value.producer()) is not None]
    model.graph.remove(node, safe=True)
    for maker in dict.fromkeys(makers):
        output = maker.outputs[0]
        if order_of(maker) is not None and not output.uses() and not output.is_graph_output():
            _forget(model, maker)


def _transposed(
    model: ir.Model, behind: ir.Node, source: ir.Value, permutation: Permutation, old: ir.Value
) -> ir.Value:
    """Return a transpose right behind a node, in place of a value."""
    insert = graphs.Inserter(model, SinkTransposes.name, after=behind)
    transposed = insert.op("Transpose", [source], {"perm": permutation}, name=f"{old.name}_turned", dtype=old.dtype)
    transposed.shape = old.shape
    return transposed


def _sink(model: ir.Model, node: ir.Node) -> bool:
    """Move transposes from the operands of a node to its result; return whether that was possible."""
    if not graphs.is_op(node, *ALONG_AN_AXIS, *OF_ALIKE_SHAPES):
        return False
    permutation = next(
        (
            permutation_of_operand
            for value in node.inputs
            if value is not None and (permutation_of_operand := permutation_alone(value, node))
        ),
        None,
    )
    if permutation is None or any(len(graphs.dims_of(value) or ()) != len(permutation) for value in node.outputs):
        return False
    operands = _operands(model, node, permutation)
    if operands is None:
        return False
    outputs = [_before(model, old, permutation) for old in node.outputs]
    attributes = {name: value for name, value in node.attributes.items() if name != "axis"}
    if graphs.is_op(node, "Concat", "Split"):
        attributes["axis"] = ir.AttrInt64("axis", permutation[axis_of(node, len(permutation))])
    moved_node = ir.Node(
        "", node.op_type, operands, list(attributes.values()), outputs=outputs, name=f"{outputs[0].name}_node"
    )
    graphs.Inserter(model, SinkTransposes.name, before=node).place(moved_node)
    for old, new in zip(node.outputs, outputs, strict=True):
        transposed = _transposed(model, node, new, permutation, old)
        graphs.take_over(model, old, transposed)
        if graphs.is_op(node, "Concat"):
            _meet(model, transposed)
    _forget(model, node)
    return True


def _meet(model: ir.Model, transposed: ir.Value) -> None:
    """Merge a transposed Concat with the transposes and slices that read it, as `_saved_behind` assumed."""
    for reader in graphs.consumers_of(transposed):
        _join(model, reader)
    left = graphs.only_reader(transposed)
    if left is not None and graphs.is_op(left, "Slice"):
        _sink(model, left)


def _before(model: ir.Model, old: ir.Value, permutation: Permutation) -> ir.Value:
    """Return a new value with the type of another and its shape before the transpose."""
    assert old.shape is not None
    shape = ir.Shape([old.shape[at] for at in np.argsort(permutation)])
    return ir.Value(name=graphs.fresh_name(model.graph, f"{old.name}_before"), type=old.type, shape=shape)


def _operands(model: ir.Model, node: ir.Node, permutation: Permutation) -> list[ir.Value | None] | None:
    """Return the operands before their transposes; None if these differ, or the move would transpose more."""
    insert = graphs.Inserter(model, SinkTransposes.name, before=node)
    if graphs.is_op(node, "Slice"):
        view, axes = slice_of(node), _axes_of(node)
        if view is None or axes is None:
            return None
        return view.along(in_front(view.data), insert.integers(view.kind, (permutation[axis] for axis in axes)))
    if graphs.is_op(node, "Clip", "Split"):
        return [in_front(node.inputs[0]), *node.inputs[1:]]
    values = [value for value in node.inputs if value is not None]
    transposed = {value for value in values if permutation_alone(value, node) == permutation}
    rest = {value for value in values if value not in transposed}
    if len(values) < len(node.inputs):
        return None
    if graphs.is_op(node, "Concat"):
        if rest and _entries(transposed) + _saved_behind(node, permutation) <= _entries(rest):
            return None
        back = tuple(int(axis) for axis in np.argsort(permutation))
        return [in_front(value) if value in transposed else _transposed_part(insert, value, back) for value in values]
    if _entries(node.outputs) > _entries(transposed) or any(graphs.array_of(value) is None for value in rest):
        return None
    return [in_front(value) if value in transposed else _spread(insert, value, permutation) for value in values]


def _transposed_part(insert: graphs.Inserter, value: ir.Value, back: Permutation) -> ir.Value:
    """Return a part of a Concat, transposed to the order of the other parts before their transpose."""
    transposed = insert.op("Transpose", [value], {"perm": back}, name=f"{value.name}_turned", dtype=value.dtype)
    transposed.shape = None if value.shape is None else ir.Shape([value.shape[at] for at in back])
    return transposed


def _axes_of(node: ir.Node) -> tuple[int, ...] | None:
    """Return the axes of a Slice; None where they are unknown."""
    view = slice_of(node)
    return None if view is None else view.sliced_axes(graphs.integers_of)


def _spread(insert: graphs.Inserter, value: ir.Value, permutation: Permutation) -> ir.Value:
    """Return a constant permuted to broadcast to values before their transpose."""
    array = graphs.array_of(value)
    assert array is not None
    if array.size == 1:
        return value
    whole = array.reshape((1,) * (len(permutation) - array.ndim) + array.shape)
    return insert.constant(np.ascontiguousarray(np.transpose(whole, np.argsort(permutation))), "spread")


def _saved_behind(node: ir.Node, permutation: Permutation) -> int:
    """Return how many fewer entries are transposed if a Concat works in the order before the transposes.

    A transpose of its result back into that order is then removed. Every other reader needs a transpose of the result;
    a Slice that is the only one needs a transpose of its part alone, as it works in that order, too.
    """
    back, result = tuple(int(axis) for axis in np.argsort(permutation)), node.outputs[0]
    turns = [reader for reader in graphs.consumers_of(result) if order_of(reader) == back]
    others = [reader for reader in graphs.consumers_of(result) if reader not in turns]
    saved = _entries({turn.outputs[0] for turn in turns})
    if result.is_graph_output() or len(others) > 1:
        return saved - _entries([result])
    if (
        others
        and graphs.is_op(others[0], "Slice")
        and others[0].inputs[0] is result
        and _axes_of(others[0]) is not None
    ):
        return saved - _entries([others[0].outputs[0]])
    return saved - _entries([result] if others else [])


def _entries(values: Collection[ir.Value]) -> int:
    """Return the number of entries of values; unknown sizes count as `OF_A_NAME`."""
    return sum(math.prod(map(_number, graphs.dims_of(value) or ())) for value in values)


def _number(size: Dim) -> int:
    """Return a size, with a guess for each unknown name in it."""
    if isinstance(size, int):
        return size
    return max(int(size.subs(dict.fromkeys(size.free_symbols, OF_A_NAME))), 0)
