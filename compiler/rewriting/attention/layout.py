"""Finds the head axis of the values between a projection and the attention MatMul that reads it."""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import axis_map_of
from compiler.graph.operators.axes import axis_of
from compiler.rewriting.attention.attention import AXES, Heads


def heads_along(heads: Heads) -> list[tuple[ir.Node, int]]:
    """Return the nodes of a path, each with the heads axis of its result.

    Raises:
        Refused: a heads axis is not known.
    """
    axes = {heads.value: heads.heads_axis}
    nodes = []
    for node in heads.path:
        axis = _followed(node, axes)
        axes.update(dict.fromkeys(node.outputs, axis))
        nodes.append((node, axis))
    return nodes


def _followed(node: ir.Node, axes: Mapping[ir.Value, int]) -> int:
    """Return the heads axis of the result of a node of a path.

    Raises:
        Refused: the axis is not known.
    """
    read, axis = next((value, axes[value]) for value in node.inputs if value is not None and value in axes)
    before, after = graphs.dims_of(read), graphs.dims_of(node.outputs[0])
    if before is None or after is None:
        raise Refused(f"expected {node.name} to give known axes, got {node.outputs[0].shape}")
    if graphs.is_op(node, "Transpose"):
        moved = axis_map_of(node).after(0, axis)
        assert moved is not None, "a Transpose mixes nothing"
        return moved
    if before[: axis + 1] == after[: axis + 1] or _joins_elsewhere(node, axis):
        return axis
    raise Refused(f"expected {node.name} ({node.op_type}) to keep the heads apart, got {before} -> {after}")


def _joins_elsewhere(node: ir.Node, axis: int) -> bool:
    """Whether a node joins along another axis."""
    return graphs.is_op(node, "Concat") and axis_of(node, AXES) != axis


def axes_of_cache(heads: Heads) -> tuple[int, int, int]:
    """Return the axes of heads, frames and channels of the cache along a path.

    Raises:
        Refused: the cache does not have the axes batch, heads, frames and channels.
    """
    assert heads.cache is not None
    name, frames = heads.cache.state.input, heads.cache.state.frames_axis
    along = dict(heads_along(heads))[heads.cache.join]
    rest = {1, 2, 3} - {along, frames}
    dims = graphs.dims_of(heads.cache.value) or ()
    if len(dims) != AXES or len(rest) != 1 or frames is None or frames == along:
        raise Refused(f"expected {name} to have axes for heads, frames and channels, got {heads.cache.value.shape}")
    return along, frames, rest.pop()
