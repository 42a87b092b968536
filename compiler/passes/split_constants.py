"""Copies constants for elementwise nodes behind a convolution, so that they share none with other nodes.

Before:
    u = Conv(Add(x, shared), weights);  y = Add(u, shared)
After:
    u = Conv(Add(x, shared), weights);  y = Add(u, own), own equal to shared

A builder that computes a convolution along time as one over images changes the shape of a constant that is added to the
result, and with it the shape that all other readers of the constant see; it then refuses the graph, and names no node.

Requires: nothing.
Ensures: elementwise nodes behind a convolution share no constant.
Keeps: all other constants; weights files hold equal ones once.
Numerics: exact.
Source: equal content.
"""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.traits import BROADCASTING
from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class SplitConstants:
    """A constant per reader behind convolutions."""

    name: ClassVar[str] = "split_constants"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Give nodes behind convolutions constants of their own, in place."""
        count = 0
        for node in list(ir.traversal.RecursiveGraphIterator(lowered.model.graph)):
            for index in _shared(node):
                node.replace_input_with(index, _copied(lowered.model, node, index))
                count += 1
        return Outcome(lowered, count, count)


def _shared(node: ir.Node) -> list[int]:
    """Return the operands of a node behind a convolution that are constants shared with other nodes."""
    makers = [value.producer() for value in node.inputs if value is not None]
    if not graphs.is_op(node, *BROADCASTING) or not any(graphs.is_op(each, "Conv", "ConvTranspose") for each in makers):
        return []
    constants = (
        (index, value) for index, value in enumerate(node.inputs) if value and graphs.array_of(value) is not None
    )
    return [index for index, value in constants if len(graphs.consumers_of(value)) > 1]


def _copied(model: ir.Model, node: ir.Node, index: int) -> ir.Value:
    """Return a copy of a constant operand."""
    value = node.inputs[index]
    array = graphs.array_of(value)
    assert value is not None and array is not None
    name = graphs.fresh_name(model.graph, f"{value.name}_own")
    copy = ir.Value(name=name, shape=value.shape, type=value.type, const_value=ir.tensor(array, name=name))
    model.graph.register_initializer(copy)
    return copy
