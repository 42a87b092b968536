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
from compiler.ir import Dim
from compiler.padding.site import Form, Site


def look_up_positions(site: Site) -> None:
    """Entries of a table by the position of every slot, counted from `first`, the second of the details."""
    at, first = site.details
    table = site.node.inputs[0]
    size = _out_dims(site)[at]
    positions = _positions(site, size, first)
    array, dims = house.array_of(table), site.dims()
    name = str(site.node.outputs[0].name)
    assert table is not None
    if array is not None and array.ndim == 3 and at == 1:
        array = _enough_rows(site, array[0], size, first)
        rows = site.insert.constant(np.ascontiguousarray(array), f"{table.name}_rows")
        shape = [site.places.batch, _text(size), array.shape[1]]
        found = site.insert.op("Gather", [rows, positions], {"axis": 0}, name=f"{name}_rows", shape=shape)
        site.replace(0, found)
        return
    found = site.insert.op("Gather", [table, positions], {"axis": at}, name=f"{name}_rows", dtype=table.dtype)
    found = site.insert.op("Squeeze", [found, site.insert.int64s(0)], name=f"{name}_rows", dtype=table.dtype)
    if at > 1:
        behind = [axis for axis in range(len(dims)) if axis != at - 1]
        found = site.insert.op("Transpose", [found], {"perm": [at - 1, *behind]}, name=f"{name}_rows")
    found.shape = ir.Shape([site.places.batch if axis == 0 else _text(dim) for axis, dim in enumerate(_out_dims(site))])
    site.replace(0, found)


def _out_dims(site: Site) -> tuple[Dim, ...]:
    dims = house.dims_of(site.node.outputs[0])
    assert dims is not None  # the rule read them
    return dims


def _text(size: Dim) -> int | str:
    return size if isinstance(size, int) else str(size)


def _positions(site: Site, size: Dim, first: Dim) -> ir.Value:
    """The position of every slot, int64 [batch, slots]; padded slots in front look up the first row."""
    places, insert = site.places, site.insert
    iota = insert.op("Unsqueeze", [places.iota(size), insert.int64s(0)], name="slot_row")
    shift = places.count(first, 2)
    if not isinstance(size, int):
        padded = insert.op("Sub", [places.slot_count(size), places.count(size, 2)], name="padded_slots")
        iota = insert.op("Sub", [iota, padded], name="slot_position")
        zero = insert.constant(np.array(0, np.int64), "first_row")
        iota = insert.op("Max", [iota, zero], name="position_rows")
    return iota if first == 0 else insert.op("Add", [iota, shift], name="positions")


def _enough_rows(site: Site, rows: np.ndarray, size: Dim, first: Dim) -> np.ndarray:
    """The rows that any position may ask for, where the number of slots is fixed already."""
    needed = site.places.fixed(size + first)
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
