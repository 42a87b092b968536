"""Replaces writes at fixed positions, which exporters make from slice assignments, by Concat, Gather or Where.

    y = ScatterND(x [10, ...], [[7], [8], [9]], new)     ->  y = Concat<axis = 0>(Slice(x, 0, 7), new)
    y = ScatterND(x [10, ...], [[0], [2], [4]], new)     ->  y = Gather(Concat(x, new), [10, 1, 11, 3, 12, 5, ..])
    y = ScatterND(x, [[0], [1], ..], new)                ->  y = new, where every row of x is written, in order
    y = ScatterND(x [n, ...], Range(0, n)[1:], new)      ->  y = Concat<axis = 0>(Slice(x, 0, 1), new)
    y = ScatterND(x [n, ...], Range(0, n)[-2:], 0.0)     ->  y = Where(Range(0, n) >= n - 2, 0.0, x)
    y = ScatterND(x, NonZero(mask), 0.0)                 ->  y = Where(mask, 0.0, x)
    y = ScatterElements<axis = 2>(x [.., 4], 3, new)     ->  y = Concat<axis = 2>(Slice(x, 0, 3), new)

Without a reduction, and where no caller can change which places are written, this is what is written in which order;
places that are written twice stay as they are. What is one number, or the same along an axis whose length is not known,
is chosen by place: so every place stays where it is. The Where of ONNX Runtime makes -0.0 a 0.0; all else is exact.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.rewriting.simplification.constants import constant_of
from compiler.rewriting.simplification.masked_writes import masked
from compiler.rewriting.simplification.rules import Candidate, Rule
from compiler.rewriting.simplification.spread import chosen, spread_from
from compiler.rewriting.simplification.written_places import WHOLE, Known, Places, Run, written_places

Bound = int | ir.Value
"""A place, as a number or int64 [1]."""


def scatter_nd(candidate: Candidate) -> ir.Value | None:
    """Rewrite a ScatterND of a block: along every axis all entries, a contiguous range, or known ones."""
    data, rows, new = (candidate.value(number) for number in range(3))
    if _adds(candidate.node) or data is None or rows is None or new is None:
        return None
    dims = graphs.dims_of(data)
    if not dims:
        return None
    places = written_places(rows, dims)
    if places is None:
        return masked(candidate, data, rows, new)
    if any(place != WHOLE and not isinstance(dim, int) for place, dim in zip(places, dims, strict=False)):
        by_place = _by_place(candidate, data, new, places)
        if by_place is not None:
            return by_place
    return _block(candidate, data, new, places, 0)


def _block(candidate: Candidate, data: ir.Value, new: ir.Value, places: Sequence[Places], axis: int) -> ir.Value | None:
    """Return `data` with `new` written at places along axes from `axis` on, one axis after the other."""
    while axis < len(places) and places[axis] == WHOLE:
        axis += 1
    if axis == len(places):
        return new
    first = places[axis]
    if isinstance(first, Known) and any(place != WHOLE for place in places[axis + 1 :]):
        return None
    if isinstance(first, Known):
        dims = graphs.dims_of(data)
        count = None if dims is None else dims[axis]
        return _joined(candidate, data, new, axis, first.places, count) if isinstance(count, int) else None
    parts = _slice_run(candidate, data, axis, first)
    inner = _block(candidate, parts[1], new, places, axis + 1)
    if inner is None:
        return None
    written_parts = [part for part in (parts[0], inner, parts[2]) if part is not None]
    return candidate.insert.op("Concat", written_parts, {"axis": axis}, name="written", dtype=data.dtype)


def _slice_run(
    candidate: Candidate, data: ir.Value, axis: int, run: Run
) -> tuple[ir.Value | None, ir.Value, ir.Value | None]:
    """Return the entries in front of a range, in the range, and behind it, for any length of the axis."""
    rest = data if run.start == 0 else _slice(candidate, data, run.start, None, axis, "from_run")
    front = None if run.start == 0 else _slice(candidate, data, 0, run.start, axis, "in_front")
    if run.end is None:
        return front, rest, None
    crosses = isinstance(run.end, int) and run.end < 0 <= run.start
    behind = _slice(candidate, rest if crosses else data, run.end, None, axis, "behind")  # [1:-1] of one entry has none
    return front, _slice(candidate, data, run.start, run.end, axis, "run"), behind


def _slice(candidate: Candidate, data: ir.Value, start: Bound, end: Bound | None, axis: int, name: str) -> ir.Value:
    given = (start, np.iinfo(np.int64).max if end is None else end, axis)
    bounds = [each if isinstance(each, ir.Value) else candidate.insert.int64s(each) for each in given]
    return candidate.insert.op("Slice", [data, *bounds], name=name, dtype=data.dtype)


def _by_place(candidate: Candidate, data: ir.Value, new: ir.Value, places: Sequence[Places]) -> ir.Value | None:
    """Select updates by position, where they are constant along the axes that are partly written."""
    partial = [axis for axis, place in enumerate(places) if place != WHOLE]
    source = spread_from(candidate, new, partial)
    if source is None:
        return None
    shape = candidate.insert.op("Shape", [data], name="sizes", dtype=ir.DataType.INT64)
    rank = len(graphs.dims_of(data) or ())
    masks = [_is_written(candidate, shape, axis, rank, places[axis]) for axis in partial]
    where = masks[0]
    for other in masks[1:]:
        where = candidate.insert.op("And", [where, other], name="is_written", dtype=ir.DataType.BOOL)
    return chosen(candidate, where, source, data)


def _is_written(candidate: Candidate, shape: ir.Value, axis: int, rank: int, places: Places) -> ir.Value:
    """Return at which positions of an axis something is written: bool, with all other axes of size 1."""
    insert = candidate.insert
    numbers = [insert.constant(np.array(number, np.int64), "number") for number in (0, 1)]
    size = insert.op("Gather", [shape, insert.constant(np.array(axis, np.int64), "axis")], {"axis": 0}, name="size")
    counted = insert.op("Range", [numbers[0], size, numbers[1]], name="places", dtype=ir.DataType.INT64)
    if isinstance(places, Known):
        bounds: list[tuple[str, Bound]] = [("Equal", int(place)) for place in places.places]
    else:
        bounds = [("GreaterOrEqual", places.start)] if places.start else []
        bounds += [("Less", places.end)] if places.end is not None else []
    tests = [
        insert.op(op, [counted, _bound(insert, size, bound)], name="test", dtype=ir.DataType.BOOL)
        for op, bound in bounds
    ]
    joint = tests[0]
    for other in tests[1:]:
        joint = insert.op(
            "Or" if isinstance(places, Known) else "And", [joint, other], name="tests", dtype=ir.DataType.BOOL
        )
    behind = [other_axis for other_axis in range(rank) if other_axis > axis]
    return insert.op("Unsqueeze", [joint, insert.int64s(*range(1, len(behind) + 1))], name="tests") if behind else joint


def _bound(insert: graphs.Inserter, size: ir.Value, number: Bound) -> ir.Value:
    """Return a bound as a position; a negative one counts from the end."""
    if isinstance(number, ir.Value):
        return number
    constant = insert.constant(np.array(number, np.int64), "bound")
    return constant if number >= 0 else insert.op("Add", [size, constant], name="from_end", dtype=ir.DataType.INT64)


def scatter_elements(candidate: Candidate) -> ir.Value | None:
    """Rewrite a ScatterElements along one axis at a single index that is the same everywhere."""
    data, places, new = (candidate.value(number) for number in range(3))
    if _adds(candidate.node) or data is None or new is None:
        return None
    dims, written = graphs.dims_of(data), graphs.dims_of(new)
    fixed = _same_everywhere(places)
    if not dims or written is None or fixed is None:
        return None
    axis = axis_of(candidate.node, len(dims))
    count, others = dims[axis], [dim for other_axis, dim in enumerate(dims) if other_axis != axis]
    if (
        not isinstance(count, int)
        or written[axis] != 1
        or [d for other_axis, d in enumerate(written) if other_axis != axis] != others
    ):
        return None
    return _joined(candidate, data, new, axis, fixed, count)


def _adds(node: ir.Node) -> bool:
    return str(graphs.attribute(node, "reduction", "none")) != "none"


def _same_everywhere(value: ir.Value | None) -> np.ndarray | None:
    """Return the single number that a value holds, int64 [1]; None where it varies."""
    made = None if value is None else value.producer()
    array = constant_of(made.inputs[0]) if made is not None and graphs.is_op(made, "Expand") else constant_of(value)
    if array is None or array.size == 0 or (array != array.reshape(-1)[0]).any():
        return None
    return array.reshape(-1)[:1]


def _joined(
    candidate: Candidate, data: ir.Value, new: ir.Value, axis: int, places: np.ndarray, count: int
) -> ir.Value | None:
    """Return data joined with updates in place of a range of entries; by lookup where the places have gaps."""
    if not places.size or places.min() < -count or places.max() >= count:
        return None
    places = places % count
    first, last = int(places[0]), int(places[0]) + places.size
    insert = candidate.insert
    if last > count or (places != np.arange(first, last)).any():
        both = insert.op("Concat", [data, new], {"axis": axis}, name="kept_and_written", dtype=data.dtype)
        order = np.arange(count)
        order[places] = count + np.arange(places.size)
        return insert.op(
            "Gather", [both, insert.int64s(*order.tolist())], {"axis": axis}, name="written", dtype=data.dtype
        )
    front, _, behind = _slice_run(candidate, data, axis, Run(first, last if last < count else None))
    parts = [part for part in (front, new, behind) if part is not None]
    return insert.op("Concat", parts, {"axis": axis}, name="written", dtype=data.dtype) if len(parts) > 1 else new


WRITES: dict[str, Rule] = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
"""The rules that apply to one operator."""
