"""Proves how padding and batching act on operators that move or repeat entries: Transpose, Reshape, Tile (rules MV).

Rule ids: MV1 axes trade places, MV2 axes merge and split, MV3 axes of size 1 come and go, MV4 entries repeat.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import sympy

from compiler.graph.lengths.symbolic_values import quotient, same, symbolic_values_of
from compiler.graph.model import Dim
from compiler.graph.operators.axes import named_axes, perm_of
from compiler.graph.operators.repeats import expand_of, tile_of
from compiler.graph.operators.reshapes import LEFT_OVER, target_of
from compiler.graph.sizes.expressions import normal_form
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, Fact, Index, Region, Verdict, make_fact, refuse, regions_of
from compiler.proof.facts.interval import Interval, hull
from compiler.proof.facts.layout import Axis, Factor, Frames, Plain, Segment, has_rows, size_of
from compiler.proof.facts.length_data import unlike_window
from compiler.proof.facts.registry import Table
from compiler.proof.rules.length import created, is_known


def transpose(case: Case) -> Verdict:
    """Judge Transpose, which moves every axis with its layout."""
    perm = perm_of(case.node, case.rank())
    if case.fact().is_number:
        return case.verdict("MV1", "numbers move", NUMBER)
    moved = case.moved(0, {old: new for new, old in enumerate(perm)})
    return case.verdict("MV1", "axes trade places", moved, pointwise=True)


def unsqueeze(case: Case) -> Verdict:
    """Judge Unsqueeze, which shifts the axes behind those it inserts."""
    rank = len(case.out_dims())
    inserted = _named(case, rank)
    kept = [position for position in range(rank) if position not in inserted]
    return _shifted(case, dict(enumerate(kept)))


def squeeze(case: Case) -> Verdict:
    """Judge Squeeze of axes that have size 1 at all lengths."""
    dims = case.dims()
    if not case.has(1) and any(not isinstance(dim, int) for dim in dims):
        raise refuse(f"Squeeze of every axis of size 1 of {_text(dims)}", "name the axes to squeeze")
    removed = _named(case, len(dims)) if case.has(1) else {at for at, dim in enumerate(dims) if dim == 1}
    changing = [at for at in removed if dims[at] != 1]
    if changing:
        raise refuse(f"Squeeze of axis {changing[0]}, which has {dims[changing[0]]} entries", "keep the axis")
    kept = [position for position in range(len(dims)) if position not in removed]
    return _shifted(case, {old: new for new, old in enumerate(kept)})


def _named(case: Case, rank: int) -> set[int]:
    """Return the axes that a Squeeze or Unsqueeze names.

    Raises:
        Refused: they are computed.
    """
    return set(named_axes(case.node, lambda value: case.constants(1, "axes"), rank) or ())


def _shifted(case: Case, positions: Mapping[int, int]) -> Verdict:
    if case.fact().is_number:
        return case.verdict("MV3", "numbers move", NUMBER)
    return case.verdict("MV3", "axes of size 1", case.moved(0, positions), pointwise=True)


@dataclasses.dataclass(frozen=True)
class Piece:
    """A factor of the input of a Reshape, with the axis that it lay in."""

    factor: Factor
    axis: int


def reshape(case: Case) -> Verdict:
    """Judge Reshape or Flatten: tracked factors stay whole and in order, fixed ones may be split anywhere.

    Raises:
        Refused: a padded axis or the batch would be split, or interleaved with others.
    """
    fact = case.fact()
    if fact.is_number:
        return case.verdict("MV2", "numbers move", NUMBER)
    if case.has(1) and case.fact(1).axes:
        raise refuse("Reshape to a shape that depends on data", "compute shapes from the shapes of inputs")
    before, after = case.dims(), case.out_dims()
    pieces = _pieces(fact, before)
    sizes = _target(case, [piece.factor.size for piece in pieces])
    groups = _grouped(pieces, sizes)
    if groups is None:
        raise refuse(
            f"Reshape cuts or interleaves a padded axis or the batch: {_described(fact, before)} to {_text(sizes)}",
            "keep the axis whole, in front of what it is merged with",
        )
    axes = {
        axis: _merged(group, after[axis])
        for axis, group in enumerate(groups)
        if any(_is_tracked(piece) for piece in group)
    }
    whole = set(axes.values()) <= {layout for _, layout in fact.axes}  # frames of channels are other entries
    return case.verdict("MV2", "whole axes are merged and split", _regrouped(fact, axes, groups), pointwise=whole)


def _is_tracked(piece: Piece) -> bool:
    return not isinstance(piece.factor, Plain)


def _pieces(fact: Fact, dims: Sequence[Dim]) -> list[Piece]:
    """Return the factors of a value's axes, outer to inner; a common factor of all segments of an axis is split off."""
    pieces: list[Piece] = []
    for at, dim in enumerate(dims):
        for factor in fact.axis(at) or (Plain(normal_form(dim)),):
            pieces += [Piece(each, at) for each in _split(factor) if each.size != 1]
    return pieces


def _split(factor: Factor) -> tuple[Factor, ...]:
    """Split [4*n entries, padded] into [n, padded] of 4 each, where all segments have such a common factor."""
    if not isinstance(factor, Frames):
        return (factor,)
    common = math.gcd(*(_content(segment.size) for segment in factor.segments))
    if common <= 1:
        return (factor,)
    segments = tuple(
        dataclasses.replace(each, size=quotient(normal_form(each.size), common) or 0) for each in factor.segments
    )
    return Frames(segments), Plain(common)


def _content(size: Dim) -> int:
    """Return the largest integer that divides a size at all lengths."""
    if isinstance(size, int):
        return size
    expanded = normal_form(size)
    if isinstance(expanded, int):
        return expanded
    terms = expanded.as_coefficients_dict()
    return math.gcd(*(int(each) if each.is_Integer else 1 for each in terms.values()))


def _target(case: Case, sizes: Sequence[Dim]) -> list[Dim]:
    """Return the sizes of the output's axes, from shape inference or else the target; one may be left over."""
    stated = [normal_form(dim) for dim in case.out_dims()]
    target, dims = target_of(case.node, symbolic_values_of), case.dims()
    for axis, dim in enumerate(stated):
        asked = LEFT_OVER if target is None or is_known(case, dim) else target.sizes[axis]
        if target is not None and asked is not None and asked != LEFT_OVER:
            is_copy = target.copied(axis) and axis < len(dims)
            stated[axis] = _in_size(case, axis, dims) if is_copy else normal_form(asked)
    unknown = [axis for axis, dim in enumerate(stated) if not is_known(case, dim)]
    if len(unknown) == 1:
        whole: Dim = normal_form(math.prod(sizes))
        known: Dim = normal_form(math.prod(dim for axis, dim in enumerate(stated) if axis not in unknown))
        left = quotient(whole, known)
        if left is not None:
            stated[unknown[0]] = left
    return stated


def _in_size(case: Case, at: int, dims: Sequence[Dim]) -> Dim:
    layout = case.fact().axis(at)
    return normal_form(dims[at] if layout is None else size_of(layout))


def _grouped(pieces: Sequence[Piece], sizes: Sequence[Dim]) -> list[list[Piece]] | None:
    """Return the factors that make up each output axis, outer to inner; None where a tracked one would be split."""
    rest = list(pieces)
    groups: list[list[Piece]] = []
    for size in sizes:
        taken = _take(rest, size)
        if taken is None:
            return None
        groups.append(taken)
    return groups if all(piece.factor.size == 1 for piece in rest) else None


def _take(rest: list[Piece], size: Dim) -> list[Piece] | None:
    """Take factors from the front until their product is `size`, splitting plain ones; None where that fails."""
    taken: list[Piece] = []
    need: Dim = size
    while need != 1:
        if not rest:
            return None
        _join_plain(rest)
        piece = rest.pop(0)
        whole = quotient(need, piece.factor.size)
        if whole is None and same(need, piece.factor.size):
            whole = 1
        if whole is not None:
            taken.append(piece)
            need = whole
            continue
        inner = quotient(piece.factor.size, need) if isinstance(piece.factor, Plain) else None
        if inner is None:
            return None
        taken.append(Piece(Plain(need), piece.axis))
        rest.insert(0, Piece(Plain(inner), piece.axis))
        need = 1
    return taken


def _join_plain(rest: list[Piece]) -> None:
    """Merge the plain factors in front into one, so that it may be split anywhere."""
    while len(rest) > 1 and all(isinstance(piece.factor, Plain) for piece in rest[:2]):
        first, second = rest.pop(0), rest.pop(0)
        rest.insert(0, Piece(Plain(normal_form(first.factor.size * second.factor.size)), first.axis))


def _merged(group: Sequence[Piece], stated: Dim) -> Axis:
    """Return the layout of one output axis in normal form: n padded entries of c each are c * n padded entries."""
    factors: list[Factor] = []
    for piece in group:
        last, factor = factors[-1] if factors else None, piece.factor
        if isinstance(factor, Plain) and isinstance(last, Plain):
            factors[-1] = Plain(normal_form(last.size * factor.size))
        elif isinstance(factor, Plain) and isinstance(last, Frames):
            factors[-1] = Frames(tuple(_times(segment, factor.size) for segment in last.segments))
        else:
            factors.append(factor)
    return restated(tuple(factors), stated)


def _times(segment: Segment, count: Dim) -> Segment:
    return dataclasses.replace(segment, size=normal_form(segment.size * count))


def restated(axis: Axis, stated: Dim) -> Axis:
    """Return a layout of one segment with its size written as shape inference writes it.

    Where shape inference could not decide which of two sizes is smaller, the layout's own size stays.
    """
    undecided = not isinstance(stated, int) and stated.has(sympy.Min, sympy.Max, sympy.Mod)
    if undecided or len(axis) != 1 or not isinstance(axis[0], Frames) or len(axis[0].segments) != 1:
        return axis
    if not same(axis[0].size, stated):
        return axis
    return (Frames((dataclasses.replace(axis[0].segments[0], size=stated),)),)


def _regrouped(fact: Fact, axes: Mapping[int, Axis], groups: Sequence[Sequence[Piece]]) -> Fact:
    """Return the fact of the output: an entry is padding of an axis if it is padding of any of its factors."""
    padded = [
        (piece.axis, at) for at, group in enumerate(groups) for piece in group if isinstance(piece.factor, Frames)
    ]
    contents: dict[Region, list[Interval]] = {}
    for chosen in regions_of(range(len(padded))):
        region = frozenset(padded[each][1] for each in chosen)
        contents.setdefault(region, []).append(fact.content(padded[each][0] for each in chosen))
    return make_fact(axes, lambda region: hull(*contents[region]), _kept_index(fact, groups))


def _kept_index(fact: Fact, groups: Sequence[Sequence[Piece]]) -> Index | None:
    """Return the fact's index on the result axis that consists of its axis alone; None where there is no such axis."""
    index = fact.index
    if index is None:
        return None
    if len(fact.axis(index.axis) or ()) != 1:
        return None
    homes = {at for at, group in enumerate(groups) for piece in group if piece.axis == index.axis}
    (home,) = homes if len(homes) == 1 else (None,)
    whole = home is not None and all(piece.axis == index.axis for piece in groups[home])
    return dataclasses.replace(index, axis=home) if home is not None and whole else None


def _described(fact: Fact, dims: Sequence[Dim]) -> str:
    parts = [" * ".join(map(str, fact.axis(at) or (dim,))) for at, dim in enumerate(dims)]
    return "[" + ", ".join(parts) + "]"


def _text(dims: Iterable[Dim]) -> str:
    return "[" + ", ".join(map(str, dims)) + "]"


def expand(case: Case) -> Verdict:
    """Judge Expand: axes of size 1 repeat; an axis may be created from a length."""
    fact, dims, after = case.fact(), case.dims(), case.out_dims()
    if case.fact(1).axes:
        raise refuse("Expand to a shape that depends on data", "compute shapes from the shapes of inputs")
    view, shift = expand_of(case.node, symbolic_values_of), len(after) - len(dims)
    axes: dict[int, Axis] = {}
    for axis, stated in enumerate(after):
        operand_axis, requested = axis - shift, None if view is None else view.sizes[axis]
        if operand_axis >= 0 and (dims[operand_axis] != 1 or stated == 1):
            operand_layout = fact.axis(operand_axis)
            _check_kept(
                case,
                dims[operand_axis] if operand_layout is None else size_of(operand_layout),
                stated if requested is None else requested,
            )
            if operand_layout is not None:
                axes[axis] = operand_layout
            continue
        _, layout = created(case, stated, requested)
        if layout is not None:
            axes[axis] = layout
    if fact.is_number or (_gets_rows(axes) and unlike_window(case)):
        return case.verdict("MV4", "numbers repeat", NUMBER)
    padded = set(fact.padded)

    def content(region: Region) -> Interval:
        return fact.content(axis - shift for axis in region if axis - shift in padded)

    index = None if fact.index is None else dataclasses.replace(fact.index, axis=fact.index.axis + shift)
    fact_made = make_fact(axes, content, index)
    return case.verdict("MV4", "entries repeat", fact_made, pointwise=_only_keeps(fact, fact_made))


def _gets_rows(axes: Mapping[int, Axis]) -> bool:
    return any(has_rows(axis) for axis in axes.values())


def _check_kept(case: Case, size: Dim, wanted: Dim) -> None:
    """Require that an axis keeps its size.

    Raises:
        Refused: it would be repeated where it has one entry, such as a batch of one row.
    """
    if wanted != 1 and not same(size, wanted):
        raise refuse(f"{case.op} makes {wanted} entries of {size}", "expand from an axis of size 1")


def tile(case: Case) -> Verdict:
    """Judge Tile: whole axes repeat, and the repetitions become an outer factor."""
    fact, dims, after = case.fact(), case.dims(), case.out_dims()
    if case.fact(1).axes:
        raise refuse("Tile by a number that depends on data", "compute it from the shapes of inputs")
    view, axes = tile_of(case.node, symbolic_values_of), dict[int, Axis]()
    for axis, dim in enumerate(dims):
        operand_layout, times = fact.axis(axis), None if view is None else view.repeats[axis]
        times = quotient(normal_form(after[axis]), normal_form(dim)) if times is None else times
        if times is None:
            raise refuse(f"Tile of {_text(dims)} to {_text(after)}", "repeat by constants, or by a length")
        repeated = None if times == 1 else created(case, times)[1] or (Plain(times),)
        factors = (*(repeated or ()), *(operand_layout or (Plain(dim),)))
        if operand_layout is not None or (repeated is not None and not isinstance(repeated[0], Plain)):
            axes[axis] = _merged([Piece(factor, axis) for factor in factors if factor.size != 1], after[axis])
    if fact.is_number or (_gets_rows(axes) and unlike_window(case)):
        return case.verdict("MV4", "numbers repeat", NUMBER)
    padded = frozenset(fact.padded)

    def content(region: Region) -> Interval:
        """Return the interval of a region; padding of both repetitions and repeated entries may be either's."""
        inner = [region]
        for axis in region:
            inner += [inner_region - {axis} for inner_region in inner] if _is_doubly(axes[axis]) else []
        return hull(*(fact.content(inner_region & padded) for inner_region in inner))

    fact_made = make_fact(axes, content)
    return case.verdict("MV4", "entries repeat", fact_made, pointwise=_only_keeps(fact, fact_made))


def _only_keeps(before: Fact, after: Fact) -> bool:
    """Whether every tracked factor of one fact occurs in the other."""
    kept = {factor for _, axis in before.axes for factor in axis}
    return all(factor in kept or isinstance(factor, Plain) for _, axis in after.axes for factor in axis)


def _is_doubly(axis: Axis) -> bool:
    return sum(isinstance(factor, Frames) for factor in axis) > 1


TABLE: Table = {
    ("", "Transpose"): transpose,
    ("", "Unsqueeze"): unsqueeze,
    ("", "Squeeze"): squeeze,
    ("", "Reshape"): reshape,
    ("", "Flatten"): reshape,
    ("", "Expand"): expand,
    ("", "Tile"): tile,
}
