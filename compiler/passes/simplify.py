"""Clean a graph up: fold constants, remove what nothing reads, share equal nodes and equal small constants.

Before:
    a = Constant(-1); b = Identity(x); c = Reshape(b, a); d = Reshape(b, a)
After:
    c = Reshape(x, minus_one)      # read by the consumers of d as well

A piece of a sequence that is cut from a tensor is cut from the tensor itself.

Requires: nothing.
Ensures: no Constant or Identity nodes, no unread nodes, initializers that are read.
Keeps: operators the folder does not know; subgraphs; names of graph inputs and outputs.
Numerics: exact, except that constants are folded by a reference evaluator (rounding of a folded sum may differ by one
    ulp).
Source: the optimizer of onnxscript and the common passes of onnx_ir.
"""

import dataclasses
import logging
from typing import ClassVar

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common
import onnxscript.optimizer

from compiler import ir as house
from compiler.analysis.known_sizes import MOST, numbers_of
from compiler.stages import Lowered, Outcome

FOLD_ELEMENTS = 1 << 22
"""Largest constant that is folded: position tables are, embeddings of a large vocabulary are not."""

FOLDED_ELEMENTS = 1 << 18
"""Largest constant that comes of folding: rows of a table are, what is repeated for every row of a batch is not."""


@dataclasses.dataclass(frozen=True)
class Simplify:
    """Run the folder and the clean-up passes until nothing changes.

    Attributes:
        rounds: upper bound on repetitions.
    """

    name: ClassVar[str] = "simplify"
    lossy: ClassVar[bool] = False
    rounds: int = 4

    def apply(self, lowered: Lowered) -> Outcome:
        """Simplify the graph and, while there is one, the graph of the first call."""
        removed = sum(simplify_model(model, self.rounds) for model in lowered.models)
        return Outcome(lowered, matched=removed, rewritten=removed)


def simplify_model(model: ir.Model, rounds: int = 4) -> int:
    """Simplify in place; how many nodes and initializers went away or changed."""
    logging.getLogger("onnxscript").setLevel(logging.ERROR)  # it reports constants that it leaves alone
    start = _text(model)
    before = _size(model)
    text = start
    known = set(model.graph)
    names = [[str(value.name) for value in values] for values in (model.graph.inputs, model.graph.outputs)]
    for _ in range(rounds):
        onnxscript.optimizer.optimize(
            model, onnx_shape_inference=False, input_size_limit=FOLD_ELEMENTS, output_size_limit=FOLDED_ELEMENTS
        )
        for clean in (
            onnx_ir.passes.common.CommonSubexpressionEliminationPass(),
            onnx_ir.passes.common.IdentityEliminationPass(),
            onnx_ir.passes.common.LiftConstantsToInitializersPass(lift_all_constants=True),
            onnx_ir.passes.common.DeduplicateInitializersPass(),
            onnx_ir.passes.common.RemoveUnusedNodesPass(),
        ):
            clean(model)
        _restore_names(model, *names)
        house.infer_shapes(model)
        _fold_known_integers(model)
        _fold_filled(model)
        _cut_without_sequence(model)
        now = _text(model)
        if now == text:
            break
        text = now
    _stamp(model, known)
    model.graph.meta.pop("slipway.names", None)
    return 0 if text == start else max(before - _size(model), 1)


def _fold_known_integers(model: ir.Model) -> None:
    """Shape arithmetic whose result is a number although its inputs are symbolic, e.g. the channels of a cache."""
    for node in house.nodes_of(model):
        output = node.outputs[0]
        if len(node.outputs) != 1 or output.dtype != ir.DataType.INT64 or output.is_graph_output():
            continue
        known = numbers_of(output)
        if known is None or not all(isinstance(number, int) for number in known) or output.shape is None:
            continue
        if len(output.shape) > 1:
            continue
        insert = house.Inserter(model, Simplify.name, before=node)
        array = np.array(known, np.int64).reshape([] if len(output.shape) == 0 else [-1])
        ir.convenience.replace_all_uses_with(output, insert.constant(array, "int64s"))


def _fold_filled(model: ir.Model) -> None:
    """A handful of equal numbers, as in the amounts of a Pad, which the folder leaves alone."""
    for node in house.nodes_of(model):
        shape = house.array_of(node.inputs[0]) if house.is_op(node, "ConstantOfShape") else None
        if shape is None or int(np.prod(shape)) > MOST or node.outputs[0].is_graph_output():
            continue
        given = house.attribute(node, "value")
        number = given.numpy() if isinstance(given, ir.TensorProtocol) else np.zeros(1, np.float32)
        insert = house.Inserter(model, Simplify.name, before=node)
        array = np.full(tuple(int(size) for size in shape), number.reshape(-1)[0], number.dtype)
        ir.convenience.replace_all_uses_with(node.outputs[0], insert.constant(array, "filled"))


def _cut_without_sequence(model: ir.Model) -> None:
    """SequenceAt(SplitToSequence(x, size), k) with a fixed size and k is a Slice of x; lists of sizes are a Split."""
    for node in house.nodes_of(model):
        cut = node.inputs[0].producer() if house.is_op(node, "SequenceAt") and node.inputs[0] is not None else None
        if cut is None or not house.is_op(cut, "SplitToSequence") or len(cut.inputs) < 2 or node.graph is not cut.graph:
            continue
        size, place = house.array_of(cut.inputs[1]), house.array_of(node.inputs[1])
        if size is None or size.ndim > 0 or place is None or int(place) < 0:
            continue
        start = int(size) * int(place)
        insert = house.Inserter(model, Simplify.name, before=node, source=house.source_of(cut))
        bounds = [insert.int64s(each) for each in (start, start + int(size), house.int_attribute(cut, "axis", 0))]
        piece = insert.op("Slice", [cut.inputs[0], *bounds], name="piece", dtype=node.outputs[0].dtype)
        house.take_over(model, node.outputs[0], piece)


def _restore_names(model: ir.Model, inputs: list[str], outputs: list[str]) -> None:
    """Equal outputs become one value, and inputs that are outputs are renamed: give each its own name again."""
    graph = model.graph
    if [[value.name for value in values] for values in (graph.inputs, graph.outputs)] == [inputs, outputs]:
        return
    graph.meta.pop("slipway.names", None)
    seen: set[ir.Value] = set(graph.inputs)
    for index, value in enumerate(list(graph.outputs)):
        if value in seen:
            copy = house.Inserter(model, Simplify.name, source=house.source_of(value.producer()))
            graph.outputs[index] = copy.op("Identity", [value], name=f"{outputs[index]}_copy", shape=value.shape)
        seen.add(value)
    values = [*graph.inputs, *graph.outputs]
    for index, value in enumerate(values):  # first out of the way: a wanted name may be another value's present one
        value.name = f"slipway_io_{index}"
    for value, name in zip(values, [*inputs, *outputs], strict=True):
        value.name = name


def _stamp(model: ir.Model, known: set[ir.Node]) -> None:
    """Nodes that the folder made are ours, and of the line of what they read."""
    for node in model.graph:
        if node in known or house.PASS_KEY in node.metadata_props:
            continue
        node.metadata_props[house.PASS_KEY] = Simplify.name
        sources = [house.source_of(value.producer()) for value in node.inputs if value is not None]
        source = house.source_of(node) or next(filter(None, sources), "")
        if source:
            node.metadata_props[house.SOURCE_KEY] = source


def _text(model: ir.Model) -> str:
    """Structure as text, weights by name and shape only."""
    lines = [
        f"{node.op_type}({[v and v.name for v in node.inputs]}) -> {[v.name for v in node.outputs]}"
        for node in model.graph
    ]
    return "\n".join(lines + sorted(model.graph.initializers))


def _size(model: ir.Model) -> int:
    return sum(1 for _ in model.graph) + len(model.graph.initializers)
