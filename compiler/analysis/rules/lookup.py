"""Rules LK and IX: entries chosen by index."""

import numpy as np

from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import Interval
from compiler.analysis.layout import Axis, Frames, has_rows
from compiler.analysis.registry import Table
from compiler.ir import Dim


def gather(case: Case) -> Verdict:
    """Gather: rows of a table by (padded) ids, or fixed entries of a padded axis."""
    axis = case.axis_attribute("axis", 0)
    data = case.fact(0)
    if case.fact(1).is_number:
        raise refuse("Gather by an axis length", "slice by the length, or gather entry -1")
    if data.is_number:
        raise refuse("Gather of axis lengths by data", "use lengths as shapes only")
    case.refuse_rows(0, axis, "looks up along")
    frames = case.simple_frames(0, axis)
    if frames is not None:
        return _entries_of_padded(case, axis, frames)
    _indices_in_range(case, 1, case.dims(0)[axis])
    indices = case.fact(1)
    index_rank = case.rank(1)
    if data.rows_axis is not None and indices.rows_axis is not None:
        raise refuse("Gather of one row's entries by every row's indices", "use GatherElements or a batched gather")
    place = {at: (at if at < axis else at + index_rank - 1) for at in range(case.rank(0)) if at != axis}
    axes: dict[int, Axis] = {place[at]: layout for at, layout in data.axes}
    axes |= {at + axis: layout for at, layout in indices.axes}
    back = {new: old for old, new in place.items()}

    def content(region: Region) -> Interval:
        return data.content(back[at] for at in region if at in back and back[at] in data.padded)

    return case.verdict("IX2", "entries of another axis", case.output(axes, content), pointwise=True)


def _indices_in_range(case: Case, operand: int, size: Dim) -> None:
    """Indices in the padding may be anything: they must not leave the axis."""
    if not case.fact(operand).padded:
        return
    if isinstance(size, int):
        case.clamp(operand, -size, size - 1)
        return
    for at in case.fact(operand).padded:
        case.fill(operand, at, 0.0)


def _entries_of_padded(case: Case, axis: int, frames: Frames) -> Verdict:
    """Fixed entries of a padded axis, counted from the end that holds the valid ones."""
    array = case.array(1)
    data = case.fact(0)
    if array is None:
        return _by_position(case, axis, frames)
    numbers = [int(each) for each in array.reshape(-1)]
    place = {at: (at if at < axis else at + array.ndim - 1) for at in range(case.rank(0)) if at != axis}
    back = {new: old for old, new in place.items()}
    axes = {place[at]: layout for at, layout in data.axes if at != axis}

    def content(region: Region) -> Interval:
        return data.content(back[at] for at in region)

    out = case.output(axes, content)
    if frames.is_suffix_padded and all(number >= 0 for number in numbers):
        sizes = [frames.size - max(numbers)]
        return case.verdict("IX1", "counted from the valid end", out, at_least_one=sizes)
    if frames.is_prefix_padded and all(number < 0 for number in numbers):
        sizes = [frames.size + min(numbers) + 1]
        return case.verdict("IX1", "counted from the valid end", out, at_least_one=sizes)
    if frames.is_suffix_padded and numbers == [-1] and data.rows_axis is not None:
        case.rewrite("last_entry", axis)
        return case.verdict("IX1", "the last valid entry of each row", out, at_least_one=[frames.size])
    raise refuse(
        f"Gather of entries {numbers} of {frames}, which are chosen by slot, not by position",
        "take entries from the end that holds no padding, or the last one",
    )


def _by_position(case: Case, axis: int, frames: Frames) -> Verdict:
    """Computed indices into a padded axis: valid ones point at valid entries when they count from its start."""
    indices, data = case.fact(1), case.fact(0)
    if not frames.is_suffix_padded or indices.valid.low < 0:
        raise refuse(f"Gather by computed indices along {frames}", "gather before padding, or count from the start")
    if data.rows_axis is not None and indices.rows_axis is not None:
        raise refuse("Gather of one row's entries by every row's indices", "use GatherElements or a batched gather")
    for at in indices.padded:
        case.fill(1, at, 0.0)
    indices = case.fact(1)
    index_rank = case.rank(1)
    place = {at: (at if at < axis else at + index_rank - 1) for at in range(case.rank(0)) if at != axis}
    back = {new: old for old, new in place.items()}
    axes = {place[at]: layout for at, layout in data.axes if at != axis}
    axes |= {at + axis: layout for at, layout in indices.axes}

    def content(region: Region) -> Interval:
        return data.content(back[at] for at in region if at in back and back[at] in data.padded)

    return case.verdict("IX1", "valid indices count from the start", case.output(axes, content))


def gather_elements(case: Case) -> Verdict:
    """GatherElements along an untracked axis, all other axes alike in data and indices."""
    axis = case.axis_attribute("axis", 0)
    data, indices = case.fact(0), case.fact(1)
    if data.axis(axis) is not None:
        case.refuse_rows(0, axis, "looks up along")
        raise refuse("GatherElements along a padded axis", "gather along a fixed axis")
    for at in range(case.rank(0)):
        if at != axis and data.axis(at) != indices.axis(at):
            raise refuse("GatherElements of differently padded data and indices", "pad both alike")
    _indices_in_range(case, 1, case.dims(0)[axis])
    indices = case.fact(1)

    def content(region: Region) -> Interval:
        return data.content(at for at in region if at in data.padded)

    return case.verdict("IX2", "entries of another axis", case.output(indices.tracked, content), pointwise=True)


def one_hot(case: Case) -> Verdict:
    """OneHot: a new axis of fixed size."""
    depth = case.constants(1, "depth")
    fact = case.fact()
    values = case.array(2)
    if values is None:
        raise refuse("OneHot with computed values", "give constant values")
    rank = case.rank()
    axis = case.int_attribute("axis", -1) % (rank + 1)
    kept = {at: (at if at < axis else at + 1) for at in range(rank)}
    moved = case.moved(0, kept)
    bounds = Interval(float(np.min(values)), float(np.max(values)))
    out = case.output(moved.tracked, lambda region: bounds)
    assert fact is not None and depth
    return case.verdict("IX19", "one class at every place", out, pointwise=True)


def scatter(case: Case) -> Verdict:
    """ScatterND, ScatterElements: only where nothing tracked reaches the indices."""
    if case.fact(1).axes or any(has_rows(axis) for _, axis in case.fact(0).axes):
        raise refuse(f"{case.op} with tracked indices or rows", "write the values by Where")
    raise refuse(f"{case.op} into a padded value", "write the values by Where")


TABLE: Table = {
    ("", "Gather"): gather,
    ("", "GatherElements"): gather_elements,
    ("", "OneHot"): one_hot,
    ("", "ScatterND"): scatter,
    ("", "ScatterElements"): scatter,
}
