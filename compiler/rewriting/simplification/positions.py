"""Rewrites Range and Slice of positions in the form that shape inference and rules know: integers counted from 0.

Before:
    p = Range(Cast<float>(0), Cast<float>(total), Cast<float>(1))
    q = Range(offset - cached, offset + 4, 1)
    rows = Slice(table, offset, offset + time)
After:
    p = Cast<float>(Range(0, total, 1))
    q = Add(offset - cached, Range(0, cached + 4, 1))
    rows = Gather(table, Add(offset, Range(0, time, 1)))

Exact: a float holds every whole number that it counts up to 2**24, and both count as many. A run of rows that ends
behind the table fails then, where the Slice has fewer rows than it says. A Slice that begins below 0 counts from the
end of the table, and its rows are others where it ends at 0 or behind: one that may begin there stays.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.slices import slice_of
from compiler.rewriting.simplification.sums import WHOLE, Sum, sum_of


def count_whole_numbers(model: ir.Model, node: ir.Node, stamp: str) -> bool:
    """Rewrite a Range of floats that are integers to count integers; return whether it was one."""
    output = node.outputs[0]
    if not graphs.is_op(node, "Range") or output.dtype is None or not output.dtype.is_floating_point():
        return False
    sources = [_whole_number(value) for value in node.inputs]
    if any(bound is None for bound in sources):
        return False
    insert = graphs.Inserter(model, stamp, before=node)
    bounds = [
        insert.constant(_scalar(bound, ir.DataType.INT64), "bound")
        if isinstance(bound, int)
        else insert.op("Cast", [bound], {"to": int(ir.DataType.INT64)}, name="bound")
        for bound in sources
    ]
    numbers = insert.op("Range", bounds, name=f"{output.name}_whole", dtype=ir.DataType.INT64)
    graphs.take_over(
        model, output, insert.op("Cast", [numbers], {"to": int(output.dtype)}, name=f"{output.name}_counted")
    )
    return True


def _whole_number(value: ir.Value | None) -> ir.Value | int | None:
    """Return the integer that a float is, or the integer value it is cast from; None where it may be a fraction."""
    array = None if value is None else graphs.array_of(value)
    if array is not None:
        return int(array.item()) if array.size == 1 and float(array.item()).is_integer() else None
    node = None if value is None else value.producer()
    source = node.inputs[0] if graphs.is_op(node, "Cast") and node is not None else None
    return source if source is not None and source.dtype in WHOLE else None


def count_from_zero(model: ir.Model, node: ir.Node, stamp: str) -> bool:
    """Rewrite a Range with data-dependent start to count from 0 and add the start; return whether it was one."""
    output = node.outputs[0]
    if not graphs.is_op(node, "Range") or graphs.integers_of(node.inputs[2]) != (1,):
        return False
    run = _run_between(graphs.Inserter(model, stamp, before=node), node.inputs[0], node.inputs[1], str(output.name))
    if run is None:
        return False
    graphs.take_over(model, output, run)
    return True


def look_up_run(model: ir.Model, node: ir.Node, stamp: str, least: Mapping[str, int] = MappingProxyType({})) -> bool:
    """Rewrite a Slice of a constant table from a data-dependent start as a lookup; return whether it was one.

    Args:
        model: with shapes.
        node: the node to rewrite.
        stamp: stamp of inserted nodes.
        least: the lower bound of graph inputs that may be negative; others are not.
    """
    output, view = node.outputs[0], slice_of(node)
    sliced = None if view is None else view.only_axis_slice(graphs.integers_of)
    if view is None or sliced is None or sliced.step != 1 or graphs.array_of(view.data) is None:
        return False
    if view.starts is None or _may_begin_below_zero(view.starts, least):
        return False
    insert = graphs.Inserter(model, stamp, before=node)
    places = _run_between(insert, view.starts, view.ends, str(output.name))
    if places is None:
        return False
    rows = insert.op(
        "Gather", [view.data, places], {"axis": sliced.axis}, name=f"{output.name}_rows", dtype=output.dtype
    )
    graphs.take_over(model, output, rows)
    return True


def _may_begin_below_zero(start: ir.Value, least: Mapping[str, int]) -> bool:
    """Whether a sum may be below 0, given lower bounds of its terms."""
    first = sum_of(start)
    below = [least.get(str(term.name), 0) * times for term, times in first.terms.items() if term.is_graph_input()]
    return first.constant + sum(below) < 0


def _run_between(insert: graphs.Inserter, start: ir.Value | None, end: ir.Value | None, name: str) -> ir.Value | None:
    """Return a data-dependent start plus 0, 1, 2, ... up to the end, where sizes give their number; else None."""
    if start is None or end is None or start.dtype not in WHOLE or graphs.integers_of(start) is not None:
        return None
    count = sum_of(end).minus(sum_of(start))
    if any(graphs.integers_of(term) is None for term in count.terms):
        return None
    numbers = [insert.constant(_scalar(each, start.dtype), "number") for each in (0, 1)]
    size = _written(insert, count, start.dtype)
    run = insert.op("Range", [numbers[0], size, numbers[1]], name=f"{name}_from_0", dtype=start.dtype)
    return insert.op("Add", [start, run], name=f"{name}_moved", dtype=start.dtype)


def _written(insert: graphs.Inserter, count: Sum, dtype: ir.DataType) -> ir.Value:
    """Return a sum of sizes as a scalar."""
    total = insert.constant(_scalar(count.constant, dtype), "entries")
    for term, times in count.terms.items():
        size = insert.op("Cast", [term], {"to": int(dtype)}, name="size")
        size = insert.op("Reshape", [size, insert.constant(np.zeros(0, np.int64), "scalar")], name="size", shape=[])
        size = insert.op("Mul", [size, insert.constant(_scalar(times, dtype), "times")], name="sizes", dtype=dtype)
        total = insert.op("Add", [total, size], name="entries", dtype=dtype)
    return total


def _scalar(number: int, dtype: ir.DataType) -> np.ndarray:
    return np.array(number, dtype.numpy())
