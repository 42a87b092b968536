"""Holds a graph during padding together with its facts, and inserts the nodes that these facts require.

Before:
    p = Softmax(scores)             # a need of its verdict: fill axis 3 of operand 0 with the lowest number
After:
    p = Softmax(Where(valid, scores, lowest))

Positions that all rows shared become rows of their own, since each row has its own length; that changes shapes behind
them, so such nodes are written first, and the facts are derived anew.
"""

import dataclasses
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.errors import InternalError, Location, Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.proof.facts.facts import VALID, Clamp, Fact, Fill, Rewrite
from compiler.proof.facts.interval import Interval
from compiler.proof.facts.layout import Rows
from compiler.proof.facts.length_data import fact_at
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.padding.length_inputs import with_length_inputs
from compiler.proof.padding.lowerings import NODE_LOWERINGS
from compiler.proof.padding.lowerings.site import Site
from compiler.proof.padding.valid_slots import is_removed
from compiler.proof.propagation.certificate import records
from compiler.proof.propagation.propagate import Axes, Derivation, Judged, input_facts, propagate


class PaddedGraph:
    """One graph while it is being padded.

    Args:
        lowered: its record.
        axes: the tracked axes.
        stamp: name of the pass.

    Attributes:
        known: facts of the inputs, and of the values written so far.
        valid_slots: the length inputs, and the masks made of them.
        steps: records of the nodes that were judged, facts before their readers.
        becomes: by value the one that was written in its place.
        at_least_one: the sizes that have to be 1 or more, of nodes as they were before and after something was written:
            what followed from lengths alone then reads the length inputs.
    """

    def __init__(self, lowered: Lowered, axes: Axes, stamp: str) -> None:
        self.model, self.axes, self.stamp = lowered.model, axes, stamp
        self.known = input_facts(self.model, axes)
        self.valid_slots = with_length_inputs(lowered, stamp)
        self.filled: dict[tuple[ir.Value, int, float], ir.Value] = {}
        self.steps: list[dict[str, Any]] = []
        self.becomes: dict[str, str] = {}
        self.at_least_one: dict[graphs.Dim, None] = {}
        self.order = {str(node.name): at for at, node in enumerate(graphs.nodes_of(self.model))}

    def derive(self, *, tolerant: bool = False) -> Derivation:
        """Return the facts of every value, after writing all nodes that give shared values a batch axis.

        Positions shared by all rows get a batch axis, as each row has its own length, which changes shapes
        downstream; so such nodes are written first, and the derivation starts again on the new shapes.

        Args:
            tolerant: keep refusals in the derivation instead of raising the first.

        Raises:
            Refused: a node is not right beside padding.
            InternalError: the derivation does not terminate; the message names the node.
        """
        for name in sorted(self.axes.clean):
            self._clean(graphs.inputs_named(self.model)[name])
        for _ in range(len(self.order) + 1):  # every round but the last writes a node that shared its values
            refused = None
            try:
                derivation = propagate(self.model, self.axes, self.known, written_by=self.stamp)
            except Refused as error:
                refused = error
                derivation = propagate(self.model, self.axes, self.known, written_by=self.stamp, tolerant=True)
            self.at_least_one |= derivation.at_least_one
            first = [judged for judged in derivation.judged if self._gives_rows(judged)]
            if not first:
                if refused is not None and not tolerant:
                    raise refused
                self.steps += records(derivation)
                self.steps.sort(key=lambda step: self.order[step["node"]])  # facts come before their readers
                return derivation
            gone = [judged for judged in first if any(isinstance(need, Rewrite) for need in judged.verdict.needs)]
            self.steps += records(dataclasses.replace(derivation, judged=gone))  # the others are judged again
            for judged in first:
                self._write_node(judged)
            graphs.prune(self.model)
            graphs.forget_shapes(self.model)
            infer_settled(self.model, self.axes.behind)
            self.valid_slots.settle()
            self.filled = {key: value for key, value in self.filled.items() if not is_removed(value)}
        node = first[0].node
        raise InternalError(
            f"gave up after {len(self.order) + 1} rounds: values that all rows share are given rows again and again",
            place=Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)),
        )

    def _gives_rows(self, judged: Judged) -> bool:
        if self.axes.batch is None:
            return any(need.kind in SHARED_LOWERINGS for need in judged.verdict.needs if isinstance(need, Rewrite))
        for output, fact in zip(judged.node.outputs, judged.verdict.outputs, strict=True):
            if fact.rows_axis is not None and (graphs.dims_of(output) or ())[fact.rows_axis] == 1:
                return True
        return any(
            isinstance(need, Fill)
            and (operand_fact := judged.given[need.operand]) is not None
            and operand_fact.rows_axis is None
            and not operand_fact.is_number
            for need in judged.verdict.needs
        )

    def write(self, derivation: Derivation) -> None:
        """Write every need of the judged nodes."""
        for each in derivation.judged:
            if each.verdict.needs:
                self._write_node(each)

    def _write_node(self, judged: Judged) -> None:
        node = judged.node
        insert = graphs.Inserter(self.model, self.stamp, before=node)
        facts = list(judged.given)
        try:
            for need in judged.verdict.needs:
                if isinstance(need, Fill):
                    operand_fact = facts[need.operand]
                    assert operand_fact is not None
                    facts[need.operand] = self._fill(insert, node, need, operand_fact)
                elif isinstance(need, Clamp):
                    operand_fact = facts[need.operand]
                    assert operand_fact is not None
                    facts[need.operand] = self._clamp(insert, node, need, operand_fact)
                else:
                    site = Site(self.model, node, need.details, facts, judged.verdict.outputs, self.valid_slots, insert)
                    names = [str(output.name) for output in node.outputs]
                    number = self._number(node, need)
                    NODE_LOWERINGS[need.kind](site)
                    if number is not None:
                        facts[need.details[0]] = number
                    for new, fact in zip(site.replaced, judged.verdict.outputs, strict=False):
                        if new is not None:
                            self.known[new] = fact
                    self.becomes |= {
                        old: str(new.name) for old, new in zip(names, site.replaced, strict=False) if new is not None
                    }
        except Refused as refused:
            raise refused.at(node=str(node.name), op=node.op_type, source=graphs.source_of(node)) from None

    def _number(self, node: ir.Node, need: Rewrite) -> Fact | None:
        """Return the fact of an operand that the form "number" is about to write; None for other forms."""
        if need.kind != "number":
            return None
        operand, place = need.details
        value = node.inputs[operand]
        assert value is not None and value.dtype is not None
        return fact_at(value.dtype, value, place)

    def _fill(self, insert: graphs.Inserter, node: ir.Node, need: Fill, given: Fact) -> Fact:
        """Overwrite the padding of one operand by selection, which removes NaN as well; return the new fact."""
        value = node.inputs[need.operand]
        assert value is not None
        after = _with_rows(given, self.axes.batch).filled(need.axis, need.value)
        key = (value, need.axis, need.value)
        if key not in self.filled:
            self.filled[key] = self._select(self._behind(value, insert), value, after, need.axis, need.value)
            self.known[self.filled[key]] = after
        node.replace_input_with(need.operand, self.filled[key])
        return after

    def _clamp(self, insert: graphs.Inserter, node: ir.Node, need: Clamp, given: Fact) -> Fact:
        """Make all indices legal; legal ones keep selecting the same entry.

        By the remainder, and not Clip, which compares int64 wrongly (see `compiler.proof.facts.transfer.ordered`).
        """
        value = node.inputs[need.operand]
        assert value is not None and value.dtype is not None
        key = (value, -1, float(need.high))
        if key not in self.filled:
            count = insert.constant(np.array(need.high + 1, value.dtype.numpy()), "legal_index")
            self.filled[key] = self._behind(value, insert).op(
                "Mod", [value, count], name=f"{value.name}_legal", shape=value.shape, dtype=value.dtype
            )
        after = dataclasses.replace(
            given, contents=tuple((region, Interval(0.0, need.high)) for region in given.regions), index=None
        )
        self.known[self.filled[key]] = after
        node.replace_input_with(need.operand, self.filled[key])
        return after

    def _select(self, insert: graphs.Inserter, value: ir.Value, fact: Fact, axis: int, fill: float) -> ir.Value:
        dims = graphs.dims_of(value)
        assert dims is not None and value.dtype is not None
        condition = self.valid_slots.mask(fact, axis, dims)
        constant = insert.constant(np.array(fill, value.dtype.numpy()), "padding")
        shape = list(value.shape or ())
        if self.axes.batch is not None and fact.rows_axis is not None and shape[fact.rows_axis] == 1:
            shape[fact.rows_axis] = ir.SymbolicDim(self.axes.batch)
        return insert.op(
            "Where", [condition, value, constant], name=f"{value.name}_filled", shape=shape, dtype=value.dtype
        )

    def _clean(self, value: ir.Value) -> None:
        """Fill the padding of an input with zeros, for all its readers."""
        fact = self.known[value]
        uses = list(value.uses())
        for axis in fact.padded:
            clean = self._select(self.valid_slots.insert, value, fact, axis, 0.0)
            for use in uses:
                if not graphs.is_op(use.node, "Shape"):
                    use.node.replace_input_with(use.idx, clean)
            self.known[clean] = fact
        self.known[value] = dataclasses.replace(fact, contents=((VALID, fact.valid),))  # for those that read its shape

    def _behind(self, value: ir.Value, otherwise: graphs.Inserter) -> graphs.Inserter:
        """Return an inserter behind the producer of a value, so that later readers may share the inserted nodes."""
        producer = value.producer()
        return otherwise if producer is None else graphs.Inserter(self.model, self.stamp, after=producer)


SHARED_LOWERINGS = frozenset({"look_up_positions"})
"""Forms whose result has rows of its own although the operand is shared."""


def _with_rows(fact: Fact, batch: str | None) -> Fact:
    """Return the fact of a shared value of leading size 1 with the batch on its first axis."""
    if batch is None or fact.rows_axis is not None:
        return fact
    rows = (0, (Rows(graphs.symbol(batch)),))
    return dataclasses.replace(fact, axes=(rows, *fact.axes))
