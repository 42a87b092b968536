"""Removes axes of size 1 that a graph adds and removes again.

    Unsqueeze(Unsqueeze(x, 1), 2)           ->  Unsqueeze(x, [1, 2])
    Squeeze(Unsqueeze(x, 1), 1)             ->  x
    Squeeze(Slice(Unsqueeze(x, 1), 4), 1)   ->  Slice(x, 3)

Graphs take pieces of a state in the last way where the state was an entry of a stack.
"""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.slices import slice_of
from compiler.rewriting.simplification.constants import constant_of
from compiler.rewriting.simplification.rules import Candidate, Rule, dtype_of


def unsqueeze(candidate: Candidate) -> ir.Value | None:
    """Merge two Unsqueeze nodes into one."""
    inner = candidate.alone(0, "Unsqueeze")
    second = candidate.constant(1)
    if inner is None or second is None or len(inner.inputs) < 2:
        return None
    first = constant_of(inner.inputs[1])
    if first is None or first.size != 1 or second.size != 1 or first.min() < 0 or second.min() < 0:
        return None
    one, two = int(first.reshape(-1)[0]), int(second.reshape(-1)[0])
    axes = candidate.insert.int64s(*((one, two) if one < two else (two, one + 1)))
    return candidate.insert.op("Unsqueeze", [inner.inputs[0], axes], name="unsqueezed", dtype=dtype_of(candidate))


def squeeze(candidate: Candidate) -> ir.Value | None:
    """Remove a Squeeze of axes that an Unsqueeze added, also with a Slice of other axes between."""
    removed, slice_node = _axes(candidate.constant(1)), candidate.alone(0, "Slice")
    wide = candidate.value(0) if slice_node is None else slice_node.inputs[0]
    inner = None if wide is None else wide.producer()
    if not removed or inner is None or not graphs.is_op(inner, "Unsqueeze") or _added(inner) != removed:
        return None
    return inner.inputs[0] if slice_node is None else _slice_before(candidate, slice_node, inner.inputs[0], removed)


def _slice_before(
    candidate: Candidate, slice_node: ir.Node, value: ir.Value | None, added: list[int]
) -> ir.Value | None:
    """Return the slice of the value in front of the added axes; None where axes may count from the back."""
    view = slice_of(slice_node)
    along = None if view is None else view.sliced_axes(graphs.integers_of)
    if view is None or along is None or min(added) < 0 or set(along) & set(added):
        return None
    axes = candidate.insert.integers(view.kind, (axis - sum(each < axis for each in added) for axis in along))
    return candidate.insert.op("Slice", view.along(value, axes), name="piece", dtype=dtype_of(candidate))


def _added(node: ir.Node) -> list[int] | None:
    return _axes(constant_of(node.inputs[1])) if len(node.inputs) > 1 else None


def _axes(array: np.ndarray | None) -> list[int] | None:
    """Return axes in ascending order, for comparison; None where they are unknown."""
    return None if array is None else sorted(int(axis) for axis in array.reshape(-1))


AXES: dict[str, Rule] = {"Squeeze": squeeze, "Unsqueeze": unsqueeze}
"""The rules that apply to one operator."""
