"""Fold mask inputs, which are all ones for an unpadded row: padding masks come from the true lengths instead.

Before:
    visible = And(causal, GatherND(attention_mask [batch, time])); p = Softmax(Where(visible, scores, -inf))
After:
    p = Softmax(Where(causal, scores, -inf))

Requires: symbolic shapes; the recipe says which inputs are masks of which axis (mask_of).
Ensures: no mask input is left; pad_axes then masks what needs one, once.
Keeps: every mask that does not follow from a mask input alone, such as a causal one.
Numerics: exact; selecting by true, multiplying by one and adding zero change nothing.
Source: the unpadded program of one row alone is fed ones.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.lengths import infer_settled
from compiler.errors import Place, Refused
from compiler.evaluate import evaluate_node
from compiler.stages import Lowered, Outcome

MOVEMENT = frozenset(
    {
        "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "ReduceMax", "ReduceMean", "ReduceMin",
        "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators whose every output entry is an entry of the first operand, or an average of equal ones."""

ELEMENTWISE = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min",
        "Mul", "Neg", "Not", "Or", "Pow", "Sub", "Where",
    }
)  # fmt: skip
"""Operators that compute one number from one number of each operand."""

NEUTRAL = {"And": 1, "Or": 0, "Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""The operand that leaves the other one as it is."""


@dataclasses.dataclass(frozen=True)
class FoldMaskInputs:
    """Take the masks of padding out of the graph."""

    name: ClassVar[str] = "fold_mask_inputs"

    def apply(self, lowered: Lowered) -> Outcome:
        """See the module docstring.

        Raises:
            Refused: a mask input is the only one with its axes, so its shape cannot be made from another.
        """
        names = [name for axis in lowered.padded_axes for name in axis.mask_inputs]
        inputs = house.inputs_named(lowered.model)
        masks = [inputs[name] for name in names if name in inputs]
        if not masks:
            return Outcome(lowered)
        infer_settled(lowered.model)
        rewritten = _Folding(lowered.model, masks).run()
        house.prune(lowered.model)
        house.forget_shapes(lowered.model)
        infer_settled(lowered.model)
        return Outcome(lowered, len(masks), rewritten)


class _Folding:
    def __init__(self, model: ir.Model, masks: Sequence[ir.Value]) -> None:
        self.model, self.masks = model, masks
        self.uniform: dict[ir.Value, np.ndarray] = {mask: np.ones((), _numpy(mask)) for mask in masks}

    def run(self) -> int:
        """Take every mask out; the number of nodes changed."""
        changed = 0
        for node in house.nodes_of(self.model):
            if not any(value in self.uniform for value in node.inputs):
                continue
            found = self._result(node)
            if found is not None:
                self.uniform |= dict.fromkeys(node.outputs, found)
            elif self._is_neutral(node):
                changed += 1
        house.prune(self.model)
        for mask in self.masks:
            if mask.uses():
                self._materialise(mask)
                changed += 1
            self.model.graph.inputs.remove(mask)
        return changed + len(self.masks)

    def _number(self, value: ir.Value | None) -> np.ndarray | None:
        """The one number a value holds everywhere, or None."""
        if value in self.uniform:
            return self.uniform[value]
        array = house.array_of(value)
        if array is None or array.size == 0 or not bool(np.all(array == array.reshape(-1)[0])):
            return None
        return np.asarray(array.reshape(-1)[0])

    def _result(self, node: ir.Node) -> np.ndarray | None:
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in MOVEMENT:
            return self._number(node.inputs[0])
        numbers = [self._number(value) for value in node.inputs]
        known = [number for number in numbers if number is not None]
        if node.op_type == "And" and any(not number for number in known):
            return np.zeros((), bool)
        if node.op_type == "Or" and any(bool(number) for number in known):
            return np.ones((), bool)
        if len(known) != len(numbers):
            return None
        if node.op_type == "Concat":
            return known[0] if all(bool(number == known[0]) for number in known) else None
        return evaluate_node(node, known)[0].reshape(()) if node.op_type in ELEMENTWISE else None

    def _is_neutral(self, node: ir.Node) -> bool:
        """Let readers of a node that changes nothing read its operand."""
        kept = self._kept(node)
        if kept is None or node.outputs[0].is_graph_output():
            return False
        output = node.outputs[0]
        wanted, have = house.dims_of(output), house.dims_of(kept)
        if wanted is None or have is None:
            return False
        if have != wanted:
            insert = house.Inserter(self.model, FoldMaskInputs.name, before=node)
            shape = self._shape(insert, output)
            kept = insert.op(
                "Expand", [kept, shape], name=f"{output.name}_spread", shape=output.shape, dtype=kept.dtype
            )
        ir.convenience.replace_all_uses_with(output, kept)
        return True

    def _kept(self, node: ir.Node) -> ir.Value | None:
        """The operand that the node passes on."""
        numbers = [self._number(value) if value in self.uniform else None for value in node.inputs]
        if node.op_type == "Where" and numbers[0] is not None:
            return node.inputs[1] if bool(numbers[0]) else node.inputs[2]
        neutral = NEUTRAL.get(node.op_type)
        if neutral is None or len(node.inputs) != 2:
            return None
        if numbers[1] is not None and bool(numbers[1] == neutral):
            return node.inputs[0]
        if numbers[0] is not None and bool(numbers[0] == neutral) and node.op_type in ("And", "Or", "Add", "Mul"):
            return node.inputs[1]
        return None

    def _materialise(self, value: ir.Value) -> None:
        """A tensor of the one number, shaped from what is left of the graph."""
        readers = list(value.uses())
        insert = house.Inserter(self.model, FoldMaskInputs.name, before=next(iter(self.model.graph)))
        shape = self._shape(insert, value)
        number = insert.constant(self.uniform[value], "mask_number")
        ones = insert.op("Expand", [number, shape], name=f"{value.name}_unpadded", shape=value.shape, dtype=value.dtype)
        for use in readers:
            use.node.replace_input_with(use.idx, ones)

    def _shape(self, insert: house.Inserter, value: ir.Value) -> ir.Value:
        sizes = [self._size(insert, value, dim) for dim in value.shape or ()]
        return insert.op("Concat", sizes, {"axis": 0}, name=f"{value.name}_shape", dtype=ir.DataType.INT64)

    def _size(self, insert: house.Inserter, value: ir.Value, dim: int | ir.SymbolicDim) -> ir.Value:
        if isinstance(dim, int):
            return insert.int64s(dim)
        for other in self.model.graph.inputs:
            for axis, found in enumerate(other.shape or ()):
                if other not in self.masks and found == dim:
                    span = {"start": axis, "end": axis + 1}
                    return insert.op("Shape", [other], span, name=f"{other.name}_size", dtype=ir.DataType.INT64)
        raise Refused(
            f"the mask {value.name!r} is the only input with an axis of {dim} entries",
            cure="give the graph another input with that axis",
            place=Place(tensor=str(value.name)),
        )


def _numpy(value: ir.Value) -> np.dtype[np.generic]:
    return np.dtype(value.dtype.numpy() if value.dtype is not None else np.float32)
