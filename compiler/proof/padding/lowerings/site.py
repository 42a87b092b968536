"""Defines the record of a node that a lowering replaces in the padded program, with what the lowering may use."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim, Inserter
from compiler.proof.facts.facts import Fact
from compiler.proof.padding.valid_slots import ValidSlots


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a form is written.

    Attributes:
        model: the graph.
        node: the node to replace; its inputs are filled already.
        details: the parameters that the rule gave to the form.
        facts: facts of the inputs after fills, None for absent ones.
        out_facts: facts of the outputs.
        valid_slots: masks and true sizes.
        insert: adds nodes in front of the node.
        replaced: what took the place of every output so far.
    """

    model: ir.Model
    node: ir.Node
    details: tuple[Any, ...]
    facts: Sequence[Fact | None]
    out_facts: Sequence[Fact]
    valid_slots: ValidSlots
    insert: Inserter
    replaced: list[ir.Value | None] = dataclasses.field(default_factory=list)

    def dims(self, operand: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an input."""
        value = self.node.inputs[operand]
        found = None if value is None else graphs.dims_of(value)
        assert found is not None  # the rule asked for it
        return found

    def fact(self, operand: int = 0) -> Fact:
        """Return the fact of an input."""
        found = self.facts[operand]
        assert found is not None
        return found

    def replace(self, output: int, value: ir.Value) -> None:
        """Make all readers of an output read `value` instead; graph outputs keep their name."""
        old = self.node.outputs[output]
        if value.shape is None:
            value.shape = old.shape
        if value.dtype is None and old.dtype is not None:
            value.dtype = old.dtype
        graphs.take_over(self.model, old, value)
        self.replaced.extend([None] * (output + 1 - len(self.replaced)))
        self.replaced[output] = value


NodeLowering: TypeAlias = Callable[[Site], None]
"""Writes the padded form of a node."""
