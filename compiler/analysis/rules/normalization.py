"""Rules SM and NM: softmax and the normalisations."""

import math

from compiler.analysis import interval as iv
from compiler.analysis.case import Case, everywhere
from compiler.analysis.facts import Fact, Region, Verdict, refuse
from compiler.analysis.interval import ANYTHING, ZERO, Interval, hull
from compiler.analysis.registry import Table

DEEP = -1.0e30
"""Scores at or below are masked: with valid scores above -2**40 their exponential is exactly 0."""


def softmax(case: Case) -> Verdict:
    """Softmax, LogSoftmax, Hardmax: over a padded axis the padding has to be masked; over another nothing is needed.

    Where the model masks on its own account a row may hold nothing but masked entries, over which softmax is uniform:
    then only minus infinity is below all of them.
    """
    axis = case.axis_attribute("axis", -1)
    case.refuse_rows(0, axis, "normalises over")
    frames = case.simple_frames(0, axis)
    fact = case.fact()
    if frames is None:
        out = case.output(fact.tracked, lambda region: _result(case, everywhere(fact, region, axis)))
        return case.verdict("SM1", "over another axis", out, pointwise=True)
    if not _is_masked(fact, frozenset(), axis):
        fact = case.fill(0, axis, case.lowest() if _is_live(fact.valid) else -math.inf)

    def content(region: Region) -> Interval:
        others = frozenset(region) - {axis}
        valid = fact.content(others)
        row = hull(valid, fact.content(others | {axis}))
        if valid.nan or row.nan or row.high == math.inf or valid.low == -math.inf:
            return Interval(-math.inf if case.op == "LogSoftmax" else 0.0, 1.0, True)
        if axis in region and case.op != "LogSoftmax" and _is_masked(fact, others, axis):
            return ZERO
        return Interval(-math.inf, 0.0) if case.op == "LogSoftmax" else Interval(0.0, 1.0)

    reason = "padded entries are masked before the sum"
    return case.verdict("SM2", reason, case.output(fact.tracked, content), at_least_one=[frames.size])


def _is_live(valid: Interval) -> bool:
    """Whether no entry can be a masked one."""
    return not valid.nan and valid.low >= -iv.ASSUMED


def _is_masked(fact: Fact, others: Region, axis: int) -> bool:
    """Whether the padding along an axis has exponentials of exactly 0 next to any entry that may be valid."""
    padding = fact.content(others | {axis})
    deep = not padding.nan and padding.high <= DEEP
    return padding == Interval(-math.inf, -math.inf) or (deep and _is_live(fact.content(others)))


def _result(case: Case, row: Interval) -> Interval:
    """The range of the result: a row that is not finite gives NaN."""
    low = -math.inf if case.op == "LogSoftmax" else 0.0
    clean = not row.nan and row.high < math.inf and row.low > -math.inf
    return Interval(low, 0.0 if case.op == "LogSoftmax" else 1.0, not clean)


def layer_normalization(case: Case) -> Verdict:
    """LayerNormalization and RMSNormalization over trailing axes; over padded ones in the form "normalize"."""
    first = case.axis_attribute("axis", -1)
    normalized = list(range(first, case.rank()))
    return _normalization(case, normalized, _parameter_bound(case, math.prod(_sizes(case, normalized))))


def _sizes(case: Case, axes: list[int]) -> list[float]:
    dims = case.dims()
    return [float(dim) if isinstance(dim, int) else 2.0**24 for dim in (dims[at] for at in axes)]


def _parameter_bound(case: Case, count: float) -> float:
    """sqrt(D) * max|scale| + max|bias|, the largest value of D normalised entries."""
    scale = case.fact(1).valid.magnitude if case.has(1) else 1.0
    bias = case.fact(2).valid.magnitude if case.has(2) else 0.0
    return math.sqrt(count) * scale + bias


def _normalization(case: Case, normalized: list[int], bound: float) -> Verdict:
    """A normalisation over the given axes of operand 0; scale and bias are constants."""
    if any(case.fact(operand).axes or case.fact(operand).is_number for operand in case.present[1:]):
        raise refuse(f"{case.op} with padded parameters", "use constant parameters")
    if any(output.uses() or output.is_graph_output() for output in case.node.outputs[1:]):
        raise refuse(f"{case.op} whose mean or deviation is read", "compute them with reductions")
    sizes = [size for axis in normalized if (size := case.reduced_size(0, axis)) is not None]
    padded = [axis for axis in normalized if case.fact().axis(axis) is not None]
    for axis in padded:
        case.fill(0, axis, 0.0)
    fact = case.fact()
    epsilon = case.attribute("epsilon", 1e-5)
    positive = isinstance(epsilon, float) and epsilon > 1e-30

    def content(region: Region) -> Interval:
        row = fact.content(region)
        for axis in normalized:
            row = iv.hull(row, everywhere(fact, region, axis))
        return iv.bounded(bound) if row.magnitude < 1e18 and positive else ANYTHING

    if padded:
        case.rewrite("normalize", tuple(normalized))
        out = case.output(fact.tracked, lambda region: ANYTHING if region else iv.ACTIVATION)
        return case.verdict("NM2", "statistics over valid entries alone", out, at_least_one=sizes)
    return case.verdict("NM1", "normalises over other axes", case.output(fact.tracked, content), pointwise=True)


def instance_normalization(case: Case) -> Verdict:
    """InstanceNormalization: over all axes behind the channels."""
    _no_channels(case)
    return _normalization(
        case, list(range(2, case.rank())), _parameter_bound(case, math.prod(_sizes(case, list(range(2, case.rank())))))
    )


def group_normalization(case: Case) -> Verdict:
    """GroupNormalization: over channels in groups and all axes behind."""
    _no_channels(case)
    axes = list(range(2, case.rank()))
    return _normalization(case, axes, _parameter_bound(case, math.prod(_sizes(case, [1, *axes]))))


def _no_channels(case: Case) -> None:
    found = case.fact().axis(1)
    if found is not None:
        raise refuse(f"{case.op} of padded channels", "keep frames behind the channels")


def batch_normalization(case: Case) -> Verdict:
    """BatchNormalization at inference: scale and shift per channel."""
    if case.int_attribute("training_mode", 0):
        raise refuse("BatchNormalization in training mode", "export the model in evaluation mode")
    _no_channels(case)
    fact = case.fact()
    arrays = [case.array(operand) for operand in range(1, 5)]
    if any(array is None for array in arrays):
        raise refuse("BatchNormalization with computed parameters", "use constant parameters")
    scale, bias, mean, variance = (array for array in arrays if array is not None)
    epsilon = case.attribute("epsilon", 1e-5)
    factor = abs(scale) / (variance + (epsilon if isinstance(epsilon, float) else 0.0)) ** 0.5
    slope, shift = float(factor.max()), float((abs(bias) + abs(mean) * factor).max())

    def content(region: Region) -> Interval:
        x = fact.content(region)
        return iv.bounded(x.magnitude * slope + shift) if x.is_finite and math.isfinite(slope + shift) else ANYTHING

    return case.verdict("NM3", "scale and shift per channel", case.output(fact.tracked, content), pointwise=True)


def lp_normalization(case: Case) -> Verdict:
    """LpNormalization: over a padded axis the padding has to be zero."""
    axis = case.axis_attribute("axis", -1)
    frames = case.simple_frames(0, axis)
    if frames is not None:
        case.fill(0, axis, 0.0)
    fact = case.fact()
    out = case.output(fact.tracked, lambda region: ANYTHING)
    sizes = [] if frames is None else [frames.size]
    return case.verdict("NM4", "zero adds nothing to the norm", out, pointwise=frames is None, at_least_one=sizes)


TABLE: Table = {
    ("", "Softmax"): softmax,
    ("", "LogSoftmax"): softmax,
    ("", "Hardmax"): softmax,
    ("", "LayerNormalization"): layer_normalization,
    ("", "RMSNormalization"): layer_normalization,
    ("", "SimplifiedLayerNormalization"): layer_normalization,
    ("", "InstanceNormalization"): instance_normalization,
    ("", "GroupNormalization"): group_normalization,
    ("", "BatchNormalization"): batch_normalization,
    ("", "LpNormalization"): lp_normalization,
}
