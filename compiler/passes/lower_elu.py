"""Rewrites Elu as Relu, Min and Exp in graphs that contain loops or recurrent operators.

Before:
    h = LSTM(x, w, r);  y = Elu(Elu(h))
After:
    h = LSTM(x, w, r);  a = Relu(h) + (Exp(Min(h, 0)) - 1);  y = Relu(a) + (Exp(Min(a, 0)) - 1)

Both are x above 0 and alpha * (exp(x) - 1) below it. There is a builder that refuses a second Elu behind a loop, as
which it computes recurrences, too; and Celu, its like, in half precision.

Requires: nothing.
Ensures: no Elu in a graph with a loop or a recurrence.
Keeps: Elu in all other graphs.
Numerics: rounding of a few operators.
Source: definition of Elu, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import RECURRENCES
from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class LowerElu:
    """What Elu computes, by other operators."""

    name: ClassVar[str] = "lower_elu"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite Elu as exponentials in graphs with loops, in place."""
        nodes = list(ir.traversal.RecursiveGraphIterator(lowered.model.graph))
        loops = any(graphs.is_op(node, *RECURRENCES, "Loop", "Scan") for node in nodes)
        found = [node for node in nodes if loops and graphs.is_op(node, "Elu")]
        for node in found:
            self._write(lowered.model, node)
        return Outcome(lowered, len(found), len(found))

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        """Write an Elu as the sum of its positive and negative parts."""
        data, alpha, old = node.inputs[0], node.attributes.pop("alpha", None), node.outputs[0]
        assert data is not None and data.dtype is not None
        kind, insert = data.dtype.numpy(), graphs.Inserter(model, self.name, before=node)

        def op(name: str, *operands: ir.Value) -> ir.Value:
            return insert.op(name, list(operands), name=f"{old.name}_{name.lower()}", shape=data.shape)

        zero, one = (insert.constant(np.array(number, kind), "number") for number in (0, 1))
        below = op("Sub", op("Exp", op("Min", data, zero)), one)
        if alpha is not None and alpha.as_float() != 1.0:
            below = op("Mul", below, insert.constant(np.array(alpha.as_float(), kind), "alpha"))
        above = op("Relu", data)
        node.metadata_props[graphs.PASS_KEY] = self.name
        node.op_type = "Add"
        node.resize_inputs(2)
        for index, value in enumerate((above, below)):
            node.replace_input_with(index, value)
