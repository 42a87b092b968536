"""The forms "mean" and "normalize": statistics over the valid entries of padded axes.

Before:
    m = ReduceMean(x, axes); y = InstanceNormalization(x, scale, bias)
After:
    m = ReduceSum(x filled with 0, axes) / true number of entries
    c = Where(valid, x - mean, 0); y = c / sqrt(ReduceSum(c * c) / true number + epsilon) * scale + bias
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.ir import Dim
from compiler.padding.site import Form, Site


def mean(site: Site) -> None:
    """Mean over the axes in `details`; the padding is zero already."""
    (axes,) = site.details
    keep = site.node.op_type != "ReduceMean" or house.int_attribute(site.node, "keepdims", 1) == 1
    site.replace(0, _mean(site, site.node.inputs[0], axes, keep, "mean"))


def _mean(site: Site, value: ir.Value | None, axes: Sequence[int], keep: bool, name: str) -> ir.Value:
    """Sum by true count."""
    assert value is not None and value.dtype is not None
    fact, dims = site.fact(), site.dims()
    count: Dim = 1
    for axis in axes:
        count = count * dims[axis]
    kept = [axis for axis in range(len(dims)) if keep or axis not in axes]
    rows_axis = fact.rows_axis
    place = kept.index(rows_axis) if rows_axis is not None else 0
    sum_of = site.insert.op(
        "ReduceSum", [value, site.insert.int64s(*axes)], {"keepdims": int(keep)}, name=f"{name}_sum", dtype=value.dtype
    )
    true_count = site.places.count(count, max(len(kept), 1), place, value.dtype)
    return site.insert.op("Div", [sum_of, true_count], name=name, dtype=value.dtype)


def normalize(site: Site) -> None:
    """Two passes: the mean, then the squares of what is centred and cleaned again."""
    (axes,) = site.details
    value = site.node.inputs[0]
    assert value is not None and value.dtype is not None
    insert, kind = site.insert, value.dtype.numpy()
    name = str(site.node.outputs[0].name)
    zero = insert.constant(np.array(0, kind), "padding")
    centered = value
    if site.node.op_type not in ("RMSNormalization", "SimplifiedLayerNormalization"):
        average = _mean(site, value, axes, True, f"{name}_mean")
        centered = insert.op("Sub", [value, average], name=f"{name}_centered")
        for axis in site.fact().padded:
            if axis in axes:
                valid = site.places.mask(site.fact(), axis, site.dims())
                centered = insert.op("Where", [valid, centered, zero], name=f"{name}_centered", dtype=value.dtype)
    squares = insert.op("Mul", [centered, centered], name=f"{name}_squares")
    variance = _mean(site, squares, axes, True, f"{name}_variance")
    epsilon = house.attribute(site.node, "epsilon", 1e-5)
    small = insert.constant(np.array(epsilon, kind), "epsilon")
    deviation = insert.op("Sqrt", [insert.op("Add", [variance, small], name=f"{name}_sum")], name=f"{name}_deviation")
    result = insert.op("Div", [centered, deviation], name=f"{name}_normalized")
    for op, operand in (("Mul", 1), ("Add", 2)):
        if operand < len(site.node.inputs) and site.node.inputs[operand] is not None:
            result = insert.op(op, [result, _parameter(site, operand, axes)], name=f"{name}_{op.lower()}")
    site.replace(0, result)


def _parameter(site: Site, operand: int, axes: Sequence[int]) -> ir.Value:
    """Scale or bias: over the trailing axes, or per channel in front of them."""
    value = site.node.inputs[operand]
    assert value is not None
    if site.node.op_type != "InstanceNormalization":
        return value
    shape = site.insert.int64s(-1, *[1] * len(axes))
    return site.insert.op("Reshape", [value, shape], name=f"{value.name}_per_channel", dtype=value.dtype)


FORMS: dict[str, Form] = {"mean": mean, "normalize": normalize}
