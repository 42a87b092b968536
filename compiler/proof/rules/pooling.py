"""Proves how padding and batching act on max, average and Lp pooling over windows (rules PL).

Rule ids: PL1 maxima, PL2 averages, PL3 norms; the padding holds a neutral number, or is not counted.
"""

import math

from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NO_NAN, Assumption, Fact, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.layout import Axis
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.rules.convolution import largest_sum
from compiler.proof.rules.kernel_windows import Slid, Window, regions_read, slide, windows_of


def max_pool(case: Case) -> Verdict:
    """Judge MaxPool: padding that is read holds the lowest number."""
    if len(case.node.outputs) > 1 and (case.node.outputs[1].uses() or case.node.outputs[1].is_graph_output()):
        raise refuse("MaxPool whose indices are read: they count slots", "compute indices by ArgMax")
    windows, slid = _windows(case)
    least = case.lowest()
    neutral = -math.inf if case.dtype().is_floating_point() else least
    for axis, slide_of_axis in slid.items():
        if slide_of_axis.sees_padding:
            case.fill(0, axis, neutral)
    fact, sliding = case.fact(), _sliding(windows, slid)

    def content(region: Region) -> Interval:
        read = iv.hull(*(fact.content(region_read) for region_read in regions_read(fact, region, sliding)))
        return ANYTHING if read.nan else iv.hull(read, iv.constant(least)) if read.low < least else read

    padded_out = any(window.begin or window.end is None or window.end or window.ceil for window in windows)

    def with_empty(region: Region) -> Interval:
        """Return the interval of a region; a position in the padding may read no entry at all."""
        return iv.hull(content(region), iv.constant(least)) if region and padded_out else content(region)

    out = case.output(_axes(fact, slid), with_empty)
    ordered = not fact.anywhere.nan  # which of NaN and a number is the larger depends on where they lie
    unordered = NO_NAN if sliding else ()
    return _verdict(case, "PL1", windows, slid, out, pointwise=ordered, assumes=unordered)


def average_pool(case: Case) -> Verdict:
    """Judge AveragePool: valid entries are divided by their number; a count of slots is replaced."""
    windows, slid = _windows(case)
    counts_all = bool(case.int_attribute("count_include_pad", 0))
    again = []
    for axis, slide_of_axis in slid.items():
        window = windows[axis - 2]
        if slide_of_axis.sees_padding:
            if counts_all and window.overruns(case.dims()[axis]):
                raise refuse(
                    "AveragePool in ceil mode that counts padding divides the last place by how far it hangs over",
                    "set count_include_pad or ceil_mode to 0",
                )
            case.fill(0, axis, 0.0)
            if not counts_all:
                again.append(axis)
    if again:
        case.rewrite("average_pool", tuple(again))
    fact, sliding = case.fact(), _sliding(windows, slid)
    count = math.prod(window.kernel for window in windows)
    zeros = bool(again) or (counts_all and any(window.begin or window.end is None or window.end for window in windows))

    def content(region: Region) -> Interval:
        read = iv.hull(*(fact.content(region_read) for region_read in regions_read(fact, region, sliding)))
        if not read.is_finite or read.magnitude * count > largest_sum(case):
            return ANYTHING
        return iv.hull(read, ZERO) if zeros else read

    return _verdict(case, "PL2", windows, slid, case.output(_axes(fact, slid), content))


def lp_pool(case: Case) -> Verdict:
    """Judge LpPool: zeros add nothing to a norm."""
    windows, slid = _windows(case)
    for axis, slide_of_axis in slid.items():
        if slide_of_axis.sees_padding:
            case.fill(0, axis, 0.0)
    power = case.int_attribute("p", 2)
    fact, sliding = case.fact(), _sliding(windows, slid)
    count = math.prod(window.kernel for window in windows)

    def content(region: Region) -> Interval:
        read = iv.hull(ZERO, *(fact.content(region_read) for region_read in regions_read(fact, region, sliding)))
        if not read.is_finite or power < 1 or read.magnitude > (largest_sum(case) / count) ** (1 / power):
            return ANYTHING
        return Interval(0.0, read.magnitude * count ** (1 / power))

    return _verdict(case, "PL3", windows, slid, case.output(_axes(fact, slid), content))


def _windows(case: Case) -> tuple[tuple[Window, ...], dict[int, Slid]]:
    """Return the windows of a pooling, and every tracked spatial axis after them.

    Raises:
        Refused: the kernel has no size for a spatial axis.
    """
    kernel = case.ints_attribute("kernel_shape")
    if len(kernel) != case.rank() - 2 or not kernel:
        raise refuse(f"{case.op} with kernel {kernel} over {case.rank()} axes", "give one size per spatial axis")
    windows = windows_of(case, kernel)
    slid = {at + 2: found for at, window in enumerate(windows) if (found := slide(case, at + 2, window)) is not None}
    return windows, slid


def _sliding(windows: tuple[Window, ...], slid: dict[int, Slid]) -> set[int]:
    return {at for at in slid if not windows[at - 2].is_point}


def _axes(fact: Fact, slid: dict[int, Slid]) -> dict[int, Axis]:
    """Return the layouts of axes 0 and 1, whose entries are pooled separately, and of the spatial ones."""
    return {**{at: axis for at, axis in fact.axes if at < 2}, **{at: each.axis for at, each in slid.items()}}


def _verdict(
    case: Case,
    rule: str,
    windows: tuple[Window, ...],
    slid: dict[int, Slid],
    out: Fact,
    *,
    pointwise: bool = True,
    assumes: tuple[Assumption, ...] = (),
) -> Verdict:
    sizes = [size for slide_of_axis in slid.values() for size in slide_of_axis.least]
    sizes += [frames.size for axis in slid if (frames := case.simple_frames(0, axis)) is not None]
    sees = any(slide_of_axis.sees_padding for slide_of_axis in slid.values())
    reason = "padding that is read changes nothing" if sees else "no valid place reads padding"
    pointwise = pointwise and not _sliding(windows, slid)
    return case.verdict(rule, reason, out, pointwise=pointwise, at_least_one=sizes, assumes=assumes)


TABLE: Table = {
    ("", "MaxPool"): max_pool,
    ("", "AveragePool"): average_pool,
    ("", "LpPool"): lp_pool,
    ("", "MaxUnpool"): named_refusal("puts entries at places that are counted in slots", "use Resize or ConvTranspose"),
    ("", "MaxRoiPool"): named_refusal("pools regions that are given as data", "pool windows of fixed size"),
    ("", "RoiAlign"): named_refusal("pools regions that are given as data", "pool windows of fixed size"),
}
