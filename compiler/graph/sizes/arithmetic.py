"""Computes one entry of an elementwise operator's result from numbers and symbolic sizes.

Div(time, 2) of integers = floor(time/2);  Mod<fmod = 1>(time - 9, 4) takes the sign of time - 9;  Max(time, 1)
"""

import math
from collections.abc import Sequence

import onnx_ir as ir
import sympy

from compiler.graph.sizes.expressions import Dim
from compiler.graph.sizes.growth import truncated


def computed(node: ir.Node, operands: Sequence[Dim]) -> Dim | None:
    """Return the entry of a node's result whose operands have these entries; None where no rule gives it.

    Args:
        node: a node of the standard operators.
        operands: as many as the node has, each a whole number, or one that is for all lengths.
    """
    first, *others = operands
    match node.op_type:
        case "Abs":
            return plain(first if sympy.sympify(first).is_nonnegative else sympy.Max(first, -first))
        case "Add" | "Sum":
            return plain(sum(others, first))
        case "Neg":
            return plain(-first)
        case "Sub":
            return plain(first - others[0])
        case "Mul":
            return plain(math.prod(others, start=first))
        case "Max" | "Min":
            return plain((sympy.Max if node.op_type == "Max" else sympy.Min)(*operands))
        case "Mod" if others[0] != 0:
            return _remainder(node, first, others[0])
        case "Div" if others[0] != 0:
            data = node.inputs[0]
            is_whole = data is not None and data.dtype is not None and data.dtype.is_integer()
            return _truncated(first, others[0]) if is_whole else plain(sympy.sympify(first) / others[0])
    return None


def _remainder(node: ir.Node, top: Dim, bottom: Dim) -> Dim | None:
    """Return a remainder with the sign of the divisor, or with fmod of the dividend."""
    fmod = node.attributes.get("fmod")
    if fmod is None or not fmod.as_int():
        return plain(sympy.Mod(top, bottom))
    whole = _truncated(top, bottom)
    return None if whole is None else plain(top - bottom * whole)


def _truncated(top: Dim, bottom: Dim) -> Dim | None:
    whole = truncated(sympy.sympify(top), sympy.sympify(bottom))
    return None if whole is None else plain(whole)


def plain(number: Dim) -> Dim:
    """Return a number as int where it is one."""
    return int(number) if not isinstance(number, int) and number.is_Integer else number
