"""Checks that a value that depends on axis lengths alone can be recomputed for every row, from its own length.

Every entry keeps its slot: an axis of 2*time entries has as many slots as 2*time gives for the slots of time, and the
entries of a row are the first ones. So operators are taken that compute entry by entry, count, or move whole axes.
"""

from collections.abc import Iterator

import onnx_ir as ir

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim, array_of, dims_of, is_op
from compiler.graph.operators.axes import axis_of, changed_axes
from compiler.graph.operators.traits import OF_POSITIONS
from compiler.graph.sizes.growth import never_falls
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import refuse
from compiler.proof.facts.layout import symbols_of
from compiler.proof.facts.row_value_plans import BATCH_CURE
from compiler.proof.rules.length import WHOLE_SIZES, is_known

MOVING = frozenset({"Concat", "Expand", "Gather", "Range", "Reshape", "Shape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that count, or move whole axes, in the forms that `check_row_values` lets pass."""

SIZES = ("Cast", "Concat", "Gather", "Identity", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze")
"""Operators that pick sizes and compute nothing of them."""


def check_row_values(case: Case, operand: int) -> None:
    """Refuse an operand that cannot be computed per row.

    Raises:
        Refused: it depends on data, on the size of the batch, or on other rows' entries.
    """
    waiting = [case.node.inputs[operand]]
    seen: set[ir.Value] = set()
    while waiting:
        value = waiting.pop()
        if value is None or value in seen or array_of(value) is not None:
            continue
        seen.add(value)
        sizes = sizes_held(value)
        if sizes is not None:
            _check_sizes(case, sizes)
            continue
        node = value.producer()
        problem = "depends on data" if node is None else _problem(node)
        if problem:
            raise refuse(
                f"{case.op} uses {value.name!r}, which is computed of axis lengths and {problem}",
                "compute it of arange and lengths, entry by entry",
            )
        _check_sizes(case, dims_of(value) or ())
        assert node is not None
        waiting += list(_operands(node))


def sizes_held(value: ir.Value) -> tuple[Dim, ...] | None:
    """Return the sizes that a value selects from shapes; None where it computes with them."""
    node = value.producer()
    while node is not None and is_op(node, *SIZES) and not is_op(node, "Shape"):
        if is_op(node, "Concat") and any(sizes_held(each) is None for each in node.inputs if each is not None):
            return None
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    return symbolic_values_of(value) if node is not None and is_op(node, "Shape") else None


def _check_sizes(case: Case, sizes: tuple[Dim, ...]) -> None:
    """Require that sizes of the padded program are no smaller than those of any row.

    Raises:
        Refused: a size mentions the batch, is unknown, or falls while a length grows.
    """
    for size in sizes:
        if any(str(name) == case.batch for name in symbols_of(size)):
            raise refuse(f"{case.op} computes with the batch size: rows of one batch would mix", BATCH_CURE)
        if not is_known(case, size):
            raise refuse(f"{case.op} uses a number of values that does not follow from the declared axes", WHOLE_SIZES)
        if not never_falls(size):
            raise refuse(
                f"{case.op} uses values of {size} entries, fewer for longer inputs",
                "compute sizes that grow with the lengths of the inputs",
            )


def _operands(node: ir.Node) -> Iterator[ir.Value | None]:
    """Yield the inputs that hold entries, without those that describe how entries are moved, such as axes and pads."""
    moved = is_op(node, "Expand", "Gather", "Reshape", "Squeeze", "Unsqueeze")
    yield from node.inputs[:1] if moved else node.inputs


def _problem(node: ir.Node) -> str:
    """Return why a node cannot be computed per row; an empty string where it can."""
    dims = [None if value is None else dims_of(value) for value in node.inputs]
    out = dims_of(node.outputs[0])
    op = node.op_type
    if node.domain not in ("", "ai.onnx") or op not in OF_POSITIONS | MOVING:
        return f"goes through {op}"
    if out is None or any(value is not None and shape is None for value, shape in zip(node.inputs, dims, strict=True)):
        return f"has an unknown rank in front of {op}"
    first = dims[0] if dims else None
    if op == "Reshape" and first is not None and [d for d in first if d != 1] != [d for d in out if d != 1]:
        return "is reshaped"
    if op in ("Squeeze", "Unsqueeze") and changed_axes(node, symbolic_values_of) is None:
        return f"goes through {op} without axes"
    if op == "Concat" and any(not isinstance(size, int) for shape in dims for size in _along(node, shape)):
        return "is joined along an axis that grows"
    if op == "Gather" and (
        symbolic_values_of(node.inputs[1]) is None or any(not isinstance(d, int) for d in _along(node, first))
    ):
        return "is looked up in"
    if op == "Range" and node.outputs[0].dtype not in (ir.DataType.INT32, ir.DataType.INT64) and not _is_whole(node):
        return "counts in fractions"
    return ""


def _along(node: ir.Node, shape: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    """Return the size along the node's axis, as a tuple that is empty where unknown."""
    return () if shape is None else (shape[axis_of(node, len(shape))],)


def _is_whole(node: ir.Node) -> bool:
    """Whether a Range of floats counts integers, so that adding and multiplying give the same."""
    numbers = [symbolic_values_of(value) for value in node.inputs]
    return all(each is not None for each in numbers)
