"""Writes lookups of entries whose slot depends on the row's true length, such as the last valid frame.

Before:
    rows = Slice(table [1, rows, d], 0, cache + 16)     last = Gather(x [batch, time, d], -1)
    turned = Slice(x, -1, lowest, 1, -1)                middle = Gather(x, time // 2)
After:
    rows = Gather(table [rows, d], Max(slots - padded slots of the row, 0)) [batch, 128 + 16, d]
    last = GatherND(x, time_length - 1)

Before:
    y = Gather(x [batch, time, d], Min(Range(0, 2*time) // 2 + 1, time - 1), axis 1)
After:
    y = GatherND(x, Min(Range(0, 2*slots) // 2 + 1, time_length[:, None] - 1), batch_dims 1)
    turned = GatherND(x, time_length - 1 - slots)       middle = GatherND(x, time_length // 2)
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.proof.facts.facts import refuse
from compiler.proof.facts.layout import Axis, Frames, Segment, Side
from compiler.proof.facts.row_value_plans import Planner, Sizes
from compiler.proof.padding.lowerings.number import Writer, per_row
from compiler.proof.padding.lowerings.row_layout import rows_of, spread_rows
from compiler.proof.padding.lowerings.site import NodeLowering, Site
from compiler.proof.padding.row_values import RowValues


def look_up_positions(site: Site) -> None:
    """Write a lookup in a table at the position of every slot; details: the axis, the first position, their number."""
    axis_of_table, first, size = site.details
    table = site.node.inputs[0]
    assert table is not None
    array, dims = graphs.array_of(table), site.dims()
    positions = _positions(site, axis_of_table, first, size)
    name = f"{site.node.outputs[0].name}_rows"
    shape = [
        site.valid_slots.batch,
        *(str(size) if axis == axis_of_table else _text(dims[axis]) for axis in range(1, len(dims))),
    ]
    if isinstance(size, int):
        shape[axis_of_table] = size
    if array is not None and array.ndim == 3 and axis_of_table == 1 and dims[0] == 1:
        rows = _needed_rows(site, array[0], size + first)
        table = site.insert.constant(np.ascontiguousarray(rows), f"{table.name}_rows")
        site.replace(0, site.insert.op("Gather", [table, positions], {"axis": 0}, name=name, shape=shape))
        return
    if site.valid_slots.batch == 1:  # what lies in front of the table's rows are no rows of a batch
        positions_of_row = site.insert.op(
            "Squeeze", [positions, site.insert.int64s(0)], name="positions", dtype=positions.dtype
        )
        site.replace(
            0,
            site.insert.op("Gather", [table, positions_of_row], {"axis": axis_of_table}, name=name, dtype=table.dtype),
        )
        return
    if dims[0] != 1:
        table = _transposed(
            site, table, [0, axis_of_table, *(axis for axis in range(1, len(dims)) if axis != axis_of_table)]
        )
        entries = site.insert.op("Unsqueeze", [positions, site.insert.int64s(-1)], name=name)
        entries_found = site.insert.op("GatherND", [table, entries], {"batch_dims": 1}, name=name, dtype=table.dtype)
        entries_found = _transposed(
            site, entries_found, [0, *range(2, axis_of_table + 1), 1, *range(axis_of_table + 1, len(dims))]
        )
        entries_found.shape = ir.Shape(shape)
        site.replace(0, entries_found)
        return
    entries_found = site.insert.op("Gather", [table, positions], {"axis": axis_of_table}, name=name, dtype=table.dtype)
    entries_found = site.insert.op("Squeeze", [entries_found, site.insert.int64s(0)], name=name, dtype=table.dtype)
    if axis_of_table > 1:
        behind = [axis for axis in range(len(dims)) if axis != axis_of_table - 1]
        entries_found = site.insert.op(
            "Transpose", [entries_found], {"perm": [axis_of_table - 1, *behind]}, name=name, dtype=table.dtype
        )
    entries_found.shape = ir.Shape(shape)
    site.replace(0, entries_found)


def _transposed(site: Site, value: ir.Value, order: Sequence[int]) -> ir.Value:
    """Return a value with its axes permuted."""
    if list(order) == sorted(order):
        return value
    return site.insert.op("Transpose", [value], {"perm": list(order)}, name=f"{value.name}_turned", dtype=value.dtype)


def _text(size: Dim) -> int | str:
    return size if isinstance(size, int) else str(size)


def _positions(site: Site, at: int, first: Dim, size: Dim) -> ir.Value:
    """Return the position of every slot in the table, int64 [batch, slots]; padded slots get any position."""
    places, insert = site.valid_slots, site.insert
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
    """Concatenate positions of segments, [batch or 1, slots]."""
    zero = site.insert.constant(np.array(0, np.int64), "no_position")
    none = site.insert.op("Mul", [site.valid_slots.count(whole, 2), zero], name="no_positions")
    spread = [site.insert.op("Add", [part, none], name="positions") for part in parts]
    return site.insert.op("Concat", spread, {"axis": 1}, name="positions", dtype=ir.DataType.INT64)


def _needed_rows(site: Site, rows: np.ndarray, size: Dim) -> np.ndarray:
    """Return the rows of a table that any position may select, where the number of slots is fixed already.

    Raises:
        Refused: the table has fewer rows.
    """
    needed = site.valid_slots.fixed(size)
    if needed is None:
        return rows
    if rows.shape[0] < needed:
        raise refuse(
            f"the position table has {rows.shape[0]} rows, the padded axis {needed}",
            f"make the table at least {needed} rows long or the window shorter",
        )
    return rows[:needed]


def entries(site: Site) -> None:
    """Write a lookup of fixed entries from either true end; details: axis, indices, whether the axis is dropped."""
    axis, numbers, is_single = site.details
    value, fact = site.node.inputs[0], site.fact()
    assert value is not None
    rank, rows_axis = len(site.dims()), fact.rows_axis
    index = _slots(site, axis, numbers)
    front = [rows_axis, axis] if rows_axis is not None else [axis]
    order = [*front, *(axis_number for axis_number in range(rank) if axis_number not in front)]
    name = str(site.node.outputs[0].name)
    transposed = site.insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    gathered = site.insert.op(
        "GatherND", [transposed, index], {"batch_dims": len(front) - 1}, name=f"{name}_entries", dtype=value.dtype
    )
    back = [order.index(axis_number) for axis_number in range(rank)]
    gathered = site.insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=value.dtype)
    if is_single:
        gathered = site.insert.op(
            "Squeeze", [gathered, site.insert.int64s(axis)], name=f"{name}_entry", dtype=value.dtype
        )
    site.replace(0, gathered)


def _slots(site: Site, axis: int, numbers: Sequence[int]) -> ir.Value:
    """Return slots of entries per row, int64 [batch, entries, 1] (or [entries, 1] for a value shared by all rows)."""
    frames = site.fact().frames(axis)
    assert frames is not None
    size, places, insert = frames.size, site.valid_slots, site.insert
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


def look_up_again(site: Site) -> None:
    """Write a lookup by indices computed from lengths for every row; details: the indexed axes.

    Negative indices count from the end of the row. Indices of padded slots are made legal.
    """
    (looked_up,) = site.details
    insert, dims = site.insert, site.dims()
    value, index = site.node.inputs[:2]
    assert value is not None and index is not None
    shape = graphs.dims_of(index) or ()
    shape = shape[:-1] if site.node.op_type == "GatherND" else shape
    indices = _made_again(site, index, looked_up, len(shape))
    rows_axis, layout = rows_of(site)
    front = [] if rows_axis is None else [rows_axis]
    if rows_axis is None:
        indices = insert.op("Squeeze", [indices, insert.int64s(0)], name="index_of_one_row", dtype=indices.dtype)
    elif len(layout) > 1:
        indices = _spread(site, indices, shape, len(looked_up), layout)
    others = [axis for axis in range(len(dims)) if axis not in (*front, *looked_up)]
    order = [*front, *looked_up, *others]
    name = str(site.node.outputs[0].name)
    transposed = insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    depth = {"batch_dims": len(front)}
    gathered = insert.op("GatherND", [transposed, indices], depth, name=f"{name}_entries", dtype=value.dtype)
    chosen = [-1 - axis for axis in range(len(shape))]  # axes of the index, in the place of those that it chooses along
    there = [*front, *chosen, *others]
    wanted = [axis for axis in range(len(dims)) if axis not in looked_up]
    wanted[looked_up[0] : looked_up[0]] = chosen
    back = [there.index(axis) for axis in wanted]
    site.replace(0, insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=value.dtype))


def _made_again(site: Site, index: ir.Value, looked_up: Sequence[int], rank: int) -> ir.Value:
    """Return the indices of every row, int64 [batch, .. of `rank`, component], within the row's entries."""
    places, insert = site.valid_slots, site.valid_slots.insert
    frames = [site.fact().frames(axis) for axis in looked_up]
    sizes = [
        site.dims()[axis] if frames_of_axis is None else frames_of_axis.size
        for axis, frames_of_axis in zip(looked_up, frames, strict=True)
    ]
    key = ("look_up_again", index, *sizes)
    if key in places.made:
        return places.made[key]
    indices = RowValues(places).of(index)
    if site.node.op_type != "GatherND":
        indices = insert.op("Unsqueeze", [indices, insert.int64s(-1)], name="index_entry", dtype=indices.dtype)
    if indices.dtype != ir.DataType.INT64:
        indices = insert.op("Cast", [indices], {"to": ir.DataType.INT64}, name="index", dtype=ir.DataType.INT64)
    limits = [places.count(size, rank + 2) for size in sizes]
    if len(limits) > 1:
        apart = insert.int64s(-1, *[1] * (rank + 1))
        rows = [places.all_rows(insert.op("Reshape", [limit, apart], name="limit")) for limit in limits]
        limits = [insert.op("Concat", rows, {"axis": -1}, name="limits", dtype=ir.DataType.INT64)]
    zero, one = (insert.constant(np.array(number, np.int64), "bound") for number in (0, 1))
    behind = insert.op("Less", [indices, zero], name="counts_back", dtype=ir.DataType.BOOL)
    from_end = insert.op("Add", [indices, limits[0]], name="index_from_end", dtype=ir.DataType.INT64)
    indices = insert.op("Where", [behind, from_end, indices], name="index", dtype=ir.DataType.INT64)
    last = insert.op("Sub", [limits[0], one], name="last_entry", dtype=ir.DataType.INT64)
    indices = insert.op("Max", [insert.op("Min", [indices, last], name="index_at_most"), zero], name="index_legal")
    places.made[key] = places.all_rows(indices)
    return places.made[key]


def _spread(site: Site, index: ir.Value, shape: Sequence[Dim], depth: int, layout: Axis) -> ir.Value:
    """Return indices [batch, ...] for every entry of a merged axis that holds the rows."""
    insert = site.insert
    flat = insert.op("Flatten", [index], {"axis": 1}, name="index_flat", dtype=index.dtype)
    sizes = [
        insert.op("Reshape", [site.valid_slots.slot_count(size), insert.int64s(1)], name="slots") for size in shape
    ]
    target = insert.op("Concat", [insert.int64s(-1), *sizes, insert.int64s(depth)], {"axis": 0}, name="index_shape")
    return insert.op("Reshape", [spread_rows(site, flat, 2, layout), target], name="index_rows", dtype=index.dtype)


def from_end(site: Site) -> None:
    """Resolve negative indices from the true end of their row; details: the operand and the size of the axis.

    Of indices (row, entry) only the entries are resolved, as no row is negative.
    """
    operand, size = site.details
    value, insert = site.node.inputs[operand], site.insert
    assert value is not None and value.dtype is not None
    rows_axis = site.fact(operand).rows_axis or 0
    count = site.valid_slots.count(size, len(site.dims(operand)), rows_axis, value.dtype)
    zero = insert.constant(np.array(0, value.dtype.numpy()), "first_index")
    behind = insert.op("Less", [value, zero], name="counts_back", dtype=ir.DataType.BOOL)
    counted = insert.op("Add", [value, count], name="index_from_end", dtype=value.dtype)
    resolved = insert.op("Where", [behind, counted, value], name="index", shape=value.shape, dtype=value.dtype)
    site.node.replace_input_with(operand, resolved)


def move_together(site: Site) -> None:
    """Concatenate parts without the gaps between their entries; details: the axis and the segments.

    The segments have padding behind them, if any. The entry at position j lies behind the gaps of all parts that end at
    j or before.
    """
    axis, parts = site.details
    insert, places = site.insert, site.valid_slots
    key = ("move_together", *parts)
    if key not in places.made:
        places.made[key] = _behind_gaps(site, parts)
    output = site.node.outputs[0]
    rank, name = len(site.dims()), str(output.name)
    joined = insert.op("Concat", list(site.node.inputs), {"axis": axis}, name=f"{name}_apart", dtype=output.dtype)
    rows_axis, layout = rows_of(site)
    front = [] if rows_axis is None else [rows_axis]
    slots = spread_rows(site, places.made[key], 2, layout)
    if rows_axis is None:
        slots = insert.op("Squeeze", [slots, insert.int64s(0)], name="slots_of_one_row", dtype=slots.dtype)
    order = [*front, axis, *(axis_number for axis_number in range(rank) if axis_number not in (*front, axis))]
    transposed = insert.op("Transpose", [joined], {"perm": order}, name=f"{name}_turned", dtype=output.dtype)
    index = insert.op("Unsqueeze", [slots, insert.int64s(-1)], name="slot_entry", dtype=ir.DataType.INT64)
    depth = {"batch_dims": len(front)}
    gathered = insert.op("GatherND", [transposed, index], depth, name=f"{name}_together", dtype=output.dtype)
    back = [order.index(axis_number) for axis_number in range(rank)]
    site.replace(0, insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=output.dtype))


def _behind_gaps(site: Site, parts: Sequence[Segment]) -> ir.Value:
    """Return the slot of every position, int64 [batch, slots]."""
    places, insert = site.valid_slots, site.valid_slots.insert
    whole: Dim = 0
    for part in parts:
        whole = whole + part.size
    positions = insert.op("Unsqueeze", [places.iota(whole), insert.int64s(0)], name="position")
    slots, end = positions, None
    for part in parts[:-1]:
        true = places.count(part.size, 2)
        end = true if end is None else insert.op("Add", [end, true], name="part_end", dtype=ir.DataType.INT64)
        gap = insert.op("Sub", [places.slot_count(part.size), true], name="gap", dtype=ir.DataType.INT64)
        passed = insert.op("GreaterOrEqual", [positions, end], name="passed", dtype=ir.DataType.BOOL)
        passed = insert.op("Cast", [passed], {"to": ir.DataType.INT64}, name="passed", dtype=ir.DataType.INT64)
        slots = insert.op("Add", [slots, insert.op("Mul", [gap, passed], name="gap_passed")], name="slot")
    one = insert.constant(np.array(1, np.int64), "bound")
    last = insert.op("Sub", [places.slot_count(whole), one], name="last_slot", dtype=ir.DataType.INT64)
    return places.all_rows(insert.op("Min", [slots, last], name="slot_legal"))


def in_range(site: Site) -> None:
    """Clamp indices shared by all rows to the slots; details: the operand, and the size of the indexed axis."""
    operand, size = site.details
    value, insert = site.node.inputs[operand], site.insert
    assert value is not None and value.dtype is not None
    zero, one = (insert.constant(np.array(number, np.int64), "bound") for number in (0, 1))
    last = insert.op("Sub", [site.valid_slots.slot_count(size), one], name="last_slot", dtype=ir.DataType.INT64)
    if value.dtype != ir.DataType.INT64:
        value = insert.op("Cast", [value], {"to": ir.DataType.INT64}, name="index", dtype=ir.DataType.INT64)
    legal = insert.op("Max", [insert.op("Min", [value, last], name="index_at_most"), zero], name="index_legal")
    site.node.replace_input_with(operand, legal)


def run_of_entries(site: Site) -> None:
    """Write a lookup of consecutive entries; details: axis, first entry, step, number of entries."""
    axis, first, step, size = site.details
    places, insert = site.valid_slots, site.insert
    counted = insert.op("Unsqueeze", [places.iota(size), insert.int64s(0)], name="place")
    if step != 1:
        counted = insert.op("Mul", [counted, insert.constant(np.array(step, np.int64), "step")], name="place")
    start = Writer(site).write(Sizes((first,), (1,), ir.DataType.INT64))
    _take(site, axis, insert.op("Add", [start, counted], name="entry"), 1)


def own_entries(site: Site) -> None:
    """Rewrite a GatherND by (row, number); details: the layout of the pairs."""
    (place,) = site.details
    value, indices, insert, along = site.node.inputs[0], site.node.inputs[1], site.insert, place.rows_at
    assert value is not None and indices is not None
    pairs = Writer(site).write(Planner(str(site.valid_slots.batch), numbered=True).plan(indices, place.layouts))
    one, two, last = (insert.int64s(number) for number in (1, 2, -1))
    pairs = insert.op("Squeeze", [pairs, insert.int64s(along + 1)], name="pairs", dtype=indices.dtype)
    number = insert.op("Slice", [pairs, one, two, last], name="entry", dtype=indices.dtype)
    index = _slots_of(site, 1, number, len(place.layouts))
    name = str(site.node.outputs[0].name)
    gathered = insert.op("GatherND", [value, index], {"batch_dims": 1}, name=f"{name}_entries", dtype=value.dtype)
    if along:
        rank = len(graphs.dims_of(site.node.outputs[0]) or ())
        order = [*range(1, along + 1), 0, *range(along + 1, rank)]
        gathered = insert.op("Transpose", [gathered], {"perm": order}, name=f"{name}_back", dtype=value.dtype)
    site.replace(0, gathered)


def legal_numbers(site: Site) -> None:
    """Rewrite indices of GatherElements computed from axis lengths; details: axis, and the layout of the indices."""
    axis, place = site.details
    value = site.node.inputs[1]
    assert value is not None
    site.node.replace_input_with(1, _slots_of(site, axis, per_row(site, value, place), place.rank, place.rows_at))


def _take(site: Site, axis: int, numbers: ir.Value, count: int) -> None:
    """Replace the node by the entries of an axis at given numbers, [batch, `count` axes]."""
    value, fact, insert = site.node.inputs[0], site.fact(), site.insert
    assert value is not None and fact.rows_axis is not None
    rank, rows_axis = len(site.dims()), fact.rows_axis
    order = [rows_axis, axis, *(axis_number for axis_number in range(rank) if axis_number not in (rows_axis, axis))]
    name = str(site.node.outputs[0].name)
    transposed = insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    index = insert.op("Unsqueeze", [_slots_of(site, axis, numbers, count + 1), insert.int64s(-1)], name="entry_slots")
    gathered = insert.op("GatherND", [transposed, index], {"batch_dims": 1}, name=f"{name}_entries", dtype=value.dtype)
    back: list[int] = []
    for axis_number in range(rank):
        behind = order.index(axis_number) + count - 1
        back += [0] if axis_number == rows_axis else range(1, count + 1) if axis_number == axis else [behind]
    site.replace(0, insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=value.dtype))


def _slots_of(site: Site, axis: int, numbers: ir.Value, rank: int, rows_at: int = 0) -> ir.Value:
    """Return the slot of every numbered entry, negative ones counted from the row's true end; any slot for others."""
    insert, places, frames = site.insert, site.valid_slots, site.fact().frames(axis)
    size: Dim = site.dims()[axis] if frames is None else frames.size
    true, slots = places.count(size, rank, rows_at), places.slot_count(size)
    numbers = insert.op("Cast", [numbers], {"to": ir.DataType.INT64}, name="entry", dtype=ir.DataType.INT64)
    zero = insert.constant(np.array(0, np.int64), "first_entry")
    from_end = insert.op("Less", [numbers, zero], name="from_end", dtype=ir.DataType.BOOL)
    behind = insert.op("Add", [numbers, true], name="entry")
    entry = insert.op("Where", [from_end, behind, numbers], name="entry", dtype=ir.DataType.INT64)
    if frames is not None and not frames.is_suffix_padded:
        entry = insert.op("Add", [entry, insert.op("Sub", [slots, true], name="padded_slots")], name="entry")
    return insert.op("Mod", [entry, slots], name="entry_slot")


NODE_LOWERINGS: dict[str, NodeLowering] = {
    "look_up_positions": look_up_positions,
    "look_up_again": look_up_again,
    "from_end": from_end,
    "in_range": in_range,
    "move_together": move_together,
    "entries": entries,
    "legal_numbers": legal_numbers,
    "own_entries": own_entries,
    "run_of_entries": run_of_entries,
}
