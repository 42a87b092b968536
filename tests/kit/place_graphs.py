"""Graphs that compute of the length of a sequence and of its places alone."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs

LONGEST = 14


class PlaceGraph:
    """A graph over tokens [batch, time] to which nodes are added.

    Attributes:
        model: the graph.
        tokens: its input.
        length: number of frames, a scalar.
        length_1: the same, [1].
        rows: number of rows, a scalar.
        places: 0 to the number of frames, [time].
    """

    def __init__(self) -> None:
        kind = ir.TensorType(ir.DataType.INT64)
        self.tokens = ir.Value(name="tokens", shape=ir.Shape(["batch", "time"]), type=kind)
        self.graph = ir.Graph([self.tokens], [], nodes=[], opset_imports={"": 20}, name="places")
        self.model = ir.Model(self.graph, ir_version=10)
        self.insert = graphs.Inserter(self.model, "kit")
        self.length_1 = self.op("Shape", self.tokens, start=1, end=2)
        self.length = self.op("Squeeze", self.length_1)
        self.rows = self.op("Squeeze", self.op("Shape", self.tokens, start=0, end=1))
        self.places = self.op("Range", self.number(0), self.length, self.number(1))

    def op(self, op_type: str, *operands: ir.Value, **attributes: int | Sequence[int]) -> ir.Value:
        """The result of an operator; shapes and comparisons have types of their own."""
        kinds = {"Shape": ir.DataType.INT64, "LessOrEqual": ir.DataType.BOOL, "Equal": ir.DataType.BOOL}
        return self.insert.op(op_type, list(operands), attributes, name=op_type.lower(), dtype=kinds.get(op_type))

    def number(self, value: int) -> ir.Value:
        """A whole number."""
        return self.insert.constant(np.array(value, np.int64), "number")

    def ints(self, *values: int) -> ir.Value:
        """Whole numbers, [count]."""
        return self.insert.int64s(*values)

    def ended(self, value: ir.Value) -> ir.Value:
        """A value as the result, with the shapes of all inferred."""
        self.graph.outputs.append(value)
        graphs.infer_shapes(self.model)
        return value
