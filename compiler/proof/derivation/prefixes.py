"""Recognises how Concat joins a prefix, such as text or a voice, in front of the frames, and how Slice cuts it off.

    x [batch, letters + time] = Concat(text [batch, letters], audio [batch, time])
    y [batch, time] = x[:, letters:]

A joined axis counts the entries of the prefix, then the frames. A call is given the whole prefix and its own frames. No
entry of the prefix reads a frame, so that all of them are computed of the prefix alone.
"""

from collections.abc import Sequence

import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, dims
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.slices import slice_of
from compiler.proof.derivation.dependence import Along


def is_count(size: Dim) -> bool:
    """Whether a size is a sum with positive terms alone, which is never negative."""
    if isinstance(size, int):
        return size >= 0
    terms = (term.as_coeff_Mul() for term in sympy.Add.make_args(sympy.expand(size)))
    return all(coefficient > 0 and (rest == 1 or rest.is_Symbol) for coefficient, rest in terms)


def before_frames(size: Dim, frames: sympy.Symbol) -> Dim | None:
    """Return the entries in front of the frames on an axis of a size; None where it is not a prefix and all frames.

    Args:
        size: the size of the axis.
        frames: the number of frames.
    """
    if size == frames:
        return 0
    rest = graphs.normal_form(size - frames)
    return rest if is_count(rest) and not graphs.mentions(rest, str(frames)) else None


def joined_along(node: ir.Node, joined: Sequence[Along | None], axis: int, frames: sympy.Symbol) -> Along:
    """Return the axis that a Concat makes from a prefix and frames.

    Args:
        node: a Concat.
        joined: the facts of the joined axis, per operand; None for an operand without.
        axis: the joined axis.
        frames: the number of frames.

    Raises:
        NotMapped: the frames are not the last operand.
    """
    last, size = joined[-1], dims(node.outputs[0])[axis]
    before = before_frames(size, frames)
    if (
        last is None
        or any(operand_along is not None for operand_along in joined[:-1])
        or not last.is_alone
        or before is None
    ):
        raise NotMapped("Concat joins frames to what lies behind them")
    return Along((size,), last.reach, before)


def kept_along(node: ir.Node, along: Along, axis: int, frames: sympy.Symbol) -> Along | None:
    """Return the axis after a Slice that keeps all frames and the end of their prefix; None if no frames are kept.

    Args:
        node: a Slice along that axis alone.
        along: the facts of the axis.
        axis: the sliced axis.
        frames: the number of frames.

    Raises:
        NotMapped: some frames are left out.
    """
    view = slice_of(node)
    sliced = None if view is None else view.only_axis_slice(symbolic_values_of)
    if not along.is_alone or sliced is None or sliced.axis != axis or sliced.start is None:
        raise NotMapped("Slice cuts frames that share their axis, or several axes at once")
    left, start = dims(node.outputs[0])[axis], start_of(node, axis)
    if sliced.step != 1:
        raise NotMapped("Slice leaves out frames")
    before = before_frames(left, frames)
    if before is not None and graphs.normal_form(along.before - before - start) == 0:
        return Along((left,), along.reach, before)
    if not graphs.mentions(left, str(frames)) and is_count(graphs.normal_form(along.before - start - left)):
        return None
    raise NotMapped("Slice leaves out frames")


def start_of(node: ir.Node, axis: int) -> Dim:
    """Return the start of a Slice along one axis, counted from the front.

    Raises:
        NotMapped: the start is not known.
    """
    view = slice_of(node)
    sliced = None if view is None else view.only_axis_slice(symbolic_values_of)
    if sliced is None or sliced.axis != axis or sliced.start is None:
        raise NotMapped("Slice cuts several axes at once, or begins where data say")
    return sliced.start if is_count(sliced.start) else graphs.normal_form(sliced.start + dims(node.inputs[0])[axis])
