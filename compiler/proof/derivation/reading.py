"""Derives which frames delays, convolutions, recurrent layers and transforms along time read.

Pad (1 entry in front, -1 behind)            [-1, -1]
Conv (3 taps, a pad of 1 on both sides)      [-1, 1]
LSTM, both directions                        [-inf, inf]
"""

import math

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, dims
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.windows import window_of, with_pads
from compiler.proof.derivation.dependence import EVERYWHERE, HERE, Along, Reach
from compiler.proof.derivation.first_states import first_state
from compiler.proof.facts.executed_index_map import pad_value

WINDOWED = frozenset({"AveragePool", "Conv", "LpPool", "MaxPool"})
"""A list of its own: operators whose entries read a window along each axis behind the second."""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
"""A list of its own: operators that go along their first axis, step by step."""

FOURIER = frozenset({"DFT", "STFT"})
"""A list of its own: operators of whose result every entry reads a whole axis."""

READING = WINDOWED | RECURRENT | FOURIER | {"Pad"}


def reach_along(node: ir.Node, axis: int) -> Reach:
    """Return which entries of the operand's axis an entry of the result reads, relative to its own position.

    Args:
        node: one of `READING`.
        axis: the time axis.

    Raises:
        NotMapped: the result's axis is not the operand's, or the node reads nothing along it.
    """
    if node.op_type in FOURIER:
        return EVERYWHERE
    if graphs.is_op(node, "Pad"):
        return _moved_back(node, axis)
    if node.op_type in RECURRENT:
        ways = {"forward": Reach(-math.inf, 0), "reverse": Reach(0, math.inf), "bidirectional": EVERYWHERE}
        if axis or graphs.int_attribute(node, "layout", 0):
            raise NotMapped(f"{node.op_type} goes along another axis than time")
        return ways[str(graphs.attribute(node, "direction", "forward"))]
    spatial_axis = axis - 2
    if spatial_axis < 0:
        raise NotMapped(f"{node.op_type} reads all channels, and frames are among them")
    window = window_of(node, len(dims(node.inputs[0])))
    taps = None if window is None else window.kernel[spatial_axis]
    if window is None or taps is None or window.strides[spatial_axis] != 1 or _is_resized(node, axis):
        raise NotMapped(f"{node.op_type} makes another number of frames")
    reach = window.dilations[spatial_axis] * (taps - 1)
    if window.pads is not None:
        before = window.pads[spatial_axis][0]
    else:
        before = reach // 2 if window.automatic == "SAME_UPPER" else reach - reach // 2
    return Reach(-before, reach - before) if reach or before else HERE


def _is_resized(node: ir.Node, axis: int) -> bool:
    return dims(node.inputs[0])[axis] != dims(node.outputs[0])[axis]


def _moved_back(node: ir.Node, axis: int) -> Reach:
    """Return the reach of a Pad that delays frames, see `compiler.proof.derivation.delays`; others delay none."""
    pads, count = pads_of(node), 0
    if pads is not None and pad_value(node) == 0:
        count, behind = pads.pop(axis, (0, 0))
        count = 0 if count != -behind or any(each != (0, 0) for each in pads.values()) else max(count, 0)
    return Reach(-count, -count) if count else HERE


def pads_of(node: ir.Node) -> dict[int, tuple[int, int]] | None:
    """Return entries that a constant Pad adds in front of and behind axes, negative where it crops; None if unknown.

    Args:
        node: a Pad; the modes that repeat or mirror edge entries give None.
    """
    pad = pad_of(node, graphs.integers_of)
    return None if pad is None or pad.mode != "constant" or pad.numbers is None else dict(pad.numbers)


def require_kept(node: ir.Node, along: Along) -> None:
    """Require that steps can be written for a node that reads earlier frames: a convolution, Pad or recurrence.

    Args:
        node: one of `READING` that reads no later frame.
        along: the facts of its operand's axis of frames.

    Raises:
        NotMapped: they cannot; the message has the reason.
    """
    is_plain = node.op_type != "Conv" or _pads_of_convolution(node) is not None
    weights = node.inputs[1:4] if node.op_type in RECURRENT else node.inputs[1:2]
    if node.op_type not in {"Conv", "Pad", *RECURRENT} or not is_plain:
        raise NotMapped(f"no rule says what steps of {node.op_type} along time keep")
    if any(weight is not None and graphs.array_of(weight) is None for weight in weights):
        raise NotMapped(f"{node.op_type} has weights that are computed")
    if node.op_type in RECURRENT and any(operand is not None for operand in node.inputs[4:5]):
        raise NotMapped(f"{node.op_type} is given lengths")
    if node.op_type in RECURRENT and any(state is None for state in first_states(node)):
        raise NotMapped(f"{node.op_type} begins with a state that is not one row of constants, the same in all rows")
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise NotMapped(f"the state of {node.op_type} behind the last frame is used")
    if along.before != 0 or not along.is_alone:
        raise NotMapped(f"{node.op_type} reads frames that share their axis with others")


def first_states(node: ir.Node) -> list[np.ndarray | None]:
    """Return the initial states of a recurrence, one row each [1, 1, width] or a scalar zero; None for unknown ones.

    Args:
        node: one of `RECURRENT`, over frames [time, rows, width].
    """
    given = [*node.inputs[5:7], None, None][: 2 if node.op_type == "LSTM" else 1]
    frames = node.inputs[0]
    zero = np.zeros((), (ir.DataType.FLOAT if frames is None or frames.dtype is None else frames.dtype).numpy())
    return [zero if each is None else first_state(each, dims(frames)[1]) for each in given]


def without_pads(node: ir.Node, axis: int) -> list[ir.Attr]:
    """Return the attributes of a convolution without its pads along the time axis.

    Args:
        node: a Conv.
        axis: the axis of frames.
    """
    pads = _pads_of_convolution(node)
    assert pads is not None  # as `require_kept` has found
    return with_pads(node, [(0, 0) if spatial == axis - 2 else pair for spatial, pair in enumerate(pads)])


def _pads_of_convolution(node: ir.Node) -> tuple[tuple[int, int], ...] | None:
    window = window_of(node, len(dims(node.inputs[0])))
    return None if window is None else window.pads
