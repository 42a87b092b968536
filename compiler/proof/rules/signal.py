"""Proves how padding and batching act on STFT and DFT, and refuses window functions over padded axes (rules SG).

Rule ids: SG1 frames of a fixed number of samples, SG2 a transform along another axis, SG3 zeros up to a fixed length.
"""

import math

import numpy as np

from compiler.graph.model import Dim
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.layout import Axis
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.rules.convolution import largest_sum
from compiler.proof.rules.kernel_windows import Slid, Window, regions_read, slide


def stft(case: Case) -> Verdict:
    """Judge STFT of [batch, samples, 1 or 2]: a frame reads a fixed number of samples, within the signal."""
    step = _number(case, 1, "steps")
    window = case.fact(2) if case.has(2) else None
    if window is not None and (window.axes or window.is_number):
        raise refuse("STFT with a window that follows from lengths or differs per row", "use a window of fixed size")
    length = _number(case, 3, "frame lengths") if case.has(3) else None
    if length is None:
        size = case.dims(2)[0] if case.has(2) else case.dims()[1]
        if not isinstance(size, int):
            raise refuse(f"STFT of frames of {size} samples", "give the frame length as a constant")
        length = size
    if case.rank() != 3 or case.fact().axis(2) is not None:
        raise refuse(f"STFT of {case.rank()} axes", "give [batch, samples, 1]")
    axes: dict[int, Axis] = {first_axis: axis for first_axis, axis in case.fact().axes if first_axis == 0}
    slid = _slid(case, Window(length, step))
    if slid is not None:
        axes[1] = slid.axis
    fact = case.fact()
    gain = _gain(case, 2, length)

    def content(region: Region) -> Interval:
        read = iv.hull(*(fact.content(region_read) for region_read in regions_read(fact, region, {1})))
        return _transformed(case, read, gain)

    sizes = list(slid.least) if slid is not None else []
    out = case.output(axes, content)
    return case.verdict("SG1", "no valid frame reads padding", out, pointwise=slid is None, at_least_one=sizes)


def _slid(case: Case, window: Window) -> Slid | None:
    """Return how the window slides along the samples; shape inference does not know the number of frames."""
    if case.fact().axis(1) is None:
        return None
    if window.kernel == 1 and window.stride == 1:
        raise refuse("STFT of frames of one sample", "use frames of two samples or more")
    return slide(case, 1, window)


def _number(case: Case, operand: int, what: str) -> int:
    (found,) = case.constants(operand, what)
    if found < 1:
        raise refuse(f"STFT with {what} of {found}", "give a positive number")
    return found


def _gain(case: Case, operand: int, length: int) -> float:
    """Return a bound of the sum of magnitudes in a transform of `length` entries through a window."""
    array = case.array(operand) if case.has(operand) else None
    if array is not None:
        return 2.0 * float(np.abs(array.astype(np.float64)).sum())
    return 2.0 * length * (case.fact(operand).valid.magnitude if case.has(operand) else 1.0)


def _transformed(case: Case, read: Interval, gain: float) -> Interval:
    """Return bounds of the real and imaginary parts of a sum of entries times roots of unity."""
    if not read.is_finite or not read.magnitude * gain <= largest_sum(case):
        return ANYTHING
    return iv.bounded(read.magnitude * gain)


def dft(case: Case) -> Verdict:
    """Judge DFT along an axis that is not padded, or of a fixed length, up to which zeros are read anyway."""
    axis = case.axis()
    length = _number(case, 1, "lengths") if case.has(1) else None
    if case.fact().axis(case.rank() - 1) is not None:
        raise refuse("DFT whose real and imaginary parts lie on a padded axis", "put them on an axis of their own")
    frames = case.simple_frames(0, axis)
    sizes: list[Dim] = []
    if frames is not None:
        if length is None or not frames.is_suffix_padded:
            raise refuse(
                f"DFT along {frames}: every frequency depends on how long the axis is",
                "transform frames of fixed length (STFT), or give dft_length as a constant",
            )
        case.fill(0, axis, 0.0)
        sizes.append(frames.size)
    fact = case.fact()
    axes = {other_axis: layout for other_axis, layout in fact.axes if other_axis != axis}
    entries = length if length is not None else case.dims()[axis]
    gain = 2.0 * entries if isinstance(entries, int) else math.inf
    if case.int_attribute("onesided", 0) and case.int_attribute("inverse", 0):
        gain *= 2.0  # the other half is there by symmetry

    def content(region: Region) -> Interval:
        regions = [operand_region for operand_region in fact.regions if operand_region - {axis} == region]
        return _transformed(case, iv.hull(*(fact.content(operand_region) for operand_region in regions)), gain)

    out = case.output(axes, content)
    if frames is None:
        return case.verdict("SG2", "transforms another axis", out, pointwise=True)
    return case.verdict("SG3", "zeros are taken behind the entries anyway", out, at_least_one=sizes)


def window_function(case: Case) -> Verdict:
    """Refuse HannWindow and its like: a window as long as a padded axis has different entries in both programs."""
    raise refuse(
        f"{case.op} of a size that follows from lengths: its entries depend on how long it is",
        "use a window of fixed size",
    )


TABLE: Table = {
    ("", "STFT"): stft,
    ("", "DFT"): dft,
    ("", "HannWindow"): window_function,
    ("", "HammingWindow"): window_function,
    ("", "BlackmanWindow"): window_function,
    ("", "MelWeightMatrix"): named_refusal("of sizes that follow from lengths", "compute the filters once"),
}
"""Windows of fixed sizes are constants, which no rule is asked about."""
