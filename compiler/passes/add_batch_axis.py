"""Adds a batch axis to a graph written for one row, so that each row of a batch gets the original's result.

A batch axis that is not the first axis of every input and output is moved there by Transpose.

Before:
    x [1, time, 80], cache [4, 128, 64]
    h = Reshape(x, [1, time, 2, 40]); c = Gather(cache, 0); p = ReduceSum(h, axis 0)
After:
    x [batch, time, 80], cache [batch, 4, 128, 64]
    h = Reshape(x, [0, time, 2, 40]); c = Gather(cache, 0, axis 1); p = ReduceSum(Unsqueeze(h, 1), axis 1)

Requires: symbolic shapes; operator set 13 or newer; the recipe says where the original has a 1, or nothing, for the
    batch.
Ensures: every input, state and output that has rows has them in front; row i of each is what the graph before computes
    from row i of the inputs, by one rule per operator. That rows cannot be seen in each other is proved again by
    pad_axes.
Keeps: what does not depend on the inputs: weights, tables and shape arithmetic, which stays that of one row.
Numerics: exact with one row; with more, up to the order of summation of the kernels.
Source: batching by construction, one rule per operator: compiler/proof/batching.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Lowered, Outcome, RowAxis
from compiler.proof.batching.form import RowLayout, moved
from compiler.proof.batching.lifter import LiftedNode, Lifter
from compiler.proof.batching.rules import RULES
from compiler.proof.facts.facts import refuse

OLDEST_OPSET = 13
"""Before it, axes of Squeeze and Unsqueeze are attributes, and Softmax works on merged axes."""


@dataclasses.dataclass(frozen=True)
class AddBatchAxis:
    """Give a graph for one row the batch axis."""

    name: ClassVar[str] = "add_batch_axis"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Add an axis of rows to a graph written for one row; see the module docstring.

        Raises:
            Refused: an operator that reads rows has no rule, or its rule does not hold; the message names node and
                source.
        """
        if not lowered.row_axes:
            return Outcome(lowered)
        if lowered.batch_axis is None:
            raise Refused("the recipe names no batch axis", cure="give one axis buckets, in front of every input")
        if _has_rows(lowered.model, lowered.batch_axis):
            places = {row_axis.tensor: row_axis for row_axis in lowered.row_axes}
            matched = sum(_move(model, lowered.batch_axis, places) for model in lowered.models)
        else:
            layouts = {row_axis.tensor: RowLayout(0, row_axis.axis) for row_axis in lowered.row_axes}
            matched = sum(_add(model, lowered.batch_axis, layouts) for model in lowered.models)
        return Outcome(dataclasses.replace(lowered, row_axes=()), matched=matched, rewritten=matched)


def _has_rows(model: ir.Model, batch: str) -> bool:
    """Whether the graph is written for several rows."""
    return any(graphs.symbol(batch) in (graphs.dims_of(value) or ()) for value in model.graph.inputs)


def _move(model: ir.Model, batch: str, places: Mapping[str, RowAxis]) -> int:
    """Move the batch to the front of inputs and outputs that have it elsewhere; return how many."""
    count = 0
    first = next(iter(model.graph), None)
    for value in [graph_value for graph_value in model.graph.inputs if str(graph_value.name) in places]:
        place, dims = places[str(value.name)], list(value.shape or ())
        assert place.axis is not None
        uses, insert = list(value.uses()), graphs.Inserter(model, AddBatchAxis.name, before=first)
        back = insert.op(
            "Transpose", [value], {"perm": moved(len(dims), 0, place.axis)}, name=f"{value.name}_rows", shape=dims
        )
        for use in uses:
            use.node.replace_input_with(use.idx, back)
        value.shape = ir.Shape([dims[place.axis], *dims[: place.axis], *dims[place.axis + 1 :]])
        count += 1
    for index, value in enumerate(list(model.graph.outputs)):
        name, rank = str(value.name), len(value.shape or ())
        if name not in places:
            continue
        place = places[name]
        assert place.axis is not None
        if value.shape is None:
            raise Refused(
                f"{name} has an unknown number of axes, and the batch is not its first",
                cure="give it a shape in the file, or transpose it before the model returns it",
                place=Location(tensor=name, axis=batch),
            )
        insert = graphs.Inserter(model, AddBatchAxis.name, source=graphs.source_of(value.producer()))
        front = insert.op("Transpose", [value], {"perm": moved(rank, place.axis, 0)}, name=f"{name}_in_front")
        value.name = graphs.fresh_name(model.graph, f"{name}_as_made")
        model.graph.outputs[index], front.name = front, name
        count += 1
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    return count


def _add(model: ir.Model, batch: str, layouts: dict[str, RowLayout]) -> int:
    """Add rows to inputs and nodes; return how many got them."""
    opset = model.graph.opset_imports.get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET:
        raise Refused(
            f"the graph is of operator set {opset}", cure=f"export the model with opset {OLDEST_OPSET} or newer"
        )
    graphs.infer_shapes(model)
    inputs = {value: layouts[str(value.name)] for value in model.graph.inputs if str(value.name) in layouts}
    for value, layout in inputs.items():
        _require_one(value, graphs.dims_of(value), layout)
    lifter = Lifter(model, batch, AddBatchAxis.name, inputs)
    count = len(inputs)
    for node in graphs.nodes_of(model):
        if any(lifter.has_rows(value) for value in node.inputs) or _reads_rows_inside(lifter, node):
            _lift(lifter, node)
            count += 1
    for index, value in enumerate(list(model.graph.outputs)):
        _write_output(lifter, index, value, layouts[str(value.name)])
    graphs.prune(model)
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    return count


def _lift(lifter: Lifter, node: ir.Node) -> None:
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    try:
        if rule is None or _reads_rows_inside(lifter, node):
            raise refuse(
                f"there is no rule that gives {node.op_type} a batch axis",
                "write it with operators of the table in compiler/proof/batching/rules, or export the model with the "
                "batch as a dynamic axis",
            )
        rule(LiftedNode(lifter, node))
    except Refused as refused:
        raise refused.at(
            node=str(node.name), op=node.op_type, axis=lifter.batch, source=graphs.source_of(node)
        ) from None


def _reads_rows_inside(lifter: Lifter, node: ir.Node) -> bool:
    """Whether a body of the node reads values with rows from the outer graph."""
    return any(lifter.has_rows(value) for value in graphs.read_inside(node))


def _require_one(value: ir.Value, dims: tuple[Dim, ...] | None, layout: RowLayout) -> None:
    if dims is None or (layout.dropped is not None and (len(dims) <= layout.dropped or dims[layout.dropped] != 1)):
        got = None if dims is None else [*map(str, dims)]
        raise Refused(
            f"expected a 1 at axis {layout.dropped} of {value.name!r}, got {got}",
            cure="give inputs one row, and feed states back in the shape in which they go in",
            place=Location(tensor=str(value.name), source=graphs.source_of(value.producer())),
        )


def _write_output(lifter: Lifter, index: int, value: ir.Value, layout: RowLayout) -> None:
    """Write the graph output of this name with the batch as first axis."""
    model, name = lifter.model, str(value.name)
    producer = value.producer()
    insert = graphs.Inserter(model, AddBatchAxis.name, source=graphs.source_of(producer))
    _require_one(value, lifter.dims_of(value), layout)
    tensor = lifter.convert(insert, value, layout)
    if tensor is value:
        return
    if tensor in model.graph.outputs or tensor in model.graph.inputs:
        tensor = insert.op("Identity", [tensor], name=f"{name}_copy")
    value.name = graphs.fresh_name(model.graph, f"{name}_of_one_row")
    model.graph.outputs[index] = tensor
    tensor.name = name
