"""Derives the facts about one padded axis for every value of a graph, in one pass in topological order."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir
import sympy

from compiler.analysis.facts import (
    ANYTHING,
    PLAIN,
    Fact,
    Segment,
    Segments,
    Verdict,
    refuse,
)
from compiler.analysis.judge import judge
from compiler.analysis.rules.lookup import UnknownLength
from compiler.errors import Refused
from compiler.ir import dims_of, mentions, nodes_of, source_of


@dataclasses.dataclass(frozen=True)
class Derivation:
    """Facts and verdicts of a whole graph for one padded axis.

    Attributes:
        facts: fact per value; values that are absent are plain.
        verdicts: (node, verdict) in graph order, for nodes that something padded reaches.
    """

    facts: Mapping[ir.Value, Fact]
    verdicts: Sequence[tuple[ir.Node, Verdict]]

    def records(self) -> tuple[dict[str, Any], ...]:
        """One certificate record per judged node."""
        return tuple(
            {
                "node": node.name,
                "op": node.op_type,
                "rule": verdict.rule,
                "in": [str(self.facts.get(value, PLAIN)) for value in node.inputs if value is not None],
                "out": str(verdict.fact),
                "action": verdict.action.value,
                "reason": verdict.reason,
                "source": source_of(node),
            }
            for node, verdict in self.verdicts
        )


def input_facts(model: ir.Model, axis: str, slots: int) -> dict[ir.Value, Fact]:
    """Facts of the graph inputs whose shape names `axis`: right-aligned in `slots`, anything in the padding.

    Raises:
        Refused: an input depends on the axis otherwise than through one dimension that is the axis itself.
    """
    found: dict[ir.Value, Fact] = {}
    for value in model.graph.inputs:
        dims = dims_of(value) or ()
        positions = [index for index, dim in enumerate(dims) if mentions(dim, axis)]
        if not positions:
            continue
        if len(positions) > 1 or dims[positions[0]] != sympy.Symbol(axis, integer=True, nonnegative=True):
            raise refuse(
                f"input {value.name!r} has shape {list(map(str, dims))}",
                f"give it one dimension that is {axis!r}",
                axis=axis,
                tensor=str(value.name),
            )
        found[value] = Fact(positions[0], (Segment(dims[positions[0]], slots),), ANYTHING)
    return found


def propagate(model: ir.Model, axis: str, start: Mapping[ir.Value, Fact]) -> Derivation:
    """Apply the rule table to every node.

    Args:
        model: graph with symbolic shapes (`compiler.ir.infer_shapes`).
        axis: name of the padded axis, for messages.
        start: facts of the inputs.

    Raises:
        Refused: with node, op, axis and source line.
    """
    facts: dict[ir.Value, Fact] = dict(start)
    verdicts: dict[ir.Node, Verdict] = {}
    seen: list[Segments] = list(dict.fromkeys(fact.segments for fact in start.values()))
    order = list(nodes_of(model))
    waiting = order
    while waiting:  # a table may be looked up by a length before the axis of that length has been joined
        postponed: list[ir.Node] = []
        unknown: set[ir.Value] = set()
        for node in waiting:
            inputs = [facts.get(value, PLAIN) if value is not None else PLAIN for value in node.inputs]
            _check_bodies(node, facts, axis)
            if unknown & set(node.inputs):
                verdict = None
            elif all(fact == PLAIN for fact in inputs):
                continue
            else:
                verdict = _judge(node, inputs, axis, seen, last_chance=False)
            if verdict is None:
                postponed.append(node)
                unknown.update(node.outputs)
                continue
            verdicts[node] = verdict
            _note(facts, seen, node, verdict.fact)
        if len(postponed) == len(waiting):
            _judge(
                postponed[0],
                [facts.get(v, PLAIN) if v else PLAIN for v in postponed[0].inputs],
                axis,
                seen,
                last_chance=True,
            )
        waiting = postponed
    return Derivation(facts, [(node, verdicts[node]) for node in order if node in verdicts])


def _check_bodies(node: ir.Node, facts: Mapping[ir.Value, Fact], axis: str) -> None:
    """A body reads values of the graph around it that are not among its node's inputs."""
    for attribute in node.attributes.values():
        bodies = [attribute.value] if attribute.type == ir.AttributeType.GRAPH else []
        bodies += list(attribute.value) if attribute.type == ir.AttributeType.GRAPHS else []
        for inner in (inner for body in bodies for inner in body.all_nodes()):
            if any(value in facts for value in inner.inputs):
                raise refuse(
                    f"the body of {node.op_type} reads a padded value",
                    "write the model with operators of the rule table",
                    node=str(node.name),
                    op=node.op_type,
                    axis=axis,
                    source=source_of(node),
                )


def _judge(
    node: ir.Node, inputs: Sequence[Fact], axis: str, seen: Sequence[Segments], last_chance: bool
) -> Verdict | None:
    """The verdict, or None when the axis of a length is not known yet."""
    try:
        return judge(node, inputs, seen)
    except UnknownLength as unknown:
        if not last_chance:
            return None
        refused = refuse(
            f"{node.op_type} reads the length {unknown}, which no joined axis has",
            "look positions up by the length of the tensor they are added to",
        )
        raise refused.at(node=str(node.name), op=node.op_type, axis=axis, source=source_of(node)) from None
    except Refused as refused:
        raise refused.at(node=str(node.name), op=node.op_type, axis=axis, source=source_of(node)) from None


def _note(facts: dict[ir.Value, Fact], seen: list[Segments], node: ir.Node, fact: Fact) -> None:
    if fact != PLAIN:
        outputs = node.outputs if node.op_type == "Split" else node.outputs[:1]
        facts.update(dict.fromkeys(outputs, fact))
    if fact.axis is not None and fact.segments not in seen:
        seen.append(fact.segments)
