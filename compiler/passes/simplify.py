"""Simplifies a graph: folds constants, removes unread nodes, and merges equal nodes and equal small constants.

Before:
    a = Constant(-1); b = Identity(x); c = Reshape(b, a); d = Reshape(b, a)
After:
    c = Reshape(x, minus_one)      # read by the consumers of d as well

A piece of a sequence that is cut from a tensor is cut from the tensor itself.

Requires: nothing.
Ensures: no Constant or Identity nodes between others, no unread nodes, initializers that are read.
Keeps: operators of other domains; subgraphs; random draws; names of graph inputs and outputs.
Numerics: exact, infinities, NaN and the sign of zero included, but for zeros that a Where chooses between in place of a
    ScatterND, and for products of all entries in place of those that a mask chooses. The rules, and those of onnxscript
    left out, are listed in `rules.py`, `added_axes.py`, `writes.py`, `masked_writes.py`, `counts.py`, `borders.py` and
    `repeated_places.py` beside it; constants are what ONNX Runtime computes on one thread of the building machine.
Time: linear; a sweep visits every node once, and few graphs need more than three.
Source: the optimizer of onnxscript, rule by rule, and the common passes of onnx_ir.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import onnx_ir as ir
import onnx_ir.passes.common

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import SymbolicValues
from compiler.graph.stages import Lowered, Outcome
from compiler.rewriting.rounds import Rounds, until_settled
from compiler.rewriting.simplification.added_axes import AXES
from compiler.rewriting.simplification.borders import BORDERS
from compiler.rewriting.simplification.branches import chosen_branch
from compiler.rewriting.simplification.constants import fold
from compiler.rewriting.simplification.counts import COUNTS
from compiler.rewriting.simplification.repeated_places import PLACES
from compiler.rewriting.simplification.rules import RULES, Candidate, forget_zero_states, known_integers
from compiler.rewriting.simplification.sharing import Key, key_of, share_initializers, stand_in
from compiler.rewriting.simplification.writes import WRITES


@dataclasses.dataclass(frozen=True)
class Simplify:
    """Sweep over the graph until nothing changes.

    Attributes:
        rounds: upper bound on repetitions.
    """

    name: ClassVar[str] = "simplify"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    rounds: int = 4

    def apply(self, lowered: Lowered) -> Outcome:
        """Simplify the graph and, where there is one, the graph of the first call."""
        done = [simplify_model(model, self.rounds) for model in lowered.models]
        removed = sum(each.changes for each in done)
        refused = tuple(refusal for each in done for refusal in each.refused)
        return Outcome(lowered, matched=removed, rewritten=removed, refused=refused)


def simplify_model(model: ir.Model, rounds: int = 4) -> Rounds:
    """Simplify a graph in place; return the rounds, with the number of removed or changed nodes and initializers."""
    start, before = _text(model), _size(model)
    graphs.recount_names(model.graph)
    if model.functions:
        onnx_ir.passes.common.InlinePass()(model)
    onnx_ir.passes.common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)

    def change() -> int:
        graphs.infer_shapes(model)
        changed = sweep(model) + share_initializers(model)
        graphs.prune(model)
        return changed

    done = until_settled(change, rounds)
    graphs.recount_names(model.graph)
    return dataclasses.replace(done, changes=0 if _text(model) == start else max(before - _size(model), 1))


def sweep(model: ir.Model) -> int:
    """Apply the rules to every node once, operands first; return the number of changes."""
    numbers: SymbolicValues = {}
    kept: dict[Key, ir.Node] = {}
    return sum(_visit(Candidate(model, node, Simplify.name, numbers), kept) for node in graphs.nodes_of(model))


def _visit(candidate: Candidate, kept: dict[Key, ir.Node]) -> bool:
    """Fold a node, replace it by a simpler one, or by an equal one; return whether anything changed."""
    node = candidate.node
    if not any(output.uses() or output.is_graph_output() for output in node.outputs):
        return False
    if forget_zero_states(candidate):
        return True
    branch = chosen_branch(candidate)
    if branch is not None:
        return _take_over(candidate, node.outputs, branch)
    arrays = fold(node)
    if arrays is not None:
        constants = [candidate.insert.constant(array, "folded") for array in arrays]
        return _take_over(candidate, node.outputs, constants)
    rule = EVERY.get(node.op_type) if graphs.is_op(node, node.op_type) else None
    simpler = (None if rule is None else rule(candidate)) or known_integers(candidate)
    if simpler is not None:
        return _take_over(candidate, node.outputs[:1], [simpler])
    key = key_of(node)
    first = node if key is None else kept.setdefault(key, node)
    return first is not node and _take_over(candidate, node.outputs, first.outputs)


EVERY = {**RULES, **AXES, **WRITES, **COUNTS, **PLACES, **BORDERS}
"""The rule of every operator that has one."""


def _take_over(candidate: Candidate, old: Sequence[ir.Value], new: Sequence[ir.Value]) -> bool:
    return sum(stand_in(candidate.model, a, b, candidate.stamp) for a, b in zip(old, new, strict=True)) > 0


def _text(model: ir.Model) -> str:
    """Return a graph's structure as text, with weights by name only."""
    lines = [
        f"{node.op_type}({[v and v.name for v in node.inputs]}) -> {[v.name for v in node.outputs]}"
        for node in model.graph
    ]
    return "\n".join(lines + sorted(model.graph.initializers))


def _size(model: ir.Model) -> int:
    return sum(1 for _ in model.graph) + len(model.graph.initializers)
