"""Derives what padding and batching do to every value of a graph, in one pass in topological order."""

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph.model import PASS_KEY, Dim, array_of, dims_of, is_op, nodes_of, read_inside, source_of, symbol
from compiler.proof.facts.case import Case
from compiler.proof.facts.executed_index_map import STEPS
from compiler.proof.facts.facts import VALID, Fact, Fill, Region, Rewrite, Verdict, make_fact, refuse
from compiler.proof.facts.interval import ONE, ZERO, Interval, of_array
from compiler.proof.facts.layout import Axis, Frames, Rows, Segment, Side, symbols_of
from compiler.proof.facts.length_data import returned_per_row
from compiler.proof.facts.transfer import whole_range
from compiler.proof.propagation.judge import SIZES_ONLY, judge
from compiler.proof.rules.relative_shift import match

FURTHEST_HEAD = 4
"""Movements in front of a refused one, itself included, with which a chain may begin."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes that are tracked, by name.

    Attributes:
        batch: the batch axis, or None.
        sides: which end of each padded axis holds the valid entries.
        masks: inputs that are 1 at valid places and 0 in the padding.
        clean: inputs whose padding is overwritten with zero before anything reads it.
    """

    batch: str | None
    sides: Mapping[str, Side]
    masks: frozenset[str] = frozenset()
    clean: frozenset[str] = frozenset()

    @property
    def behind(self) -> frozenset[str]:
        """Return the axes that are padded behind their valid entries."""
        return frozenset(name for name, side in self.sides.items() if side is Side.LEFT)


@dataclasses.dataclass(frozen=True, eq=False)
class Judged:
    """One node with the facts of its inputs and the rule's verdict.

    Attributes:
        node: the node.
        given: facts of its inputs before any need is met, None for absent ones.
        verdict: the verdict.
        chain: nodes that are judged as one, this one last; `given` are the facts of the first one's inputs.
    """

    node: ir.Node
    given: tuple[Fact | None, ...]
    verdict: Verdict
    chain: tuple[ir.Node, ...] = ()

    @property
    def inputs(self) -> tuple[ir.Value | None, ...]:
        """Return the values that the facts in `given` describe."""
        return tuple((self.chain[0] if self.chain else self.node).inputs)


@dataclasses.dataclass(frozen=True)
class Derivation:
    """Facts and verdicts of a whole graph.

    Attributes:
        facts: fact per value.
        judged: every node that something tracked reaches, and those on whose bounds such nodes build, in graph order.
        refusals: in a tolerant derivation, the refused nodes; nodes that depend on a refused one are left out.
    """

    facts: Mapping[ir.Value, Fact]
    judged: Sequence[Judged]
    refusals: Sequence[Refused] = ()

    def fact(self, value: ir.Value | None) -> Fact:
        """Return the fact of a value; a plain fact where no tracked axis reaches it."""
        return self.facts.get(value, Fact()) if value is not None else Fact()

    @property
    def at_least_one(self) -> dict[Dim, None]:
        """Return the sizes that must be at least 1 for every judged node to be valid."""
        return {size: None for each in self.judged for size in each.verdict.at_least_one}

    @property
    def fills(self) -> int:
        """Return the number of fills, with shared ones counted once."""
        return len(
            {
                (each.node.inputs[need.operand], need.axis, need.value)
                for each in self.judged
                for need in each.verdict.needs
                if isinstance(need, Fill)
            }
        )

    @property
    def rewrites(self) -> int:
        """Return the number of nodes that need another form."""
        return sum(isinstance(need, Rewrite) for each in self.judged for need in each.verdict.needs)


def input_facts(model: ir.Model, axes: Axes) -> dict[ir.Value, Fact]:
    """Return facts of the graph inputs, from the axis names in their shapes.

    Raises:
        Refused: a shape mixes the batch with other axes, or differently aligned axes.
    """
    return {value: _input_fact(value, axes) for value in model.graph.inputs}


def _input_fact(value: ir.Value, axes: Axes) -> Fact:
    layouts: dict[int, Axis] = {}
    for position, dim in enumerate(dims_of(value) or ()):
        layout = _layout_of_input(str(value.name), dim, axes)
        if layout is not None:
            layouts[position] = layout
    name = str(value.name)

    def content(region: Region) -> Interval:
        if name in axes.masks:
            return ZERO if region else ONE
        return ZERO if region and name in axes.clean else whole_range(value.dtype)

    return make_fact(layouts, content)


def _layout_of_input(name: str, dim: Dim, axes: Axes) -> Axis | None:
    names = {str(symbol) for symbol in symbols_of(dim)}
    if axes.batch in names:
        if dim != symbol(str(axes.batch)):
            raise refuse(
                f"input {name!r} has an axis of {dim} entries", "give the batch an axis of its own", tensor=name
            )
        return (Rows(dim),)
    sides = {axes.sides[axis_name] for axis_name in names & set(axes.sides)}
    if len(sides) > 1:
        raise refuse(
            f"input {name!r} has an axis of {dim} entries",
            "give each axis of the recipe a dimension of its own in the shapes of inputs",
            tensor=name,
        )
    return (Frames((Segment(dim, sides.pop()),)),) if sides else None


def propagate(
    model: ir.Model, axes: Axes, start: Mapping[ir.Value, Fact], *, written_by: str = "", tolerant: bool = False
) -> Derivation:
    """Apply the rule table to every node.

    Args:
        model: graph with symbolic shapes (`compiler.graph.model.infer_shapes`).
        axes: the tracked axes.
        start: facts of the inputs, and of what padding has written already.
        written_by: the pass whose nodes have a meaning in the padded program only, and are not judged.
        tolerant: go on after a refusal with the nodes that do not depend on it.

    Raises:
        Refused: with node, op, axis and source line, and the chain of nodes from an input to it.
    """
    return _Propagation(model, axes, start, written_by, tolerant).run()


class _Propagation:
    def __init__(
        self, model: ir.Model, axes: Axes, start: Mapping[ir.Value, Fact], written_by: str, tolerant: bool
    ) -> None:
        self.model, self.axes, self.written_by, self.tolerant = model, axes, written_by, tolerant
        self.facts: dict[ir.Value, Fact] = dict(start)
        self.unknown: set[ir.Value] = set()
        self.judged: list[Judged] = []
        self.untracked: dict[ir.Value, Judged] = {}
        self.refusals: list[Refused] = []
        self.seen: dict[Dim, Axis] = {}
        self.inside: set[ir.Node] = set()
        self.fed: set[ir.Value] = set(start)

    def run(self) -> Derivation:
        for node in nodes_of(self.model):
            if self.unknown and any(value in self.unknown for value in node.inputs):
                self.unknown.update(node.outputs)
                continue
            if all(array_of(output) is not None for output in node.outputs):
                continue  # a Constant node
            if node in self.inside or (self.written_by and node.metadata_props.get(PASS_KEY) == self.written_by):
                continue
            try:
                self._judge(node)
            except Refused as refused:
                if self._judge_chain(node):
                    continue
                refused.at(node=str(node.name), op=node.op_type, axis=self._axis(node), source=source_of(node))
                if not self.tolerant:
                    raise
                self.refusals.append(refused)
                self.unknown.update(node.outputs)
        return Derivation(self.facts, self._with_bounds(), self.refusals)

    def _with_bounds(self) -> list[Judged]:
        """Return the judged nodes, with the untracked nodes whose bounds they use, in graph order."""
        chosen = dict.fromkeys(self.judged)
        waiting = list(self.judged)
        while waiting:
            for value in waiting.pop().inputs:
                found = None if value is None else self.untracked.get(value)
                if found is not None and found not in chosen:
                    chosen[found] = None
                    waiting.append(found)
        place = {node: at for at, node in enumerate(self.model.graph)}
        return sorted(chosen, key=lambda each: place[each.node])

    def _judge(self, node: ir.Node) -> None:
        facts = tuple(self._fact(value) for value in node.inputs)
        self._check_bodies(node)
        case = Case(node, facts, self.axes.batch, self.axes.sides, self.seen, self.fed)
        if node.op_type not in SIZES_ONLY - {"Range"} and any(value in self.fed for value in node.inputs):
            self.fed.update(node.outputs)
        tracked = case.tracked
        verdict = returned_per_row(case, judge(case))
        for output, fact in zip(node.outputs, verdict.outputs, strict=True):
            self.facts[output] = fact
            for _, axis in fact.axes:
                self._note(axis)
        if tracked or any(fact.axes for fact in verdict.outputs):
            self.judged.append(Judged(node, facts, verdict))
        else:
            bounded = [
                value for value in node.outputs if array_of(value) is None and _is_bounded(value, self.facts[value])
            ]
            self.untracked |= dict.fromkeys(bounded, Judged(node, facts, verdict))

    def _judge_chain(self, refused: ir.Node) -> bool:
        """Judge movements together that no rule allows one by one; return whether the refused node is among them."""
        for first in _heads(refused):
            facts = tuple(self._fact(value) for value in first.inputs)
            chain = match(Case(first, facts, self.axes.batch, self.axes.sides, self.seen, self.fed))
            if chain is None or refused not in chain.nodes:
                continue
            last = chain.nodes[-1]
            self.inside.update(chain.nodes)
            self.judged = [judged for judged in self.judged if judged.node not in chain.nodes]
            for node in chain.nodes:
                for value in node.outputs:
                    self.facts.pop(value, None)
            (self.facts[last.outputs[0]],) = chain.verdict.outputs
            self.judged.append(Judged(last, facts, chain.verdict, chain.nodes))
            return True
        return False

    def _note(self, axis: Axis) -> None:
        """Record a layout of several segments by its size, for positions counted along such an axis."""
        if len(axis) == 1 and isinstance(axis[0], Frames) and len(axis[0].segments) > 1:
            self.seen.setdefault(axis[0].size, axis)

    def _fact(self, value: ir.Value | None) -> Fact | None:
        if value is None:
            return None
        known = self.facts.get(value)
        if known is None:
            array = array_of(value)
            known = Fact() if array is None else Fact(contents=((VALID, of_array(array)),))
            self.facts[value] = known
        return known

    def _axis(self, node: ir.Node) -> str:
        """Return the names of the tracked axes that reach a node, for messages."""
        names = {
            str(name)
            for value in node.inputs
            if value is not None
            for _, axis in self.facts.get(value, Fact()).axes
            for factor in axis
            for name in symbols_of(factor.size)
        }
        return ", ".join(sorted(names))

    def _check_bodies(self, node: ir.Node) -> None:
        """Refuse a control-flow body that reads padded values of the outer graph, which are not inputs of its node."""
        if any(value in self.facts and not self.facts[value].is_plain for value in read_inside(node)):
            raise refuse(
                f"the body of {node.op_type} reads a padded value",
                "write that part of the model without a body, with the operators that docs/generated/coverage.md lists",
            )


def _is_bounded(value: ir.Value, fact: Fact) -> bool:
    """Whether the bounds of an untracked value are narrower than its type."""
    worst = whole_range(value.dtype)
    return fact.valid.low > worst.low or fact.valid.high < worst.high or (worst.nan and not fact.valid.nan)


def _heads(node: ir.Node) -> list[ir.Node]:
    """Return the node with the movements in front of it, the first one first."""
    heads = [node]
    while len(heads) < FURTHEST_HEAD:
        values = [value for value in heads[0].inputs if value is not None and value.producer() is not None]
        producer = values[0].producer() if values else None
        if producer is None or not is_op(producer, *STEPS):
            break
        heads.insert(0, producer)
    return heads


def chain_to(derivation: Derivation, value: ir.Value | None) -> list[ir.Node]:
    """Return the nodes from a tracked input to a value, along first tracked operands, for messages."""
    chain: list[ir.Node] = []
    while value is not None and (node := value.producer()) is not None:
        chain.append(node)
        value = next((each for each in node.inputs if each is not None and derivation.fact(each).axes), None)
    return chain[::-1]
