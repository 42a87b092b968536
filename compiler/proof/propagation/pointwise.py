"""Decides whether a node is pointwise along an axis, by applying the rule table to a copy of that node."""

from collections.abc import Mapping

import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import VALID, Fact, make_fact
from compiler.proof.facts.interval import of_array
from compiler.proof.facts.layout import Side, suffix
from compiler.proof.facts.transfer import whole_range
from compiler.proof.propagation.judge import judge

ENTRIES = "entries"
"""Name of the axis that is asked about."""


def pointwise_axes(node: ir.Node, operands: Mapping[int, int]) -> tuple[int, ...] | None:
    """Return the axis of each output along which the node is pointwise, so that it commutes with a Concat.

    Args:
        node: a node with known ranks.
        operands: for each input that has the axis, by index, its position there. All other inputs do not change along
            it.

    Returns:
        One axis per output, or None when entries mix, or when the rule table cannot tell.
    """
    alone = _alone(node, operands)
    if alone is None:
        return None
    facts = [None if value is None else _fact(value, operands.get(index)) for index, value in enumerate(alone.inputs)]
    try:
        verdict = judge(Case(alone, facts, None, {ENTRIES: Side.LEFT}))
    except Refused:
        return None
    if not verdict.pointwise or verdict.needs or len(verdict.outputs) != len(node.outputs):
        return None
    if any(len(fact.axes) != 1 or len(fact.axes[0][1]) != 1 for fact in verdict.outputs):
        return None
    return tuple(fact.axes[0][0] for fact in verdict.outputs)


def _fact(value: ir.Value, axis: int | None) -> Fact:
    array = graphs.array_of(value)
    if array is not None:
        return Fact(contents=((VALID, of_array(array)),))
    if axis is None:
        return Fact()
    return make_fact({axis: suffix(graphs.symbol(ENTRIES))}, lambda region: whole_range(value.dtype))


def _alone(node: ir.Node, operands: Mapping[int, int]) -> ir.Node | None:
    """Return a copy of the node in a graph of its own, with the axis named and shapes inferred."""
    inputs: list[ir.Value | None] = []
    initializers = []
    for index, value in enumerate(node.inputs):
        if value is None:
            inputs.append(None)
            continue
        shape = None if value.shape is None else list(value.shape)
        if shape is None:
            return None
        if index in operands:
            shape[operands[index]] = ir.SymbolicDim(ENTRIES)
        copy = ir.Value(name=f"x{index}", shape=ir.Shape(shape), type=value.type, const_value=value.const_value)
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is not None and index not in operands:
            copy.const_value = tensor
            initializers.append(copy)
        inputs.append(copy)
    outputs = [ir.Value(name=f"y{index}", type=value.type) for index, value in enumerate(node.outputs)]
    copy_node = ir.Node(
        node.domain, node.op_type, inputs, list(node.attributes.values()), outputs=outputs, version=node.version
    )
    opsets = dict(node.graph.opset_imports) if node.graph is not None else {"": 20}
    free = [value for value in inputs if value is not None and value not in initializers]
    graph = ir.Graph(free, outputs, nodes=[copy_node], initializers=initializers, opset_imports=opsets, name="alone")
    graphs.infer_shapes(ir.Model(graph, ir_version=10))
    return copy_node
