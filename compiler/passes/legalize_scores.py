"""Masks attention scores with the lowest finite number of their type instead of -inf.

Before:
    shares = Softmax(Where(mask, scores, -inf));  shares = Softmax(scores + bias), bias 0 or -inf
After:
    shares = Softmax(Where(mask, scores, lowest));  shares = Softmax(Max(scores + bias, lowest))

The softmax gives the lowest number a weight of 0 beside any larger number, as it does for -inf: numbers of a type are
further apart there than the exponential reaches. So a row with a score that is not masked keeps its bits. A row whose
scores are all masked would get equal weights in place of NaN: the pass proves that there is none, except in padding, of
which nothing is read.

Requires: sizes of the axes.
Ensures: no -inf of a constant reaches a softmax, but those that are refused.
Keeps: a softmax of which a row may see nothing; what else reads the scores, as a guard that looks for -inf.
Numerics: exact.
Source: compiler/proof/facts/seen_rows.py, evaluation at every length.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.passes.freeze_axes import FreezeAxes
from compiler.proof.facts.seen_rows import SeenRows, infinite_constants


@dataclasses.dataclass(frozen=True)
class LegalizeScores:
    """The lowest number in place of -inf.

    Attributes:
        sizes: (axis, size) pairs.
    """

    name: ClassVar[str] = "legalize_scores"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False
    sizes: tuple[tuple[str, int], ...] = ()

    def apply(self, lowered: Lowered) -> Outcome:
        """Replace infinite masking constants by the lowest finite number, in place."""
        graphs.infer_shapes(lowered.model)
        nodes = [node for node in ir.traversal.RecursiveGraphIterator(lowered.model.graph) if _is_infinite(node)]
        if not nodes:
            return Outcome(lowered)
        sizes = dict(self.sizes) | ({lowered.batch_axis: 1} if lowered.batch_axis is not None else {})
        copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        rows = SeenRows(lowered, FreezeAxes(tuple(sizes.items())).apply(copy).lowered.model, sizes)
        refused = []
        for node in nodes:
            reason = rows.why_not(node)
            if reason:
                place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node))
                refused.append(Refusal(f"scores stay -inf: {reason}", place))
                continue
            insert = graphs.Inserter(lowered.model, self.name, before=node)
            node.replace_input_with(0, _bounded(insert, node.inputs[0]))
        graphs.prune(lowered.model)
        return Outcome(lowered, len(nodes), len(nodes) - len(refused), tuple(refused))


def _is_infinite(node: ir.Node) -> bool:
    scores = node.inputs[0] if graphs.is_op(node, "Softmax") else None
    return scores is not None and bool(infinite_constants(scores))


def _bounded(insert: graphs.Inserter, value: ir.Value | None) -> ir.Value:
    """Return a value without entries below the lowest finite number, by changing the constants that it selects."""
    assert value is not None and value.dtype is not None
    if not infinite_constants(value):
        return value
    kind, array, node = value.dtype.numpy(), graphs.array_of(value), value.producer()
    lowest = np.array(value.dtype.min, kind)
    name = f"{value.name}_bounded"
    if array is not None:
        return insert.constant(np.maximum(array, lowest), name)
    if node is not None and graphs.is_op(node, "Where"):
        chosen = [node.inputs[0], *(_bounded(insert, operand) for operand in node.inputs[1:])]
        return insert.op("Where", chosen, name=name, shape=value.shape, dtype=value.dtype)
    return insert.op("Max", [value, insert.constant(lowest, "lowest")], name=name, shape=value.shape)
