"""Finds the contexts of convolutions: states of fixed size, joined with new frames and fed back as the newest.

    joined = Concat(context, x); next_context = the last frames of joined, as many as the context has

The frames of a context move towards its front and leave there, but none of them changes: what is computed from the
joined frames one by one is as stable as it is along a cache axis (compiler/states/streaming/stable.py).
"""

import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.operator_costs import size_of
from compiler.graph.operators.axes import axis_of
from compiler.graph.stages import Lowered, Refusal, State
from compiler.states.streaming.stable import Cache, Frames, keeps_last, reads_rows_and_frames


def find_context(lowered: Lowered, state: State) -> tuple[Cache, Frames] | Refusal | None:
    """Return a state as a context, or why it is none although frames are joined to it; None where none are joined.

    Args:
        lowered: a graph with symbolic shapes.
        state: one of its states, of fixed size.
    """
    old = graphs.inputs_named(lowered.model)[state.input]
    fed = graphs.outputs_named(lowered.model)[state.output]
    join = next((node for node in graphs.consumers_of(old) if _joins(node, old)), None)
    if join is None:
        return None
    place = Location(node=str(join.name), op=join.op_type, tensor=state.input, source=graphs.source_of(join))
    axis = axis_of(join, len(old.shape or (0,)))
    dims, more = graphs.dims_of(old), graphs.dims_of(join.inputs[-1])  # type: ignore[arg-type]
    if dims is None or more is None or not isinstance(dims[axis], int) or axis == 0:
        return Refusal("the sizes of what is joined are not known, or rows are", place)
    reason = _why_none(join, old, fed, axis)
    if reason:
        return Refusal(f"{reason}, and is carried as it is", place)
    frames = Frames(dims[axis], more[axis], int(dims[axis]), size_of(more[axis], {}))
    new = join.inputs[1]
    assert new is not None
    if not _feeds_newest(fed, new, join.outputs[0], axis, frames):
        return Refusal("what is fed back is not the newest of the joined frames, and is carried as it is", place)
    return Cache(state, axis, old, new, join.outputs[0], fed), frames


def _joins(node: ir.Node, old: ir.Value) -> bool:
    return graphs.is_op(node, "Concat") and len(node.inputs) > 1 and old in node.inputs


def _why_none(join: ir.Node, old: ir.Value, fed: ir.Value, axis: int) -> str:
    """Return what else reads a state, or the value fed back, besides joining it in front of new frames; else empty."""
    rows = str((old.shape or ("",))[0])
    others = [node for node in graphs.consumers_of(old) if node is not join]
    if len(join.inputs) != 2 or join.inputs[0] is not old or join.inputs[1] is old:
        return "the state is not joined in front of the new frames"
    if not all(graphs.is_op(node, "Shape") and reads_rows_and_frames(node, axis, rows) for node in others):
        return "the state is read elsewhere, too"
    if graphs.consumers_of(fed):
        return "what is fed back is read, too"
    return ""


def _feeds_newest(fed: ir.Value, new: ir.Value, joined: ir.Value, axis: int, frames: Frames) -> bool:
    """Whether the newest frames are fed back, sliced from all frames or from enough new ones."""
    slice_node = fed.producer()
    if slice_node is None:
        return False
    if slice_node.inputs[0] is joined:
        return keeps_last(slice_node, axis, frames.cached, frames.joined)
    is_enough = isinstance(frames.new, int) and frames.new >= frames.slots
    return is_enough and slice_node.inputs[0] is new and keeps_last(slice_node, axis, frames.cached, frames.new)
