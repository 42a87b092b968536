"""Arranges per-row values in the layout of an operand's rows: as an axis of their own, or merged with other axes.

lengths [batch] -> [batch * heads];  slots [batch, places] -> [frames * batch, places]
mask [batch, time, places] -> [batch * heads, time, places]
"""

import onnx_ir as ir

from compiler.proof.facts.facts import refuse
from compiler.proof.facts.layout import Axis, Rows
from compiler.proof.padding.lowerings.site import Site


def rows_of(site: Site) -> tuple[int | None, Axis]:
    """Return the axis of the first operand that holds the batch, and its layout; None for a single row.

    Raises:
        Refused: all rows share the operand, though each has lengths of its own.
    """
    fact = site.fact()
    axis = fact.rows_axis
    if axis is not None:
        return axis, fact.axis(axis) or ()
    if site.valid_slots.batch == 1:
        return None, ()
    raise refuse(f"{site.node.op_type} of a value that all rows share", "give the value a batch axis")


def spread_rows(site: Site, value: ir.Value, rank: int, layout: Axis) -> ir.Value:
    """Repeat a value [batch, ...] of `rank` axes for every entry of a merged axis of these factors."""
    if len(layout) <= 1:
        return value
    insert, places = site.insert, site.valid_slots
    others = [number for number, factor in enumerate(layout) if not isinstance(factor, Rows)]
    rest = rank - 1
    apart = insert.op("Unsqueeze", [value, insert.int64s(*others)], name="rows_apart", dtype=value.dtype)
    sizes = [places.slot_count(layout[number].size if number in others else 1) for number in range(len(layout))]
    sizes = [insert.op("Reshape", [size, insert.int64s(1)], name="repeat", dtype=ir.DataType.INT64) for size in sizes]
    shape = insert.op("Concat", [*sizes, *[insert.int64s(1)] * rest], {"axis": 0}, name="repeats")
    all_rows = insert.op("Expand", [apart, shape], name="rows_repeated", dtype=value.dtype)
    target = insert.int64s(-1)
    if rest:
        behind = insert.op("Shape", [value], {"start": 1}, name="behind_rows", dtype=ir.DataType.INT64)
        target = insert.op("Concat", [target, behind], {"axis": 0}, name="merged", dtype=ir.DataType.INT64)
    return insert.op("Reshape", [all_rows, target], name="rows_merged", dtype=value.dtype)
