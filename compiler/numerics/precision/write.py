"""Rewrites a graph to chosen types: half-precision weights, and one Cast per value and type."""

import dataclasses
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.numerics.precision.float32_nodes import LARGEST, STATE, touches_float, typed_operands

STAMP = "lower_precision"


def write_types(lowered: Lowered, float32: Collection[str], kind: ir.DataType) -> Lowered:
    """Return a copy in which all nodes and states have type `kind` except those that stay in float32.

    Args:
        lowered: the graph in float32.
        float32: names of nodes, and of states with the prefix `state `.
        kind: FLOAT16 or BFLOAT16.
    """
    copy = graphs.clone(lowered.model)
    _Writer(dataclasses.replace(lowered, model=copy), frozenset(float32), kind).run()
    graphs.infer_shapes(copy)
    return dataclasses.replace(lowered, model=copy)


class _Writer:
    """Rewrites one graph in place."""

    def __init__(self, lowered: Lowered, float32: frozenset[str], kind: ir.DataType) -> None:
        self.lowered, self.model, self.graph, self.float32, self.kind = (
            lowered, lowered.model, lowered.model.graph, float32, kind,
        )  # fmt: skip
        self.casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def run(self) -> None:
        typed = {
            node: operands
            for node in graphs.nodes_of(self.model)
            if touches_float(node) and (operands := typed_operands(node, self.kind)) is not None
        }
        halves = {node: operands for node, operands in typed.items() if node.name not in self.float32}
        wanted = self._interface()
        for graph_input in self.graph.inputs:
            if str(graph_input.name) in wanted:
                graph_input.type = ir.TensorType(wanted[str(graph_input.name)])
        for node, operands in halves.items():
            for index in operands.outputs:
                node.outputs[index].type = ir.TensorType(self.kind)
            if graphs.is_op(node, "Cast") and operands.outputs:
                node.attributes["to"] = ir.AttrInt64("to", int(self.kind))
        for node in list(self.graph):
            operands = halves.get(node)
            for index, value in enumerate(node.inputs):
                if value is None or value.dtype not in (ir.DataType.FLOAT, self.kind):
                    continue
                if graphs.is_op(node, "Cast"):
                    continue  # reads any type
                if operands is not None and index in operands.inputs:
                    node.replace_input_with(index, self._as(value, self.kind, fill=graphs.is_op(node, "Where")))
                elif value.dtype == self.kind:
                    node.replace_input_with(index, self._as(value, ir.DataType.FLOAT))
        for index, output in enumerate(list(self.graph.outputs)):
            kind = wanted.get(str(output.name))
            if kind is not None and output.dtype != kind:
                name = str(output.name)
                output.name = graphs.fresh_name(self.graph, f"{name}_{str(output.dtype).lower()}")
                cast = self._as(output, kind)
                cast.name = name
                self.graph.outputs[index] = cast
        graphs.prune(self.model)

    def _interface(self) -> dict[str, ir.DataType]:
        """Return the new type of each float32 input and output, by name."""
        found = {
            str(value.name): ir.DataType.FLOAT
            for value in (*self.graph.inputs, *self.graph.outputs)
            if value.dtype == ir.DataType.FLOAT
        }
        for state in self.lowered.states:
            if state.input in found and STATE + state.input not in self.float32:
                found |= {state.input: self.kind, state.output: self.kind}
        return found

    def _as(self, value: ir.Value, kind: ir.DataType, *, fill: bool = False) -> ir.Value:
        """Return a value converted to another type: a new constant, or one Cast shared by all readers."""
        if value.dtype == kind:
            return value
        if (value, kind) in self.casts:
            return self.casts[value, kind]
        array = graphs.array_of(value)
        producer = value.producer()
        if array is not None and producer is None:
            insert = graphs.Inserter(self.model, STAMP)
            converted = insert.constant(_rounded(array, kind, saturate=fill), f"{value.name}_{kind.name.lower()}")
        else:
            insert = graphs.Inserter.behind(self.model, STAMP, value)
            name = f"{value.name}_{kind.name.lower()}"
            converted = insert.op("Cast", [value], {"to": int(kind)}, name=name, shape=value.shape, dtype=kind)
        self.casts[value, kind] = converted
        return converted


def _rounded(array: np.ndarray, kind: ir.DataType, *, saturate: bool) -> np.ndarray:
    """Round a constant to half precision; with `saturate`, finite fill values stay finite."""
    if saturate:
        most = LARGEST[kind]
        array = np.where(np.isfinite(array), np.clip(array, -most, most), array).astype(array.dtype)
    with np.errstate(over="ignore"):
        return np.asarray(array.astype(kind.numpy()))
