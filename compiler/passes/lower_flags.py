"""Write operators over truth values as the same over whole numbers.

Before:
    y = ScatterND(flags, places, written)
After:
    y = Cast(ScatterND(Cast(flags), places, Cast(written)))        # in INT32

There is a parser that documents these operators for numbers alone. Models mark the slots of a ring that they have
written.

Requires: nothing.
Ensures: none of these operators over BOOL, but those that reduce what they scatter.
Keeps: those over numbers.
Numerics: exact, as false and true are 0 and 1: what is moved comes back as it was, the larger of two is true if one is.
Source: definitions of these operators and of Cast, ONNX specification.
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.stages import Lowered, Outcome

TRUTH_OPERANDS = {
    "Equal": (0, 1),
    "Pad": (0, 2),
    "ReduceMax": (0,),
    "ReduceMin": (0,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
}
"""The operators, and which of their operands hold truth values."""


@dataclasses.dataclass(frozen=True)
class LowerFlags:
    """What is moved, compared or reduced are numbers."""

    name: ClassVar[str] = "lower_flags"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the graph in place."""
        found = [node for node in ir.traversal.RecursiveGraphIterator(lowered.model.graph) if _is_over_flags(node)]
        for node in found:
            self._write(lowered.model, node)
        return Outcome(lowered, len(found), len(found))

    def _write(self, model: ir.Model, node: ir.Node) -> None:
        """The same node over numbers, or as the Cast of a copy where truth values come out of it."""
        insert, old = house.Inserter(model, self.name, before=node), node.outputs[0]
        operands = list(node.inputs)
        for index in TRUTH_OPERANDS[node.op_type]:
            value = operands[index] if index < len(operands) else None
            if value is not None:
                operands[index] = _as_number(insert, value)
        node.metadata_props[house.PASS_KEY] = self.name
        if node.op_type != "Equal":
            copy = ir.Node("", node.op_type, operands, list(node.attributes.values()), num_outputs=1)
            number = copy.outputs[0]
            copy.name = number.name = house.fresh_name(model.graph, f"{old.name}_number")
            number.shape, number.dtype = old.shape, ir.DataType.INT32
            insert.place(copy)
            node.op_type, operands = "Cast", [number]
            node.attributes.clear()
            node.attributes.add(ir.AttrInt64("to", ir.DataType.BOOL))
        node.resize_inputs(len(operands))
        for index, value in enumerate(operands):
            node.replace_input_with(index, value)


def _is_over_flags(node: ir.Node) -> bool:
    """Whether an operator has truth values in the place of numbers, which it does not add up."""
    data = node.inputs[0] if house.is_op(node, *TRUTH_OPERANDS) else None
    reduces = house.attribute(node, "reduction") not in (None, "none")
    return data is not None and data.dtype == ir.DataType.BOOL and not reduces


def _as_number(insert: house.Inserter, value: ir.Value) -> ir.Value:
    """A truth value as 0 or 1; constants stay constants, which parsers want of some operands."""
    array = house.array_of(value)
    if array is not None:
        return insert.constant(array.astype(np.int32), f"{value.name}_number")
    to = {"to": ir.DataType.INT32}
    return insert.op("Cast", [value], to, name=f"{value.name}_number", shape=value.shape)
