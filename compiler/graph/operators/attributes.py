"""Finds the attributes of a node that differ from its operator's defaults."""

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from compiler.graph.operators.windows import WEIGHTS

PER_AXIS = {"pads": 0, "output_padding": 0, "strides": 1, "dilations": 1}
"""Attributes of windows with one default along every axis: the ONNX standard states these defaults in prose alone."""


def schema_of(node: ir.Node) -> onnx.defs.OpSchema | None:
    """Return the standard's schema of a node's operator; None for operators that the standard does not define."""
    imported = {} if node.graph is None else node.graph.opset_imports
    version = node.version or imported.get(node.domain) or onnx.defs.onnx_opset_version()
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None


def stated_attributes(node: ir.Node) -> Mapping[str, ir.Attr]:
    """Return the attributes that differ from the operator's defaults, in the order of their names.

    Two nodes of one operator with equal inputs and equal attributes of this kind compute the same, however each is
    written.
    """
    schema = schema_of(node)
    defaults = {} if schema is None else {name: each.default_value for name, each in schema.attributes.items()}
    return {
        name: attribute
        for name, attribute in sorted(node.attributes.items())
        if not _is_default(node, attribute, defaults.get(name))
    }


def _is_default(node: ir.Node, attribute: ir.Attr, default: onnx.AttributeProto | None) -> bool:
    if default is None or attribute.is_ref():
        return False
    if node.op_type in WEIGHTS and attribute.name == "kernel_shape":
        return True  # the sizes of the weights, which are an operand
    if attribute.name in PER_AXIS and attribute.type is ir.AttributeType.INTS:
        return set(attribute.as_ints()) <= {PER_AXIS[attribute.name]}
    if not default.HasField("type") or attribute.type is not ir.AttributeType(default.type):
        return False
    return ir.to_proto(ir.Attr(attribute.name, attribute.type, attribute.value)) == default
