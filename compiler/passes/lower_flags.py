"""Rewrites operators on booleans, such as ScatterND and CumSum, as the same operators on numbers.

Before:
    y = ScatterND(flags, places, written)
    n = CumSum(Cast(flags, to INT64), axis)
After:
    y = Cast(ScatterND(Cast(flags), places, Cast(written)))        # in INT32
    n = Cast(CumSum(Cast(Cast(flags, to INT64)), axis))            # in FLOAT

Some parsers document these operators for numbers only, and CumSum for floating point only. Models mark with booleans
the slots of a ring that they have written, and count the frames that are not padding.

Requires: nothing; counts are written where the length of their axis is a number.
Ensures: none of these operators over BOOL, but those that reduce what they scatter.
Keeps: those over numbers; sums of whole numbers that are no truth values, or of 2^24 places and more.
Numerics: exact, as false and true are 0 and 1: moved entries keep their values, the larger of two is true if one is,
    and float32 holds every integer up to 2^24.
Source: definitions of these operators and of Cast, ONNX specification.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome

TRUTH_OPERANDS = {
    "Equal": (0, 1),
    "Pad": (0, 2),
    "ReduceMax": (0,),
    "ReduceMin": (0,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
}
"""The operators, and which of their operands hold truth values."""

COUNT = {"CumSum": (0,)}
"""The operator that adds truth values up, and the operand that holds them."""

WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})

KEEPING = ("Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""A list of its own: operators behind which truth values are still 0 and 1."""

EXACT = 2**24
"""Float32 holds every whole number up to it."""


@dataclasses.dataclass(frozen=True)
class LowerFlags:
    """What is moved, compared or reduced are numbers."""

    name: ClassVar[str] = "lower_flags"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite operators over booleans to work on integers, in place."""
        nodes = ir.traversal.RecursiveGraphIterator(lowered.model.graph)
        found = [(node, kind) for node in nodes for kind in _number_type(node)]
        for node, kind in found:
            self._write(lowered.model, node, kind)
        return Outcome(lowered, len(found), len(found))

    def _write(self, model: ir.Model, node: ir.Node, kind: ir.DataType) -> None:
        """Write an operator over booleans on integers, with a Cast of the result where its type changes."""
        insert, old = graphs.Inserter(model, self.name, before=node), node.outputs[0]
        operands = list(node.inputs)
        for index in (TRUTH_OPERANDS | COUNT)[node.op_type]:
            value = operands[index] if index < len(operands) else None
            if value is not None:
                operands[index] = _as_number(insert, value, kind)
        node.metadata_props[graphs.PASS_KEY] = self.name
        if node.op_type != "Equal":
            assert old.dtype is not None
            copy = ir.Node("", node.op_type, operands, list(node.attributes.values()), num_outputs=1)
            number = copy.outputs[0]
            copy.name = number.name = graphs.fresh_name(model.graph, f"{old.name}_number")
            number.shape, number.dtype = old.shape, kind
            insert.place(copy)
            node.op_type, operands = "Cast", [number]
            node.attributes.clear()
            node.attributes.add(ir.AttrInt64("to", old.dtype))
        node.resize_inputs(len(operands))
        for index, value in enumerate(operands):
            node.replace_input_with(index, value)


def _number_type(node: ir.Node) -> Iterator[ir.DataType]:
    """Yield the integer type in which an operator over booleans is written; nothing where it stays."""
    data = node.inputs[0] if graphs.is_op(node, *TRUTH_OPERANDS, *COUNT) else None
    if data is None:
        return
    reduces = graphs.attribute(node, "reduction") not in (None, "none")
    if node.op_type in TRUTH_OPERANDS and data.dtype == ir.DataType.BOOL and not reduces:
        yield ir.DataType.INT32
    is_count = node.op_type in COUNT and data.dtype in WHOLE and _holds_truth(data)
    if is_count and _length(data, graphs.array_of(node.inputs[1])) < EXACT:
        yield ir.DataType.FLOAT


def _holds_truth(value: ir.Value) -> bool:
    """Whether integers are booleans, 0 and 1."""
    maker = value.producer()
    while value.dtype != ir.DataType.BOOL and maker is not None and graphs.is_op(maker, *KEEPING):
        source = maker.inputs[0]
        assert source is not None
        value, maker = source, source.producer()
    return value.dtype == ir.DataType.BOOL


def _length(value: ir.Value, axis: np.ndarray | None) -> float:
    """Return the size of an axis; infinity where it is unknown."""
    if value.shape is None or axis is None or axis.size != 1:
        return math.inf
    size = value.shape[int(axis.item())]
    return size if isinstance(size, int) else math.inf


def _as_number(insert: graphs.Inserter, value: ir.Value, kind: ir.DataType) -> ir.Value:
    """Return a boolean as 0 or 1; constants stay constants, which some parsers require."""
    array = graphs.array_of(value)
    if array is not None:
        return insert.constant(array.astype(kind.numpy()), f"{value.name}_number")
    return insert.op("Cast", [value], {"to": kind}, name=f"{value.name}_number", shape=value.shape)
