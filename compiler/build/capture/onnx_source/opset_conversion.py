"""Converts a graph to the opset that passes write, and restores the meaning of operators that changed between opsets.

Passes insert operators as opset 18 spells them (axes as inputs, parts of shapes), so older graphs are converted first.
Softmax(axis=1) of opset 11, for example, is computed over all axes from 1 on.
"""

import onnx
import onnx.version_converter
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.model import OLDEST_OPSET

LARGEST = 1024
"""Elements of the largest constant that the converter sees: it reads bounds and scales, and weights cost time."""


def raised(model: ir.Model, place: Location | None = None) -> ir.Model:
    """Return the graph in an operator set that passes can write; unchanged where it is new enough.

    Args:
        model: any graph, which is not changed. Its nodes have names and source lines.
        place: location in the build, for messages.

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
    _require_counterparts(model, opset, place)
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
    _mend(converted, opset)
    _give_weights(converted, weights)
    _name_new_nodes(converted, model)
    graphs.forget_shapes(converted)
    return converted


def _require_counterparts(model: ir.Model, opset: int, place: Location | None) -> None:
    """Refuse nodes that the converter keeps although their meaning has changed.

    Raises:
        Refused: the mask of Dropout is read, which held numbers before opset 10.
    """
    for node in model.graph:
        if opset < 10 and graphs.is_op(node, "Dropout") and any(_is_read(value) for value in node.outputs[1:]):
            raise Refused(
                f"the mask of {node.name!r} (Dropout) is read, which opset {opset} holds as numbers",
                cure=f"export the model with opset {OLDEST_OPSET} or newer",
                place=place,
            ).at(node=str(node.name), op=node.op_type, source=graphs.source_of(node))


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


def _mend(model: ir.Model, opset: int) -> None:
    """Restore the old meaning of operators where the converter gives them the new one."""
    for node in list(model.graph):
        if opset < 11 and graphs.is_op(node, "Resize") and graphs.attribute(node, "mode", "nearest") == "linear":
            how = "coordinate_transformation_mode"  # positions were multiples of a step, from the first entry on
            node.attributes[how] = ir.AttrString(how, "asymmetric")
        if opset < 10 and graphs.is_op(node, "Dropout"):
            for mask in node.outputs[1:]:  # nothing reads it
                mask.dtype = ir.DataType.BOOL
        if opset < 13 and graphs.is_op(node, "Hardmax"):
            _over_all_behind(node)


def _over_all_behind(node: ir.Node) -> None:
    """Rewrite a Hardmax of opset 12, which is computed over all axes from its own on together."""
    graph, data, result = node.graph, node.inputs[0], node.outputs[0]
    assert graph is not None and data is not None
    axis = graphs.int_attribute(node, "axis", 1)
    shape = ir.node("Shape", [data])
    flat = ir.node("Flatten", [data], {"axis": axis})
    chosen = ir.node("Hardmax", [flat.outputs[0]], {"axis": -1})
    apart = ir.node("Reshape", [chosen.outputs[0], shape.outputs[0]], {"allowzero": 1})
    graph.insert_before(node, [shape, flat, chosen, apart])
    reshaped = apart.outputs[0]
    reshaped.type, reshaped.shape = result.type, result.shape
    ir.convenience.replace_all_uses_with(result, reshaped, replace_graph_outputs=True)
    result.name, reshaped.name = None, result.name
    graph.remove(node, safe=True)


def _first_line(error: Exception) -> str:
    """Return the converter's message without the location in its own code."""
    return str(error).strip().splitlines()[0].rpartition(" failed: ")[2] if str(error).strip() else type(error).__name__


def _without(model: ir.Model, weights: dict[str, ir.Value]) -> ir.Model:
    """Return a copy that takes large constants as inputs."""
    copy = graphs.clone(model)
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
    """Give nodes names and source lines: kept by name or output; new nodes get those of the node behind them."""
    names = {node.name: node for node in origin.graph}
    makers = {str(output.name): node for node in origin.graph for output in node.outputs}
    taken = {str(node.name) for node in model.graph if node.name}
    waiting: list[ir.Node] = []
    owner = None
    for node in model.graph:
        waiting.append(node)
        match = names.get(node.name) or next((makers[o.name] for o in node.outputs if o.name in makers), None)
        if match is not None:
            owner = match
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
