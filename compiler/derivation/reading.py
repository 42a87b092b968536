"""What convolutions, recurrent layers and transforms along time read; no steps are written of them yet.

Conv (3 taps, a pad of 1 on both sides)      [-1, 1]
LSTM, both directions                        [-inf, inf]
"""

import math

import onnx_ir as ir

from compiler import ir as house
from compiler.derivation.dependence import EVERYWHERE, HERE, Reach
from compiler.derivation.links import NotLinked, dims

WINDOWED = frozenset({"AveragePool", "Conv", "LpPool", "MaxPool"})
"""A list of its own: operators whose entries read a window along each axis behind the second."""

RECURRENT = frozenset({"GRU", "LSTM", "RNN"})
"""A list of its own: operators that go along their first axis, step by step."""

FOURIER = frozenset({"DFT", "STFT"})
"""A list of its own: operators of whose result every entry reads a whole axis."""

READING = WINDOWED | RECURRENT | FOURIER


def reach_along(node: ir.Node, axis: int) -> Reach:
    """What an entry of the result reads along an axis of the first operand, by its place there.

    Args:
        node: one of `READING`.
        axis: of time.

    Raises:
        NotLinked: entries of the result are not those of the operand, or it reads nothing along that axis.
    """
    if node.op_type in FOURIER:
        return EVERYWHERE
    if node.op_type in RECURRENT:
        ways = {"forward": Reach(-math.inf, 0), "reverse": Reach(0, math.inf), "bidirectional": EVERYWHERE}
        if axis or house.int_attribute(node, "layout", 0):
            raise NotLinked(f"{node.op_type} goes along another axis than time")
        return ways[str(house.attribute(node, "direction", "forward"))]
    at, count = axis - 2, len(dims(node.inputs[0])) - 2
    if at < 0:
        raise NotLinked(f"{node.op_type} reads all channels, and frames are among them")
    kernel = dims(node.inputs[1])[2:] if node.op_type == "Conv" else house.ints_attribute(node, "kernel_shape")
    taps = kernel[at]
    if taps == 1 and dims(node.inputs[0])[axis] == dims(node.outputs[0])[axis]:
        return HERE
    strides, dilations = (house.ints_attribute(node, name) or (1,) * count for name in ("strides", "dilations"))
    if not isinstance(taps, int) or strides[at] != 1 or dims(node.inputs[0])[axis] != dims(node.outputs[0])[axis]:
        raise NotLinked(f"{node.op_type} makes another number of frames")
    reach = dilations[at] * (taps - 1)
    pads = house.ints_attribute(node, "pads") or (0,) * 2 * count
    same = {"SAME_UPPER": reach // 2, "SAME_LOWER": reach - reach // 2}
    before = same.get(str(house.attribute(node, "auto_pad", "NOTSET")), pads[at])
    return Reach(-before, reach - before)
