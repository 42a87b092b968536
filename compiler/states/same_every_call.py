"""Finds the values of a graph that are equal in every call of a stream, because they depend on unchanged inputs alone.

Nothing is matched: a value counts where all that it is computed of does, sizes aside that no frame changes.
"""

import dataclasses
from collections.abc import Collection

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import SymbolicValues, names_in, symbolic_values_of
from compiler.graph.operators.traits import CONVOLUTIONS, PRODUCTS, RANDOM, RECURRENCES, VIEWS

WORK = PRODUCTS | CONVOLUTIONS | RECURRENCES | {"Einsum", "MatMulInteger"}
"""What is worth a state: less is computed again sooner than it is carried."""

SPREADING = VIEWS | {"Expand", "Transpose"}
"""A list of its own: what moves or repeats entries, so that its operand may be carried in its place."""


@dataclasses.dataclass(frozen=True, eq=False)
class SameEveryCall:
    """The values that are equal in every call of one graph.

    Attributes:
        computed: of inputs that stay, in graph order, and whether any work went into it.
        sizes: what counts entries of axes that stay, and is read where it is.
    """

    computed: dict[ir.Value, bool]
    sizes: frozenset[ir.Value]

    def read_by_others(self) -> list[ir.Value]:
        """Return computed real values that equal in every call and are read by a node whose result is not."""
        return [
            value
            for value, is_work in self.computed.items()
            if is_work
            and value.dtype is not None
            and value.dtype.is_floating_point()
            and any(not self._is_same(node) for node in graphs.consumers_of(value))
        ]

    def _is_same(self, node: ir.Node) -> bool:
        return any(output in self.computed for output in node.outputs)

    def spread_from(self, value: ir.Value) -> ir.Value | None:
        """Return the operand that a value is moved or spread from, constant as well; None for other nodes."""
        node = value.producer()
        operand = None if node is None or node.op_type not in SPREADING else node.inputs[0]
        return operand if operand is not None and self.computed.get(operand) else None


def same_every_call(model: ir.Model, given: Collection[ir.Value], names: Collection[str]) -> SameEveryCall:
    """Find the values of a graph that are the same in every call of a stream.

    Args:
        model: with inferred shapes, its nodes in order.
        given: inputs that every call of a stream is fed alike.
        names: axes that have one size in all calls of a stream, including rows.
    """
    computed: dict[ir.Value, bool] = {}
    stays, seen = {graphs.symbol(name) for name in names}, SymbolicValues()
    sizes: set[ir.Value] = set()

    def is_size(value: ir.Value) -> bool:
        numbers = symbolic_values_of(value, seen)
        if numbers is not None and all(names_in(number) <= stays for number in numbers):
            sizes.add(value)
        return value in sizes

    for node in model.graph:
        if node.op_type in RANDOM or graphs.has_body(node):
            continue
        operands = [value for value in node.inputs if value is not None and graphs.array_of(value) is None]
        if not all(value in given or value in computed or is_size(value) for value in operands):
            continue
        if all(value in sizes or is_size(value) for value in node.outputs) or not operands:
            continue
        is_work = node.op_type in WORK or any(computed.get(value, False) for value in operands)
        computed |= dict.fromkeys(node.outputs, is_work)
    return SameEveryCall(computed, frozenset(sizes))
