"""Rules RD: reductions, cumulative sums and selections of extremes."""

import math

from compiler.analysis import interval as iv
from compiler.analysis.case import Case, everywhere
from compiler.analysis.facts import Fact, Region, Verdict, refuse
from compiler.analysis.interval import ANYTHING, Interval
from compiler.analysis.layout import Axis
from compiler.analysis.registry import Table

AVERAGES = ("ReduceMean", "GlobalAveragePool")
"""Operators that divide by the number of entries."""

MOST = 2.0**24
"""Entries that a reduction over an axis of symbolic size is taken to have at most."""


def _axes(case: Case) -> list[int]:
    """The reduced axes, from the attribute (before opset 18) or the input; pools reduce all spatial axes."""
    rank = case.rank()
    if case.op in ("GlobalAveragePool", "GlobalMaxPool"):
        return list(range(2, rank))
    listed = case.ints_attribute("axes")
    if case.has(1):
        listed = case.constants(1, "axes")
    if not listed:
        return [] if case.int_attribute("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({axis % rank for axis in listed})


def _neutral(case: Case) -> float:
    """What padding must hold so that the reduction does not see it."""
    match case.op:
        case "ReduceProd":
            return 1.0
        case "ReduceMax" | "ReduceLogSumExp" | "GlobalMaxPool":
            return case.lowest()
        case "ReduceMin":
            return case.highest()
    return 0.0


def reduce(case: Case) -> Verdict:
    """Reduction over padded axes, after filling with what is neutral, or over others."""
    reduced = _axes(case)
    padded = {axis: size for axis in reduced if (size := case.reduced_size(0, axis)) is not None}
    neutral = _neutral(case)
    for axis in padded:
        case.fill(0, axis, neutral)
    if case.op in AVERAGES and padded:
        case.rewrite("mean", tuple(reduced))
    fact = case.fact()
    keep = bool(case.int_attribute("keepdims", 1))
    kept = [axis for axis in range(case.rank()) if axis not in reduced]
    place = {axis: (axis if keep else kept.index(axis)) for axis in kept}
    back = {new: old for old, new in place.items()}
    axes: dict[int, Axis] = {place[at]: axis for at, axis in fact.axes if at in place}
    count = math.prod(float(d) if isinstance(d, int) else MOST for d in (case.dims()[at] for at in reduced))

    def content(region: Region) -> Interval:
        here = frozenset(back[at] for at in region)
        row = _over(fact, here, [at for at in reduced if at in fact.padded])
        if case.op in AVERAGES and padded and region:
            return ANYTHING
        return _transfer(case.op, row, count)

    out = case.output(axes, content)
    sizes = list(padded.values())
    if padded:
        needs = case.op != "ReduceSum"
        return case.verdict("RD2", "padding is neutral or left out", out, at_least_one=sizes if needs else ())
    return case.verdict("RD1", "reduces other axes", out, pointwise=True)


def _over(fact: Fact, region: Region, along: list[int]) -> Interval:
    regions = [region]
    for at in along:
        regions += [each | {at} for each in regions]
    return iv.hull(*(fact.content(each) for each in regions))


def _transfer(op: str, row: Interval, count: float) -> Interval:
    if op in ("ReduceMax", "ReduceMin", "GlobalMaxPool", *AVERAGES):
        return row if not row.nan and (op not in AVERAGES or row.magnitude * count < iv.LARGEST) else ANYTHING
    if not row.is_finite:
        return ANYTHING
    if op == "ReduceSum":
        low, high = min(row.low * count, 0.0), max(row.high * count, 0.0)
        return Interval(low, high)
    if op == "ReduceL1":
        return Interval(0.0, row.magnitude * count)
    if op == "ReduceL2":
        return Interval(0.0, row.magnitude * math.sqrt(count)) if row.magnitude < 1e15 else ANYTHING
    if op == "ReduceSumSquare":
        return Interval(0.0, row.magnitude**2 * count) if row.magnitude < 1e15 else ANYTHING
    if op == "ReduceLogSumExp":
        return Interval(row.low, row.high + math.log(count))
    return ANYTHING


def arg_extreme(case: Case) -> Verdict:
    """ArgMax, ArgMin over a suffix-padded axis: a fill that cannot win, nor a tie, which goes to the first."""
    axis = case.axis_attribute("axis", 0)
    frames = case.simple_frames(0, axis)
    if frames is not None:
        if not frames.is_suffix_padded or case.int_attribute("select_last_index", 0):
            raise refuse(
                f"{case.op} over {frames}, where padding could win ties", "take the first index, suffix-padded"
            )
        case.fill(0, axis, case.lowest() if case.op == "ArgMax" else case.highest())
    fact = case.fact()
    case.refuse_rows(0, axis, "searches")
    keep = bool(case.int_attribute("keepdims", 1))
    kept = [at for at in range(case.rank()) if at != axis]
    place = {at: (at if keep else kept.index(at)) for at in kept}
    axes = {place[at]: layout for at, layout in fact.axes if at in place}
    dim = case.dims()[axis]
    top = float(dim) - 1 if isinstance(dim, int) else MOST
    out = case.output(axes, lambda region: Interval(0.0, top))
    if frames is None:
        return case.verdict("RD5", "searches another axis", out, pointwise=True)
    return case.verdict("RD5", "padding never wins", out, at_least_one=[frames.size])


def top_k(case: Case) -> Verdict:
    """TopK along an axis that is not padded."""
    axis = case.axis_attribute("axis", -1)
    if case.simple_frames(0, axis) is not None:
        raise refuse("TopK over a padded axis", "search in a fixed number of entries")
    case.constants(1, "k")
    fact = case.fact()
    values = case.output(fact.tracked, lambda region: everywhere(fact, region, axis))
    indices = case.output(fact.tracked, lambda region: Interval(0.0, MOST))
    return case.verdict("RD6", "sorts another axis", values, indices, pointwise=True)


def cumulative_sum(case: Case) -> Verdict:
    """CumSum: forward along suffix padding nothing is needed; from the other side the padding must be zero."""
    (axis,) = (at % case.rank() for at in case.constants(1, "axis"))
    frames = case.simple_frames(0, axis)
    reverse = bool(case.int_attribute("reverse", 0))
    if frames is not None:
        padding_is_last = frames.is_suffix_padded
        padding_is_first = frames.is_prefix_padded
        if not (padding_is_last and not reverse) and not (padding_is_first and reverse):
            case.fill(0, axis, 0.0)
    fact = case.fact()

    def content(region: Region) -> Interval:
        row = everywhere(fact, region, axis)
        return iv.hull(iv.ZERO, iv.bounded(row.magnitude * MOST)) if row.is_finite else ANYTHING

    out = case.output(fact.tracked, content)
    return case.verdict("RN3", "sums run from the valid side", out, pointwise=frames is None)


REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

TABLE: Table = {
    **{("", op): reduce for op in REDUCTIONS},
    ("", "GlobalAveragePool"): reduce,
    ("", "GlobalMaxPool"): reduce,
    ("", "ArgMax"): arg_extreme,
    ("", "ArgMin"): arg_extreme,
    ("", "TopK"): top_k,
    ("", "CumSum"): cumulative_sum,
}
