"""Applies the weights that follow the lookup of positions to the whole constant table at build time.

Before:
    rows = Gather(table [144, 256], index); projected = MatMul(rows, weights)        # one product per layer and call
After:
    projected = Gather(table @ weights [144, 256], index)

Requires: tables looked up by Gather along their first axis (pad_axes).
Ensures: what follows the lookup no longer depends on constants alone.
Keeps: lookups followed by anything that mixes rows, or by operands that are not constant.
Numerics: exact up to the rounding of one matrix product per layer (row-wise functions commute with lookup).
Source: f(table)[i] = f(table[i]) for row-wise f; row-wise as judged by the rule table.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.graph.runners.session import evaluate_node
from compiler.graph.stages import Lowered, Outcome
from compiler.passes.window_states import rename_output
from compiler.proof.propagation.pointwise import pointwise_axes

MAY_MIX_STREAMS = frozenset(
    {"Reshape", "Slice", "Gather", "Einsum", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"}
)
"""A list of its own: pointwise along the rows, but not always along the batch axis, or with sizes of the looked-up rows
in constants."""


@dataclasses.dataclass(frozen=True)
class ProjectPositions:
    """Fold row-wise functions of a looked-up table into the table."""

    name: ClassVar[str] = "project_positions"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Fold nodes after table lookups into the tables, until no reader is a row-wise function of constants."""
        model, matched, rewritten = lowered.model, 0, 0
        lookups = [node for node in graphs.nodes_of(model) if _is_lookup(node)]
        while lookups:  # every fold leaves one node less between a lookup and the end of the graph
            lookup = lookups.pop()
            for consumer in graphs.consumers_of(lookup.outputs[0]):
                matched += 1
                folded = _fold(model, lookup, consumer)
                if folded is not None:
                    lookups.append(folded)
                    rewritten += 1
        if rewritten:
            graphs.prune(model)
            graphs.infer_shapes(model)
        return Outcome(lowered, matched, rewritten)


def _is_lookup(node: ir.Node) -> bool:
    """Whether a node looks up rows of a constant matrix [rows, channels] by computed indices."""
    if not graphs.is_op(node, "Gather"):
        return False
    table, index = graphs.array_of(node.inputs[0]), graphs.array_of(node.inputs[1])
    is_of_rows = table is not None and table.ndim == 2 and axis_of(node, table.ndim) == 0
    return table is not None and is_of_rows and np.issubdtype(table.dtype, np.floating) and index is None


def _fold(model: ir.Model, lookup: ir.Node, consumer: ir.Node) -> ir.Node | None:
    """Return a lookup in the table after `consumer`; None when `consumer` is not a row-wise function of it alone."""
    table = graphs.array_of(lookup.inputs[0])
    rows = lookup.outputs[0]
    assert table is not None
    if len(consumer.outputs) != 1 or rows.shape is None or len(rows.shape) != 3:
        return None
    if not _is_rowwise(consumer, rows) or graphs.is_op(consumer, *MAY_MIX_STREAMS):
        return None
    if graphs.is_op(consumer, "Softmax") and axis_of(consumer, 3) != 2:
        return None
    constants = [graphs.array_of(value) for value in consumer.inputs]
    operands = [table[None] if value is rows else constants[i] for i, value in enumerate(consumer.inputs)]
    if any(operand is None for operand in operands):
        return None
    projected = evaluate_node(consumer, [operand for operand in operands if operand is not None])[0]
    if projected.ndim != 3 or projected.shape[:2] != (1, table.shape[0]):
        return None
    insert = graphs.Inserter(model, ProjectPositions.name, before=consumer)
    output = consumer.outputs[0]
    constant = insert.constant(np.ascontiguousarray(projected[0]), f"{output.name}_table")
    shape = [*list(rows.shape)[:2], projected.shape[2]]
    folded_lookup = insert.op(
        "Gather", [constant, lookup.inputs[1]], {"axis": 0}, name=f"{output.name}_rows", shape=shape, dtype=output.dtype
    )
    if output in model.graph.outputs:
        name = str(output.name)
        rename_output(model, output, folded_lookup, name)
    ir.convenience.replace_all_uses_with(output, folded_lookup)
    node = folded_lookup.producer()
    assert node is not None
    return node


def _is_rowwise(consumer: ir.Node, rows: ir.Value) -> bool:
    """Whether the rule table calls the node pointwise along the rows, with all other operands constant."""
    return pointwise_axes(consumer, {i: 1 for i, value in enumerate(consumer.inputs) if value is rows}) == (1,)
