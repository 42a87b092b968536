"""Rules CV: convolutions, whose kernels look a fixed distance past each entry."""

import math
from collections.abc import Callable

import numpy as np

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import ZERO, Interval
from compiler.analysis.layout import Axis, Frames, Segment, Side
from compiler.analysis.registry import Table
from compiler.ir import Dim


class Window:
    """Kernel, stride, dilation and padding of a convolution or pool, per spatial axis.

    Args:
        case: the node.
        kernel: size of the kernel per spatial axis.
    """

    def __init__(self, case: Case, kernel: tuple[int, ...]) -> None:
        count = len(kernel)
        self.kernel = kernel
        self.strides = case.ints_attribute("strides") or (1,) * count
        self.dilations = case.ints_attribute("dilations") or (1,) * count
        pads = case.ints_attribute("pads") or (0,) * (2 * count)
        self.begins, self.ends = list(pads[:count]), list(pads[count:])
        self.same = {}
        auto = case.attribute("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            for at in range(count):
                total = self.reach(at)
                small, large = total // 2, total - total // 2
                self.begins[at], self.ends[at] = (small, large) if auto == "SAME_UPPER" else (large, small)
                self.same[at] = self.strides[at] > 1

    def reach(self, at: int) -> int:
        """Entries that the kernel spans beyond the first."""
        return self.dilations[at] * (self.kernel[at] - 1)


def convolution(case: Case) -> Verdict:
    """Conv: a kernel that reads past the last valid entry must read zeros there, as it does without padding."""
    weight, window = _weight(case)
    _check_channels(case)
    axes = _outer(case)
    sizes: list[Dim] = []
    for at in range(len(window.kernel)):
        layout = spatial(case, window, at, sizes, 0.0)
        if layout is not None:
            axes[at + 2] = layout
    out = case.output(axes, _content(case, weight, any(window.begins) or any(window.ends)))
    alone = all(k == 1 for at, k in enumerate(window.kernel) if at + 2 in axes) and set(window.strides) == {1}
    reason = "no valid entry reads past the valid ones" if not case.needs else "past the valid entries lie zeros"
    return case.verdict("CV", reason, out, pointwise=alone, at_least_one=sizes)


def _weight(case: Case) -> tuple[np.ndarray | None, Window]:
    if case.fact(1).axes or case.fact(1).is_number or (case.has(2) and case.fact(2).axes):
        raise refuse(f"{case.op} with padded or batched weights", "use constant weights")
    dims = case.dims(1)
    kernel = tuple(dim for dim in dims[2:] if isinstance(dim, int))
    if len(kernel) != len(dims) - 2:
        raise refuse(f"{case.op} with weights of shape {[str(d) for d in dims]}", "use weights of fixed size")
    return case.array(1), Window(case, kernel)


def _check_channels(case: Case) -> None:
    if case.fact().axis(1) is not None:
        case.refuse_rows(0, 1, "sums over")
        raise refuse(f"{case.op} sums over a padded axis as channels", "transpose frames behind the channels")


def _outer(case: Case) -> dict[int, Axis]:
    """The layout of axis 0, each entry of which is convolved by itself."""
    layout = case.fact().axis(0)
    return {} if layout is None else {0: layout}


def spatial(case: Case, window: Window, at: int, sizes: list[Dim], neutral: float) -> Axis | None:
    """The layout of one spatial axis of the output; states the fill it needs.

    Raises:
        Refused: entries would be chosen by slot instead of by position.
    """
    axis = at + 2
    frames = case.simple_frames(0, axis)
    if frames is None:
        return None
    size = case.out_dims()[axis]
    if window.same.get(at):
        raise refuse(
            f"{case.op} with automatic padding and a stride, which depends on the size", "give pads as numbers"
        )
    begin, end, stride = window.begins[at], window.ends[at], window.strides[at]
    if frames.is_suffix_padded:
        if end > 0:
            case.fill(0, axis, neutral)
        side = Side.LEFT
    elif frames.is_prefix_padded and stride == 1:
        if begin > 0:
            case.fill(0, axis, neutral)
        side = Side.RIGHT
    else:
        raise refuse(f"{case.op} in steps of {stride} along {frames}", "convolve the new frames before joining them")
    sizes.append(size)
    return (Frames((Segment(size, side),)),)


def _content(case: Case, weight: np.ndarray | None, sees_zeros: bool) -> Callable[[Region], Interval]:
    """Bounds from sums of absolute weights per output channel."""
    fact = case.fact()
    bias = case.fact(2).valid if case.has(2) else ZERO
    if weight is None:
        gain = math.inf
    elif case.op == "ConvTranspose":
        gain = float(np.abs(weight.astype(np.float64)).sum(axis=(0, *range(2, weight.ndim))).max())
    else:
        gain = float(np.abs(weight.astype(np.float64)).reshape(weight.shape[0], -1).sum(1).max())

    def content(region: Region) -> Interval:
        """An entry in the padding may read valid entries, padding and zeros."""
        regions = [frozenset(each) for each in fact.regions if each <= region]
        read = iv.hull(ZERO, *(fact.content(each) for each in regions))
        if not sees_zeros and len(regions) == 1:
            read = fact.content(regions[0])
        if read.is_zero:
            return bias
        if not read.is_finite or not math.isfinite(gain):
            return iv.ACTIVATION if not region and read.is_finite else iv.ANYTHING
        return iv.add(iv.bounded(gain * read.magnitude), bias)

    return content


def transposed_convolution(case: Case) -> Verdict:
    """ConvTranspose: what the entries behind the last valid one add to its trimmed tail must be zero."""
    weight, window = _weight(case)
    _check_channels(case)
    if case.ints_attribute("output_shape") or case.attribute("auto_pad", "NOTSET") != "NOTSET":
        raise refuse("ConvTranspose with an output shape", "give pads and output_padding as numbers")
    extra = case.ints_attribute("output_padding") or (0,) * len(window.kernel)
    axes = _outer(case)
    sizes: list[Dim] = []
    for at in range(len(window.kernel)):
        axis = at + 2
        frames = case.simple_frames(0, axis)
        if frames is None:
            continue
        if not frames.is_suffix_padded:
            raise refuse(f"ConvTranspose along {frames}", "pad behind the valid entries")
        if window.reach(at) + 1 + extra[at] - window.ends[at] > window.strides[at]:
            case.fill(0, axis, 0.0)
        size = case.out_dims()[axis]
        sizes.append(size)
        axes[axis] = (Frames((Segment(size),)),)
    out = case.output(axes, _content(case, weight, True))
    return case.verdict("CV10", "tails overlap zeros only", out, at_least_one=sizes)


TABLE: Table = {("", "Conv"): convolution, ("", "ConvTranspose"): transposed_convolution}
