"""Checks element types and shapes against those that a strongly typed TensorRT network may have on a device."""

from collections.abc import Iterator

import onnx_ir as ir

from compiler.graph.model import is_op
from compiler.targets.tensorrt.rule import Breach, DeviceLimits, Rule, every_node

AMPERE, ADA = (8, 0), (8, 9)

FLOAT8 = frozenset(kind for kind in ir.DataType if kind.name.startswith("FLOAT8"))

ALWAYS = frozenset(
    {
        ir.DataType.FLOAT,
        ir.DataType.FLOAT16,
        ir.DataType.INT32,
        ir.DataType.INT64,
        ir.DataType.BOOL,
    }
)
"""Types that every operator of the parser's table may see, on every device."""

CURES = {
    ir.DataType.DOUBLE: "cast to FLOAT in the model: the parser would do it silently and clamp",
    ir.DataType.BFLOAT16: "use FLOAT16, or build for a device of compute capability 8.0",
    ir.DataType.STRING: "keep text outside the graph",
}


def _values(model: ir.Model) -> Iterator[tuple[ir.Value, ir.Node | None]]:
    """Yield every value once, with the node that produces it, or else the first that reads it."""
    inner = {id(node.graph): node.graph for node in every_node(model)}
    for graph in ({id(model.graph): model.graph} | inner).values():
        assert graph is not None
        initializers = getattr(graph, "initializers", {})
        for value in dict.fromkeys((*graph.inputs, *initializers.values())):
            yield value, next((use.node for use in value.uses()), None)
    for node in every_node(model):
        for value in node.outputs:
            if value.name:
                yield value, node


def _element_type(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield breaches of the rule that allows the types of the table only; INT8 and UINT8 have their own rules."""
    later = {ir.DataType.BFLOAT16} if limits.capability >= AMPERE else set()
    later |= FLOAT8 if limits.capability >= ADA else set()
    allowed = ALWAYS | later | {ir.DataType.INT8, ir.DataType.UINT8}
    for value, node in _values(model):
        if value.dtype is not None and value.dtype not in allowed and not isinstance(value.type, ir.SequenceType):
            yield Breach(
                f"expected a type that TensorRT has on {limits.device}, got {value.dtype.name}",
                CURES.get(value.dtype, "cast it to a type that the device has"),
                node,
                value,
            )


def _tensors_only(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for value, node in _values(model):
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            yield Breach(
                f"expected a tensor, got {type(value.type).__name__}",
                "keep sequences and optional values outside the graph",
                node,
                value,
            )


def _known_type(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for value, node in _values(model):
        if value.type is None and value.uses():
            yield Breach(
                "expected a type, a strongly typed network takes every type from the graph, got none",
                "let shape inference run on the graph",
                node,
                value,
            )


def _uint8(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield breaches of the rule that UINT8 enters and leaves the network through a Cast, and occurs nowhere else."""
    outputs = set(model.graph.outputs)
    for value, node in _values(model):
        if value.dtype != ir.DataType.UINT8:
            continue
        entering = value.is_graph_input() and all(is_op(use.node, "Cast") for use in value.uses())
        leaving = value in outputs and not value.uses() and is_op(value.producer(), "Cast")
        if not entering and not leaving:
            yield Breach(
                "expected UINT8 as network input or output behind a Cast only, got it inside the graph",
                "cast at the border, and compute in another type",
                node,
                value,
            )


def _int8(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield breaches of the rule that INT8 occurs between QuantizeLinear and DequantizeLinear, or in its constants."""
    outputs = set(model.graph.outputs)
    for value, node in _values(model):
        if value.dtype != ir.DataType.INT8:
            continue
        maker = value.producer()
        constant = (maker is None and not value.is_graph_input()) or is_op(maker, "Constant")
        read = all(is_op(use.node, "DequantizeLinear", "QuantizeLinear") for use in value.uses())
        if not (constant or is_op(maker, "QuantizeLinear")) or not read or value in outputs:
            yield Breach(
                "expected INT8 only between QuantizeLinear and DequantizeLinear, got it elsewhere",
                "compute in floating point and quantise with a Q/DQ pair",
                node,
                value,
            )


def _profile(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield breaches of the rule that every symbolic dimension of an input is the axis that profiles fix."""
    for value in model.graph.inputs:
        node = next((use.node for use in value.uses()), None)
        shape = value.shape
        if shape is None:
            yield Breach("expected an input of known rank, got none", "declare its shape", node, value)
        elif any(not isinstance(dim, int) and dim.value != limits.open_axis for dim in shape):
            yield Breach(
                f"expected a profile for every dynamic axis, got {shape} without one",
                "give the axis buckets or a fixed size",
                node,
                value,
            )


TYPE_RULES = (
    Rule("element-type", _element_type),
    Rule("tensors-only", _tensors_only),
    Rule("known-type", _known_type),
    Rule("uint8-border", _uint8),
    Rule("int8-quantized", _int8),
    Rule("profile", _profile),
)
