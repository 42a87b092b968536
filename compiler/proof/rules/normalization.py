"""Proves how padding and batching act on Softmax and on normalizations (rules SM and NM)."""

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.operators.axes import moment_axes
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case, everywhere
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import NO_NAN, Fact, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, LONGEST, ZERO, Interval
from compiler.proof.facts.layout import Frames
from compiler.proof.facts.registry import Table, Versioned
from compiler.proof.facts.transfer import stored
from compiler.proof.rules.reduction import DEEP, LIVE, averaged_sizes, check_rows

ONE_PASS = ("GroupNormalization", "MeanVarianceNormalization")
"""Normalisations whose variance may be computed as mean(x*x) - mean(x)**2, which can come out negative."""


# Softmax


def softmax(case: Case) -> Verdict:
    """Judge Softmax, LogSoftmax, Hardmax: padding must be masked along the reduced axis; other axes need nothing.

    A model with its own mask may hide a whole row, over which softmax is uniform for any masking constant: then only
    -infinity is below all of its scores, and gives the same as the row alone.
    """
    axis = case.axis()
    frames = case.simple_frames(0, axis)
    fact = case.fact()
    if frames is None:
        out = case.output(fact.tracked, lambda region: _of_row(case, fact, region, axis))
        return case.verdict("SM1", "over another axis", out, pointwise=True)
    if not is_masked(fact, axis):
        fact = case.fill(0, axis, _mask_value(case, fact))
    if case.op == "Hardmax":
        _check_ties(case, fact, axis, frames)

    def content(region: Region) -> Interval:
        if axis not in region or case.op == "LogSoftmax":
            return _of_row(case, fact, region, axis)
        valid, padding = fact.content(region - {axis}), fact.content(region)
        if not _is_deep(padding) or (padding.high > -math.inf and not _is_live(valid)):
            return _of_row(case, fact, region, axis)
        return Interval(0.0, 0.0, _spoils(valid))  # beside a NaN, the whole row is

    out = case.output(fact.tracked, content)
    unordered = NO_NAN if case.op == "Hardmax" else ()
    sizes = [frames.size]
    return case.verdict("SM2", "padded entries are masked before the sum", out, at_least_one=sizes, assumes=unordered)


def is_masked(fact: Fact, axis: int) -> bool:
    """Whether scores in the padding of an axis have no weight already, wherever the other axes are valid."""
    padding = fact.content({axis})
    return _is_deep(padding) and (padding.high == -math.inf or _is_live(fact.valid))


def _is_deep(content: Interval) -> bool:
    return not content.nan and content.high <= DEEP


def _is_live(valid: Interval) -> bool:
    """Whether every valid score is above those that masks use."""
    return not valid.nan and valid.low >= LIVE


def _mask_value(case: Case, fact: Fact) -> float:
    """Return the lowest finite number, or -infinity where that may have weight beside valid scores."""
    lowest = case.lowest()
    return lowest if _is_live(fact.valid) and lowest <= DEEP else -math.inf


def _check_ties(case: Case, fact: Fact, axis: int, frames: Frames) -> None:
    """Refuse a Hardmax, which takes the first of equal largest entries, where padding could be chosen."""
    strictly = fact.valid.low > fact.content({axis}).high
    if not strictly and not (frames.is_suffix_padded and fact.valid.low >= fact.content({axis}).high):
        raise refuse(f"{case.op} over {frames}, where padding could win ties", "keep the scores finite")


def _spoils(valid: Interval) -> bool:
    """Whether valid scores may make their whole row NaN."""
    return valid.nan or valid.high == math.inf or valid.low == -math.inf


def _of_row(case: Case, fact: Fact, region: Region, axis: int) -> Interval:
    """Return bounds of the result: a row with NaN, with +infinity, or of -infinities alone gives NaN."""
    row = everywhere(fact, region, axis)
    nan = row.nan or row.high == math.inf or _spoils(fact.content(region - {axis}))
    if case.op == "Hardmax":
        return Interval(0.0, 1.0)
    if case.op == "Softmax":
        return Interval(0.0, 1.0, nan)
    size = case.dims()[axis]
    count = float(size) if isinstance(size, int) else LONGEST
    low = row.low - row.high - math.log(max(count, 1.0)) if row.is_finite else -math.inf
    return ANYTHING if nan else stored(Interval(low, 0.0), case.dtype())


# Statistics over axes


def layer_normalization(case: Case) -> Verdict:
    """Judge LayerNormalization and RMSNormalization over trailing axes."""
    axes = list(range(case.axis(), case.rank()))
    fact = case.fact()
    for operand in case.present[1:]:
        shift = case.rank() - case.rank(operand)
        for axis in axes:
            if fact.axis(axis) is not None and axis >= shift and case.dims(operand)[axis - shift] != 1:
                raise refuse(f"{case.op} with one parameter per padded entry", "scale after the normalisation")
    return _normalization(case, axes, float_attribute(case, "epsilon", 1e-5))


def instance_normalization(case: Case) -> Verdict:
    """Judge InstanceNormalization over all axes behind the channels."""
    _keep_channels(case)
    return _normalization(case, list(range(2, case.rank())), float_attribute(case, "epsilon", 1e-5))


def group_normalization(case: Case) -> Verdict:
    """Judge GroupNormalization over groups of channels and all axes behind them."""
    _keep_channels(case)
    channels, groups = case.dims()[1], case.int_attribute("num_groups", 1)
    if not isinstance(channels, int) or channels % groups:
        raise refuse(f"{case.op} of {channels} channels in {groups} groups", "use a fixed number of whole groups")
    epsilon = float_attribute(case, "epsilon", 1e-5)
    return _normalization(case, list(range(2, case.rank())), epsilon, channels // groups)


def mean_variance_normalization(case: Case) -> Verdict:
    """Judge MeanVarianceNormalization over the given axes."""
    return _normalization(case, sorted(set(moment_axes(case.node, case.rank()))), 1e-9)


def float_attribute(case: Case, name: str, default: float) -> float:
    """Return a number that an attribute states."""
    value = case.attribute(name, default)
    assert isinstance(value, int | float)
    return float(value)


def _keep_channels(case: Case) -> None:
    if case.fact().axis(1) is not None:
        raise refuse(f"{case.op} of padded channels", "keep frames behind the channels")


def _normalization(case: Case, axes: Sequence[int], epsilon: float, channels: int = 1) -> Verdict:
    """Judge a normalization of operand 0 over some axes, and over `channels` channels together.

    Over a padded axis it is rewritten in the form "normalize".
    """
    if any(not case.fact(operand).is_plain for operand in case.present[1:]):
        raise refuse(f"{case.op} with padded parameters", "use constant parameters")
    if any(output.uses() or output.is_graph_output() for output in case.node.outputs[1:]):
        raise refuse(f"{case.op} whose mean or deviation is read", "compute them with reductions")
    sizes = averaged_sizes(case, axes)
    count = channels * math.prod(float(dim) if isinstance(dim := case.dims()[axis], int) else LONGEST for axis in axes)
    if not sizes:
        fact = case.fact()
        one_pass = case.op in ONE_PASS
        out = case.output(
            fact.tracked,
            lambda region: ANYTHING if one_pass else _normalized(case, fact.content(region), count, epsilon),
        )
        return case.verdict("NM1", "normalises over other axes", out, pointwise=True)
    for axis in sizes:
        case.fill(0, axis, 0.0)
    for axis in axes:
        case.refuse_rows(0, axis, "normalises over")  # a fill may have given a shared value its rows
    check_rows(case)
    fact = case.fact()
    case.rewrite("normalize", tuple(axes))

    def content(region: Region) -> Interval:
        entries = _normalized(case, iv.hull(ZERO, fact.content(region - set(axes))), count, epsilon)
        if not entries.is_finite or not region & set(axes):
            return entries
        return case.fact(2).valid if case.has(2) else ZERO  # entries without their mean are zero there

    out = case.output(fact.tracked, content)
    return case.verdict("NM2", "statistics over valid entries alone", out, at_least_one=sizes.values())


def _normalized(case: Case, row: Interval, count: float, epsilon: float) -> Interval:
    """Return bounds of a normalized row, sqrt(count) * |scale| + |bias|: a square is at most the sum of squares."""
    scale = case.fact(1).valid.magnitude if case.has(1) else 1.0
    bias = case.fact(2).valid.magnitude if case.has(2) else 0.0
    bound = stored(iv.bounded(math.sqrt(count) * scale + bias), case.dtype())
    overflows = row.magnitude * count > iv.LARGEST / 4 or case.dtype().bitwidth < 32
    return ANYTHING if overflows or not epsilon > 1e-30 or not bound.is_finite else bound


# Normalisations of other kinds


def batch_normalization(case: Case) -> Verdict:
    """Judge BatchNormalization at inference: scale and shift per channel."""
    if case.int_attribute("training_mode", 0):
        raise refuse("BatchNormalization in training mode", "export the model in evaluation mode")
    if any(not case.fact(operand).is_plain for operand in range(1, 5)):
        raise refuse("BatchNormalization with padded parameters", "use constant parameters")
    _keep_channels(case)
    fact, dtype = case.fact(), case.dtype()
    line = _scale_and_shift(case)

    def content(region: Region) -> Interval:
        x = fact.content(region)
        if line is None or not x.is_finite:
            return ANYTHING
        slope, shift, loss = line
        ends = np.concatenate([slope * x.low + shift, slope * x.high + shift])
        room = 1e-6 * (x.magnitude * np.abs(slope).max() + loss)
        held = stored(Interval(float(ends.min() - room), float(ends.max() + room)), dtype)
        return held if held.is_finite else ANYTHING

    return case.verdict("NM3", "scale and shift per channel", case.output(fact.tracked, content), pointwise=True)


def _scale_and_shift(case: Case) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return slope and shift of every channel, and the largest term of the shift, which rounding depends on."""
    arrays = [array.astype(np.float64) for at in range(1, 5) if (array := case.array(at)) is not None]
    if len(arrays) < 4 or arrays[0].size == 0:
        return None
    scale, bias, mean, variance = arrays
    with np.errstate(all="ignore"):
        slope = scale / np.sqrt(variance + float_attribute(case, "epsilon", 1e-5))
        shift = bias - mean * slope
    loss = float((np.abs(bias) + np.abs(mean * slope)).max())
    return (slope, shift, loss) if np.isfinite(slope).all() and math.isfinite(loss) else None


def lp_normalization(case: Case) -> Verdict:
    """Judge LpNormalization: along a padded axis the padding must be zero."""
    axis = case.axis()
    frames = case.simple_frames(0, axis)
    if frames is None:
        out = case.output(case.fact().tracked, lambda region: ANYTHING)
        return case.verdict("NM4", "over another axis", out, pointwise=True)
    if not case.fact().content({axis}).is_zero:
        case.fill(0, axis, 0.0)
    out = case.output(case.fact().tracked, lambda region: ANYTHING)
    return case.verdict("NM4", "zero adds nothing to the norm", out, at_least_one=[frames.size])


def local_response_normalization(case: Case) -> Verdict:
    """Judge LRN, over neighbouring channels."""
    _keep_channels(case)
    alpha, beta, bias = (
        float_attribute(case, *named_default) for named_default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    fact, dtype = case.fact(), case.dtype()

    def content(region: Region) -> Interval:
        x = fact.content(region)
        if not x.is_finite or not (alpha >= 0 and beta >= 0 and bias > 1e-6) or x.magnitude > 1e15:
            return ANYTHING
        return stored(iv.bounded(x.magnitude / bias**beta), dtype)

    return case.verdict("NM5", "over channels", case.output(fact.tracked, content), pointwise=True)


TABLE: Table = {
    ("", "Softmax"): Versioned(on_data(softmax), since=13),
    ("", "LogSoftmax"): Versioned(on_data(softmax), since=13),
    ("", "Hardmax"): Versioned(on_data(softmax), since=13),
    ("", "LayerNormalization"): on_data(layer_normalization),
    ("", "RMSNormalization"): on_data(layer_normalization),
    ("", "SimplifiedLayerNormalization"): on_data(layer_normalization),
    ("", "InstanceNormalization"): on_data(instance_normalization),
    ("", "GroupNormalization"): on_data(group_normalization),
    ("", "BatchNormalization"): on_data(batch_normalization),
    ("", "MeanVarianceNormalization"): on_data(mean_variance_normalization),
    ("", "LpNormalization"): on_data(lp_normalization),
    ("", "LRN"): on_data(local_response_normalization),
}
