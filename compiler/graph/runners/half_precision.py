"""Adds casts to a graph so that ONNX Runtime on a CPU rounds float16 values, which it otherwise keeps in float32.

ONNX Runtime runs FLOAT16 and BFLOAT16 nodes on a CPU in float32 and removes the casts that it puts between them: 300 *
300 is 90 000 there, and infinite on every device that has the type. `with_rounding` writes the same graph in float32
with an explicit pair of casts behind every node of a half type, which the runtime keeps: each node computes in float32
and stores in half precision, as tensor cores do. It does not reproduce the order in which a device adds.
"""

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.operators.traits import ROUNDING_NOTHING

HALF = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})


def uses_half(model: ir.Model) -> bool:
    """Whether any value of the main graph has a half-precision type."""
    values: Iterable[ir.Value] = (*model.graph.inputs, *model.graph.initializers.values())
    computed = (output for node in model.graph for output in node.outputs)
    return any(value.dtype in HALF for group in (values, computed) for value in group)


def with_rounding(model: ir.Model) -> ir.Model:
    """Return the graph with half-precision values computed in float32 and rounded; unchanged without such values.

    Inputs and outputs keep their names, types and order.

    Raises:
        Refused: a subgraph uses half precision.
    """
    if not uses_half(model):
        return model
    copy = graphs.clone(model)
    _Rounding(copy).run()
    return copy


class _Rounding:
    """Rewrites one graph in place."""

    def __init__(self, model: ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self.stamp = "with_rounding"

    def run(self) -> None:
        outputs = [(value, str(value.name), value.dtype) for value in self.graph.outputs]
        for value, name, kind in outputs:
            if kind in HALF and value not in self.graph.inputs:
                value.name = graphs.fresh_name(self.graph, f"{name}_wide")
        for node in graphs.nodes_of(self.model):
            self._node(node)
        for value in list(self.graph.initializers.values()):
            self._widen(value)
        for value in self.graph.inputs:
            if value.dtype in HALF and value.uses():
                self._read_wide(value)
        for index, (value, name, kind) in enumerate(outputs):
            if kind is not None and kind in HALF and value not in self.graph.inputs:
                narrow = self._cast(graphs.Inserter(self.model, self.stamp), self.graph.outputs[index], kind, "narrow")
                self.graph.outputs[index] = narrow
                narrow.name = name

    def _node(self, node: ir.Node) -> None:
        _check_bodies(node)
        narrow = [output for output in node.outputs if output.dtype in HALF]
        if graphs.is_op(node, "Cast") and node.outputs[0].dtype in HALF | {ir.DataType.FLOAT}:
            self._cast_node(node)
            return
        value = node.attributes.get("value")
        if narrow and value is not None and value.type == ir.AttributeType.TENSOR:  # Constant, ConstantOfShape
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(_wide(value.as_tensor())))
        for output in narrow:
            kind = output.dtype
            assert kind is not None
            output.type = ir.TensorType(ir.DataType.FLOAT)
            if node.op_type not in ROUNDING_NOTHING and value is None:
                self._round(node, output, kind)

    def _cast_node(self, node: ir.Node) -> None:
        """Replace a cast to a half type by rounding; one from a half type to float32 becomes the identity."""
        output, kind = node.outputs[0], node.outputs[0].dtype
        assert kind is not None
        output.type = ir.TensorType(ir.DataType.FLOAT)
        source = node.inputs[0]
        assert source is not None
        if kind in HALF:
            node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT)
            self._round(node, output, kind)

    def _round(self, node: ir.Node, output: ir.Value, kind: ir.DataType) -> None:
        insert = graphs.Inserter(self.model, self.stamp, after=node)
        rounded = self._cast(insert, output, kind, "narrow")
        wide = self._cast(insert, rounded, ir.DataType.FLOAT, "wide")
        for use in list(output.uses()):
            if use.node is not rounded.producer():
                use.node.replace_input_with(use.idx, wide)
        for index, value in enumerate(self.graph.outputs):
            if value is output:
                self.graph.outputs[index] = wide

    def _cast(self, insert: graphs.Inserter, value: ir.Value, kind: ir.DataType, suffix: str) -> ir.Value:
        to = {"to": int(kind)}
        return insert.op("Cast", [value], to, name=f"{value.name}_{suffix}", shape=value.shape, dtype=kind)

    def _widen(self, value: ir.Value) -> None:
        tensor = value.const_value
        if value.dtype in HALF and tensor is not None:
            value.const_value = ir.tensor(_wide(tensor), name=value.name)
            value.type = ir.TensorType(ir.DataType.FLOAT)

    def _read_wide(self, value: ir.Value) -> None:
        wide = self._cast(graphs.Inserter.behind(self.model, self.stamp, value), value, ir.DataType.FLOAT, "wide")
        for use in list(value.uses()):
            if use.node is not wide.producer():
                use.node.replace_input_with(use.idx, wide)


def _check_bodies(node: ir.Node) -> None:
    bodies = list(graphs.bodies_of(node))
    inner = [output for body in bodies for each in body for output in each.outputs]
    if bodies and any(output.dtype in HALF for output in (*inner, *node.outputs)):
        raise Refused(
            f"expected float32 inside the subgraph of {node.name} ({node.op_type}), got half precision",
            cure="keep what runs inside loops and branches in float32",
        )


def _wide(tensor: ir.TensorProtocol) -> np.ndarray:
    return tensor.numpy().astype(np.float32)
