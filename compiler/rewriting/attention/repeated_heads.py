"""Finds heads of keys and values that a graph repeats for the queries that share them (grouped-query attention).

keys [batch, 4, slots, d] -> Unsqueeze -> Expand [batch, 4, 4, slots, d] -> Reshape [batch, 16, slots, d]
keys [batch, 4, slots, d] -> Gather<axis = 1>(.., 0 0 0 0 1 1 1 1 ..)
"""

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, changed_axes


def before_repeats(value: ir.Value) -> ir.Value | None:
    """Return the value [batch, groups, ..] that a value [batch, heads, ..] repeats per head; None for others."""
    node = value.producer()
    if graphs.is_op(node, "Gather"):
        return _before_gather(node)
    return _before_expand(value, node) if graphs.is_op(node, "Reshape") else None


def _before_gather(node: ir.Node | None) -> ir.Value | None:
    assert node is not None and node.inputs[0] is not None
    index, dims = graphs.array_of(node.inputs[1]), graphs.dims_of(node.inputs[0])
    groups = dims[1] if dims is not None and len(dims) > 1 else None
    is_along_groups = axis_of(node, len(dims or ())) == 1
    if not is_along_groups or index is None or index.ndim != 1 or not isinstance(groups, int):
        return None
    each = len(index) // max(groups, 1)
    return node.inputs[0] if each and np.array_equal(index, np.arange(groups).repeat(each)) else None


def _before_expand(value: ir.Value, node: ir.Node | None) -> ir.Value | None:
    wide = None if node is None else node.inputs[0]
    spread = None if wide is None else wide.producer()
    column = spread.inputs[0] if spread is not None and graphs.is_op(spread, "Expand") else None
    maker = None if column is None else column.producer()
    if wide is None or column is None or maker is None or not graphs.is_op(maker, "Unsqueeze"):
        return None
    dims, apart, narrow = graphs.dims_of(value), graphs.dims_of(wide), graphs.dims_of(column)
    if dims is None or apart is None or changed_axes(maker, graphs.integers_of) != (2,):
        return None
    is_by_head = narrow == (*apart[:2], 1, *apart[3:]) and dims[:1] + dims[2:] == apart[:1] + apart[3:]
    return maker.inputs[0] if is_by_head else None
