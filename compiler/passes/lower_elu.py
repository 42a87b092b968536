"""Write Elu as Celu behind loops.

Before:
    h = LSTM(x, w, r);  y = Elu(Elu(h))
After:
    h = LSTM(x, w, r);  y = Celu(Celu(h))

Both are x above 0 and exp(x) - 1 below it, where alpha is 1. There is a builder that refuses a second Elu behind a
loop, as which it computes recurrences, too; Celu it takes.

Requires: nothing.
Ensures: no Elu in a graph with a loop or a recurrence.
Keeps: Elu in all other graphs.
Numerics: rounding of one operator.
Source: definitions of Elu and Celu, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.operator_traits import RECURRENCES
from compiler.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class LowerElu:
    """Celu in place of Elu."""

    name: ClassVar[str] = "lower_elu"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the graph in place."""
        nodes = list(ir.traversal.RecursiveGraphIterator(lowered.model.graph))
        loops = any(house.is_op(node, *RECURRENCES, "Loop", "Scan") for node in nodes)
        found = [node for node in nodes if loops and house.is_op(node, "Elu")]
        for node in found:
            self._write(lowered.model, node)
        return Outcome(lowered, len(found), len(found))

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        """The same node as another operator, in whatever graph it lies."""
        data, alpha, old = node.inputs[0], node.attributes.pop("alpha", None), node.outputs[0]
        assert data is not None and data.dtype is not None
        node.metadata_props[house.PASS_KEY] = self.name
        if alpha is None or alpha.as_float() == 1.0:
            node.op_type = "Celu"
            return
        kind, insert = data.dtype.numpy(), house.Inserter(model, self.name, before=node)
        unit = insert.op("Celu", [data], name=f"{old.name}_unit", shape=data.shape)
        factor = insert.constant(np.array(alpha.as_float(), kind), "alpha")
        scaled = insert.op("Mul", [unit, factor], name=f"{old.name}_scaled", shape=data.shape)
        zero = insert.constant(np.array(0, kind), "zero")
        below = insert.op("Less", [data, zero], name=f"{old.name}_below", shape=data.shape, dtype=ir.DataType.BOOL)
        node.op_type = "Where"
        node.resize_inputs(3)
        for index, value in enumerate((below, scaled, data)):
            node.replace_input_with(index, value)
