"""Splits a graph into what runs on the host and what an Ethos-U computes.

On the host are the masks and positions that follow from lengths, lookups of integers, and the zeros that are written
into the hidden places of a state: nothing of it multiplies. The device gets numbers alone.
"""

import dataclasses
from collections.abc import Collection, Iterable

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs

NUMBERS = frozenset({ir.DataType.FLOAT})
"""Element types of what the device computes with, before it is quantised."""

INTEGERS = frozenset(
    {ir.DataType.BOOL, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8}
)
"""Element types of what the host computes with."""


@dataclasses.dataclass(frozen=True)
class Sides:
    """The two halves of a graph.

    Attributes:
        host: from inputs of the graph to inputs of the device; without outputs where the host has nothing to do.
        device: from the host's outputs and other inputs of the graph to the outputs of the graph.
    """

    host: ir.Model
    device: ir.Model


def split_sides(model: ir.Model, lengths: Collection[str]) -> Sides:
    """Return the two halves of a static graph, which is not changed.

    Args:
        model: the graph, with types on all values.
        lengths: names of the inputs that hold lengths and masks.
    """
    host, device = graphs.clone(model), graphs.clone(model)
    prepared = _prepared(model, lengths)
    crossing = [
        str(value.name)
        for node in model.graph
        for value in node.outputs
        if node in prepared and (value.is_graph_output() or _read_outside(value, prepared))
    ]
    _end_in(host, crossing)
    _begin_with(device, crossing)
    return Sides(host, device)


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


def _read_outside(value: ir.Value, nodes: Collection[ir.Node]) -> bool:
    return any(use.node not in nodes for use in value.uses())


def _end_in(host: ir.Model, names: Iterable[str]) -> None:
    """Keep what makes the named values, and make these the outputs."""
    values = {str(value.name): value for node in host.graph for value in node.outputs}
    host.graph.outputs.clear()
    host.graph.outputs.extend(values[name] for name in names)
    graphs.prune(host)
    _drop_unread_inputs(host)


def _begin_with(device: ir.Model, names: Iterable[str]) -> None:
    """Make the named values inputs, and drop what makes them."""
    values = {str(value.name): value for node in device.graph for value in node.outputs}
    for name in names:
        made = values[name]
        given = ir.Value(name=f"{name}", shape=made.shape, type=made.type)
        made.name = f"{name}_of_host"
        device.graph.inputs.append(given)
        for use in list(made.uses()):
            use.node.replace_input_with(use.idx, given)
        outputs = list(device.graph.outputs)
        for index, output in enumerate(outputs):
            if output is made:
                device.graph.outputs[index] = given
    graphs.prune(device)
    _drop_unread_inputs(device)


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
