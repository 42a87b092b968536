"""Writes average pooling, Pad and Resize so that windows and borders follow the true length of each row.

Before:
    y = AveragePool(x, pads=[1, 1], count_include_pad=0); z = Pad(x, [1, 1], mode="reflect"); w = Resize(x, linear)
After:
    y = AveragePool(x filled with 0) / AveragePool(1 at valid slots)
    z = GatherND(x, slot of the entry that stands at every place)
    w = Resize(GatherND(x, Min(slots, time_length - 1)))
    v = Squeeze(Resize(Unsqueeze(x [batch, channels, time], 1, 2)), 1, 2)  # where rows would be neighbours
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.proof.facts.layout import Frames, Side
from compiler.proof.padding.lowerings.row_layout import rows_of, spread_rows
from compiler.proof.padding.lowerings.site import NodeLowering, Site


def average_pool(site: Site) -> None:
    """Write an average pooling divided by the valid share of its slots, along every axis in the details."""
    (axes,) = site.details
    value, node = site.node.inputs[0], site.node
    assert value is not None and value.dtype is not None
    insert, name = site.insert, str(node.outputs[0].name)
    result = insert.op("AveragePool", [value], _plain_attributes(node), name=f"{name}_of_zeros", dtype=value.dtype)
    for axis in axes:
        mask = site.valid_slots.mask(site.fact(), axis, site.dims())
        ones = insert.op("Cast", [mask], {"to": value.dtype}, name="valid_ones", dtype=value.dtype)
        attributes = _along(_plain_attributes(node), axis - 2, len(site.dims()) - 2)
        share = insert.op("AveragePool", [ones], attributes, name="valid_share", dtype=value.dtype)
        (kernel,) = [size for size in _ints(attributes, "kernel_shape") if size > 1]
        least = insert.constant(np.array(0.5 / kernel, value.dtype.numpy()), "less_than_one_entry")
        share = insert.op("Max", [share, least], name="valid_share", dtype=value.dtype)
        result = insert.op("Div", [result, share], name=f"{name}_of_valid", dtype=value.dtype)
    site.replace(0, result)


def _plain_attributes(node: ir.Node) -> dict[str, int | float | str | Sequence[int]]:
    return {name: each.value for name, each in node.attributes.items()}


def _ints(attributes: Mapping[str, int | float | str | Sequence[int]], name: str) -> list[int]:
    found = attributes[name]
    assert not isinstance(found, int | float | str)
    return list(found)


def _along(
    attributes: Mapping[str, int | float | str | Sequence[int]], at: int, count: int
) -> dict[str, int | float | str | Sequence[int]]:
    """Return attributes of a pooling along one of its spatial axes only."""
    kept = dict(attributes)
    for name, rest in (("kernel_shape", 1), ("strides", 1), ("dilations", 1)):
        if name in attributes:
            kept[name] = [size if axis == at else rest for axis, size in enumerate(_ints(attributes, name))]
    if "pads" in attributes:
        pads = _ints(attributes, "pads")
        kept["pads"] = [size if axis % count == at else 0 for axis, size in enumerate(pads)]
    return kept


def mirror(site: Site) -> None:
    """Write a Pad whose added entries are copies of valid ones, along the padded axes in the details.

    The node itself pads the axes that need no lengths.
    """
    mode, axes, rest = site.details
    value = site.node.inputs[0]
    assert value is not None
    for axis, begin, size in axes:
        value = _taken(site, value, axis, _entries(site, axis, mode, begin, size))
    if any(rest):
        attributes = {"mode": mode}
        value = site.insert.op("Pad", [value, site.insert.int64s(*rest)], attributes, name="padded", dtype=value.dtype)
    site.replace(0, value)


def hold(site: Site) -> None:
    """Copy the last valid entries into the padding of the axes in the details, in front of the unchanged node."""
    (axes,) = site.details
    value = site.node.inputs[0]
    assert value is not None
    shape = value.shape
    for axis in axes:
        value = _taken(site, value, axis, _entries(site, axis, "edge", 0, site.dims()[axis]))
    value.shape = shape
    site.node.replace_input_with(0, value)


def resize_apart(site: Site) -> None:
    """Write a Resize with two axes of size 1 behind the batch, so that no kernel takes rows for spatial neighbours."""
    node, insert = site.node, site.insert
    value, scales, sizes = (node.inputs[number] if number < len(node.inputs) else None for number in (0, 2, 3))
    assert value is not None
    attributes = _plain_attributes(node)
    if "axes" in attributes:
        rank = len(site.dims())
        attributes["axes"] = [axis % rank and axis % rank + 2 for axis in _ints(attributes, "axes")]
    else:
        scales, sizes = (None if operand is None else _with_ones(site, operand) for operand in (scales, sizes))
    apart = insert.op("Unsqueeze", [value, insert.int64s(1, 2)], name="rows_apart", dtype=value.dtype)
    operands = [apart, None, scales, sizes][: 3 if sizes is None else 4]
    resized = insert.op("Resize", operands, attributes, name="resized_apart", dtype=value.dtype)
    site.replace(0, insert.op("Squeeze", [resized, insert.int64s(1, 2)], name="resized", dtype=value.dtype))


def _with_ones(site: Site, per_axis: ir.Value) -> ir.Value:
    """Return a vector per axis with two entries of 1 inserted behind the first."""
    insert, dtype, array = site.insert, per_axis.dtype, graphs.array_of(per_axis)
    assert dtype is not None
    if array is not None:
        return insert.constant(np.insert(array, 1, [1, 1]), "per_axis")
    first, behind = (
        insert.op("Slice", [per_axis, *map(insert.int64s, ends)], name="per_axis", dtype=dtype)
        for ends in ((0, 1), (1, graphs.END))
    )
    ones = insert.constant(np.ones(2, dtype.numpy()), "ones")
    return insert.op("Concat", [first, ones, behind], {"axis": 0}, name="per_axis", dtype=dtype)


def _entries(site: Site, axis: int, mode: str, begin: int, size: Dim) -> ir.Value:
    """Return the operand's slot for every position of the output, int64 [batch, positions].

    Positions count from the first valid one; every index is a slot of the operand.
    """
    insert, places = site.insert, site.valid_slots
    frames = site.fact().frames(axis)
    assert isinstance(frames, Frames)
    true, slots = places.count(frames.size, 2), places.slot_count(frames.size)
    zero, one = (insert.constant(np.array(number, np.int64), "entry") for number in (0, 1))
    first = insert.op("Unsqueeze", [places.iota(size), insert.int64s(0)], name="place")
    shift = None
    if frames.segments[0].side is Side.RIGHT and not frames.segments[0].is_full:
        shift = insert.op("Sub", [slots, true], name="padded_slots")
        first = insert.op("Sub", [first, shift], name="place")
    entry = insert.op("Sub", [first, insert.constant(np.array(begin, np.int64), "entry")], name="entry")
    last = insert.op("Sub", [true, one], name="last_entry")
    if mode == "wrap":
        entry = insert.op("Mod", [entry, insert.op("Max", [true, one], name="period")], name="entry")
    if mode == "reflect":
        entry = insert.op("Abs", [entry], name="entry")
        behind = insert.op("Sub", [insert.op("Add", [last, last], name="twice_last"), entry], name="mirrored")
        entry = insert.op("Min", [entry, behind], name="entry")
    entry = insert.op("Max", [insert.op("Min", [entry, last], name="entry"), zero], name="entry")
    return entry if shift is None else insert.op("Add", [entry, shift], name="entry_slot")


def _taken(site: Site, value: ir.Value, axis: int, index: ir.Value) -> ir.Value:
    """Return entries along an axis by an index per row, int64 [batch, positions]."""
    insert, rank = site.insert, len(site.dims())
    rows_axis, layout = rows_of(site)
    front = [rows_axis, axis] if rows_axis is not None else [axis]
    order = [*front, *(axis_number for axis_number in range(rank) if axis_number not in front)]
    name = f"{value.name}_by_row"
    transposed = insert.op("Transpose", [value], {"perm": order}, name=f"{name}_turned", dtype=value.dtype)
    index = spread_rows(site, index, 2, layout)
    if rows_axis is None:
        index = insert.op("Squeeze", [index, insert.int64s(0)], name="entry_index", dtype=ir.DataType.INT64)
    index = insert.op("Unsqueeze", [index, insert.int64s(-1)], name="entry_index", dtype=ir.DataType.INT64)
    batch_dims = len(front) - 1
    gathered = insert.op("GatherND", [transposed, index], {"batch_dims": batch_dims}, name=name, dtype=value.dtype)
    back = [order.index(axis_number) for axis_number in range(rank)]
    return insert.op("Transpose", [gathered], {"perm": back}, name=f"{name}_back", dtype=value.dtype)


NODE_LOWERINGS: dict[str, NodeLowering] = {
    "average_pool": average_pool,
    "mirror": mirror,
    "hold": hold,
    "resize_apart": resize_apart,
}
