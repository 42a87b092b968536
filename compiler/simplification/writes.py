"""Writes at fixed places, as assignments to slices are exported: what is kept in front, what is written, what is kept.

    y = ScatterND(x [10, ...], [[7], [8], [9]], new)     ->  y = Concat<axis = 0>(Slice(x, 0, 7), new)
    y = ScatterND(x, [[0], [1], ..], new)                ->  y = new, where every row of x is written, in order
    y = ScatterElements<axis = 2>(x [.., 4], 3, new)     ->  y = Concat<axis = 2>(Slice(x, 0, 3), new)

Without a reduction, and where the places are numbers that no caller can change, this is what is written in which order;
places that are not next to each other, or written twice, stay as they are.
"""

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.simplification.constants import constant_of
from compiler.simplification.rules import Candidate, Rule


def scatter_nd(candidate: Candidate) -> ir.Value | None:
    """Of rows one behind the other."""
    data, rows, new = (candidate.value(at) for at in range(3))
    if _adds(candidate.node) or data is None or rows is None or new is None:
        return None
    dims, written, places = (house.dims_of(value) for value in (data, new, rows))
    if not dims or not written or not places or len(places) != 2 or places[1] != 1 or written[1:] != dims[1:]:
        return None
    if written[0] == dims[0] and _counts_rows(rows):
        return new
    fixed, count = candidate.constant(1), dims[0]
    if fixed is None or not isinstance(count, int):
        return None
    return _joined(candidate, data, new, 0, fixed.reshape(-1), count)


def scatter_elements(candidate: Candidate) -> ir.Value | None:
    """Of one place, the same everywhere, along one axis."""
    data, places, new = (candidate.value(at) for at in range(3))
    if _adds(candidate.node) or data is None or new is None:
        return None
    dims, written = house.dims_of(data), house.dims_of(new)
    fixed = _same_everywhere(places)
    if not dims or written is None or fixed is None:
        return None
    axis = house.int_attribute(candidate.node, "axis", 0) % len(dims)
    count, others = dims[axis], [dim for at, dim in enumerate(dims) if at != axis]
    if not isinstance(count, int) or written[axis] != 1 or [d for at, d in enumerate(written) if at != axis] != others:
        return None
    return _joined(candidate, data, new, axis, fixed, count)


def _adds(node: ir.Node) -> bool:
    return str(house.attribute(node, "reduction", "none")) != "none"


def _counts_rows(rows: ir.Value) -> bool:
    """Whether places are 0, 1, 2, ... for as many rows as there are: then no two are the same, and none is missing."""
    made = rows.producer()
    if not house.is_op(made, "Unsqueeze"):
        return False
    assert made is not None and made.inputs[0] is not None
    counted = made.inputs[0].producer()
    if not house.is_op(counted, "Range"):
        return False
    assert counted is not None
    start, step = (constant_of(counted.inputs[at]) for at in (0, 2))
    return start is not None and step is not None and int(start) == 0 and int(step) == 1


def _same_everywhere(value: ir.Value | None) -> np.ndarray | None:
    """The one number that a value holds, int64 [1]."""
    made = None if value is None else value.producer()
    array = constant_of(made.inputs[0]) if made is not None and house.is_op(made, "Expand") else constant_of(value)
    if array is None or array.size == 0 or (array != array.reshape(-1)[0]).any():
        return None
    return array.reshape(-1)[:1]


def _joined(
    candidate: Candidate, data: ir.Value, new: ir.Value, axis: int, places: np.ndarray, count: int
) -> ir.Value | None:
    """What lies in front of the places, what is written there, and what lies behind; None where they have gaps."""
    if not places.size or places.min() < -count or places.max() >= count:
        return None
    first = int(places[0]) % count
    last = first + places.size
    if last > count or (places % count != np.arange(first, last)).any():
        return None
    insert = candidate.insert
    parts = [new]
    if first > 0:
        bounds = [insert.int64s(each) for each in (0, first, axis)]
        parts.insert(0, insert.op("Slice", [data, *bounds], name="in_front", dtype=data.dtype))
    if last < count:
        bounds = [insert.int64s(each) for each in (last, count, axis)]
        parts.append(insert.op("Slice", [data, *bounds], name="behind", dtype=data.dtype))
    return insert.op("Concat", parts, {"axis": axis}, name="written", dtype=data.dtype) if len(parts) > 1 else new


WRITES: dict[str, Rule] = {"ScatterElements": scatter_elements, "ScatterND": scatter_nd}
"""The rules that apply to one operator."""
