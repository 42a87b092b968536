"""Proves how padding and batching act on reductions, ArgMax, ArgMin, TopK and running sums (rules RD and RN3)."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.model import Dim
from compiler.graph.operators.reductions import Reduction, reduction_of
from compiler.graph.operators.traits import GLOBAL_POOLS
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case, everywhere
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import NO_NAN, Fact, Index, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, LONGEST, ONE, ZERO, Interval
from compiler.proof.facts.layout import Frames
from compiler.proof.facts.registry import Table
from compiler.proof.facts.transfer import limits_of, stored

AVERAGES = ("GlobalAveragePool", "ReduceMean")
"""Operators that divide by the number of entries."""

DEFINED_OF_NOTHING = ("GlobalLpPool", "ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "ReduceSumSquare")
"""Reductions that have a result without any entry."""

LARGEST_OF = ("GlobalMaxPool", "ReduceMax")
EXTREMES = (*LARGEST_OF, "ReduceMin")
REDUCTIONS = (
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip

DEEP, LIVE = -1.0e30, -1.0e29
"""Numbers at or below the first have an exponential of exactly 0 next to one at or above the second."""


# Reductions


def reduce(case: Case) -> Verdict:
    """Judge a reduction: padding of reduced axes is filled with a neutral entry."""
    if case.op == "GlobalLpPool" and case.int_attribute("p", 2) < 1:
        raise refuse(f"{case.op} with p below 1, of which 0 is no neutral entry", "use p of 1 or more")
    view, mean = _view(case), case.op in AVERAGES
    reduced = view.axes
    sizes = averaged_sizes(case, reduced) if mean else padded_sizes(case, reduced)
    for axis in sizes:
        regions = _paddings(case.fact(), reduced, axis)
        if not all(_is_neutral(case, case.fact().valid, case.fact().content(region)) for region in regions):
            case.fill(0, axis, _neutral(case))
    for axis in reduced:
        case.refuse_rows(0, axis, "reduces over")  # a fill may have given a shared value its rows
    if mean and sizes:
        check_rows(case)
        case.rewrite("mean", reduced)
    fact = case.fact()
    back = view.kept

    def content(region: Region) -> Interval:
        here = frozenset(back[axis] for axis in region)
        valid = fact.content(here)
        paddings = [fact.content(here | padding) for padding in _paddings(fact, reduced)]
        seen = [padding for padding in paddings if not _is_neutral(case, valid, padding)]
        return _reduced(case, iv.hull(valid, *seen), reduced, is_mean_of_more=mean and bool(seen))

    axes = {axis: layout for axis in back if (layout := fact.axis(back[axis])) is not None}
    out = case.output(axes, content)
    unordered = NO_NAN if case.op in EXTREMES and (sizes or _takes_two_ways(case, reduced)) else ()
    if not sizes:
        return case.verdict("RD1", "reduces other axes", out, pointwise=True, assumes=unordered)
    needed = () if case.op in DEFINED_OF_NOTHING and not _has_least(case) else sizes.values()
    return case.verdict("RD2", "padding is neutral or left out", out, at_least_one=needed, assumes=unordered)


def _takes_two_ways(case: Case, reduced: Sequence[int]) -> bool:
    """Whether kernels compare entries in another order where there is one row, as entries lie behind the reduced axes.

    Which of several numbers is the largest does not depend on the order; NaN does.
    """
    dims, front = case.dims(), range(min(reduced, default=0))
    behind = [dims[axis] for axis in range(case.rank()) if axis not in reduced and axis not in front]
    is_one_alone = all(dims[axis] == 1 or case.fact().axis(axis) is not None for axis in front)
    return (
        is_one_alone and any(case.fact().axis(axis) is not None for axis in front) and any(dim != 1 for dim in behind)
    )


def _has_least(case: Case) -> bool:
    """Whether a sum is known to be above 0, if it has an entry."""
    return case.op == "ReduceSum" and case.fact().valid.low > 0


def _view(case: Case) -> Reduction:
    """Return the reduced and the remaining axes.

    Raises:
        Refused: the axes are computed, or none is named.
    """
    view = reduction_of(case.node, lambda value: case.constants(1, "axes"), case.rank())
    if view is None or not (view.axes or case.op in GLOBAL_POOLS or not view.rank):
        raise refuse(f"{case.op} over no axis", "name the axes to reduce, or leave the operator out")
    return view


def padded_sizes(case: Case, axes: Sequence[int]) -> dict[int, Dim]:
    """Return the sizes of the padded ones among some axes of operand 0.

    Raises:
        Refused: one of them holds the batch.
    """
    return {axis: size for axis in axes if (size := case.reduced_size(0, axis)) is not None}


def averaged_sizes(case: Case, axes: Sequence[int]) -> dict[int, Dim]:
    """Return the sizes of the padded axes among those that a mean reduces.

    Raises:
        Refused: one of them holds the batch, or the size of another one is unknown.
    """
    sizes = padded_sizes(case, axes)
    for axis in axes:
        if sizes and axis not in sizes and not isinstance(case.dims()[axis], int):
            raise refuse(
                f"{case.op} counts padded entries next to {case.dims()[axis]} others", "reduce one axis at a time"
            )
    return sizes


def check_rows(case: Case) -> None:
    """Refuse to count entries per row of a value that all rows share.

    Raises:
        Refused: the value has no axis of the batch.
    """
    if case.batch is not None and case.fact().rows_axis is None:
        raise refuse(f"{case.op} averages a value that all rows share", "give the value a batch axis")


def _paddings(fact: Fact, reduced: Sequence[int], axis: int | None = None) -> list[Region]:
    """Return the regions in the padding of reduced axes alone, or of one of them."""
    padded = [at for at in fact.padded if at in reduced]
    subsets = itertools.chain.from_iterable(itertools.combinations(padded, n) for n in range(1, len(padded) + 1))
    return [frozenset(each) for each in subsets if axis is None or axis in each]


def _is_neutral(case: Case, valid: Interval, padding: Interval) -> bool:
    """Whether padding does not change the reduction of valid entries."""
    match case.op:
        case "ReduceProd":
            return padding == ONE
        case "ReduceMax" | "GlobalMaxPool":
            return not padding.nan and padding.high <= valid.low
        case "ReduceMin":
            return not padding.nan and padding.low >= valid.high
        case "ReduceLogSumExp":
            far = padding.high == -math.inf or (padding.high <= DEEP and valid.low >= LIVE)
            return far and not padding.nan and case.dtype().is_floating_point()
    return padding.is_zero


def _neutral(case: Case) -> float:
    """Return the neutral entry of the reduction, for padding."""
    match case.op:
        case "ReduceProd":
            return 1.0
        case "ReduceMax" | "GlobalMaxPool" | "ReduceLogSumExp":
            return loser(case, largest=True)
        case "ReduceMin":
            return loser(case, largest=False)
    return 0.0


def loser(case: Case, *, largest: bool) -> float:
    """Return a number that no valid entry is beyond: the type's lowest (highest) where the largest (smallest) wins."""
    dtype, valid = case.dtype(), case.fact().valid
    if not dtype.is_floating_point():
        limits = limits_of(dtype)
        assert limits is not None
        if dtype.bitwidth < 64:
            return limits.low if largest else limits.high
        ends = np.iinfo(dtype.numpy())
        return int(ends.min if largest else ends.max)  # 2^63 - 1 is no float
    end = case.lowest() if largest else case.highest()
    deep_enough = case.op != "ReduceLogSumExp" or end <= DEEP
    return end if valid.is_finite and deep_enough else -math.inf if largest else math.inf


def _reduced(case: Case, row: Interval, reduced: Sequence[int], is_mean_of_more: bool) -> Interval:
    """Return bounds of a reduced row; a mean may divide by fewer entries than it sums."""
    op, dtype = case.op, case.dtype()
    if op in EXTREMES:
        return row
    if not row.is_finite:
        return ANYTHING
    dims = [case.dims()[axis] for axis in reduced]
    count = math.prod(float(dim) if isinstance(dim, int) else LONGEST for dim in dims)
    if op in AVERAGES:
        small = _held(case, iv.bounded(row.magnitude * count))
        if row.is_zero or is_mean_of_more or not small.is_finite:
            return ZERO if row.is_zero else small
        return small if limits_of(dtype) == small else stored(row, dtype)
    if op == "ReduceProd" and row.magnitude <= 1:
        return row if row == ONE else Interval(0.0 if row.low >= 0 else -1.0, 1.0)
    is_exact = all(isinstance(dim, int) and dim > 0 for dim in dims)
    return _held(case, _summed(op, row, count, is_exact))


def _held(case: Case, result: Interval) -> Interval:
    """Return bounds of a sum as stored in its type; unbounded where a partial sum may overflow."""
    held = stored(result, case.dtype())
    return held if held.is_finite or result.low >= 0 or not case.dtype().is_floating_point() else ANYTHING


def _summed(op: str, row: Interval, count: float, is_exact: bool) -> Interval:
    """Return bounds of the reduction of exactly, or of at most, `count` entries."""
    most = row.magnitude
    match op:
        case "ReduceSum":
            low, high = row.low * count, row.high * count
            if not is_exact:  # of positive entries there is one
                return Interval(row.low if row.low > 0 else min(low, 0.0), max(high, 0.0))
            whole = row.is_constant and abs(low) < 2**24 and row.low == int(row.low)
            return iv.constant(low) if whole else Interval(math.nextafter(low, -math.inf), high)
        case "ReduceL1":
            return Interval(0.0, most * count)
        case "ReduceL2":
            return Interval(0.0, most * math.sqrt(count) if most**2 * count < iv.LARGEST else math.inf)
        case "ReduceSumSquare":
            return Interval(0.0, most**2 * count)
        case "ReduceLogSumExp":
            return Interval(row.low, row.high + math.log(max(count, 1.0)))
    return ANYTHING


# Extremes


def arg_extreme(case: Case) -> Verdict:
    """Judge ArgMax, ArgMin over a suffix-padded axis: padding must lose, ties too, which go to the first entry.

    Where ties go to the last entry, padding may tie with infinities alone, and then gives the last valid entry.
    """
    axis = case.axis()
    frames = case.simple_frames(0, axis)
    largest = case.op == "ArgMax"
    if frames is not None:
        last = bool(case.int_attribute("select_last_index", 0))
        _let_padding_lose(case, axis, frames, largest=largest, ties=not last)
        if last and not _is_apart(case, axis, largest=largest):
            check_rows(case)
            case.rewrite("last_index", axis)
    back = _view(case).kept
    fact = case.fact()
    axes = {result_axis: layout for result_axis in back if (layout := fact.axis(back[result_axis])) is not None}
    out = case.output(axes, lambda region: Interval(0.0, _most(case, axis)))
    if frames is None:
        return case.verdict("RD5", "searches another axis", out, pointwise=True)
    assumes = NO_NAN if case.int_attribute("select_last_index", 0) else ()
    return case.verdict("RD5", "padding never wins", out, at_least_one=[frames.size], assumes=assumes)


def _most(case: Case, axis: int) -> float:
    """Return the largest index along an axis."""
    size = case.dims()[axis]
    return max(float(size) - 1, 0.0) if isinstance(size, int) else LONGEST


def _let_padding_lose(case: Case, axis: int, frames: Frames, *, largest: bool, ties: bool = True) -> None:
    """Fill padding of a suffix-padded axis so that it loses a search for the largest or smallest entries, or ties.

    Args:
        case: the node.
        axis: the axis.
        frames: its layout.
        largest: whether the largest entries are searched.
        ties: whether padding may tie.

    Raises:
        Refused: positions differ from those without padding.
    """
    if not frames.is_suffix_padded:
        raise refuse(f"{case.op} over {frames}, where entries have other positions", "search an axis padded at its end")
    if not _is_apart(case, axis, largest=largest, ties=ties):
        case.fill(0, axis, loser(case, largest=largest))


def _is_apart(case: Case, axis: int, *, largest: bool, ties: bool = False) -> bool:
    """Whether every valid entry beats the padding of an axis, or ties with it."""
    valid, padding = case.fact().valid, case.fact().content({axis})
    if padding.nan or (valid.nan and not math.isinf(padding.low)):
        return False
    beats = padding.high < valid.low if largest else padding.low > valid.high
    return beats or (ties and (padding.high == valid.low if largest else padding.low == valid.high))


def top_k(case: Case) -> Verdict:
    """Judge TopK: along a suffix-padded axis padding must lose, and at least k entries must be valid."""
    axis = case.axis()
    frames = case.simple_frames(0, axis)
    (count,) = case.constants(1, "k")
    largest = bool(case.int_attribute("largest", 1))
    if frames is not None:
        if not case.int_attribute("sorted", 1):
            raise refuse("TopK in no order over a padded axis", "let it sort")
        _let_padding_lose(case, axis, frames, largest=largest)
    fact = case.fact()
    axes = {other_axis: layout for other_axis, layout in fact.axes if other_axis != axis}
    values = case.output(axes, lambda region: everywhere(fact, region, axis) if region or not frames else fact.valid)
    indices = case.output(axes, lambda region: Interval(0.0, _most(case, axis)))
    if frames is None:
        return case.verdict("RD6", "sorts another axis", values, indices, pointwise=True)
    return case.verdict("RD6", "padding comes last", values, indices, at_least_one=[frames.size - (count - 1)])


# Sums so far


def cumulative_sum(case: Case) -> Verdict:
    """Judge CumSum: from the valid side nothing is needed; from the other side the padding must be zero."""
    axis = case.axis()
    frames = case.simple_frames(0, axis)
    reverse, exclusive = bool(case.int_attribute("reverse", 0)), bool(case.int_attribute("exclusive", 0))
    valid_first = frames is None or (frames.is_prefix_padded if reverse else frames.is_suffix_padded)
    if not valid_first and not case.fact().content({axis}).is_zero:
        case.fill(0, axis, 0.0)
    fact, dtype = case.fact(), case.dtype()
    size = case.dims()[axis]
    count = float(size) if isinstance(size, int) else LONGEST

    def content(region: Region) -> Interval:
        row = fact.content(region) if valid_first and axis not in region else everywhere(fact, region, axis)
        row = iv.hull(row, ZERO) if exclusive else row
        if not row.is_finite:
            return ANYTHING
        held = stored(Interval(min(row.low * count, row.low), max(row.high * count, row.high)), dtype)
        return held if held.is_finite or not dtype.is_floating_point() else ANYTHING

    counts = frames is not None and frames.is_suffix_padded and not reverse and fact.anywhere == ONE
    index = Index(axis, 0 if exclusive else 1) if counts else None
    out = case.output(fact.tracked, content, index)
    return case.verdict("RN3", "sums run from the valid side", out, pointwise=frames is None)


TABLE: Table = {
    **{("", op): on_data(reduce) for op in REDUCTIONS},
    ("", "ArgMax"): on_data(arg_extreme),
    ("", "ArgMin"): on_data(arg_extreme),
    ("", "TopK"): on_data(top_k),
    ("", "CumSum"): on_data(cumulative_sum),
}
