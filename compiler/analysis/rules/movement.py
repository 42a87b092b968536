"""Rules MV: operators that only move entries: permuted, merged, split, repeated axes."""

from collections.abc import Mapping, Sequence

import sympy

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Index, Region, Verdict, refuse
from compiler.analysis.interval import Interval
from compiler.analysis.layout import Axis, Factor, Frames, Plain, Segment, Side
from compiler.analysis.registry import Table
from compiler.ir import Dim


def transpose(case: Case) -> Verdict:
    """Transpose carries the axes along."""
    perm = case.ints_attribute("perm") or tuple(reversed(range(case.rank())))
    return case.verdict("MV1", "movement", case.moved(0, {old: new for new, old in enumerate(perm)}), pointwise=True)


def unsqueeze(case: Case) -> Verdict:
    """Unsqueeze shifts the axes behind those inserted."""
    rank = len(case.out_dims())
    axes = case.constants(1, "axes") if case.has(1) else case.ints_attribute("axes")
    inserted = {axis % rank for axis in axes}
    kept = [position for position in range(rank) if position not in inserted]
    return case.verdict("MV3", "movement", case.moved(0, dict(enumerate(kept))), pointwise=True)


def squeeze(case: Case) -> Verdict:
    """Squeeze of axes of size 1."""
    dims = case.dims()
    axes = case.constants(1, "axes") if case.has(1) else case.ints_attribute("axes")
    removed = {axis % len(dims) for axis in axes} if axes else {at for at, dim in enumerate(dims) if dim == 1}
    if not axes and any(case.depends(dim) for dim in dims):
        raise refuse("Squeeze without axes, which would remove a batch or frames of 1", "name the axes to squeeze")
    kept = [position for position in range(len(dims)) if position not in removed]
    return case.verdict(
        "MV4", "movement", case.moved(0, {old: new for new, old in enumerate(kept)}), pointwise=True
    )


def flatten(case: Case) -> Verdict:
    """Flatten to a matrix."""
    return _regrouped(case, case.out_dims())


def reshape(case: Case) -> Verdict:
    """Reshape: axes stay whole, merge with neighbours, or come apart again."""
    dims, after = case.dims(), case.out_dims()
    target = case.integers(1)
    if target is not None and any(case.fact().axis(at) for at in range(len(dims))):
        for at, size in enumerate(target):
            if isinstance(size, int) and size > 0 and at < len(after) and case.depends(after[at]):
                raise refuse(f"Reshape fixes axis {at} at {size}", "give -1 or the computed size there")
    return _regrouped(case, after)


def _regrouped(case: Case, after: Sequence[Dim]) -> Verdict:
    fact = case.fact()
    dims = case.dims()
    factors = [(at, factor) for at, dim in enumerate(dims) for factor in (fact.axis(at) or (Plain(dim),))]
    groups = _grouped(factors, after)
    if groups is None:
        shown = [_text(dims), _text(after)]
        raise refuse(
            f"Reshape merges or splits a tracked axis: {shown[0]} to {shown[1]}", "keep the axis as an axis of its own"
        )
    axes: dict[int, Axis] = {}
    goes: dict[int, set[int]] = {at: set() for at in fact.padded}
    for new, group in enumerate(groups):
        kept = tuple(factor for _, factor in group if not (isinstance(factor, Plain) and factor.size == 1))
        if any(not isinstance(factor, Plain) for factor in kept):
            axes[new] = kept
        for old, factor in group:
            if isinstance(factor, Frames):
                goes[old].add(new)

    def content(region: Region) -> Interval:
        return iv.hull(*(fact.content(each) for each in fact.regions if _agrees(each, region, goes)))

    index = None
    if fact.index is not None:
        places = {new for new, group in enumerate(groups) for old, _ in group if old == fact.index.axis}
        at = next(iter(places), None)
        if len(places) == 1 and at is not None and len(axes.get(at, ())) == 1:
            index = Index(at, fact.index.offset)
    out = case.output(axes, content, index)
    return case.verdict("MV2", "the axes keep their order", out, pointwise=all(len(axis) == 1 for axis in axes.values()))


def _agrees(before: Region, after: Region, goes: dict[int, set[int]]) -> bool:
    """Whether places in the padding of axes `before` may lie in the padding of exactly `after`."""
    reached = {new for old in before for new in goes[old]}
    return all(goes[old] & after for old in before) and after <= reached


Placed = tuple[int, Factor]


def _grouped(factors: Sequence[Placed], after: Sequence[Dim]) -> list[list[Placed]] | None:
    """The factors of every new axis, outer to inner; None when a tracked one would be cut."""
    waiting = list(factors)
    groups: list[list[Placed]] = []
    for size in after:
        group: list[Placed] = []
        product: Dim = 1
        while not _same(product, size):
            if not waiting:
                return None
            at, factor = waiting.pop(0)
            taken, rest = _take(factor, product, size)
            if taken is None:
                return None
            group.append((at, taken))
            product = product * taken.size
            if rest is not None:
                waiting.insert(0, (at, rest))
        groups.append(group)
    return groups if all(factor.size == 1 for _, factor in waiting) else None


def _take(factor: Factor, product: Dim, size: Dim) -> tuple[Factor | None, Factor | None]:
    """What of a factor goes into an axis of `size` that holds `product` already, and what is left for the next."""
    if _divides(product * factor.size, size):
        return factor, None
    wanted = _quotient(size, product)
    if wanted is None:
        return None, None
    count = _quotient(factor.size, wanted)
    if isinstance(factor, Plain):
        return (Plain(wanted), Plain(count)) if count is not None else (None, None)
    whole = isinstance(factor, Frames) and len(factor.segments) == 1 and factor.segments[0].side is Side.LEFT
    if whole and isinstance(count, int) and not isinstance(wanted, int):
        return Frames((Segment(wanted),)), Plain(count)
    return None, None


def _same(a: Dim, b: Dim) -> bool:
    return bool(a == b) or (not (isinstance(a, int) and isinstance(b, int)) and sympy.expand(a - b) == 0)


def _divides(part: Dim, whole: Dim) -> bool:
    return _quotient(whole, part) is not None


def _quotient(whole: Dim, part: Dim) -> Dim | None:
    """whole / part where that is an integer for every length, else None."""
    if isinstance(whole, int) and isinstance(part, int):
        return whole // part if part and whole % part == 0 else None
    result = sympy.cancel(sympy.sympify(whole) / part)
    if result.is_Integer:
        return int(result) if result > 0 else None
    if sympy.fraction(sympy.together(result))[1] != 1 or not result.is_integer:
        return None
    return result if isinstance(result, sympy.Expr) else None


def _text(dims: Sequence[Dim]) -> str:
    return "[" + ", ".join(str(dim) for dim in dims) + "]"


def expand(case: Case) -> Verdict:
    """Expand: axes of size 1 are repeated, perhaps along new padded axes or the batch."""
    return _spread(case, "MV7")


def tile(case: Case) -> Verdict:
    """Tile: repeats of axes of size 1, and no repeats of others."""
    repeats = case.integers(1)
    if repeats is None:
        raise refuse("Tile with unknown repeats", "repeat by constants or sizes")
    for at, (count, dim) in enumerate(zip(repeats, case.dims(), strict=True)):
        if case.fact().axis(at) is not None and count != 1:
            raise refuse(f"Tile repeats axis {at} of {dim} entries {count} times", "repeat an axis of size 1 instead")
    apart = {
        at: (*made, Plain(dim))
        for at, (count, dim) in enumerate(zip(repeats, case.dims(), strict=True))
        if dim != 1 and (made := case.layout(count)) is not None
    }
    return _spread(case, "MV8", apart)


def _spread(case: Case, rule: str, apart: Mapping[int, Axis] | None = None) -> Verdict:
    dims, after, fact = case.dims(), case.out_dims(), case.fact()
    shift = len(after) - len(dims)
    axes: dict[int, Axis] = {at + shift: axis for at, axis in fact.axes} | dict(apart or {})
    for at, size in enumerate(after):
        own = at - shift
        if at in axes:
            continue
        made = case.layout(size)
        if made is None:
            continue
        if own >= 0 and dims[own] != 1:
            raise refuse(f"{case.op} turns {dims[own]} entries into {size}", "expand from size 1")
        axes[at] = made
    if fact.is_number:
        raise refuse(f"{case.op} of an axis length", "use the length as a shape only")
    index = None if fact.index is None else Index(fact.index.axis + shift, fact.index.offset)

    def content(region: Region) -> Interval:
        return fact.content(at - shift for at in region if at - shift in fact.padded)

    return case.verdict(rule, "one entry at every place", case.output(axes, content, index), pointwise=True)


TABLE: Table = {
    ("", "Transpose"): transpose,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Squeeze"): squeeze,
    ("", "Flatten"): flatten,
    ("", "Reshape"): reshape,
    ("", "Expand"): expand,
    ("", "Tile"): tile,
}
