"""Rewrites Gathers of a position table's first `length` rows as one Slice of a table [1, rows, channels].

A lookup of one entry per row, x[arange(batch), at], becomes a GatherND with one batch dimension. Positions become
integers that are counted from 0, with the start added behind.

Before:
    rows = Gather(table [rows, channels], Range(0, length, 1)); y = Add(x [batch, length, channels], rows)
After:
    rows = Slice(table [1, rows, channels], 0, length); y = Add(x, rows)
Before:
    y = GatherND(x [batch, time, channels], Concat(Range(0, batch, 1), at))
After:
    y = GatherND<batch_dims = 1>(x, at)
Before:
    p = Range(offset - cached, offset + 4, 1); q = Range(Cast<float>(0), Cast<float>(length), Cast<float>(1))
After:
    p = Add(offset - cached, Range(0, cached + 4, 1)); q = Cast<float>(Range(0, length, 1))
Before:
    rows = Slice(table [1, rows, channels], offset, offset + length, axis 1)
After:
    rows = Gather(table, offset + Range(0, length, 1), axis 1)

Requires: symbolic shapes; constant tables.
Ensures: lookups it rewrote are what pad_axes looks up per segment and per batch row.
Keeps: lookups whose rows reach an operator that would see the additional leading axis, other indices than 0..length-1.
Numerics: exact; a leading axis of size 1 broadcasts.
Source: Gather with indices 0..n-1 is a prefix; numpy broadcasting as in the ONNX specification.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_entries import counted_axis
from compiler.graph.operators.axes import axis_of, changed_axes, counts_from_the_front
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import BASIC_ARITHMETIC
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.rewriting.simplification.positions import count_from_zero, count_whole_numbers, look_up_run
from runtime_lite.format.initial_value import array_of_initial

LEADING_FREE = frozenset({"Identity", "Cast", "Relu", "Sigmoid", "Tanh", "Gelu", "LayerNormalization", "Neg"})
"""A list of its own: what is computed of looked-up positions, and does not count axes from the front."""


@dataclasses.dataclass(frozen=True)
class CanonicalizePositions:
    """One spelling for position lookups."""

    name: ClassVar[str] = "canonicalize_positions"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the lookups of the graph and of the first-call graph."""
        matched = rewritten = 0
        refused: list[Refusal] = []
        least = _least_numbers(lowered)
        for model in lowered.models:
            graphs.infer_shapes(model)
            counted = count_plainly(model, least)
            matched, rewritten = matched + counted, rewritten + counted
            for node in graphs.nodes_of(model):
                if _choose_in_row(model, node, lowered.batch_axis):
                    matched, rewritten = matched + 1, rewritten + 1
                    continue
                end = _prefix_length(node)
                if end is None:
                    continue
                matched += 1
                if _lift(model, node, end):
                    rewritten += 1
                else:
                    place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))
                    refused.append(Refusal("the rows reach an operator that would see a leading axis", place))
            if rewritten:
                graphs.prune(model)
                graphs.infer_shapes(model)
        return Outcome(lowered, matched, rewritten, tuple(refused))


def _least_numbers(lowered: Lowered) -> dict[str, int]:
    """Return the lower bound of inputs, from initial states and declared ranges."""
    begun = {state.input: float(np.min(array_of_initial(state.initial, "float64"))) for state in lowered.states}
    least = {name: math.floor(number) for name, number in begun.items() if math.isfinite(number)}
    return least | {name: low for name, (low, _) in lowered.ranges.items()}


def count_plainly(model: ir.Model, least: Mapping[str, int] = MappingProxyType({})) -> int:
    """Rewrite positions to count integers from 0, with the start added behind; return how many were rewritten.

    Args:
        model: the graph.
        least: lower bounds of inputs, as for `look_up_run`.
    """
    rewritten = 0
    for rule in (count_whole_numbers, count_from_zero, functools.partial(look_up_run, least=least)):
        count = sum(rule(model, node, CanonicalizePositions.name) for node in graphs.nodes_of(model))
        if count:
            graphs.prune(model)
            graphs.forget_shapes(model)
            graphs.infer_shapes(model)
        rewritten += count
    return rewritten


def _choose_in_row(model: ir.Model, node: ir.Node, batch: str | None) -> bool:
    """Rewrite a lookup by [row, at] as one by `at` within each row; return whether the node was such a lookup."""
    joined = node.inputs[1].producer() if graphs.is_op(node, "GatherND") and node.inputs[1] is not None else None
    if batch is None or joined is None or not graphs.is_op(joined, "Concat") or len(joined.inputs) != 2:
        return False
    data, (rows, positions) = node.inputs[0], joined.inputs
    if data is None or rows is None or positions is None or graphs.int_attribute(node, "batch_dims", 0) != 0:
        return False
    alone = (graphs.symbol(batch), 1)
    in_rows = (
        graphs.dims_of(rows) == alone == graphs.dims_of(positions) and (graphs.dims_of(data) or ())[:1] == alone[:1]
    )
    if not in_rows or counted_axis(rows) != 0:
        return False
    insert = graphs.Inserter(model, CanonicalizePositions.name, before=node)
    output = node.outputs[0]
    chosen = insert.op(
        "GatherND", [data, positions], {"batch_dims": 1}, name="chosen", dtype=output.dtype, shape=output.shape
    )
    graphs.take_over(model, output, chosen)
    return True


def _prefix_length(node: ir.Node) -> ir.Value | None:
    """Return the length, an int64 [1] or scalar value, where a node takes the first rows of a constant matrix."""
    table = graphs.array_of(node.inputs[0]) if node.inputs else None
    if table is None or table.ndim != 2 or not np.issubdtype(table.dtype, np.floating):
        return None
    if graphs.is_op(node, "Gather") and axis_of(node, table.ndim) == 0:
        return _range_end(node.inputs[1])
    view = slice_of(node)
    sliced = None if view is None else view.only_axis_slice(graphs.integers_of)
    if view is None or sliced is None or sliced.end is None or graphs.array_of(view.ends) is not None:
        return None
    return view.ends if (sliced.axis, sliced.start, sliced.step) == (0, 0, 1) else None


def _range_end(indices: ir.Value | None) -> ir.Value | None:
    """Return the end of a Range(0, end, 1); None for other indices."""
    node = None if indices is None else indices.producer()
    while graphs.is_op(node, "Cast", "Identity") and node is not None and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if node is None or not graphs.is_op(node, "Range"):
        return None
    start, step = graphs.integers_of(node.inputs[0]), graphs.integers_of(node.inputs[2])
    end = node.inputs[1]
    whole = end is not None and end.dtype == ir.DataType.INT64
    return end if start == (0,) and step == (1,) and whole else None


def _lift(model: ir.Model, node: ir.Node, end: ir.Value) -> bool:
    """Replace the lookup by a Slice of the table with a leading axis, if all its readers allow that."""
    output = node.outputs[0]
    plan: list[tuple[ir.Node, ir.Value]] = []
    if not _allows(output, plan):
        return False
    table = graphs.array_of(node.inputs[0])
    assert table is not None and node.inputs[0] is not None
    insert = graphs.Inserter(model, CanonicalizePositions.name, before=node)
    lifted = insert.constant(table[None], f"{node.inputs[0].name}_lifted")
    if end.shape is None or len(end.shape) != 1:
        end = insert.op("Reshape", [end, insert.int64s(-1)], name=f"{output.name}_end", shape=[1])
    rows = insert.op(
        "Slice", [lifted, insert.int64s(0), end, insert.int64s(1)], name=f"{output.name}_rows", dtype=output.dtype
    )
    if output.shape is not None:
        rows.shape = ir.Shape([1, *output.shape])
    for unsqueeze, value in plan:
        ir.convenience.replace_all_uses_with(unsqueeze.outputs[0], rows if value is output else value)
    ir.convenience.replace_all_uses_with(output, rows)
    return True


def _allows(value: ir.Value, plan: list[tuple[ir.Node, ir.Value]]) -> bool:
    """Whether every reader works with one more leading axis; collects the Unsqueeze(0) readers to remove."""
    if value.is_graph_output():
        return False
    for reader in graphs.consumers_of(value):
        others = [other for other in reader.inputs if other is not None and other is not value]
        if graphs.is_op(reader, "Unsqueeze") and changed_axes(reader, graphs.integers_of) == (0,):
            plan.append((reader, value))
        elif graphs.is_op(reader, *BASIC_ARITHMETIC) and any(len(other.shape or ()) >= 3 for other in others):
            continue
        elif graphs.is_op(reader, "LayerNormalization") and counts_from_the_front(reader):
            return False  # where the new axis comes
        elif graphs.is_op(reader, *BASIC_ARITHMETIC, *LEADING_FREE) or (
            graphs.is_op(reader, "MatMul") and reader.inputs[0] is value and len(others[0].shape or ()) == 2
        ):
            if any(graphs.array_of(other) is None for other in others) or not _allows(reader.outputs[0], plan):
                return False
        else:
            return False
    return True
