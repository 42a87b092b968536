"""Along which axes an operator works, counted from the front whatever the spelling.

Softmax(x), Softmax<axis = -1>(x), Softmax<axis = 2>(x) of three axes:  axis_of is 2
Transpose(x), Transpose<perm = [2, 1, 0]>(x):                           perm_of is (2, 1, 0)
"""

from collections.abc import Mapping

import onnx_ir as ir

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


def axis_operand(node: ir.Node) -> ir.Value | None:
    """What names the axis of a node as an operand, a single number; None where an attribute or the default does."""
    at = AXIS_OPERANDS.get(node.op_type, len(node.inputs))
    return node.inputs[at] if at < len(node.inputs) else None


def axis_of(node: ir.Node, rank: int, operand: int | None = None) -> int:
    """The axis that a node names or leaves to the default, counted from the front.

    Args:
        node: an operator that works along one axis, from it on (LayerNormalization), or cuts in front of it (Flatten).
        rank: how many axes there are to count: of the result where the operator adds one (OneHot), else of the data.
        operand: the number that `axis_operand` holds, where there is one.

    Returns:
        0 to rank - 1; of Flatten up to rank, in front of which all axes lie. What no axis has stays as it is stated.
    """
    stated = node.attributes.get("axis")
    axis = operand if stated is None else stated.as_int()
    if axis is None:
        axis = DEFAULT_AXES.get(node.op_type, FIRST)
        axis = 1 if node.op_type == "DFT" and _opset_of(node) < DFT_AXIS_AS_OPERAND else axis
    return axis if axis >= 0 else axis + max(rank, 1)


def _opset_of(node: ir.Node) -> int:
    """The operator set of a node, of its own or of its graph; the newest where it stands alone."""
    imports = {} if node.graph is None else node.graph.opset_imports
    return imports.get(node.domain, DFT_AXIS_AS_OPERAND) if node.version is None else node.version


def counts_from_the_front(node: ir.Node) -> bool:
    """Whether the spelling of the axis names another one where an axis is added in front."""
    return axis_of(node, 1) == axis_of(node, 2)


def perm_of(node: ir.Node, rank: int) -> tuple[int, ...]:
    """The axis of its operand that each axis of a Transpose is; in reverse order where none is stated.

    Args:
        node: a Transpose.
        rank: how many axes its operand has.
    """
    stated = node.attributes.get("perm")
    return tuple(reversed(range(rank))) if stated is None else tuple(stated.as_ints())


def order_of(node: ir.Node | None) -> tuple[int, ...] | None:
    """The same of any node; None of one that is no Transpose, or states no order of axes whose number is not known."""
    if node is None or node.op_type != "Transpose" or node.domain not in ("", "ai.onnx") or node.inputs[0] is None:
        return None
    shape = node.inputs[0].shape
    return None if shape is None and "perm" not in node.attributes else perm_of(node, len(shape or ()))
