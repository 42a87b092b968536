"""Proves how padding and batching act on Gather, Scatter and OneHot, and on tables sliced by lengths (rules LK, IX).

Rule ids: LK1 rows of a table from a fixed one on, LK2 rows up to or around a fixed one, LK3 rows per row of the batch,
IX1 entries of a padded axis, IX2 entries of another axis, IX3 entries put in place, IX8 the same along a padded axis,
IX19 one class at every place.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.lengths.symbolic_values import at_zero, same, symbolic_values_of
from compiler.graph.model import Dim, symbol
from compiler.graph.operators.axes import axis_of
from compiler.graph.sizes.expressions import normal_form
from compiler.graph.sizes.growth import never_falls
from compiler.proof.facts.case import Case, everywhere
from compiler.proof.facts.facts import NUMBER, Fact, Index, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, LONGEST, Interval, hull, of_array
from compiler.proof.facts.layout import Axis, Frames, Rows, frames_of, has_rows
from compiler.proof.facts.length_data import row_value_layout, spread_per_row
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.facts.transfer import stored
from compiler.proof.rules.grids import (
    counted_components,
    gather_nd,
    layout_text,
    look_up_again,
    positions_into,
    stay_in_range,
)
from compiler.proof.rules.length import counted, created, not_negative
from compiler.proof.rules.row_lookup import legal_elements


@dataclasses.dataclass(frozen=True)
class TableRows:
    """Entries of an untracked axis that a Slice chooses by lengths.

    Attributes:
        layout: the axis that they form; None when their number is fixed.
        rule: rule id.
        reason: why, in one clause.
        has_rows: whether every row of the batch has entries of its own afterwards, along axis 0.
        rows: layout of axis 0 then.
        at_least: sizes that have to be 1 or more.
        index: set when the table counts positions.
    """

    layout: Axis | None
    rule: str
    reason: str
    has_rows: bool = False
    rows: Axis = ()
    at_least: tuple[Dim, ...] = ()
    index: Index | None = None


def rows_of_table(case: Case, at: int, start: Dim, end: Dim | None) -> TableRows:
    """Return the layout of table[start:end] along axis `at`, with bounds that depend on lengths.

    Entry k is table[start + k]. From a fixed start on, that is slot k whatever the lengths. A start of c - f(lengths)
    puts f entries before entry c: as many slots as f has in slots, the valid ones last. A start that grows, and entries
    that join a right-aligned axis, differ from row to row and are looked up.

    Raises:
        Refused: the bounds are of another kind.
    """
    count = case.dims()[at]
    if not isinstance(count, int):
        raise refuse(f"Slice [{start}:{end}] of {count} entries", "use a table of fixed size")
    at_least: list[Dim] = []
    first = _counted_from_front(start, count, at_least)
    last = count if end is None else _counted_from_front(end, count, at_least)
    size = normal_form(last - first)
    size = stated if same(stated := case.out_dims()[at], size) else size
    _, layout = created(case, size)
    if not never_falls(size):
        raise refuse(f"Slice [{start}:{end}] of {count} entries, fewer for longer inputs", "use a table of fixed size")
    if (at_zero(size) or 0) < 0:
        at_least.append(size + 1)
    index = _table_index(case, at, first)
    if isinstance(first, int):
        frames = None if layout is None else frames_of(layout)
        if frames is None or frames.is_suffix_padded:
            return TableRows(layout, "LK1", "rows from a fixed one on", at_least=tuple(at_least), index=index)
        return _per_row(case, at, first, size, layout, at_least)
    if never_falls(-first):
        centered = counted(case, first, size)
        at_least += not_negative(centered)
        return TableRows(centered, "LK2", "rows up to or around a fixed one", at_least=tuple(at_least), index=index)
    return _per_row(case, at, first, size, layout, at_least)


def _counted_from_front(bound: Dim, count: int, at_least: list[Dim]) -> Dim:
    if isinstance(bound, int):
        return bound if bound >= 0 else max(count + bound, 0)
    if never_falls(-bound) and (at_zero(bound) or 0) <= 0:
        at_least.append(-bound)
        return normal_form(count + bound)
    if never_falls(bound) and (at_zero(bound) or 0) < 0:
        at_least.append(bound + 1)
    return bound


def _per_row(case: Case, at: int, first: Dim, size: Dim, layout: Axis | None, at_least: Sequence[Dim]) -> TableRows:
    """Return the layout of table rows at positions of each row, which needs an axis of the batch.

    Raises:
        Refused: the leading axis is in use.
    """
    rows: Axis = () if case.batch is None else (Rows(symbol(case.batch)),)
    is_shared = case.dims()[0] == 1 and case.fact().axis(0) is None
    if at == 0 or not (is_shared or (rows and case.fact().axis(0) == rows)):
        raise refuse(
            f"the table of shape {[str(dim) for dim in case.dims()]} is looked up at positions of each row",
            "give the table a leading axis of size 1, or the batch there",
        )
    case.rewrite("look_up_positions", at, first, size)
    reason = "positions of each row"
    return TableRows(layout, "LK3", reason, case.batch is not None, rows, tuple(at_least))


def _table_index(case: Case, at: int, first: Dim) -> Index | None:
    """Return the positions that a table holds along an axis, 0, 1, 2, ...; None for other tables."""
    array = case.array(0)
    if array is None or array.dtype.kind != "i" or array.size != array.shape[at] or array.size == 0:
        return None
    flat = array.reshape(-1)
    return Index(at, int(flat[0]) + first) if np.array_equal(flat, flat[0] + np.arange(flat.size)) else None


def gather(case: Case) -> Verdict:
    """Judge Gather: rows of a table by (padded) ids, fixed entries of a padded axis, or computed positions."""
    axis = case.axis()
    data, indices = case.fact(0), case.fact(1)
    if data.is_number:
        return case.verdict("IX2", "numbers are picked", NUMBER)
    case.refuse_rows(0, axis, "looks up along")
    frames = case.simple_frames(0, axis)
    numbers = symbolic_values_of(case.node.inputs[1])
    if frames is not None and numbers is not None and not indices.axes and indices.index is None:
        distances = [_from_an_end(number, frames.size) for number in numbers]
        if not indices.is_number or None not in distances:
            return _fixed_entries(case, axis, frames, numbers)
    if indices.is_number and data.is_plain:
        if row_value_layout(case, case.node.inputs[1]) is None:
            return case.verdict("IX2", "rows of a table by numbers", NUMBER)
        spread_per_row(case)
        indices = case.fact(1)
    if indices.is_number or (frames is not None and _counts_otherwise(indices, data)):
        return look_up_again(case, [axis], case.rank(1))
    if data.rows_axis is not None and indices.rows_axis is not None:
        raise refuse("Gather of one row's entries by every row's indices", "use GatherElements")
    if frames is not None:
        positions_into(case, 1, frames)
    else:
        stay_in_range(case, 1, case.dims(0)[axis])
    out = _gathered(case, axis)
    reason = "entries of another axis" if frames is None else "valid indices count from the start"
    return case.verdict("IX2" if frames is None else "IX1", reason, out, pointwise=frames is None)


def _counts_otherwise(indices: Fact, data: Fact) -> bool:
    """Whether positions shared by all rows do not count from the start, as those of a reversed axis."""
    shared = bool(indices.axes) and indices.rows_axis is None and data.rows_axis is not None
    return shared and (indices.valid.low < 0 or any(not _is_suffix(axis) for _, axis in indices.axes))


def _gathered(case: Case, axis: int) -> Fact:
    """Return the fact of a Gather's output, with the indices' axes in place of the indexed one."""
    data, indices = case.fact(0), case.fact(1)
    place = {
        data_axis: data_axis if data_axis < axis else data_axis + case.rank(1) - 1
        for data_axis in range(case.rank(0))
        if data_axis != axis
    }
    back = {new: old for old, new in place.items()}
    axes = {place[data_axis]: layout for data_axis, layout in data.axes if data_axis != axis}
    axes |= {index_axis + axis: layout for index_axis, layout in indices.axes}
    looked_up = frozenset({axis} & set(data.padded))

    def content(region: Region) -> Interval:
        data_region = frozenset(back[result_axis] for result_axis in region if result_axis in back) & frozenset(
            data.padded
        )
        strays = any(result_axis not in back for result_axis in region)  # an index in the padding may point at padding
        return (
            hull(data.content(data_region), data.content(data_region | looked_up))
            if strays
            else data.content(data_region)
        )

    return case.output(axes, content)


def _fixed_entries(case: Case, axis: int, frames: Frames, numbers: Sequence[Dim]) -> Verdict:
    """Judge a Gather of entries of a padded axis at fixed distances from either end."""
    distances = [_from_an_end(number, frames.size) for number in numbers]
    known_distances = [distance for distance in distances if distance is not None]
    if len(known_distances) != len(distances):
        raise refuse(f"Gather of entries {[str(n) for n in numbers]} of {frames}", "gather by constants")
    place = {
        data_axis: data_axis if data_axis < axis else data_axis + case.rank(1) - 1
        for data_axis in range(case.rank(0))
        if data_axis != axis
    }
    back = {new: old for old, new in place.items()}
    data = case.fact(0)
    axes = {place[data_axis]: layout for data_axis, layout in data.axes if data_axis != axis}
    out = case.output(axes, lambda region: data.content(back[result_axis] for result_axis in region))
    reach = max(
        [distance + 1 for distance in known_distances if distance >= 0] + [-d for d in known_distances if d < 0],
        default=1,
    )
    at_least = [normal_form(frames.size - reach + 1)]
    if all(_lies_where_counted(frames, distance) for distance in known_distances) and known_distances == list(numbers):
        return case.verdict("IX1", "counted from the end without padding", out, at_least_one=at_least)
    rows = data.axis(data.rows_axis) if data.rows_axis is not None else None
    alone = frames.is_suffix_padded or frames.is_prefix_padded
    if not alone or (case.batch is not None and (rows is None or len(rows) > 1)):
        raise refuse(
            f"Gather of entries {known_distances} of {frames}, which lie in other slots in every row",
            "gather from a value with a batch axis of its own, before the axis is joined",
        )
    case.rewrite("entries", axis, tuple(known_distances), case.rank(1) == 0)
    return case.verdict("IX1", "counted from the true end of each row", out, at_least_one=at_least)


def _from_an_end(number: Dim, size: Dim) -> int | None:
    """Return a fixed index, negative when counted from the end; None for an index that varies."""
    if isinstance(number, int):
        return number
    distance = normal_form(number - size)
    return distance if isinstance(distance, int) and distance < 0 else None


def _lies_where_counted(frames: Frames, distance: int) -> bool:
    """Whether an entry at a fixed distance from an end lies in the slot at that distance."""
    if distance >= 0:
        if frames.is_suffix_padded:
            return True
        first = frames.segments[0]
        return first.is_full and isinstance(first.size, int) and distance < first.size
    if frames.is_prefix_padded:
        return True
    last = frames.segments[-1]
    return last.is_full and isinstance(last.size, int) and -distance <= last.size


def gather_elements(case: Case) -> Verdict:
    """Judge GatherElements: along all other axes data and indices have equal layouts."""
    axis = case.axis()
    data, indices = case.fact(0), case.fact(1)
    if data.is_number:
        raise refuse("GatherElements of axis lengths", "expand them to the batch by arithmetic")
    case.refuse_rows(0, axis, "looks up along")
    legal: tuple[Dim, ...] = ()
    if indices.is_number:
        legal = legal_elements(case, axis)
        data, indices = case.fact(0), case.fact(1)
    case.refuse_rows(1, axis, "looks up along")
    frames = case.simple_frames(0, axis)
    for other in range(case.rank(0)):
        if other != axis and data.axis(other) != indices.axis(other):
            raise refuse(
                f"GatherElements of {layout_text(case, 0, other)} by indices of {layout_text(case, 1, other)}",
                "lay both out alike along the other axes",
            )
    if case.needs:  # slots of each row
        pass
    elif frames is not None:
        positions_into(case, 1, frames)
    else:
        stay_in_range(case, 1, case.dims(0)[axis])
    looked_up = frozenset({axis} & set(data.padded))

    def content(region: Region) -> Interval:
        data_region = region & frozenset(data.padded) - {axis}
        return (
            hull(data.content(data_region), data.content(data_region | looked_up))
            if region
            else data.content(data_region)
        )

    out, rule = case.output(case.fact(1).tracked, content), "IX2" if frames is None else "IX1"
    return case.verdict(rule, "entries along one axis", out, pointwise=frames is None, at_least_one=legal)


def one_hot(case: Case) -> Verdict:
    """Judge OneHot, which adds an axis; indices of no class, in the padding too, give the off value."""
    fact = case.fact(0)
    depth = symbolic_values_of(case.node.inputs[1])
    values = case.array(2)
    if depth is None or len(depth) != 1 or fact.is_number:
        raise refuse("OneHot of axis lengths, or of computed depth", "give the depth as a constant or a length")
    rank = case.rank()
    axis = axis_of(case.node, rank + 1)
    stated = case.out_dims()[axis]
    layout = created(case, stated, depth[0])[1] if not isinstance(depth[0], int) else None
    if layout is not None and (fact.valid.low < 0 or not _is_suffix(layout)):
        raise refuse(f"OneHot of indices of {fact.valid} over {stated} classes", "count indices from 0")
    moved = case.moved(
        0, {index_axis: index_axis if index_axis < axis else index_axis + 1 for index_axis in range(rank)}
    )
    axes = moved.tracked | ({} if layout is None else {axis: layout})
    bounds = of_array(values) if values is not None else case.fact(2).anywhere
    return case.verdict(
        "IX19", "one class at every place", case.output(axes, lambda region: bounds), pointwise=layout is None
    )


def _is_suffix(axis: Axis) -> bool:
    frames = frames_of(axis)
    return frames is not None and frames.is_suffix_padded


ADDED = {"add": 0.0, "mul": 1.0}
"""What an update may be that changes nothing, by reduction; the extremes depend on the type."""


def scatter_elements(case: Case) -> Verdict:
    """Judge ScatterElements: data, indices and updates have equal layouts along all other axes.

    Along a padded axis, indices in the padding select entry 0, and their updates are neutral.
    """
    axis = case.axis()
    _check_scattered(case)
    for operand in range(3):
        case.refuse_rows(operand, axis, "writes along")
    data, indices, updates = (case.fact(operand) for operand in range(3))
    elsewhere = [
        {other_axis: layout for other_axis, layout in fact.axes if other_axis != axis}
        for fact in (data, indices, updates)
    ]
    if not elsewhere[0] == elsewhere[1] == elsewhere[2] or indices.axis(axis) != updates.axis(axis):
        raise refuse(f"{case.op} of differently laid out data, indices and updates", "lay all three out alike")
    for other_axis in elsewhere[0]:
        if case.dims(0)[other_axis] != case.dims(1)[other_axis]:
            raise refuse(
                f"{case.op} with {case.dims(1)[other_axis]} indices for {case.dims(0)[other_axis]} entries",
                "give all of them",
            )
    frames, written = case.simple_frames(0, axis), case.simple_frames(1, axis)
    if frames is None and written is None:
        stay_in_range(case, 1, case.dims(0)[axis])
        out = case.output(data.tracked, lambda region: _scattered(case, region, axis))
        return case.verdict("IX3", "entries put in place along another axis", out, pointwise=True)
    _count_from_start(case, frames)
    for other_axis in indices.padded:
        case.fill(2, other_axis, _nothing(case))
        case.fill(1, other_axis, 0.0)
    out = case.output(case.fact(0).tracked, lambda region: _scattered(case, region, axis))
    sizes = [case.dims(0)[axis] if frames is None else frames.size]
    return case.verdict("IX8", "what padding puts in place changes nothing", out, at_least_one=sizes)


def _check_scattered(case: Case) -> None:
    if any(case.fact(operand).is_number for operand in (0, 2)) or (case.fact(1).is_number and case.op != "ScatterND"):
        raise refuse(f"{case.op} with axis lengths", "use lengths as shapes only")


def _count_from_start(case: Case, frames: Frames | None) -> None:
    """Require that indices of valid updates select the same entries in both programs; resolve those from the end.

    Raises:
        Refused: the axis is not padded at its end, or the batch shares its axis.
    """
    fact = case.fact(1)
    if frames is None or (frames.is_suffix_padded and fact.valid.low >= 0):
        return
    rows = () if fact.rows_axis is None else fact.axis(fact.rows_axis) or ()
    if not frames.is_suffix_padded or (case.batch is not None and len(rows) != 1):
        raise refuse(
            f"{case.op} by indices of {fact.valid} along {frames}",
            "count indices from the start of an axis padded behind: Clip them to 0 or more",
        )
    case.rewrite("from_end", 1, frames.size)


def _nothing(case: Case) -> float:
    """Return the update that changes nothing.

    Raises:
        Refused: updates replace entries, or are compared with NaN.
    """
    reduction = str(case.attribute("reduction", "none"))
    if reduction in ADDED:
        return ADDED[reduction]
    if reduction in ("max", "min"):
        if case.fact(0).anywhere.nan or case.fact(2).valid.nan:
            raise refuse(f"{case.op} by {reduction} of NaN, which a later update may hide", "keep NaN out by Where")
        sign = -1 if reduction == "max" else 1
        if case.dtype(2).is_floating_point():
            return sign * math.inf
        return case.lowest(2) if sign < 0 else case.highest(2)
    raise refuse(
        f"{case.op} replaces entries by padded updates", "scatter by add, max or min, or select the entries by Where"
    )


def _scattered(case: Case, region: Region, axis: int) -> Interval:
    """Return the interval of entries in a region after updates from anywhere along the axis."""
    data, updates = case.fact(0), case.fact(2)
    reduction = case.attribute("reduction", "none")
    old_content = data.content(region & frozenset(data.padded))
    others = region & frozenset(updates.padded) - {axis}
    added = updates.content(others) if axis not in updates.padded else everywhere(updates, others, axis)
    if reduction in ("none", "max", "min"):
        return hull(old_content, added)
    if not old_content.is_finite or not added.is_finite:
        return ANYTHING
    if reduction == "mul":
        return Interval(-1.0, 1.0) if max(old_content.magnitude, added.magnitude) <= 1 else ANYTHING
    dims = [case.dims(2)[axis]]
    count = float(dims[0]) if isinstance(dims[0], int) else LONGEST
    low = old_content.low + min(added.low, 0.0) * count
    held = stored(Interval(low, old_content.high + max(added.high, 0.0) * count), case.dtype())
    return held if held.is_finite else ANYTHING


def scatter_nd(case: Case) -> Verdict:
    """Judge ScatterND of updates by indices (row, entry, ..): every row writes into itself.

    Raises:
        Refused: the indices are of another kind, or rows write into others.
    """
    _check_scattered(case)
    depth, places = case.dims(1)[-1], case.rank(1) - 1
    if not isinstance(depth, int) or depth < 2 or places < 1:
        raise refuse(
            "ScatterND by indices other than (row, entry) of every place", "write it by ScatterElements, as scatter_add"
        )
    counted = counted_components(case, depth)
    data, updates = case.fact(0), case.fact(2)
    rows = data.axis(0)
    if rows is None or rows != updates.axis(0) or not has_rows(rows) or len(rows) > 1 or counted[0] != 0:
        raise refuse("ScatterND into other rows than its own: rows of one batch would mix", "write row i into row i")
    laid_out = case.fact(1).axis(1) if places > 1 else None
    behind = {data_axis - depth: layout for data_axis, layout in data.axes if data_axis >= depth}
    if behind != {update_axis - places: layout for update_axis, layout in updates.axes if update_axis >= places} or (
        laid_out is not None and laid_out != updates.axis(1)
    ):
        raise refuse("ScatterND of differently laid out data, indices and updates", "lay all three out alike")
    if depth == places == 2:
        return _scattered_along(case)
    inside = [data_axis for data_axis in data.tracked if 0 < data_axis < depth]
    if inside or any(0 < tracked_axis < places for fact in (case.fact(1), updates) for tracked_axis in fact.tracked):
        raise refuse(
            f"ScatterND by indices of {depth} numbers along a padded axis", "write along one axis, by (row, entry)"
        )

    def content(region: Region) -> Interval:
        replaced = case.attribute("reduction", "none") == "none"
        new = updates.content(frozenset(data_axis - depth + places for data_axis in region))
        return hull(data.content(region), new) if replaced else ANYTHING

    return case.verdict("IX3", "every row puts entries in place in itself", case.output(data.tracked, content))


def _scattered_along(case: Case) -> Verdict:
    """Judge a ScatterND of single entries of each row, along an axis that may be padded."""
    frames, written = case.simple_frames(0, 1), case.simple_frames(2, 1)
    _count_from_start(case, frames)
    if written is not None:
        case.fill(2, 1, _nothing(case))
        case.fill(1, 1, 0.0)
    out = case.output(case.fact(0).tracked, lambda region: _scattered(case, region, 1))
    sizes = [case.dims(0)[1] if frames is None else frames.size]
    return case.verdict("IX8", "what padding puts in place changes nothing", out, at_least_one=sizes)


TABLE: Table = {
    ("", "Gather"): gather,
    ("", "GatherElements"): gather_elements,
    ("", "GatherND"): gather_nd,
    ("", "OneHot"): one_hot,
    ("", "ScatterElements"): scatter_elements,
    ("", "ScatterND"): scatter_nd,
    ("", "Scatter"): named_refusal("is out of date", "use ScatterElements"),
    ("", "TensorScatter"): named_refusal("writes rows at places that lengths choose", "join caches by Concat"),
}
