"""Derives which range of frames Pad, convolutions, recurrent layers, Resize and Fourier transforms read along time.

Pad (1 entry in front, -1 behind)                       [-1, -1]
Conv (3 taps, a pad of 1 on both sides)                 [-1, 1]
LSTM, both directions                                   [-inf, inf]
ConvTranspose (8 taps, stride 4, 4 cut off behind)      [-1, 0], four entries per frame instead of one
Conv (7 taps, a pad of 6 in front), of four per frame   [-2, 0]

An axis holds as many entries of every frame as its rate says. What is read is counted in entries of the operand: those
in front of the frame that are kept from call to call, and those behind it that have not come.
"""

import dataclasses
import math

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, dims
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.windows import Window, window_of, with_pads
from compiler.proof.derivation.dependence import Dependence, Reach
from compiler.proof.derivation.first_states import first_state
from compiler.proof.facts.executed_index_map import pad_value

WINDOWED = frozenset({"AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool"})
"""A list of its own: operators whose entries read a window along each axis behind the second."""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
"""A list of its own: operators that go along their first axis, step by step."""

FOURIER = frozenset({"DFT", "STFT"})
"""A list of its own: operators of whose result every entry reads a whole axis."""

READING = WINDOWED | RECURRENT | FOURIER | {"Pad", "Resize"}

REPEATING = frozenset(
    {
        ("asymmetric", "floor"), ("half_pixel", "round_prefer_ceil"), ("half_pixel", "round_prefer_floor"),
        ("pytorch_half_pixel", "round_prefer_ceil"), ("pytorch_half_pixel", "round_prefer_floor"),
    }
)  # fmt: skip
"""How a Resize to a multiple finds the entry at a place such that it repeats each one: (e + 1/2) / c - 1/2 is nearest
to the whole part of e / c, and never half between two entries."""


@dataclasses.dataclass(frozen=True)
class Read:
    """What the entries of one frame are computed of, in entries of the operand.

    Attributes:
        back: how many in front of the frame's own are read; inf for all.
        ahead: how many behind its own; below 0 where the last of its own are not read, inf for all.
        rate: entries of a frame along the operand's axis.
        is_resized: whether the result has a number of entries per frame of its own.
    """

    back: float = 0
    ahead: float = 0
    rate: int = 1
    is_resized: bool = False

    @property
    def reach(self) -> Reach:
        """Return what is read, in frames."""
        return Reach(-_frames(self.back, self.rate), _frames(self.ahead, self.rate))

    @property
    def is_here(self) -> bool:
        """Whether every entry is computed of the one at its own place."""
        return (self.back, self.ahead, self.is_resized) == (0, 0, False)


def _frames(entries: float, rate: int) -> float:
    return entries if math.isinf(entries) else -(-int(entries) // rate)


ALL = Read(math.inf, math.inf)


def read_along(node: ir.Node, axis: int, rate: int = 1) -> Read:
    """Return what the entries of a frame read along the operand's axis of frames.

    Args:
        node: one of `READING`.
        axis: the time axis.
        rate: entries of a frame along it.

    Raises:
        NotMapped: the result's axis is not the operand's, or the node reads nothing along it.
    """
    if node.op_type in FOURIER:
        return ALL
    if graphs.is_op(node, "Pad"):
        return _moved_back(node, axis, rate)
    if graphs.is_op(node, "Resize"):
        return _repeated(node, axis, rate)
    if node.op_type in RECURRENT:
        ways = {"forward": Read(math.inf, 0, rate), "reverse": Read(0, math.inf, rate), "bidirectional": ALL}
        if axis or graphs.int_attribute(node, "layout", 0):
            raise NotMapped(f"{node.op_type} goes along another axis than time")
        return ways[str(graphs.attribute(node, "direction", "forward"))]
    if axis == 0:  # of rows, each of which is convolved by itself
        return Read(rate=rate)
    if axis == 1:
        raise NotMapped(f"{node.op_type} reads all channels, and frames are among them")
    window = window_of(node, len(dims(node.inputs[0])))
    taps = None if window is None else window.kernel[axis - 2]
    if window is None or taps is None:
        raise NotMapped(f"{node.op_type} reads a window of unknown size")
    reach, stride = window.dilations[axis - 2] * (taps - 1), window.strides[axis - 2]
    if graphs.is_op(node, "ConvTranspose"):
        return _spread(node, axis, rate, window, reach)
    if rate % stride:
        raise NotMapped(
            f"{node.op_type} makes one entry of {stride}, and a frame has {rate}: give the graph frames of "
            f"{math.lcm(rate, stride)} entries, [batch, time, {math.lcm(rate, stride)}]"
        )
    _require_entries(node, axis, sympy.Rational(1, stride))
    if window.pads is not None:
        before = window.pads[axis - 2][0]
    else:
        before = reach // 2 if window.automatic == "SAME_UPPER" else reach - reach // 2
    return Read(before, reach - before - (stride - 1), rate, stride > 1)


def _require_entries(node: ir.Node, axis: int, times: sympy.Rational) -> None:
    """Require that the result has the operand's entries per frame times a number."""
    before, after = (sympy.sympify(dims(value)[axis]) for value in (node.inputs[0], node.outputs[0]))
    if graphs.normal_form(after - before * times) != 0:
        raise NotMapped(
            f"{node.op_type} makes {after} entries of {before}, and no frame has a part of an entry: pad or trim it "
            f"such that it makes {graphs.normal_form(before * times)}"
        )


def _spread(node: ir.Node, axis: int, rate: int, window: Window, reach: int) -> Read:
    """Return what a ConvTranspose reads: its entry o, before any is cut off, reads (o - reach) / stride .. o / stride.

    Source: the definition of ConvTranspose, o = stride * i + dilation * tap.
    """
    stride = window.strides[axis - 2]
    if window.pads is None or "output_shape" in node.attributes:
        raise NotMapped("ConvTranspose cuts off as many entries as its sizes say")
    _require_entries(node, axis, sympy.Rational(stride))
    front = window.pads[axis - 2][0]
    return Read(max((reach - front) // stride, 0), (stride - 1 + front) // stride, rate, is_resized=True)


def _repeated(node: ir.Node, axis: int, rate: int) -> Read:
    """Return what a Resize reads that repeats every entry equally often."""
    before, after = (dims(value)[axis] for value in (node.inputs[0], node.outputs[0]))
    times = sympy.cancel(sympy.sympify(after) / sympy.sympify(before))
    place = str(graphs.attribute(node, "coordinate_transformation_mode", "half_pixel"))
    rounding, mode = (
        str(graphs.attribute(node, name, default))
        for name, default in (("nearest_mode", "round_prefer_floor"), ("mode", "nearest"))
    )
    if times == 1 and mode in ("nearest", "linear"):
        return Read(rate=rate, is_resized=True)
    if mode != "nearest" or (place, rounding) not in REPEATING or not times.is_Integer:
        raise NotMapped(f"Resize by {mode!r} from {before} to {after} entries computes of neighbours, not of one entry")
    if any(graphs.array_of(value) is None for value in node.inputs[1:3] if value):
        raise NotMapped("Resize has scales that are computed")
    return Read(rate=rate, is_resized=True)


def _moved_back(node: ir.Node, axis: int, rate: int) -> Read:
    """Return what a Pad reads that delays frames, see `compiler.proof.derivation.delays`; others delay none."""
    pad, pads, count = pad_of(node, graphs.integers_of), pads_of(node), 0
    if pad is not None and pad.mode != "constant" and pad.added.get(axis, (0, 0)) != (0, 0):
        raise NotMapped(f"Pad by {pad.mode!r} reads what lies behind the edge of the sequence that it fills")
    if pads is not None and pad_value(node) == 0:
        count, behind = pads.pop(axis, (0, 0))
        count = 0 if count != -behind or any(each != (0, 0) for each in pads.values()) else max(count, 0)
    return Read(count, -count, rate)


def pads_of(node: ir.Node) -> dict[int, tuple[int, int]] | None:
    """Return entries that a constant Pad adds in front of and behind axes, negative where it crops; None if unknown.

    Args:
        node: a Pad; the modes that repeat or mirror edge entries give None.
    """
    pad = pad_of(node, graphs.integers_of)
    return None if pad is None or pad.mode != "constant" or pad.numbers is None else dict(pad.numbers)


def require_kept(node: ir.Node, operand: Dependence, axis: int) -> None:
    """Require that steps can be written for a node that reads earlier frames: a convolution, Pad or recurrence.

    Args:
        node: one of `READING` that reads no later frame.
        operand: the facts of its operand.
        axis: the operand's axis of frames.

    Raises:
        NotMapped: they cannot; the message has the reason.
    """
    is_plain = node.op_type not in ("Conv", "ConvTranspose") or _pads_of_convolution(node) is not None
    weights = node.inputs[1:4] if node.op_type in RECURRENT else node.inputs[1:2]
    if node.op_type not in {"Conv", "ConvTranspose", "Pad", *RECURRENT} or not is_plain:
        raise NotMapped(f"no rule says what steps of {node.op_type} along time keep")
    if any(weight is not None and graphs.array_of(weight) is None for weight in weights):
        raise NotMapped(f"{node.op_type} has weights that are computed")
    if node.op_type in RECURRENT and any(operand is not None for operand in node.inputs[4:5]):
        raise NotMapped(f"{node.op_type} is given lengths")
    if node.op_type in RECURRENT and any(state is None for state in first_states(node)):
        raise NotMapped(f"{node.op_type} begins with a state that is not one row of constants, the same in all rows")
    if any(value.uses() or value.is_graph_output() for value in node.outputs[1:]):
        raise NotMapped(f"the state of {node.op_type} behind the last frame is used")
    if operand.along[axis].rate is None or len(operand.along) > 1:
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


def behind_kept(node: ir.Node, axis: int, count: int) -> list[ir.Attr]:
    """Return the attributes of a convolution over kept entries and those of a call, of which it gives the call's.

    A Conv adds no zeros in front of what is kept; a ConvTranspose cuts off what is computed of kept entries alone.

    Args:
        node: a Conv or ConvTranspose.
        axis: the axis of frames.
        count: entries of its operand that are kept.
    """
    pads, window = _pads_of_convolution(node), window_of(node, len(dims(node.inputs[0])))
    assert pads is not None and window is not None  # as `require_kept` has found
    spatial = axis - 2
    front, behind = pads[spatial]
    own = (front + count * window.strides[spatial], behind) if graphs.is_op(node, "ConvTranspose") else (0, 0)
    return with_pads(node, [own if at == spatial else pair for at, pair in enumerate(pads)])


def _pads_of_convolution(node: ir.Node) -> tuple[tuple[int, int], ...] | None:
    window = window_of(node, len(dims(node.inputs[0])))
    return None if window is None else window.pads
