"""Merges equal nodes into one node, and initializers that are equal to the bit into one initializer."""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.attributes import stated_attributes
from compiler.graph.operators.traits import RANDOM

MOST_SHARED = 1024
"""Elements of the largest constants that are compared: weights differ."""

NEVER_EQUAL = RANDOM | {"Dropout"}
"""Each draws numbers of its own."""

Key = tuple[object, ...]


def key_of(node: ir.Node) -> Key | None:
    """Return a key that is equal for nodes that compute the same; None for a node that equals no other.

    Numbers are compared by their bits, as 0.0 and -0.0 are equal and NaN is not; operators of other domains may have a
    state.
    """
    if node.domain not in ("", "ai.onnx") or node.op_type in NEVER_EQUAL:
        return None
    attributes = []
    for name, attribute in stated_attributes(node).items():
        content = _content(attribute)
        if content is None:
            return None
        attributes.append((name, attribute.type, content))
    named = tuple(bool(output.name) for output in node.outputs)
    return (node.op_type, node.overload, tuple(node.inputs), named, tuple(attributes))


def _content(attribute: ir.Attr) -> object:
    """Return an attribute's value for comparison, or None where it cannot be compared."""
    match attribute.type:
        case ir.AttributeType.FLOAT:
            return attribute.as_float().hex()
        case ir.AttributeType.FLOATS:
            return tuple(float(number).hex() for number in attribute.as_floats())
        case ir.AttributeType.INT | ir.AttributeType.STRING:
            return attribute.value
        case ir.AttributeType.INTS | ir.AttributeType.STRINGS:
            return tuple(attribute.value)
        case ir.AttributeType.TENSOR:
            return content_of(attribute.as_tensor())
    return None


def content_of(tensor: ir.TensorProtocol) -> Key | None:
    """Return type, shape and bits of a small tensor of numbers, else None."""
    if tensor.size > MOST_SHARED or tensor.dtype == ir.DataType.STRING:
        return None
    return (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())


def share_initializers(model: ir.Model) -> int:
    """Merge equal small constants into one; return how many were removed.

    Constants that a caller can set or read stay.
    """
    first_of: dict[Key, ir.Value] = {}
    before = len(model.graph.initializers)
    for name, value in list(model.graph.initializers.items()):
        if value.is_graph_input() or value.is_graph_output() or value.const_value is None:
            continue
        key = content_of(value.const_value)
        first = None if key is None else first_of.setdefault(key, value)
        if first is not None and first is not value:
            ir.convenience.replace_all_uses_with(value, first)
            del model.graph.initializers[name]
    return before - len(model.graph.initializers)


def stand_in(model: ir.Model, old: ir.Value, new: ir.Value, stamp: str) -> bool:
    """Make all readers of `old` read `new`; a graph output keeps its name. Return whether anything changed.

    A graph output that cannot be `new`, since callers set it or read it under another name, becomes a copy.
    """
    for use in list(old.uses()):
        use.node.replace_input_with(use.idx, new)
    if not old.is_graph_output():
        return True
    producer = old.producer()
    if new.is_graph_output() or new.is_graph_input() or new.is_initializer() or _graph_of(new) is not model.graph:
        if graphs.is_op(producer, "Identity"):
            return False
        copy = ir.node("Identity", [new], outputs=[ir.Value(name=None, shape=old.shape, type=old.type)])
        insert = graphs.Inserter(model, stamp, before=producer)
        copy.name = f"{graphs.fresh_name(model.graph, f'{old.name}_copy')}_node"
        insert.place(copy)
        new = copy.outputs[0]
    name = str(old.name)
    old.name = graphs.fresh_name(model.graph, f"{name}_before")
    for number, output in enumerate(list(model.graph.outputs)):
        if output is old:
            model.graph.outputs[number] = new
    new.name = name
    return True


def _graph_of(value: ir.Value) -> object:
    producer = value.producer()
    return None if producer is None else producer.graph
