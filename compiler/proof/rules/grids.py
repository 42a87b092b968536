"""Proves that the indices of a GatherND select the same entries in the padded program as in the original (rules IX).

Rule ids: IX4 GatherND by grids of indices, IX5 indices that follow from lengths, made again for every row.

mask [batch, time], index [batch, 1, 1, time, 2] = (row, position)  ->  mask[row, position] [batch, 1, 1, time]
"""

from collections.abc import Mapping, Sequence

from compiler.graph.lengths.symbolic_entries import counted_axis, stays_below
from compiler.graph.lengths.symbolic_values import same
from compiler.graph.model import Dim, dims_of, is_op
from compiler.graph.operators.axes import axis_of
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, VALID, Region, Verdict, refuse, regions_of
from compiler.proof.facts.interval import Interval, hull
from compiler.proof.facts.layout import Axis, Frames, frames_of, has_rows
from compiler.proof.facts.meaning import legal_from
from compiler.proof.rules.length import created
from compiler.proof.rules.row_lookup import own_entry, own_numbers
from compiler.proof.rules.row_values import check_row_values


def gather_nd(case: Case) -> Verdict:
    """Judge GatherND: shared leading axes, indices that select the row itself, positions, and data."""
    data, indices = case.fact(0), case.fact(1)
    shared, depth = case.int_attribute("batch_dims", 0), case.dims(1)[-1]
    if data.is_number:
        return case.verdict("IX2", "numbers are picked", NUMBER)
    if not isinstance(depth, int) or indices.axis(case.rank(1) - 1) is not None:
        raise refuse(f"GatherND by indices of {depth} numbers", "give a fixed number")
    if indices.is_number and not indices.axes and shared == depth == 1 and data.rows_axis == 0:
        return own_numbers(case)
    for axis in range(shared):
        if data.axis(axis) != indices.axis(axis):
            raise refuse(
                f"GatherND of {layout_text(case, 0, axis)} by indices of {layout_text(case, 1, axis)}",
                "lay both out alike along the leading axes",
            )
    counted = counted_components(case, depth)
    if indices.is_number and data.is_plain:
        return case.verdict("IX4", "entries of a table by numbers", NUMBER)
    if indices.is_number and not indices.axes and None in counted and shared == 0 and counted[0] is not None:
        return own_entry(case, counted[0])
    looked_up = range(shared, shared + depth)
    if not shared and indices.rows_axis is None and _must_be_made_again(case, counted, looked_up):
        return look_up_again(case, looked_up, case.rank(1) - 1, components=True)
    axes = _axes_of_indices(case, counted)
    legal = [_chooses(case, axis, counted[axis - shared], axes) for axis in looked_up]
    if data.rows_axis is not None and data.rows_axis >= shared + depth and _has_rows(axes):
        raise refuse("GatherND of one row's entries by every row's indices", "share the batch axis by batch_dims")
    sizes = {case.dims(0)[axis] for axis in looked_up}
    if not all(legal) and len(sizes) == 1 and all(data.axis(axis) is None for axis in looked_up):
        stay_in_range(case, 1, sizes.pop())
    elif not all(legal):
        if len(sizes) > 1 and indices.rows_axis is None and case.batch is not None:
            raise refuse("GatherND by computed indices that all rows share", "look up along one axis at a time")
        fill_indices(case, 1, min(sizes, key=str))
    shift = case.rank(1) - 1 - depth - shared
    place = {axis: axis if axis < shared else axis + shift for axis in range(case.rank(0)) if axis not in looked_up}
    back = {new: old for old, new in place.items()}
    axes |= {place[axis]: layout for axis, layout in data.axes if axis in place}
    strays = frozenset(axis for axis in looked_up if axis in data.padded)

    def content(region: Region) -> Interval:
        """Return the interval of a region; indices in padding may select padded entries."""
        data_region = frozenset(back[axis] for axis in region if axis in back) & frozenset(data.padded)
        beyond = (
            [frozenset(stray_region) for stray_region in regions_of(strays)]
            if any(axis not in back for axis in region)
            else [VALID]
        )
        return hull(*(data.content(data_region | stray_region) for stray_region in beyond))

    return case.verdict("IX4", "each row looks up in itself", case.output(axes, content), pointwise=not strays)


def _must_be_made_again(case: Case, counted: Sequence[int | None], looked_up: Sequence[int]) -> bool:
    """Whether indices shared by all rows select other entries in the padded program, or count from the end."""
    indices = case.fact(1)
    if any((axis := case.fact(0).axis(at)) is not None and has_rows(axis) for at in looked_up):
        return False
    if indices.is_number:
        return None in counted
    return indices.valid.low < 0 and any(case.fact(0).frames(at) is not None for at in looked_up)


def look_up_again(case: Case, looked_up: Sequence[int], rank: int, *, components: bool = False) -> Verdict:
    """Judge a lookup by indices computed from lengths, which each row computes from its own.

    Args:
        case: the node; its indices are operand 1.
        looked_up: the neighbouring axes that are indexed.
        rank: rank of the indices, without the axis of their components.
        components: whether the indices have such an axis.

    Raises:
        Refused: the indices cannot be computed row by row, or all rows share the data.
    """
    check_row_values(case, 1)
    data = case.fact(0)
    if case.batch is not None and data.rows_axis is None:
        raise refuse(
            f"{case.op} of entries that all rows share by indices that follow from the length of each",
            "give what is looked up the batch axis, as by expand",
        )
    frames = [case.simple_frames(0, axis) for axis in looked_up]
    if any(frames_of_axis is not None and not frames_of_axis.is_suffix_padded for frames_of_axis in frames):
        raise refuse(f"{case.op} into {layout_text(case, 0, looked_up[0])}", "look up along an axis padded at its end")
    case.rewrite("look_up_again", tuple(looked_up))
    shift = rank - len(looked_up)
    place = {
        axis: axis if axis < looked_up[0] else axis + shift for axis in range(case.rank(0)) if axis not in looked_up
    }
    axes = {place[axis]: layout for axis, layout in data.axes if axis in place}
    for axis, size in enumerate(case.dims(1)[:rank]):
        layout = created(case, size)[1]
        if layout is not None:
            axes[looked_up[0] + axis] = layout
    back = {new: old for old, new in place.items()}

    def content(region: Region) -> Interval:
        return data.content(back[axis] for axis in region if axis in back)

    sizes = [
        case.dims(0)[axis] if frames_of_axis is None else frames_of_axis.size
        for axis, frames_of_axis in zip(looked_up, frames, strict=True)
    ]
    sizes += legal_from(case, 1, [case.dims(0)[axis] for axis in looked_up], components=components)
    return case.verdict("IX5", "every row looks up by its own length", case.output(axes, content), at_least_one=sizes)


def _has_rows(axes: Mapping[int, Axis]) -> bool:
    return any(has_rows(axis) for axis in axes.values())


def counted_components(case: Case, depth: int) -> list[int | None]:
    """Return, per component of the indices, the axis along which it counts 0, 1, 2, ...; None where it does not."""
    value = case.node.inputs[1]
    assert value is not None
    node = value.producer()
    last = node is not None and axis_of(node, case.rank(1)) == case.rank(1) - 1
    if node is not None and is_op(node, "Concat") and last:
        parts = [(each, (dims_of(each) or (None,))[-1]) for each in node.inputs if each is not None]
        if all(isinstance(count, int) for _, count in parts):
            return [counted_axis(each, at) for each, count in parts if isinstance(count, int) for at in range(count)]
    return [counted_axis(value, entry) for entry in range(depth)]


def _axes_of_indices(case: Case, counted: Sequence[int | None]) -> dict[int, Axis]:
    """Return the layouts of the indices' axes, except the last.

    Raises:
        Refused: the indices depend on lengths, but do not count.
    """
    indices = case.fact(1)
    axes = dict(indices.axes)
    if not indices.is_number:
        return axes
    if not indices.axes and None in counted:
        raise refuse("GatherND by indices computed from axis lengths", "look up by positions, or by data")
    for axis, size in enumerate(case.dims(1)[:-1]):
        layout = created(case, size)[1]
        if layout is not None:
            axes.setdefault(axis, layout)
    return axes


def _chooses(case: Case, at: int, along: int | None, axes: Mapping[int, Axis]) -> bool:
    """Whether the indices into one axis select the same entries in both programs, and are legal in the padding.

    Raises:
        Refused: they may select other entries.
    """
    data, indices = case.fact(0), case.fact(1)
    layout, size = data.axis(at), case.dims(0)[at]
    if layout is None:
        whole = indices.content(VALID) if not indices.axes else indices.anywhere
        inside = isinstance(size, int) and -size <= whole.low and whole.high < size
        return (along is not None and same(case.dims(1)[along], size)) or (inside and not indices.is_number)
    if has_rows(layout):
        if along is None or axes.get(along) != layout or len(layout) > 1:
            raise refuse("GatherND of other rows than its own: rows of one batch would mix", "choose row i for row i")
        return True
    frames = frames_of(layout)
    if frames is None or not frames.is_suffix_padded:
        raise refuse(f"GatherND into {layout_text(case, 0, at)}", "count indices from the start")
    if along is not None and axes.get(along) == layout:
        return True
    if indices.valid.low < 0 or (indices.is_number and not indices.axes):
        raise refuse(f"GatherND by indices of {indices.valid} along {frames}", "count indices from the start")
    return False


def stay_in_range(case: Case, operand: int, size: Dim) -> None:
    """Keep indices in the padding within the axis, as one outside ends the run."""
    if not case.fact(operand).padded:
        return
    if isinstance(size, int):
        case.clamp(operand, -size, size - 1)
    else:
        fill_indices(case, operand, size)


def positions_into(case: Case, operand: int, frames: Frames) -> None:
    """Require that computed indices into a padded axis select the same entries in both programs.

    Raises:
        Refused: some count from the end, or the axis does not begin with entry 0.
    """
    fact = case.fact(operand)
    if not frames.is_suffix_padded or fact.valid.low < 0:
        raise refuse(
            f"{case.op} by indices of {fact.valid} along {frames}",
            "count indices from the start of an axis padded behind",
        )
    counts_slots = fact.index is not None and fact.index.offset == 0 and fact.frames(fact.index.axis) == frames
    if not counts_slots and not _stays_below(case, operand, frames.size):
        fill_indices(case, operand, frames.size)


def _stays_below(case: Case, operand: int, size: Dim) -> bool:
    """Whether indices shared by all rows are legal everywhere."""
    value = case.node.inputs[operand]
    return case.fact(operand).rows_axis is None and value is not None and stays_below(value, size)


def fill_indices(case: Case, operand: int, size: Dim) -> None:
    """Fill indices in the padding with 0; where all rows share them, clamp them below `size` instead."""
    fact = case.fact(operand)
    if fact.padded and fact.rows_axis is None and case.batch is not None:
        case.rewrite("in_range", operand, size)
        return
    for at in fact.padded:
        case.fill(operand, at, 0.0)


def layout_text(case: Case, operand: int, at: int) -> str:
    """Return the layout of an operand's axis as text, for messages."""
    axis = case.fact(operand).axis(at)
    return f"[{case.dims(operand)[at]}]" if axis is None else " * ".join(map(str, axis))
