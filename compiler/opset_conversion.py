"""Raises a graph to an operator set that padding can write: Softmax(axis=1) of opset 11 is one over all axes from 1 on.

Passes insert operators as opset 18 spells them (axes as inputs, parts of shapes), so older graphs are converted first.
"""

import onnx
import onnx.version_converter
import onnx_ir as ir

from compiler import ir as house
from compiler.errors import Place, Refused
from compiler.ir import OLDEST_OPSET

LARGEST = 1024
"""Elements of the largest constant that the converter sees: it reads bounds and scales, and weights cost time."""


def raised(model: ir.Model, place: Place | None = None) -> ir.Model:
    """The graph in an operator set that passes can write; as it is where it is new enough.

    Args:
        model: any graph; left as it is. Its nodes have names and source lines.
        place: where in the build, for messages.

    Returns:
        The graph of the same meaning. Nodes that the conversion adds are named after the node that they serve, and
        carry its source line.

    Raises:
        Refused: an operator has no counterpart.
    """
    opset = model.graph.opset_imports.get("", OLDEST_OPSET)
    if opset >= OLDEST_OPSET:
        return model
    weights = {
        name: value
        for name, value in model.graph.initializers.items()
        if value.const_value is not None and value.const_value.size > LARGEST
    }
    proto = ir.serde.serialize_model(_without(model, weights))
    try:
        proto = onnx.version_converter.convert_version(onnx.shape_inference.infer_shapes(proto), OLDEST_OPSET)
    except Exception as error:
        raise Refused(
            f"the graph is of operator set {opset}, and its conversion to {OLDEST_OPSET} fails: {_first_line(error)}",
            cure=f"export the model with opset {OLDEST_OPSET} or newer",
            place=place,
        ) from error
    converted = ir.serde.deserialize_model(proto)
    _give_weights(converted, weights)
    _name_new_nodes(converted, model)
    house.forget_shapes(converted)
    return converted


def _first_line(error: Exception) -> str:
    """What the converter says, without the place in its own code."""
    return str(error).strip().splitlines()[0].rpartition(" failed: ")[2] if str(error).strip() else type(error).__name__


def _without(model: ir.Model, weights: dict[str, ir.Value]) -> ir.Model:
    """A copy that takes large constants as inputs."""
    copy = house.clone(model)
    for name in weights:
        value = copy.graph.initializers.pop(name)
        value.const_value = None
        copy.graph.inputs.append(value)
    return copy


def _give_weights(model: ir.Model, weights: dict[str, ir.Value]) -> None:
    for value in [value for value in model.graph.inputs if value.name in weights]:
        model.graph.inputs.remove(value)
        value.const_value = weights[str(value.name)].const_value
        model.graph.register_initializer(value)


def _name_new_nodes(model: ir.Model, origin: ir.Model) -> None:
    """Names and source lines: kept by name or output; what is new belongs to the node behind it, or to the last one."""
    names = {node.name: node for node in origin.graph}
    makers = {str(output.name): node for node in origin.graph for output in node.outputs}
    taken = {str(node.name) for node in model.graph if node.name}
    waiting: list[ir.Node] = []
    owner = None
    for node in model.graph:
        waiting.append(node)
        found = names.get(node.name) or next((makers[o.name] for o in node.outputs if o.name in makers), None)
        if found is not None:
            owner = found
            _name(waiting, owner, taken)
            waiting = []
    if owner is not None:
        _name(waiting, owner, taken)


def _name(nodes: list[ir.Node], owner: ir.Node, taken: set[str]) -> None:
    for node in nodes:
        node.metadata_props.update(owner.metadata_props)
        count, stem = 1, f"{owner.name}_{node.op_type.lower()}"
        while not node.name:
            name = stem if count == 1 else f"{stem}_{count}"
            node.name = "" if name in taken else name
            count += 1
        taken.add(str(node.name))
