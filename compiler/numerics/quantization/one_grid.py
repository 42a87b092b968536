"""Recognises QuantizeLinear and DequantizeLinear with one scale, which commute with nodes that only move entries.

Source: QuantizeLinear and DequantizeLinear, ONNX opset 13: one scale and one zero point for all entries.
"""

import onnx_ir as ir

from compiler.graph import model as graphs


def has_one_grid(node: ir.Node) -> bool:
    """Whether a node quantizes or dequantizes with one constant scale for all entries."""
    if not graphs.is_op(node, "DequantizeLinear", "QuantizeLinear"):
        return False
    parameters = [graphs.array_of(value) for value in node.inputs[1:] if value is not None]
    return all(array is not None and array.size == 1 for array in parameters)
