"""Splits a graph into the subgraphs that run on the host and the subgraph that an Ethos-U computes.

On the host, in front of the device, are the masks and positions that follow from lengths, lookups of integers, and the
zeros that are written into the masked positions of a state. Behind the device is what integers cannot hold or what
selects an index at the end of a graph: logarithms of softmax outputs, indices of the largest entries, casts, and what
is computed of these. Nothing on the host multiplies matrices. The device gets and gives numbers alone.
"""

import dataclasses
from collections.abc import Collection, Iterable

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.traits import PRODUCTS

NUMBERS = frozenset({ir.DataType.FLOAT})
"""Element types of what the device computes with, before it is quantised."""

INTEGERS = frozenset(
    {ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8}
)
"""Element types of what the host computes with."""

BEHIND = frozenset({"LogSoftmax"})
"""Operators in float32 that the host computes at the end of a graph: a share near 0 has a large logarithm, and in
integers it is 0."""


@dataclasses.dataclass(frozen=True)
class Sides:
    """The parts of a graph, in the order in which they run.

    Attributes:
        host: from inputs of the graph to inputs of the device, and of what is behind it; without outputs where the host
            has nothing to do.
        device: from the host's outputs and other inputs of the graph to the outputs of the graph, and to what is read
            behind it.
        behind: from outputs of the device and what was there before to the other outputs of the graph; without outputs
            where the device gives all of them.
    """

    host: ir.Model
    device: ir.Model
    behind: ir.Model


def split_sides(model: ir.Model, lengths: Collection[str]) -> Sides:
    """Return the parts of a static graph, which is not changed.

    Args:
        model: the graph, with types on all values.
        lengths: names of the inputs that hold lengths and masks.
    """
    host, device, behind = graphs.clone(model), graphs.clone(model), graphs.clone(model)
    prepared = _prepared(model, lengths)
    left = _left(model, prepared)
    computed = set(model.graph) - prepared - left
    to_device, past_device = _read(model, prepared, computed), _read(model, prepared, left)
    from_device = _read(model, computed, left)
    outputs = list(model.graph.outputs)
    of_host = [str(value.name) for value in outputs if value.producer() in prepared]
    of_left = [str(value.name) for value in outputs if value.producer() in left]
    of_device = [str(value.name) for value in outputs if value.producer() not in prepared | left]
    _end_in(host, [*to_device, *past_device, *of_host])
    _begin_with(device, to_device)
    _end_in(device, [*of_device, *from_device])
    _begin_with(behind, [*past_device, *from_device])
    _end_in(behind, of_left)
    return Sides(host, device, behind)


def _read(model: ir.Model, makers: Collection[ir.Node], readers: Collection[ir.Node]) -> list[str]:
    """Return the names of what some nodes make and others read, in order; constants are in every part."""
    return [
        str(value.name)
        for node in model.graph
        if node in makers and node.op_type != "Constant"
        for value in node.outputs
        if any(use.node in readers for use in value.uses())
    ]


def _left(model: ir.Model, prepared: Collection[ir.Node]) -> set[ir.Node]:
    """Return the nodes behind the device; none where products would be among them."""
    left: set[ir.Node] = set()
    for node in model.graph:
        begins = node.op_type in BEHIND or any(value.dtype in INTEGERS for value in node.outputs)
        if node not in prepared and node not in left and begins and not _is_constant(node.outputs[0]):
            following = _following(node)
            if not any(each.op_type in PRODUCTS for each in following):
                left |= following
    return left


def _following(node: ir.Node) -> set[ir.Node]:
    """Return a node and all nodes that read what follows from it."""
    following, waiting = {node}, [node]
    while waiting:
        for value in waiting.pop().outputs:
            new = {use.node for use in value.uses()} - following
            following |= new
            waiting += new
    return following


def _prepared(model: ir.Model, lengths: Collection[str]) -> set[ir.Node]:
    """Return the nodes of the host."""
    inputs = list(model.graph.inputs)
    of_lengths = {value for value in inputs if value.name in lengths}
    of_integers = of_lengths | {value for value in inputs if value.dtype in INTEGERS}
    nodes: set[ir.Node] = set()
    for node in model.graph:
        operands = [value for value in node.inputs if value is not None and not _is_constant(value)]
        if not operands:
            continue
        if all(value in of_lengths for value in operands):
            of_lengths.update(node.outputs)
            of_integers.update(node.outputs)
        elif all(value in of_integers for value in operands) and _touches_integers(node):
            of_integers.update(node.outputs)
        elif not _fills(node, of_lengths, inputs):
            continue
        nodes.add(node)
    return nodes


def _is_constant(value: ir.Value) -> bool:
    return graphs.array_of(value) is not None


def _touches_integers(node: ir.Node) -> bool:
    """Whether a node reads or gives integers, so that the device cannot have it."""
    values = [value for value in (*node.inputs[:1], *node.outputs) if value is not None]
    data = [*values, *node.inputs[1:2]] if graphs.is_op(node, "Gather") else values
    return any(value is not None and value.dtype in INTEGERS for value in data)


def _fills(node: ir.Node, of_lengths: Collection[ir.Value], inputs: Collection[ir.Value]) -> bool:
    """Whether a node writes a constant into hidden places of an input of the graph."""
    if not graphs.is_op(node, "Where"):
        return False
    mask, data, other = node.inputs
    return mask in of_lengths and data in inputs and other is not None and _is_constant(other)


def _end_in(part: ir.Model, names: Iterable[str]) -> None:
    """Keep what makes the named values, and make these the outputs, each once."""
    values = {str(value.name): value for value in (*part.graph.inputs, *part.graph.initializers.values())}
    values |= {str(value.name): value for node in part.graph for value in node.outputs}
    part.graph.outputs.clear()
    part.graph.outputs.extend(values[name] for name in dict.fromkeys(names))
    graphs.prune(part)
    _drop_unread_inputs(part)


def _begin_with(part: ir.Model, names: Iterable[str]) -> None:
    """Make the named values inputs, and drop what makes them."""
    values = {str(value.name): value for node in part.graph for value in node.outputs}
    for name in names:
        made = values[name]
        given = ir.Value(name=name, shape=made.shape, type=made.type)
        made.name = f"{name}_before"
        part.graph.inputs.append(given)
        for use in list(made.uses()):
            use.node.replace_input_with(use.idx, given)
        for index, output in enumerate(part.graph.outputs):
            if output is made:
                part.graph.outputs[index] = given


def _drop_unread_inputs(model: ir.Model) -> None:
    for value in list(model.graph.inputs):
        if not value.uses() and not value.is_graph_output():
            model.graph.inputs.remove(value)


def require_numbers(device: ir.Model, graph: str, stage: str) -> None:
    """Refuse a device graph that computes with anything else than numbers.

    Args:
        device: the device's half.
        graph: the graph's name.
        stage: name of the target.

    Raises:
        Refused: names operator, node and source line.
    """
    for node in device.graph:
        values = [value for value in (*node.inputs, *node.outputs) if value is not None and not _is_constant(value)]
        other = next((value for value in values if value.dtype is not None and value.dtype not in NUMBERS), None)
        if other is not None:
            assert other.dtype is not None
            raise Refused(
                f"expected float32 in what the NPU computes, got {other.dtype.name} in {other.name}",
                cure="compute it from lengths or integers alone, which the host does, or build for another target",
                place=Location(
                    stage=stage, graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
                ),
            )
