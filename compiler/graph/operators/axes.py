"""Finds the axes along which a node works, stated or default, and counts them from the front.

Softmax(x), Softmax<axis = -1>(x), Softmax<axis = 2>(x) of three axes:  axis_of is 2
Transpose(x), Transpose<perm = [2, 1, 0]>(x):                           perm_of is (2, 1, 0)
"""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.graph.operators.slices import Reader

FIRST, LAST = 0, -1

DEFAULT_AXES: Mapping[str, int] = {
    "DFT": -2,
    "DequantizeLinear": 1,
    "Flatten": 1,
    "Hardmax": LAST,
    "LayerNormalization": LAST,
    "LogSoftmax": LAST,
    "LpNormalization": LAST,
    "OneHot": LAST,
    "QuantizeLinear": 1,
    "RMSNormalization": LAST,
    "SimplifiedLayerNormalization": LAST,
    "SkipLayerNormalization": LAST,
    "Softmax": LAST,
    "TensorScatter": -2,
    "TopK": LAST,
}
"""A list of its own: the axis of an operator that names none; the first one of all others."""


DFT_AXIS_AS_OPERAND = 20
"""Since this operator set an operand names the axis of a DFT, and the default is another one."""

AXIS_OPERANDS: Mapping[str, int] = {"CumProd": 1, "CumSum": 1, "DFT": 2}
"""The operand that names the axis; of DFT since operator set 20, before it an attribute does."""

AXES_OPERANDS: Mapping[str, int] = {"Pad": 3, "Resize": 4}
"""The operand that names several axes, behind the last one where only an attribute does; of all others the second."""


def axis_operand(node: ir.Node) -> ir.Value | None:
    """Return the operand that holds a node's axis; None where an attribute or the default does."""
    at = AXIS_OPERANDS.get(node.op_type, len(node.inputs))
    return node.inputs[at] if at < len(node.inputs) else None


def axis_of(node: ir.Node, rank: int, operand: int | None = None) -> int:
    """Return a node's axis, stated or default, counted from the front.

    Args:
        node: an operator that works along one axis, from it on (LayerNormalization), or splits before it (Flatten).
        rank: rank of the result where the operator adds an axis (OneHot), else of the data.
        operand: the number that `axis_operand` holds, where there is one.

    Returns:
        The axis, from 0 to rank - 1; for Flatten up to rank.
    """
    axis = _stated(node, operand)
    return axis if axis == rank and node.op_type == "Flatten" else axis % max(rank, 1)


def has_axis(node: ir.Node, rank: int) -> bool:
    """Whether a value of that rank has the axis that a node's attribute, or its default, names."""
    return -rank <= _stated(node, None) < rank


def _stated(node: ir.Node, operand: int | None) -> int:
    stated = node.attributes.get("axis")
    if stated is not None or operand is not None:
        return stated.as_int() if stated is not None else operand or 0
    if node.op_type == "DFT" and _opset_of(node) < DFT_AXIS_AS_OPERAND:
        return 1
    return DEFAULT_AXES.get(node.op_type, FIRST)


def _opset_of(node: ir.Node) -> int:
    """Return the operator set of a node, its own or its graph's; the newest where it has neither."""
    imports = {} if node.graph is None else node.graph.opset_imports
    return imports.get(node.domain, DFT_AXIS_AS_OPERAND) if node.version is None else node.version


def named_axes(node: ir.Node, read: Reader, rank: int) -> tuple[int, ...] | None:
    """Return the axes that an operand or attribute names, counted from the front, in the order of naming.

    Args:
        node: Squeeze, Unsqueeze, a reduction, or another that names several axes.
        read: returns the content of an operand.
        rank: rank of the result of an Unsqueeze, else of the data.

    Returns:
        The axes, empty where none are named; None where they are computed.
    """
    position = AXES_OPERANDS.get(node.op_type, 1)
    operand, stated = node.inputs[position] if position < len(node.inputs) else None, node.attributes.get("axes")
    named = read(operand) if operand is not None else () if stated is None else stated.as_ints()
    axes = [axis for axis in named or () if isinstance(axis, int)]
    known = named is not None and len(axes) == len(named)
    return tuple(axis % max(rank, 1) for axis in axes) if known else None


def moment_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return the axes of a MeanVarianceNormalization, by default all but the channels of an image."""
    return named_axes(node, lambda value: None, rank) or tuple(axis for axis in (0, 2, 3) if axis < rank)


def resized_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return the axes that scales or sizes of a Resize belong to, by default all."""
    return named_axes(node, lambda value: None, rank) or tuple(range(rank))


def keeps_split_axis(node: ir.Node) -> bool:
    """Whether the pieces of a SplitToSequence of single entries keep the axis that is split."""
    stated = node.attributes.get("keepdims")
    return stated is None or bool(stated.as_int())


def changed_axes(node: ir.Node, read: Reader) -> tuple[int, ...] | None:
    """Return the axes of size 1 that a Squeeze removes from the data, or an Unsqueeze adds to the result.

    Returns:
        The axes; None for other nodes, and where axes or rank are unknown.
    """
    value = {"Squeeze": node.inputs[:1], "Unsqueeze": node.outputs[:1]}.get(node.op_type, ())
    shape = value[0].shape if value and value[0] is not None else None
    if shape is None or node.domain not in ("", "ai.onnx"):
        return None
    axes = named_axes(node, read, len(shape))
    if axes or axes is None or node.op_type == "Unsqueeze":
        return axes
    known = all(isinstance(size, int) for size in shape)
    return tuple(axis for axis, size in enumerate(shape) if size == 1) if known else None


def counts_from_the_front(node: ir.Node) -> bool:
    """Whether the axis is written so that it names another one once an axis is added in front."""
    return _stated(node, None) >= 0


def perm_of(node: ir.Node, rank: int) -> tuple[int, ...]:
    """Return the permutation of a Transpose, the axis of its operand for each axis; reversed where none is stated.

    Args:
        node: a Transpose.
        rank: rank of its operand.
    """
    stated = node.attributes.get("perm")
    return tuple(reversed(range(rank))) if stated is None else tuple(stated.as_ints())


def order_of(node: ir.Node | None) -> tuple[int, ...] | None:
    """Return the permutation of a Transpose; None for other nodes, and without permutation and known rank."""
    if node is None or node.op_type != "Transpose" or node.domain not in ("", "ai.onnx") or node.inputs[0] is None:
        return None
    shape = node.inputs[0].shape
    return None if shape is None and "perm" not in node.attributes else perm_of(node, len(shape or ()))
