"""The forms "look_up_positions" and "entries": what is chosen by position lies in other slots in every row.

Before:
    rows = Slice(table [1, rows, d], 0, cache + 16)     last = Gather(x [batch, time, d], -1)
After:
    rows = Gather(table [rows, d], Max(slots - padded slots of the row, 0)) [batch, 128 + 16, d]
    last = GatherND(x, time_length - 1)
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.analysis.layout import Frames, Segment, Side
from compiler.ir import Dim
from compiler.padding.site import Form, Site


def look_up_positions(site: Site) -> None:
    """Entries of a table by the position of every slot; details: the axis, the first position, how many there are."""
    at, first, size = site.details
    table = site.node.inputs[0]
    assert table is not None
    array, dims = house.array_of(table), site.dims()
    positions = _positions(site, at, first, size)
    name = f"{site.node.outputs[0].name}_rows"
    shape = [site.places.batch, *(str(size) if axis == at else _text(dims[axis]) for axis in range(1, len(dims)))]
    if isinstance(size, int):
        shape[at] = size
    if array is not None and array.ndim == 3 and at == 1:
        rows = _needed_rows(site, array[0], size + first)
        table = site.insert.constant(np.ascontiguousarray(rows), f"{table.name}_rows")
        site.replace(0, site.insert.op("Gather", [table, positions], {"axis": 0}, name=name, shape=shape))
        return
    found = site.insert.op("Gather", [table, positions], {"axis": at}, name=name, dtype=table.dtype)
    found = site.insert.op("Squeeze", [found, site.insert.int64s(0)], name=name, dtype=table.dtype)
    if at > 1:
        behind = [axis for axis in range(len(dims)) if axis != at - 1]
        found = site.insert.op("Transpose", [found], {"perm": [at - 1, *behind]}, name=name, dtype=table.dtype)
    found.shape = ir.Shape(shape)
    site.replace(0, found)


def _text(size: Dim) -> int | str:
    return size if isinstance(size, int) else str(size)


def _positions(site: Site, at: int, first: Dim, size: Dim) -> ir.Value:
    """The position of every slot in the table, int64 [batch, slots]; slots in the padding look up any row."""
    places, insert = site.places, site.insert
    frames = site.out_facts[0].frames(at) or Frames((Segment(size),))
    parts = []
    before: Dim = first
    for segment in frames.segments:
        slots = insert.op("Unsqueeze", [places.iota(segment.size), insert.int64s(0)], name="slot_row")
        if segment.side is Side.RIGHT and not segment.is_full:
            padded = insert.op(
                "Sub", [places.slot_count(segment.size), places.count(segment.size, 2)], name="padded_slots"
            )
            slots = insert.op("Sub", [slots, padded], name="slot_position")
        parts.append(slots if before == 0 else insert.op("Add", [slots, places.count(before, 2)], name="positions"))
        before = before + segment.size
    positions = parts[0] if len(parts) == 1 else _side_by_side(site, parts, before)
    if any(segment.side is Side.RIGHT for segment in frames.segments):
        zero = insert.constant(np.array(0, np.int64), "first_row")
        positions = insert.op("Max", [positions, zero], name="position_rows")
    rows = site.dims()[at]
    needed = places.fixed(first + size)
    if isinstance(rows, int) and (needed is None or needed > rows):
        last = insert.constant(np.array(rows - 1, np.int64), "last_row")
        positions = insert.op("Min", [positions, last], name="position_rows")
    return positions


def _side_by_side(site: Site, parts: Sequence[ir.Value], whole: Dim) -> ir.Value:
    """Positions of segments [batch or 1, slots] in a row."""
    zero = site.insert.constant(np.array(0, np.int64), "no_position")
    none = site.insert.op("Mul", [site.places.count(whole, 2), zero], name="no_positions")
    spread = [site.insert.op("Add", [part, none], name="positions") for part in parts]
    return site.insert.op("Concat", spread, {"axis": 1}, name="positions", dtype=ir.DataType.INT64)


def _needed_rows(site: Site, rows: np.ndarray, size: Dim) -> np.ndarray:
    """The rows that any position may ask for, where the number of slots is fixed already.

    Raises:
        Refused: there are fewer.
    """
    needed = site.places.fixed(size)
    if needed is None:
        return rows
    if rows.shape[0] < needed:
        raise refuse(
            f"the position table has {rows.shape[0]} rows, the padded axis {needed}",
            f"make the table at least {needed} rows long or the window shorter",
        )
    return rows[:needed]


def entries(site: Site) -> None:
    """Fixed entries counted from either true end: axis, their numbers, and whether the axis goes."""
    axis, numbers, is_single = site.details
    value, fact = site.node.inputs[0], site.fact()
    assert value is not None
    rank, rows_axis = len(site.dims()), fact.rows_axis
    index = _slots(site, axis, numbers)
    front = [rows_axis, axis] if rows_axis is not None else [axis]
    order = [*front, *(at for at in range(rank) if at not in front)]
    name = str(site.node.outputs[0].name)
    turned = site.insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    found = site.insert.op(
        "GatherND", [turned, index], {"batch_dims": len(front) - 1}, name=f"{name}_entries", dtype=value.dtype
    )
    back = [order.index(at) for at in range(rank)]
    found = site.insert.op("Transpose", [found], {"perm": back}, name=f"{name}_back", dtype=value.dtype)
    if is_single:
        found = site.insert.op("Squeeze", [found, site.insert.int64s(axis)], name=f"{name}_entry", dtype=value.dtype)
    site.replace(0, found)


def _slots(site: Site, axis: int, numbers: Sequence[int]) -> ir.Value:
    """The slots of entries per row, int64 [batch, entries, 1] (or [entries, 1] where all rows share the value)."""
    frames = site.fact().frames(axis)
    assert frames is not None
    size, places, insert = frames.size, site.places, site.insert
    offsets = insert.constant(np.array([numbers], np.int64), "entry")
    true, slots = places.count(size, 2), places.slot_count(size)
    if frames.is_suffix_padded:
        from_end = np.array([[number < 0 for number in numbers]])
        base = insert.op("Mul", [true, insert.constant(from_end.astype(np.int64), "from_end")], name="entry_base")
    else:
        from_front = np.array([[number >= 0 for number in numbers]]).astype(np.int64)
        padded = insert.op("Sub", [slots, true], name="padded_slots")
        shifted = insert.op("Mul", [padded, insert.constant(from_front, "from_front")], name="entry_shift")
        whole = insert.op("Mul", [slots, insert.constant(1 - from_front, "from_back")], name="entry_whole")
        base = insert.op("Add", [shifted, whole], name="entry_base")
    index = insert.op("Add", [base, offsets], name="entry_slot")
    shape = [-1, len(numbers), 1] if site.fact().rows_axis is not None else [len(numbers), 1]
    return insert.op("Reshape", [index, insert.int64s(*shape)], name="entry_slots", dtype=ir.DataType.INT64)


FORMS: dict[str, Form] = {"look_up_positions": look_up_positions, "entries": entries}
