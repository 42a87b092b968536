"""Writes means, normalizations and ArgMax over the valid entries of padded axes alone.

Before:
    m = ReduceMean(x, axes); y = InstanceNormalization(x, scale, bias); i = ArgMax(x, select_last_index=1)
After:
    m = ReduceSum(x filled with 0, axes) / true number of entries
    c = Where(valid, x - mean, 0); y = c / sqrt(ReduceSum(c * c) / true number + epsilon) * scale + bias
    i = Min(ArgMax(x filled with -infinity, select_last_index=1), true number - 1)

The lowerings are "mean", "normalize" and "last_index". The second pass over centred entries keeps the precision of the
original node. Sums of half precision are taken in float32.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.reductions import reduction_of
from compiler.proof.facts.layout import Axis, Rows, size_of
from compiler.proof.padding.lowerings.site import NodeLowering, Site

UNCENTRED = ("RMSNormalization", "SimplifiedLayerNormalization")
"""Normalisations that do not subtract the mean."""

WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types whose sums are taken as they are, next to integers."""


def mean(site: Site) -> None:
    """Write a mean over the axes in `details`, whose padding is zero already."""
    (axes,) = site.details
    value, wide = _widened(site)
    view = reduction_of(site.node, graphs.integers_of, len(site.dims()))
    keep = view is None or view.keeps
    site.replace(0, _as_before(site, _mean(site, value, axes, keep), wide))


def normalize(site: Site) -> None:
    """Write a normalization in two passes: the mean, then the mean of squares of the centred, filled entries."""
    (axes,) = site.details
    value, wide = _widened(site)
    insert, node = site.insert, site.node
    assert value.dtype is not None
    if node.op_type not in UNCENTRED:
        zero = insert.constant(np.array(0, value.dtype.numpy()), "padding")
        value = insert.op("Sub", [value, _mean(site, value, axes, True)], name="centered")
        for axis in site.fact().padded:
            if axis in axes:
                valid = site.valid_slots.mask(site.fact(), axis, site.dims())
                value = insert.op("Where", [valid, value, zero], name="centered", dtype=value.dtype)
    variance = _mean(site, insert.op("Mul", [value, value], name="squares"), axes, True)
    result = insert.op("Div", [value, _deviation(site, variance)], name="normalized")
    for op, operand in (("Mul", 1), ("Add", 2)):
        if operand < len(node.inputs) and node.inputs[operand] is not None:
            result = insert.op(op, [result, _parameter(site, operand, wide)], name=f"normalized_{op.lower()}")
    site.replace(0, _as_before(site, result, wide))


def last_index(site: Site) -> None:
    """Write an ArgMax or ArgMin that returns the last of equal entries.

    Where padding ties with valid entries, all are infinite, and the last valid one is returned.
    """
    (axis,) = site.details
    node, value, layout = site.node, site.node.inputs[0], site.fact().axis(site.details[0])
    assert value is not None and layout is not None
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    view = reduction_of(node, graphs.integers_of, len(site.dims()))
    remaining_axes = [
        axis_number for axis_number in range(len(site.dims())) if axis_number != axis or view is None or view.keeps
    ]
    last = _true_count(site, size_of(layout) - 1, remaining_axes, ir.DataType.INT64)
    index = site.insert.op(node.op_type, [value], attributes, name="index_of_slot", dtype=ir.DataType.INT64)
    site.replace(0, site.insert.op("Min", [index, last], name="last_index", dtype=ir.DataType.INT64))


def _mean(site: Site, value: ir.Value, axes: Sequence[int], keep: bool) -> ir.Value:
    """Return the mean: the sum divided by the true count."""
    fact, dims = site.fact(), site.dims()
    count: Dim = 1
    for axis in axes:
        layout = fact.axis(axis)
        count = count * (dims[axis] if layout is None else size_of(layout))
    attributes = {"keepdims": int(keep)}
    total = site.insert.op("ReduceSum", [value, site.insert.int64s(*axes)], attributes, name="sum", dtype=value.dtype)
    if site.node.op_type == "GroupNormalization":
        channels, groups = int(dims[1]), graphs.int_attribute(site.node, "num_groups", 1)
        total, count = _of_groups(site, total, channels, groups), count * (channels // groups)
    remaining_axes = [axis for axis in range(len(dims)) if keep or axis not in axes]
    return site.insert.op(
        "Div", [total, _true_count(site, count, remaining_axes, value.dtype)], name="mean", dtype=value.dtype
    )


def _true_count(site: Site, count: Dim, kept: Sequence[int], dtype: ir.DataType | None) -> ir.Value:
    """Return the number of averaged entries of every row, in a shape that broadcasts to the remaining axes."""
    insert, rows_axis = site.insert, site.fact().rows_axis
    rows: Axis = () if rows_axis is None else site.fact().axis(rows_axis) or ()
    place = 0 if rows_axis is None else kept.index(rows_axis)
    assert dtype is not None
    if len(rows) <= 1:
        shaped = site.valid_slots.count(count, max(len(kept), 1), place, dtype)
        if kept:
            return shaped
        return insert.op("Reshape", [shaped, insert.constant(np.zeros(0, np.int64), "scalar")], name="true_count")
    within = next(number for number, factor in enumerate(rows) if isinstance(factor, Rows))
    counts = site.valid_slots.count(count, len(rows), within, dtype)
    one = insert.int64s(1)
    sizes = [
        one
        if number == within
        else insert.op("Reshape", [site.valid_slots.slot_count(factor.size), one], name="repeat")
        for number, factor in enumerate(rows)
    ]
    repeats = insert.op("Concat", sizes, {"axis": 0}, name="repeats", dtype=ir.DataType.INT64)
    spread = insert.op("Expand", [counts, repeats], name="true_counts", dtype=dtype)
    shape = [-1 if number == place else 1 for number in range(len(kept))]
    return insert.op("Reshape", [spread, insert.int64s(*shape)], name="true_count", dtype=dtype)


def _of_groups(site: Site, sums: ir.Value, channels: int, groups: int) -> ir.Value:
    """Return sums per channel [batch, channels, 1, ..] replaced by the sums over their groups."""
    insert = site.insert
    apart = insert.op("Reshape", [sums, insert.int64s(0, groups, channels // groups)], name="sums_of_groups")
    whole = insert.op("ReduceSum", [apart, insert.int64s(2)], {"keepdims": 1}, name="sum_of_group")
    spread = insert.op("Expand", [whole, insert.int64s(1, groups, channels // groups)], name="sum_of_group")
    shape = insert.int64s(0, channels, *[1] * (len(site.dims()) - 2))
    return insert.op("Reshape", [spread, shape], name="sum_per_channel")


def _deviation(site: Site, variance: ir.Value) -> ir.Value:
    """Return the square root of the variance, with an epsilon."""
    assert variance.dtype is not None
    kind, insert = variance.dtype.numpy(), site.insert
    if site.node.op_type == "MeanVarianceNormalization":
        small = insert.constant(np.array(1e-9, kind), "epsilon")
        return insert.op("Add", [insert.op("Sqrt", [variance], name="deviation"), small], name="deviation")
    small = insert.constant(np.array(graphs.attribute(site.node, "epsilon", 1e-5), kind), "epsilon")
    return insert.op("Sqrt", [insert.op("Add", [variance, small], name="variance")], name="deviation")


def _widened(site: Site) -> tuple[ir.Value, ir.DataType | None]:
    """Return the operand in a type whose sums are exact enough, and that type where it differs."""
    value = site.node.inputs[0]
    assert value is not None and value.dtype is not None
    if value.dtype in WIDE or value.dtype.is_integer():
        return value, None
    return _cast(site, value, ir.DataType.FLOAT), ir.DataType.FLOAT


def _cast(site: Site, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    return site.insert.op("Cast", [value], {"to": dtype}, name=f"{value.name}_cast", dtype=dtype)


def _as_before(site: Site, value: ir.Value, wide: ir.DataType | None) -> ir.Value:
    """Return the result cast back to the operand's type."""
    operand = site.node.inputs[0]
    assert operand is not None and operand.dtype is not None
    return value if wide is None else _cast(site, value, operand.dtype)


def _parameter(site: Site, operand: int, wide: ir.DataType | None) -> ir.Value:
    """Return a scale or bias that broadcasts to the operand: over trailing axes, per channel, or per group."""
    value = site.node.inputs[operand]
    assert value is not None
    insert, name = site.insert, f"{value.name}_per_channel"
    if wide is not None:
        value = _cast(site, value, wide)
    if site.node.op_type not in ("InstanceNormalization", "GroupNormalization"):
        return value
    behind = [1] * (len(site.dims()) - 2)
    if site.node.op_type == "GroupNormalization" and site.dims(operand) != site.dims()[1:2]:  # before opset 21
        groups = graphs.int_attribute(site.node, "num_groups", 1)
        apart = insert.op("Reshape", [value, insert.int64s(groups, 1)], name="per_group")
        value = insert.op("Expand", [apart, insert.int64s(groups, int(site.dims()[1]) // groups)], name="per_group")
    return insert.op("Reshape", [value, insert.int64s(-1, *behind)], name=name)


NODE_LOWERINGS: dict[str, NodeLowering] = {"last_index": last_index, "mean": mean, "normalize": normalize}
