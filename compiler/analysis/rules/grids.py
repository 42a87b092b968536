"""Indices: when they choose the same entries in both programs; rule IX4, GatherND by grids of them.

mask [batch, time], index [batch, 1, 1, time, 2] = (row, position)  ->  mask[row, position] [batch, 1, 1, time]
"""

from collections.abc import Mapping, Sequence

from compiler.analysis.case import Case
from compiler.analysis.facts import NUMBER, VALID, Region, Verdict, refuse, regions_of
from compiler.analysis.interval import Interval, hull
from compiler.analysis.known_sizes import same
from compiler.analysis.layout import Axis, Frames, frames_of, has_rows
from compiler.analysis.rules.length import created
from compiler.analysis.shape_only import counted_axis, stays_below
from compiler.ir import Dim, int_attribute, is_op


def gather_nd(case: Case) -> Verdict:
    """GatherND: leading axes that both share, numbers of rows that choose the row itself, positions, and indices."""
    data, indices = case.fact(0), case.fact(1)
    shared, depth = case.int_attribute("batch_dims", 0), case.dims(1)[-1]
    if data.is_number:
        return case.verdict("IX2", "numbers are picked", NUMBER)
    if not isinstance(depth, int) or indices.axis(case.rank(1) - 1) is not None:
        raise refuse(f"GatherND by indices of {depth} numbers", "give a fixed number")
    for at in range(shared):
        if data.axis(at) != indices.axis(at):
            raise refuse(
                f"GatherND of {layout_text(case, 0, at)} by indices of {layout_text(case, 1, at)}",
                "lay both out alike along the leading axes",
            )
    counted = _counted_components(case, depth)
    looked_up = range(shared, shared + depth)
    axes = _axes_of_indices(case, counted, shared)
    legal = [_chooses(case, at, counted[at - shared], axes) for at in looked_up]
    if data.rows_axis is not None and data.rows_axis >= shared + depth and _has_rows(axes):
        raise refuse("GatherND of one row's entries by every row's indices", "share the batch axis by batch_dims")
    sizes = {case.dims(0)[at] for at in looked_up}
    if not all(legal) and len(sizes) == 1 and all(data.axis(at) is None for at in looked_up):
        stay_in_range(case, 1, sizes.pop())
    elif not all(legal):
        fill_indices(case, 1)
    shift = case.rank(1) - 1 - depth - shared
    place = {at: at if at < shared else at + shift for at in range(case.rank(0)) if at not in looked_up}
    back = {new: old for old, new in place.items()}
    axes |= {place[at]: layout for at, layout in data.axes if at in place}
    strays = frozenset(at for at in looked_up if at in data.padded)

    def content(region: Region) -> Interval:
        """Indices in the padding may choose padded entries."""
        kept = frozenset(back[at] for at in region if at in back) & frozenset(data.padded)
        beyond = [frozenset(each) for each in regions_of(strays)] if any(at not in back for at in region) else [VALID]
        return hull(*(data.content(kept | each) for each in beyond))

    return case.verdict("IX4", "each row looks up in itself", case.output(axes, content), pointwise=not strays)


def _has_rows(axes: Mapping[int, Axis]) -> bool:
    return any(has_rows(axis) for axis in axes.values())


def _counted_components(case: Case, depth: int) -> list[int | None]:
    """Per component of the indices, the axis along which it counts 0, 1, 2, ..., or None."""
    value = case.node.inputs[1]
    assert value is not None
    node = value.producer()
    last = node is not None and int_attribute(node, "axis", 0) in (-1, case.rank(1) - 1)
    if node is not None and is_op(node, "Concat") and last and len(node.inputs) == depth > 1:
        return [counted_axis(each, case.batch, 0) for each in node.inputs if each is not None]
    return [counted_axis(value, case.batch, entry) for entry in range(depth)]


def _axes_of_indices(case: Case, counted: Sequence[int | None], shared: int) -> dict[int, Axis]:
    """The layouts of the indices' axes but the last.

    Raises:
        Refused: the indices follow from lengths otherwise than by counting.
    """
    data, indices = case.fact(0), case.fact(1)
    axes = dict(indices.axes)
    if not indices.is_number:
        return axes
    if not indices.axes and None in counted:
        raise refuse("GatherND by indices computed from axis lengths", "look up by positions, or by data")
    for at, size in enumerate(case.dims(1)[:-1]):
        named = [data.axis(shared + component) for component, along in enumerate(counted) if along == at]
        layout = next((axis for axis in named if axis is not None), None) or created(case, size)[1]
        if layout is not None:
            axes.setdefault(at, layout)
    return axes


def _chooses(case: Case, at: int, along: int | None, axes: Mapping[int, Axis]) -> bool:
    """Whether the indices into one axis choose the same entries in both programs, and are legal in the padding.

    Raises:
        Refused: they may choose others.
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
    """Indices in the padding may be anything: they must not leave the axis, which ends the run."""
    if not case.fact(operand).padded:
        return
    if isinstance(size, int):
        case.clamp(operand, -size, size - 1)
    else:
        fill_indices(case, operand)


def positions_into(case: Case, operand: int, frames: Frames) -> None:
    """Computed indices into a padded axis point at the same entries in both programs.

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
        fill_indices(case, operand)


def _stays_below(case: Case, operand: int, size: Dim) -> bool:
    """Whether indices that all rows share are legal wherever they are."""
    value = case.node.inputs[operand]
    return case.fact(operand).rows_axis is None and value is not None and stays_below(value, size, case.batch)


def fill_indices(case: Case, operand: int) -> None:
    """Indices in the padding look up entry 0.

    Raises:
        Refused: all rows share the indices, whose padding differs between rows.
    """
    fact = case.fact(operand)
    if fact.padded and fact.rows_axis is None and case.batch is not None:
        raise refuse(f"{case.op} by computed indices that all rows share", "give the indices the batch axis")
    for at in fact.padded:
        case.fill(operand, at, 0.0)


def layout_text(case: Case, operand: int, at: int) -> str:
    """How an axis of an operand is laid out, for messages."""
    axis = case.fact(operand).axis(at)
    return f"[{case.dims(operand)[at]}]" if axis is None else " * ".join(map(str, axis))
