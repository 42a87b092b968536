"""Writes the selection of the newest frames from a cache and a padded chunk, right-aligned again.

Before:
    kept = Slice(x [batch, cache + chunk, d], -128:)     as many as there are, 128 at most
After:
    kept = Where(valid, GatherND(x, slots + chunk_length - 128), 0) [batch, 128, d]
"""

import numpy as np
import onnx_ir as ir

from compiler.graph.model import Dim
from compiler.proof.facts.layout import Frames
from compiler.proof.padding.lowerings.row_layout import rows_of
from compiler.proof.padding.lowerings.site import NodeLowering, Site


def newest(site: Site) -> None:
    """Write the newest entries of cached frames and a chunk, right-aligned; details: the axis, their largest number."""
    axis, most = site.details
    frames, insert, value = site.fact().frames(axis), site.insert, site.node.inputs[0]
    assert frames is not None and value is not None
    slots = slots_of_newest(site, frames, most)
    rows_axis, layout = rows_of(site)
    assert len(layout) <= 1  # the rule saw to it
    front = [] if rows_axis is None else [rows_axis]
    if rows_axis is None:
        slots = insert.op("Squeeze", [slots, insert.int64s(0)], name="slots_of_one_row", dtype=slots.dtype)
    rank, name = len(site.dims()), str(site.node.outputs[0].name)
    order = [*front, axis, *(axis_number for axis_number in range(rank) if axis_number not in (*front, axis))]
    transposed = insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    index = insert.op("Unsqueeze", [slots, insert.int64s(-1)], name="slot_entry", dtype=ir.DataType.INT64)
    gathered = insert.op(
        "GatherND", [transposed, index], {"batch_dims": len(front)}, name=f"{name}_kept", dtype=value.dtype
    )
    back = [order.index(axis_number) for axis_number in range(rank)]
    gathered = insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=value.dtype)
    site.replace(0, cleaned(site, gathered, axis, most))


def slots_of_newest(site: Site, frames: Frames, kept: Dim) -> ir.Value:
    """Return the slot of every entry that is kept, int64 [batch, kept], so that valid entries are adjacent.

    Missing entries get any slot.
    """
    places, insert, key = site.valid_slots, site.valid_slots.insert, ("newest", frames, kept)
    if key not in places.made:
        cached, chunk = frames.segments
        end = insert.op("Add", [places.slot_count(cached.size), places.count(chunk.size, 2)], name="newest_end")
        first = insert.op("Sub", [end, places.slot_count(kept)], name="newest_first")
        numbers = insert.op("Unsqueeze", [places.iota(kept), insert.int64s(0)], name="slot_row")
        zero = insert.constant(np.array(0, np.int64), "first_slot")
        slots = insert.op("Max", [insert.op("Add", [first, numbers], name="newest_slots"), zero], name="newest_legal")
        places.made[key] = places.all_rows(slots)
    return places.made[key]


def cleaned(site: Site, found: ir.Value, axis: int, kept: Dim) -> ir.Value:
    """Fill padding in front of the valid entries with zeros, where fewer may be valid than are kept."""
    if axis not in site.out_facts[0].padded:
        return found
    assert found.dtype is not None
    dims = tuple(kept if at == axis else dim for at, dim in enumerate(site.dims()))
    valid = site.valid_slots.mask(site.out_facts[0], axis, dims)
    zero = site.insert.constant(np.array(0, found.dtype.numpy()), "padding")
    name = f"{site.node.outputs[0].name}_without_padding"
    return site.insert.op("Where", [valid, found, zero], name=name, dtype=found.dtype)


NODE_LOWERINGS: dict[str, NodeLowering] = {"newest": newest}
