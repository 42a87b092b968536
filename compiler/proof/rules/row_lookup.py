"""Proves how padding acts on lookups whose positions depend on each row's own length (rules IX6 and IX7).

    x[arange(B), n - 1];  x.gather(1, (n - 1)[:, None, None]);  x.flip(1);  x[:, T // 2 :]

Rule ids: IX6 one run of entries, IX7 one entry of each row. An index that is legal for a row alone chooses the same
entry of the row in the padded program; negative ones count from the row's own end.
"""

from collections.abc import Sequence

from compiler.graph.model import Dim, symbol
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Region, Verdict, make_fact, refuse
from compiler.proof.facts.interval import LONGEST, Interval, hull
from compiler.proof.facts.layout import Axis, Rows, suffix
from compiler.proof.facts.length_data import own_layouts
from compiler.proof.facts.meaning import legal_from
from compiler.proof.facts.row_value_plans import Planner, RowValueLayout


def run_of(case: Case, axis: int, first: Dim, step: int, size: Dim) -> Fact:
    """Return the fact of consecutive entries, the first of which lies elsewhere in every row.

    Raises:
        Refused: the entries of a row are unknown.
    """
    require_rows(case, axis)
    case.rewrite("run_of_entries", axis, first, step, size)
    return taken(case, axis, [None if isinstance(size, int) else suffix(size)])


def own_entry(case: Case, along: int) -> Verdict:
    """Judge GatherND by pairs (row, number), the first of which count rows along an axis of the indices.

    Raises:
        Refused: the entries of a row are unknown.
    """
    if case.fact(0).rows_axis != 0 or case.dims(1)[-1] != 2:
        raise refuse("GatherND by numbers of axis lengths, not by (row, number)", "put the batch in front")
    require_rows(case, 1)
    dims = case.dims(1)
    layouts, legal = own_layouts(case, dims), legal_from(case, 1, case.dims(0)[:2], components=True)
    Planner(case.batch, numbered=True).plan(case.node.inputs[1], layouts)
    case.rewrite("own_entries", RowValueLayout(len(dims), along, _rows(case), layouts))
    data, shift = case.fact(0), len(dims) - 3
    axes = {axis_number: axis for axis_number, axis in enumerate(layouts) if axis is not None}
    axes |= {axis_number + shift: axis for axis_number, axis in data.axes if axis_number > 1} | {along: _rows(case)}

    def content(region: Region) -> Interval:
        data_region = frozenset(
            axis_number - shift for axis_number in region if axis_number >= len(dims) - 1
        ) & frozenset(data.padded)
        return _chosen(data, data_region, 1, strays=any(axis_number < len(dims) - 1 for axis_number in region))

    out = case.output(axes, content)
    return case.verdict("IX7", "one entry of each row by its number", out, at_least_one=[*_entries(case, 1), *legal])


def own_numbers(case: Case) -> Verdict:
    """Judge GatherND within each row (batch_dims = 1) by numbers [batch, ..., 1].

    Raises:
        Refused: the numbers cannot be computed per row.
    """
    require_rows(case, 1)
    data, dims = case.fact(0), case.dims(1)
    if dims[0] != case.dims(0)[0]:
        raise refuse(f"GatherND by indices of {dims[0]} rows", "expand the indices to the batch")
    place = RowValueLayout(len(dims), 0, _rows(case), own_layouts(case, dims), whole=True)
    Planner(case.batch).plan(case.node.inputs[1], place.layouts)
    legal = legal_from(case, 1, [case.dims(0)[1]], components=True)
    case.rewrite("legal_numbers", 1, place)
    case.facts[1] = legal_fact(place)
    shift = len(dims) - 3
    axes = {axis_number: axis for axis_number, axis in place.axes.items() if axis_number < len(dims) - 1}
    axes |= {axis_number + shift: axis for axis_number, axis in data.axes if axis_number > 1}

    def content(region: Region) -> Interval:
        data_region = frozenset(
            axis_number - shift for axis_number in region if axis_number >= len(dims) - 1
        ) & frozenset(data.padded)
        return _chosen(data, data_region, 1, strays=any(axis_number < len(dims) - 1 for axis_number in region))

    out = case.output(axes, content)
    return case.verdict("IX7", "one entry of each row by its number", out, at_least_one=[*_entries(case, 1), *legal])


def legal_elements(case: Case, axis: int) -> tuple[Dim, ...]:
    """Replace indices of GatherElements that depend on axis lengths by slots of each row.

    Returns:
        The sizes that must be at least 1 for the indices to be legal.

    Raises:
        Refused: the indices cannot be computed per row.
    """
    require_rows(case, axis)
    data, dims = case.fact(0), case.dims(1)
    rows_at = data.rows_axis
    assert rows_at is not None
    if dims[rows_at] != case.dims(0)[rows_at]:
        raise refuse(f"GatherElements by indices of {dims[rows_at]} rows", "expand the indices to the batch")
    own_axes = own_layouts(case, dims)
    layouts = [
        None
        if axis_number == rows_at or dim == 1
        else own_axes[axis_number]
        if axis_number == axis or data.axis(axis_number) is None
        else data.axis(axis_number)
        for axis_number, dim in enumerate(dims)
    ]
    place = RowValueLayout(len(dims), rows_at, _rows(case), tuple(layouts), whole=True)
    Planner(case.batch).plan(case.node.inputs[1], place.layouts)
    case.rewrite("legal_numbers", axis, place)
    case.facts[1] = legal_fact(place)
    return legal_from(case, 1, [case.dims(0)[axis]])


def legal_fact(place: RowValueLayout) -> Fact:
    """Return the fact of numbers that are legal slots everywhere."""
    return make_fact(place.axes, lambda region: Interval(0.0, LONGEST))


def require_rows(case: Case, axis: int) -> None:
    """Require that every row has its own entries along an axis, counted from either end.

    Raises:
        Refused: rows share the entries, or the axis has several segments.
    """
    data = case.fact(0)
    rows = None if data.rows_axis is None else data.axis(data.rows_axis)
    frames = case.simple_frames(0, axis)
    if case.batch is None or rows is None or len(rows) > 1:
        raise refuse(
            f"{case.op} by numbers of axis lengths, which differ from row to row, of a value that rows share",
            "keep the batch an axis of its own in the value that entries are chosen from",
        )
    if frames is not None and not (frames.is_suffix_padded or frames.is_prefix_padded):
        raise refuse(
            f"{case.op} by numbers of axis lengths along {frames}", "choose the entry before the axis is joined"
        )


def taken(case: Case, axis: int, layouts: Sequence[Axis | None]) -> Fact:
    """Return the fact of entries looked up in place of an axis; entries of padded slots may be anything."""
    data, count = case.fact(0), len(layouts)
    place = {
        data_axis: data_axis if data_axis < axis else data_axis + count - 1
        for data_axis in range(case.rank(0))
        if data_axis != axis
    }
    back = {new: old for old, new in place.items()}
    axes = {place[data_axis]: layout for data_axis, layout in data.axes if data_axis != axis}
    axes |= {axis + index_axis: layout for index_axis, layout in enumerate(layouts) if layout is not None}

    def content(region: Region) -> Interval:
        data_region = frozenset(back[result_axis] for result_axis in region if result_axis in back) & frozenset(
            data.padded
        )
        return _chosen(data, data_region, axis, strays=any(result_axis not in back for result_axis in region))

    return case.output(axes, content)


def _chosen(data: Fact, kept: Region, axis: int, *, strays: bool) -> Interval:
    both = [kept | {axis}] if strays and axis in data.padded else []
    return hull(*(data.content(each) for each in (kept, *both)))


def _rows(case: Case) -> Axis:
    return (Rows(symbol(str(case.batch))),)


def _entries(case: Case, axis: int) -> list[Dim]:
    frames = case.fact(0).frames(axis)
    return [] if frames is None else [frames.size]
