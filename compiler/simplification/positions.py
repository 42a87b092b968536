"""Positions in the one spelling that sizes and rules know: whole numbers from 0 on.

Before:
    p = Range(Cast<float>(0), Cast<float>(total), Cast<float>(1))
    q = Range(offset - cached, offset + 4, 1)
After:
    p = Cast<float>(Range(0, total, 1))
    q = Add(offset - cached, Range(0, cached + 4, 1))

Exact: a float holds every whole number that it counts up to 2**24, and both count as many.
"""

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.sums import WHOLE, Sum, sum_of


def count_whole_numbers(model: ir.Model, node: ir.Node, stamp: str) -> bool:
    """Count in whole numbers where a Range of floats is of such; whether it was one."""
    output = node.outputs[0]
    if not house.is_op(node, "Range") or output.dtype is None or not output.dtype.is_floating_point():
        return False
    sources = [_whole_number(value) for value in node.inputs]
    if any(each is None for each in sources):
        return False
    insert = house.Inserter(model, stamp, before=node)
    bounds = [
        insert.constant(_scalar(each, ir.DataType.INT64), "bound")
        if isinstance(each, int)
        else insert.op("Cast", [each], {"to": int(ir.DataType.INT64)}, name="bound")
        for each in sources
    ]
    numbers = insert.op("Range", bounds, name=f"{output.name}_whole", dtype=ir.DataType.INT64)
    house.take_over(
        model, output, insert.op("Cast", [numbers], {"to": int(output.dtype)}, name=f"{output.name}_counted")
    )
    return True


def _whole_number(value: ir.Value | None) -> ir.Value | int | None:
    """The whole number that a float is, or the value that it is cast from; None where it may be a fraction."""
    array = None if value is None else house.array_of(value)
    if array is not None:
        return int(array.item()) if array.size == 1 and float(array.item()).is_integer() else None
    node = None if value is None else value.producer()
    source = node.inputs[0] if house.is_op(node, "Cast") and node is not None else None
    return source if source is not None and source.dtype in WHOLE else None


def count_from_zero(model: ir.Model, node: ir.Node, stamp: str) -> bool:
    """Count from 0 and add the start, where start and end are data that they have in common; whether it was so."""
    output = node.outputs[0]
    if not house.is_op(node, "Range") or output.dtype not in WHOLE or house.integers_of(node.inputs[2]) != (1,):
        return False
    start, end = node.inputs[0], node.inputs[1]
    if start is None or end is None or house.integers_of(start) is not None:
        return False
    count = sum_of(end).minus(sum_of(start))
    if any(house.integers_of(term) is None for term in count.terms):
        return False
    insert = house.Inserter(model, stamp, before=node)
    assert output.dtype is not None
    numbers = [insert.constant(_scalar(each, output.dtype), "number") for each in (0, 1)]
    size = _written(insert, count, output.dtype)
    run = insert.op("Range", [numbers[0], size, numbers[1]], name=f"{output.name}_from_0", dtype=output.dtype)
    house.take_over(model, output, insert.op("Add", [start, run], name=f"{output.name}_moved", dtype=output.dtype))
    return True


def _written(insert: house.Inserter, count: Sum, dtype: ir.DataType) -> ir.Value:
    """A sum of sizes as a scalar."""
    total = insert.constant(_scalar(count.constant, dtype), "entries")
    for term, times in count.terms.items():
        size = insert.op("Cast", [term], {"to": int(dtype)}, name="size")
        size = insert.op("Reshape", [size, insert.constant(np.zeros(0, np.int64), "scalar")], name="size", shape=[])
        size = insert.op("Mul", [size, insert.constant(_scalar(times, dtype), "times")], name="sizes", dtype=dtype)
        total = insert.op("Add", [total, size], name="entries", dtype=dtype)
    return total


def _scalar(number: int, dtype: ir.DataType) -> np.ndarray:
    return np.array(number, dtype.numpy())
