"""Removes optional outputs of nodes that nothing reads.

Before:
    y, mean = LayerNormalization(x, gamma);  z = Relu(y)
After:
    y = LayerNormalization(x, gamma);  z = Relu(y)

Some parsers derive what a node computes from its declared outputs, and accept LayerNormalization and MaxPool with one
output only.

Requires: nothing.
Ensures: the last output of every node is read, or the operator has it always.
Keeps: outputs that the operator has always, and those of loops and branches.
Numerics: exact.
Source: optional outputs, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class EliminateOutputs:
    """No declared output that nothing reads."""

    name: ClassVar[str] = "eliminate_outputs"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Drop node outputs that nothing reads, in place."""
        before = _values(lowered.model)
        graphs.prune(lowered.model)
        dropped = before - _values(lowered.model)
        return Outcome(lowered, dropped, dropped)


def _values(model: ir.Model) -> int:
    """Return the number of declared values in a graph."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return len(model.graph.initializers) + sum(bool(output.name) for node in nodes for output in node.outputs)
