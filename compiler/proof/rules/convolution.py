"""Proves how padding and batching act on convolutions, which read entries at fixed distances (rules CV).

Rule ids: CV3 each entry alone, CV4 no valid position reads padding, CV5 padding that is read holds zero, CV7
transposed convolution: the padding adds zero to valid positions.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.model import Dim
from compiler.graph.sizes.expressions import normal_form
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames, Segment, Side, joined
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.rules.kernel_windows import (
    Slid,
    Window,
    operator_view,
    regions_read,
    slide,
    stated,
    windows_of,
)


@dataclasses.dataclass(frozen=True)
class Weights:
    """The effect of a kernel on a bound.

    Attributes:
        kernel: its spatial sizes.
        rise: per output channel, the sum of its positive weights.
        fall: per output channel, the sum of its negative weights.
        low: per output channel, the bias, or the least it may be.
        high: the most it may be.
        is_known: the weights are numbers; otherwise any signs are possible, and rise and fall have half the sum of
            the largest magnitudes each.
    """

    kernel: tuple[int, ...]
    rise: np.ndarray
    fall: np.ndarray
    low: np.ndarray
    high: np.ndarray
    is_known: bool = True

    def bounds(self, read: Interval, limit: float) -> Interval:
        """Return bounds of the result for entries within an interval; unbounded where sums may overflow."""
        if not read.is_finite:
            return ANYTHING
        if not self.is_known:
            read = iv.bounded(read.magnitude)
        low = self.rise * read.low + self.fall * read.high + self.low
        high = self.rise * read.high + self.fall * read.low + self.high
        largest = (self.rise - self.fall) * read.magnitude + np.maximum(np.abs(self.low), np.abs(self.high))
        return Interval(float(low.min()), float(high.max())) if np.all(largest <= limit) else ANYTHING


def convolution(case: Case) -> Verdict:
    """Judge Conv, ConvInteger, QLinearConv: padding that is read must hold what the unpadded program reads."""
    weights = _weights(case)
    windows = windows_of(case, weights.kernel)
    _check_channels(case)
    slid = {
        number + 2: slid_window
        for number, window in enumerate(windows)
        if (slid_window := slide(case, number + 2, window)) is not None
    }
    neutral = _zero_point(case) if any(slide_of_axis.sees_padding for slide_of_axis in slid.values()) else 0.0
    for axis, slide_of_axis in slid.items():
        if slide_of_axis.sees_padding:
            case.fill(0, axis, neutral)
    axes = {**_outer(case.fact()), **{axis: slide_of_axis.axis for axis, slide_of_axis in slid.items()}}
    out = case.output(axes, _content(case, weights, windows, set(slid)))
    sizes = [size for slide_of_axis in slid.values() for size in slide_of_axis.least]
    # ONNX Runtime convolves no axis without entries, not even one entry at a time.
    sizes += [frames.size for axis in slid if (frames := case.simple_frames(0, axis)) is not None]
    if all(windows[axis - 2].is_point for axis in slid):
        reason = "every entry is convolved by itself"
        return case.verdict("CV3", reason, out, pointwise=True, at_least_one=sizes)
    if any(slide_of_axis.sees_padding for slide_of_axis in slid.values()):
        return case.verdict("CV5", "behind the valid entries lie zeros, as alone", out, at_least_one=sizes)
    return case.verdict("CV4", "no valid place reads padding", out, at_least_one=sizes)


def _operands(case: Case) -> tuple[int, int | None]:
    """Return the indices of the operands of weights and bias."""
    match case.op:
        case "QLinearConv":
            return 3, 8
        case "ConvInteger":
            return 1, None
    return 1, 2


def _weights(case: Case) -> Weights:
    weight, bias = _operands(case)
    for operand in case.present[1:]:
        if case.fact(operand).axes or case.fact(operand).is_number:
            raise refuse(
                f"{case.op} with weights or parameters that have a padded axis or the batch, or follow from lengths",
                "use weights that all rows share",
            )
    dims = case.dims(weight)
    fixed = [dim for dim in dims if isinstance(dim, int)]
    if len(fixed) != len(dims) or len(dims) != case.rank() or len(dims) < 3:
        raise refuse(f"{case.op} with weights of shape {[str(dim) for dim in dims]}", "use weights of fixed size")
    group = case.int_attribute("group", 1)
    channels = fixed[1] * group if case.op == "ConvTranspose" else fixed[0]
    rise, fall, is_known = _sums(case, weight, fixed, group)
    low = high = np.zeros(channels)
    if bias is not None and case.has(bias):
        array, content = case.array(bias), case.fact(bias).valid
        low = np.full(channels, content.low) if array is None else array.astype(np.float64)
        high = np.full(channels, content.high) if array is None else low
    return Weights(tuple(fixed[2:]), rise, fall, low, high, is_known)


def _sums(case: Case, operand: int, dims: Sequence[int], group: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return the sums of positive and of negative weights per output channel, and whether they are exact.

    Raises:
        Refused: a weight may be infinite, so that zero times it is no zero.
    """
    array, content = case.array(operand), case.fact(operand).valid
    if array is None or case.op in ("ConvInteger", "QLinearConv"):
        if not content.is_finite:
            raise refuse(f"{case.op} with weights that may be infinite or NaN", "use finite weights")
        entries = math.prod(dims) / (dims[1] if case.op == "ConvTranspose" else dims[0])
        room = 256.0 if case.op == "ConvInteger" else 0.0  # a zero point is subtracted
        half = np.array([entries * (content.magnitude + room) / 2])
        return half, -half, False
    if not np.all(np.isfinite(array)):
        raise refuse(f"{case.op} with infinite weights or NaN", "use finite weights")
    kernel = array.astype(np.float64)
    if case.op == "ConvTranspose":  # [inputs, outputs of a group, ...] -> [outputs, ...]
        kernel = kernel.reshape(group, dims[0] // group, dims[1], -1).swapaxes(1, 2)
        kernel = kernel.reshape(group * dims[1], -1)
    flat = kernel.reshape(kernel.shape[0], -1)
    return np.maximum(flat, 0).sum(1), np.minimum(flat, 0).sum(1), True


def _check_channels(case: Case) -> None:
    if case.fact().axis(1) is not None:
        case.refuse_rows(0, 1, "sums over")
        raise refuse(
            f"{case.op} sums over axis 1, which is padded, as channels", "transpose frames behind the channels"
        )


def _outer(fact: Fact) -> dict[int, Axis]:
    """Return the layout of axis 0, whose entries are convolved separately."""
    layout = fact.axis(0)
    return {} if layout is None else {0: layout}


def _zero_point(case: Case) -> float:
    """Return the entry that stands for zero.

    Raises:
        Refused: the zero point is computed.
    """
    position = {"ConvInteger": 2, "QLinearConv": 2}.get(case.op)
    if position is None or not case.has(position):
        return 0.0
    content = case.fact(position).valid
    if not content.is_constant:
        raise refuse(f"{case.op} with a computed zero point reads padding", "use a constant zero point")
    return content.low


def _content(
    case: Case, weights: Weights, windows: Sequence[Window], tracked: set[int]
) -> Callable[[Region], Interval]:
    fact = case.fact()
    sliding = {axis for axis in tracked if not windows[axis - 2].is_point}
    zeros = any(window.begin or window.end is None or window.end or window.ceil for window in windows)
    if case.op == "QLinearConv":
        limits = Interval(case.lowest(0), case.highest(0))
        dtype = case.node.outputs[0].dtype
        if dtype is not None and dtype != case.dtype(0):
            limits = Interval(-128.0, 255.0)
        return lambda region: limits
    shift = case.fact(2).valid if case.op == "ConvInteger" and case.has(2) else ZERO
    limit = largest_sum(case)

    def content(region: Region) -> Interval:
        read = iv.hull(*(fact.content(region_read) for region_read in regions_read(fact, region, sliding)))
        read = iv.add(read, iv.negate(shift))
        return weights.bounds(iv.hull(read, ZERO) if zeros else read, limit)

    return content


def largest_sum(case: Case) -> float:
    """Return the largest sum that is surely finite in the type of the first input, with a margin of 30."""
    return 2000.0 if case.dtype() == ir.DataType.FLOAT16 else iv.LARGEST


def transposed_convolution(case: Case) -> Verdict:
    """Judge ConvTranspose: entry i adds to positions i*stride - begin + dilation*[0, kernel); padding must add zero."""
    weights = _weights(case)
    _check_channels(case)
    windows, extra = _transposed_windows(case, weights.kernel)
    axes: dict[int, Axis] = {}
    sizes: list[Dim] = []
    for number, window in enumerate(windows):
        spread = _spread(case, number + 2, window, extra[number])
        if spread is None:
            continue
        axes[number + 2] = spread.axis
        sizes += spread.least
        if spread.sees_padding:
            case.fill(0, number + 2, 0.0)
    fact, limit, sliding = case.fact(), largest_sum(case), set(axes)
    axes |= _outer(fact)

    def content(region: Region) -> Interval:
        read = iv.hull(ZERO, *(fact.content(region_read) for region_read in regions_read(fact, region, sliding)))
        return weights.bounds(read, limit)

    out = case.output(axes, content)
    return case.verdict("CV7", "padding adds nothing to valid places", out, at_least_one=sizes)


def _transposed_windows(case: Case, kernel: tuple[int, ...]) -> tuple[list[Window], tuple[int, ...]]:
    """Return the windows and the output padding of a ConvTranspose.

    Raises:
        Refused: the pads depend on the size, or runtimes read the attributes differently.
    """
    view = operator_view(case)
    if case.ints_attribute("output_shape"):
        raise refuse("ConvTranspose with an output shape", "give pads and output_padding as numbers")
    extra, pads = view.output_padding, view.pads
    if pads is None:
        totals = [size - stride for size, stride in zip(kernel, view.strides, strict=True)]
        if min(totals) < 0 or max(view.dilations) > 1 or max(extra) > 0:
            raise refuse(
                f"ConvTranspose with auto_pad {view.automatic} and gaps between what entries add",
                "give pads as numbers",
            )
        halves = [(total // 2, total - total // 2) for total in totals]
        pads = tuple(pair if view.automatic == "SAME_UPPER" else pair[::-1] for pair in halves)
    each_axis = zip(kernel, view.strides, view.dilations, pads, strict=True)
    return [Window(size, stride, dilation, *pair) for size, stride, dilation, pair in each_axis], extra


def _spread(case: Case, at: int, window: Window, extra: int) -> Slid | None:
    """Return how a ConvTranspose spreads out a padded axis; None where the axis is not tracked.

    Raises:
        Refused: a gap lies between the valid entries.
    """
    frames = case.simple_frames(0, at)
    if frames is None:
        return None
    assert window.end is not None
    stride, tail = window.stride, window.reach + 1 + extra - window.begin - window.end
    size = stated(case, at, normal_form(stride * (sympy.sympify(frames.size) - 1) + tail))
    least = (size, frames.size) if extra else (size,)  # what is added behind no entries has no place
    adds_behind = window.reach - window.end + extra >= stride
    adds_in_front = window.reach - window.begin >= stride
    if frames.is_suffix_padded:
        return Slid((Frames((Segment(size),)),), size, least, sees_back=adds_behind)
    front = frames.segments[0]
    if frames.is_prefix_padded and not front.is_full:
        return Slid((Frames((Segment(size, Side.RIGHT),)),), size, least, sees_front=adds_in_front)
    if len(frames.segments) == 2 and front.side is Side.RIGHT and not front.is_full and not frames.segments[1].is_full:
        before = normal_form(stride * front.size)
        axis = joined([Segment(before, Side.RIGHT), Segment(normal_form(size - before), Side.LEFT)])
        inner = [part.size + 1 for factor in axis if isinstance(factor, Frames) for part in factor.segments]
        return Slid(axis, size, (*least, *inner), adds_in_front, adds_behind)
    raise refuse(f"ConvTranspose along {frames}, with padding between valid entries", "act before joining them")


TABLE: Table = {
    ("", "Conv"): convolution,
    ("", "ConvInteger"): convolution,
    ("", "QLinearConv"): convolution,
    ("", "ConvTranspose"): transposed_convolution,
    ("", "DeformConv"): named_refusal("reads at places that are computed", "use a convolution of fixed places"),
}
