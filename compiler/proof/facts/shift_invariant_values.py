"""Finds values computed from lengths that are equal in every row, such as distances between right-aligned frames.

    k = Range(0, n);  q = Range(n - 4, n);  d = k[None] - q[:, None]         n = cached + 4

Frames at the end of their slots are counted from there: slot p of n is place p - (slots - entries) of a row. So what is
computed of places changes by a known number from the slots to a row, k and q both by entries - slots, and d by none.
What changes by none is the same for all rows and for the slots: it is computed of slots, as it stands in the graph.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir
import sympy

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim, array_of, dims_of, int_attribute, is_op
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import OF_POSITIONS
from compiler.graph.sizes.held_numbers import holds_lengths
from compiler.proof.facts.case import Case
from compiler.proof.facts.executed_index_map import uniform
from compiler.proof.facts.facts import Fact, make_fact
from compiler.proof.facts.interval import ANYTHING, Interval, of_array
from compiler.proof.facts.layout import Axis, Side, frames_of, symbols_of
from compiler.proof.facts.transfer import limits_of

MOVING = frozenset({"Expand", "Identity", "Squeeze", "Transpose", "Unsqueeze"})
"""A list of its own: operators after which every entry still lies at the slot that its axes say."""

DEEPEST = 64
"""Nodes that are looked through."""


def fact_alike(case: Case, operand: int) -> Fact | None:
    """Return the fact of an operand computed from lengths that is equal in every row; None where it may differ.

    Args:
        case: the node that reads it.
        operand: index of the input.
    """
    value = case.node.inputs[operand]
    axes: dict[int, Axis] = {}
    for axis, dim in enumerate(case.dims(operand)):
        if not isinstance(dim, int):
            if not _lies_at_end(case, dim):
                return None
            axes[axis] = case.layout(dim) or ()
    if not axes or _change(case, value, DEEPEST) != 0:
        return None
    content = _content(value)
    return make_fact(axes, lambda region: content)


def _lies_at_end(case: Case, dim: Dim) -> bool:
    """Whether an axis whose size depends on windows has its entries in the last slots."""
    if {case.sides.get(str(name)) for name in symbols_of(dim)} != {Side.RIGHT}:
        return False
    layout = case.layout(dim)
    frames = None if layout is None else frames_of(layout)
    return frames is not None and frames.is_prefix_padded


def _content(value: ir.Value | None) -> Interval:
    """Return the interval of a value looked up in a constant table; of other values, of their type."""
    node = None if value is None else value.producer()
    if is_op(node, *MOVING):
        assert node is not None
        return _content(node.inputs[0])
    table = array_of(node.inputs[0]) if is_op(node, "Gather", "GatherND") and node is not None else None
    if table is not None and table.dtype.kind == "f":
        return of_array(table)
    return ANYTHING if value is None or value.dtype is None else limits_of(value.dtype) or ANYTHING


def _change(case: Case, value: ir.Value | None, depth: int) -> sympy.Expr | None:
    """Return a row's entry at a slot minus the entry of the padded program there, by lengths; None where unknown.

    A length stands for a row's number of entries minus the number of slots.
    """
    if value is None or depth == 0:
        return None
    if array_of(value) is not None:
        return sympy.Integer(0)
    known = symbolic_values_of(value) if value.dtype is not None and value.dtype.is_integer() else None
    if known is not None:
        changes = {_change_of_size(size) for size in known}
        return changes.pop() if len(changes) == 1 else None
    node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    rule = RULES.get(node.op_type)
    return None if rule is None else rule(case, node, depth - 1)


def _change_of_size(size: Dim) -> sympy.Expr | None:
    """Return the difference of a size that is a sum of multiples of lengths; None for other sizes."""
    if isinstance(size, int):
        return sympy.Integer(0)
    names = sorted(symbols_of(size), key=str)
    if not size.is_polynomial(*names) or sympy.Poly(size, *names).total_degree() > 1:
        return None
    return sympy.expand(size - size.subs(dict.fromkeys(names, 0)))


def _range(case: Case, node: ir.Node, depth: int) -> sympy.Expr | None:
    """Return the difference of a Range: that of its start, and of the slots in front of a row's entries."""
    start, step = symbolic_values_of(node.inputs[0]), array_of(node.inputs[2])
    dim = (dims_of(node.outputs[0]) or (None,))[0]
    if start is None or step is None or dim is None or step.dtype.kind != "i":
        return None
    begin = _change_of_size(start[0])
    if isinstance(dim, int) or begin is None:
        return begin
    size = _change_of_size(dim) if _lies_at_end(case, dim) else None
    return None if size is None else sympy.expand(begin + int(step.item()) * size)


def _entrywise(case: Case, node: ir.Node, depth: int) -> sympy.Expr | None:
    """Return the difference of an elementwise integer result, from those of sums and multiples; else only 0."""
    changes = [_change(case, operand, depth) for operand in node.inputs if operand is not None]
    if any(change is None for change in changes):
        return None
    known = [change for change in changes if change is not None]
    if not any(known):
        return sympy.Integer(0)
    dtype = node.outputs[0].dtype
    if dtype is None or not dtype.is_integer() or not holds_lengths(dtype):
        return None
    if is_op(node, "Add", "Sub"):
        return sympy.expand(known[0] + known[1] if is_op(node, "Add") else known[0] - known[1])
    if is_op(node, "Neg", "Cast"):
        return sympy.expand(-known[0]) if is_op(node, "Neg") else known[0]
    if is_op(node, "Mul"):
        factors = [uniform(operand) for operand in node.inputs]
        constant = next((number for number, factor in enumerate(factors) if factor is not None), None)
        return None if constant is None else sympy.expand(known[1 - constant] * int(factors[constant] or 0))
    return None


def _moved(case: Case, node: ir.Node, depth: int) -> sympy.Expr | None:
    return _change(case, node.inputs[0], depth)


def _looked_up(case: Case, node: ir.Node, depth: int) -> sympy.Expr | None:
    """Return 0 for rows of a constant table looked up by unchanged indices; None for other lookups."""
    table, numbers = array_of(node.inputs[0]), node.inputs[1]
    by_rows = table is not None and axis_of(node, table.ndim) == 0
    if is_op(node, "GatherND"):
        dims = None if numbers is None else dims_of(numbers)
        by_rows = (dims or (0,))[-1] == 1 and not int_attribute(node, "batch_dims", 0)
    return sympy.Integer(0) if table is not None and by_rows and _change(case, numbers, depth) == 0 else None


RULES: Mapping[str, Callable[[Case, ir.Node, int], sympy.Expr | None]] = {
    **dict.fromkeys(OF_POSITIONS, _entrywise),
    **dict.fromkeys(MOVING, _moved),
    "Gather": _looked_up,
    "GatherND": _looked_up,
    "Range": _range,
}
