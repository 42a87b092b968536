"""Explains why a graph may be padded, node by node, or why not: each refusal with the nodes that lead to it.

Plain data for people; `compiler.front.explain.text` prints it and `compiler.front.explain.picture` draws it. The
graph goes through the passes of a build up to pad_axes; a refused graph is derived as far as it goes, so all refusals
show at once.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from compiler.build.lowering.certificates import replay_certificates
from compiler.build.report.graph_drawing import Box
from compiler.errors import GateFailed, Location, Refused
from compiler.front.explain.words import Kind, kind_of, need_words, padding_words, shape_text
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, Pass
from compiler.passes.pad_axes import PadAxes, derive_tolerantly
from compiler.proof.facts.facts import Fact
from compiler.proof.facts.layout import Side, symbols_of
from compiler.proof.propagation.certificate import fact_of
from compiler.proof.propagation.propagate import Derivation, chain_to

SIDES = {Side.LEFT.value: "valid first, padding behind", Side.RIGHT.value: "valid last, padding in front"}


@dataclasses.dataclass(frozen=True)
class ShownAxis:
    """One padded axis.

    Attributes:
        name: of the axis.
        side: which slots are valid, in words.
        inputs: the inputs that have it, with their shapes.
        length_input: the input with the true lengths; empty for a refused graph.
        minimum: smallest length proved, None for a refused graph.
        maximum: longest length that the graph's tables allow, None for no limit.
    """

    name: str
    side: str
    inputs: tuple[str, ...]
    length_input: str = ""
    minimum: int | None = None
    maximum: int | None = None


@dataclasses.dataclass(frozen=True)
class ReachedNode:
    """One node that something padded or the batch reaches.

    Attributes:
        node: its name.
        op: its operator.
        rule: identifier of the rule that judged it.
        reason: why padding keeps its meaning.
        source: the model's source line.
        inserted: the inserted nodes, in words.
        given: (input, fact) as text, before anything is inserted.
        results: (output, fact) as text.
    """

    node: str
    op: str
    rule: str
    reason: str
    source: str
    inserted: tuple[str, ...]
    given: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Link:
    """One node on the way from an input to a refused node; `padding` describes its padding in words."""

    node: str
    op: str
    padding: str
    source: str


@dataclasses.dataclass(frozen=True)
class ShownRefusal:
    """One place where the proof ends.

    Attributes:
        reason: one sentence.
        cure: what to do about it.
        place: node, operator, axis, source line.
        chain: from an input to the node.
    """

    reason: str
    cure: str
    place: Location
    chain: tuple[Link, ...] = ()


@dataclasses.dataclass(frozen=True)
class Counts:
    """Numbers of a proof: nodes before, judged, inserted; fills, and the masks they share."""

    nodes: int = 0
    judged: int = 0
    inserted: int = 0
    fills: int = 0
    masks: int = 0


@dataclasses.dataclass(frozen=True)
class Explanation:
    """A graph's proof, or its refusals.

    Attributes:
        graph: its name.
        batch: the axis of rows, or None.
        axes: the padded axes.
        free: axes that are neither: one size for all rows.
        steps: the judged nodes in graph order.
        refusals: none for a proof.
        outputs: (output, shape) as text.
        boxes: inputs and nodes, for the picture.
        counts: numbers of the proof.
        rows_independent: whether rows of one batch are proved independent.
        replayed: steps that the independent checker has replayed, None where there was nothing to replay.
        rejected: the checker's objection to the proof; empty where it holds.
        assumes: the assumptions of the proof, in words.
    """

    graph: str
    batch: str | None
    axes: tuple[ShownAxis, ...]
    free: tuple[str, ...]
    steps: tuple[ReachedNode, ...]
    refusals: tuple[ShownRefusal, ...]
    outputs: tuple[tuple[str, str], ...]
    boxes: tuple[Box, ...]
    counts: Counts
    rows_independent: bool = False
    replayed: int | None = None
    rejected: str = ""
    assumes: tuple[str, ...] = ()


def explain(lowered: Lowered, passes: Sequence[Pass]) -> Explanation:
    """Run a graph through passes; return what padding changed in it, or why a pass refused it.

    Args:
        lowered: the graph as captured; rewritten in place.
        passes: the passes of a build, up to pad_axes.
    """
    for pass_made in passes:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        try:
            outcome = pass_made.apply(lowered)
        except Refused as refused:
            refused.at(stage=pass_made.name)
            return _refused(before, refused, derive=pass_made.name == PadAxes.name)
        if pass_made.name == PadAxes.name and outcome.records:
            return _proved(before, outcome)
        lowered = outcome.lowered
    return _explanation(lowered, lowered.model, {})


def _proved(before: Lowered, outcome: Outcome) -> Explanation:
    (proof,) = outcome.records
    records, after = proof["records"], outcome.lowered
    facts = _facts(records)
    facts |= {new: facts[old] for old, new in proof["becomes"].items() if old in facts}
    written = [node for node in after.model.graph if node.metadata_props.get(graphs.PASS_KEY) == PadAxes.name]
    fills = [node for node in written if graphs.is_op(node, "Where")]
    shown = _explanation(before, after.model, facts, records)
    most = {padded_axis.axis: padded_axis.maximum for padded_axis in after.padded_axes}
    replayed, rejected = _replay(before, outcome)
    return dataclasses.replace(
        shown,
        axes=tuple(
            dataclasses.replace(
                axis,
                length_input=proof["length_inputs"].get(axis.name, ""),
                minimum=proof["minimum"].get(axis.name),
                maximum=most.get(axis.name),
            )
            for axis in shown.axes
        ),
        counts=Counts(
            nodes=sum(1 for _ in before.model.graph),
            judged=len(records),
            inserted=len(written),
            fills=len(fills),
            masks=len({node.inputs[0] for node in fills}),
        ),
        rows_independent=after.rows_independent,
        replayed=replayed,
        assumes=tuple(proof["assumes"]),
        rejected=rejected,
    )


def _replay(before: Lowered, outcome: Outcome) -> tuple[int, str]:
    try:
        return replay_certificates(before, outcome), ""
    except GateFailed as failed:
        return 0, failed.message


def _refused(before: Lowered, refused: Refused, *, derive: bool) -> Explanation:
    derivation, records = Derivation({}, ()), tuple[dict[str, Any], ...]()
    work = dataclasses.replace(before, model=graphs.clone(before.model))
    if derive:
        try:
            derivation, records = derive_tolerantly(work)
        except Refused:  # at an input: there is nothing to derive from
            work = before
    facts = {str(value.name): fact for value, fact in derivation.facts.items()}
    refusals = [refusal for refusal in derivation.refusals if isinstance(refusal, Refused)]
    places = {(refusal.place.node, refusal.message) for refusal in refusals}
    if (refused.place.node, refused.message) not in places:
        refusals.append(refused)
    shown = tuple(
        ShownRefusal(refusal.message, refusal.cure, refusal.place, _chain(work.model, derivation, refusal))
        for refusal in refusals
    )
    stuck = {refusal.place.node for refusal in refusals if refusal.place.node}
    explanation = _explanation(work, work.model, facts, records, stuck, underived=derive)
    counts = Counts(nodes=sum(1 for _ in before.model.graph), judged=len(records))
    return dataclasses.replace(explanation, refusals=shown, counts=counts)


def _explanation(
    lowered: Lowered,
    drawn: ir.Model,
    facts: Mapping[str, Fact],
    records: Sequence[Mapping[str, Any]] = (),
    stuck: Iterable[str] = (),
    *,
    underived: bool = False,
) -> Explanation:
    """Return the explanation of a proof or of refusals; `drawn` is the graph whose nodes and shapes are shown."""
    order = {str(node.name): position for position, node in enumerate(lowered.model.graph)}
    steps = sorted(map(_step, records), key=lambda step: order.get(step.node, len(order)))
    axes = _axes(lowered)
    taken = {axis.name for axis in axes} | {lowered.batch_axis}
    names = {str(name) for value in lowered.model.graph.inputs for dim in graphs.dims_of(value) or ()
             for name in symbols_of(dim) if not name.is_Dummy}  # fmt: skip
    return Explanation(
        graph=lowered.graph,
        batch=lowered.batch_axis,
        axes=axes,
        free=tuple(sorted(names - taken)),
        steps=tuple(steps),
        refusals=(),
        outputs=tuple((str(value.name), shape_text(value)) for value in drawn.graph.outputs),
        boxes=_boxes(drawn, facts, {step.node: step for step in steps}, set(stuck), underived=underived),
        counts=Counts(),
    )


def _axes(lowered: Lowered) -> tuple[ShownAxis, ...]:
    sides = {padded_axis.axis: Side.LEFT for padded_axis in lowered.padded_axes}
    if not lowered.is_padded:
        sides |= {cache.axis: Side(cache.side) for cache in lowered.caches}
    inputs: dict[str, list[str]] = {name: [] for name in sides}
    for value in lowered.model.graph.inputs:
        for name in sides:
            if any(graphs.mentions(dim, name) for dim in graphs.dims_of(value) or ()):
                inputs[name].append(f"{value.name} {shape_text(value)}")
    for padded_axis in lowered.padded_axes:
        present = graphs.inputs_named(lowered.model)
        inputs[padded_axis.axis] += [
            f"{name}: made from the lengths" for name in padded_axis.masks if name not in present
        ]
    return tuple(ShownAxis(name, SIDES[side.value], tuple(inputs[name])) for name, side in sides.items())


# Records


def _facts(records: Iterable[Mapping[str, Any]]) -> dict[str, Fact]:
    """Return the facts of a certificate's records by value name."""
    facts: dict[str, Fact] = {}
    for record in records:
        for names, given in ((record["inputs"], record["in"]), (record["outputs"], record["out"])):
            for name, fact in zip(names, given, strict=True):
                if name is not None and fact is not None:
                    facts[name] = fact_of(fact)
    return facts


def _step(record: Mapping[str, Any]) -> ReachedNode:
    names = record["inputs"]
    return ReachedNode(
        node=record["node"],
        op=record["op"],
        rule=record["rule"],
        reason=record["reason"],
        source=record["source"],
        inserted=tuple(need_words(need, names) for need in record["needs"]),
        given=tuple(
            (name, str(fact_of(fact))) for name, fact in zip(names, record["in"], strict=True) if name and fact
        ),
        results=tuple((name, str(fact_of(fact))) for name, fact in zip(record["outputs"], record["out"], strict=True)),
    )


# The way to a refused node


def _chain(model: ir.Model, derivation: Derivation, refused: Refused) -> tuple[Link, ...]:
    node = next((node for node in model.graph if str(node.name) == refused.place.node), None)
    if node is None:
        return ()
    nodes = chain_to(derivation, node.outputs[0])
    first = next((value for value in nodes[0].inputs if value is not None and derivation.fact(value).axes), None)
    links = [] if first is None else [_input_link(first, derivation)]
    for each in nodes[:-1]:
        links.append(Link(str(each.name), each.op_type, _words(each, derivation), graphs.source_of(each)))
    refused_words = _words(node, derivation) if node.outputs[0] in derivation.facts else "refused"
    return (*links, Link(str(node.name), node.op_type, refused_words, graphs.source_of(node)))


def _input_link(value: ir.Value, derivation: Derivation) -> Link:
    return Link(str(value.name), "input", padding_words(derivation.fact(value)), "")


def _words(node: ir.Node, derivation: Derivation) -> str:
    known = [derivation.facts[value] for value in node.outputs if value in derivation.facts]
    words = " / ".join(dict.fromkeys(padding_words(fact) for fact in known)) or "not derived"
    has_needs = any(each.node is node and each.verdict.needs for each in derivation.judged)
    return f"{words}, once masked" if has_needs else words


# What is drawn


def _boxes(
    model: ir.Model, facts: Mapping[str, Fact], steps: Mapping[str, ReachedNode], stuck: set[str], *, underived: bool
) -> tuple[Box, ...]:
    boxes = []
    for value in model.graph.inputs:
        fact = facts.get(str(value.name), Fact())
        about = (f"{value.name}: input {shape_text(value)}", str(fact))
        name = str(value.name)
        boxes.append(Box(name, "input", kind_of([fact]), padding_words(fact), True, about, (), (name,)))
    lost: set[str] = set()
    for node in model.graph:
        inputs = tuple(str(value.name) for value in node.inputs if value is not None)
        outputs = tuple(str(value.name) for value in node.outputs)
        known = [facts[name] for name in outputs if name in facts]
        name = str(node.name)
        if name in stuck:
            kind, words = Kind.REFUSED, "refused"
        elif not known and not lost.isdisjoint(inputs):
            kind, words = Kind.UNKNOWN, "not derived"
        elif node.metadata_props.get(graphs.PASS_KEY) == PadAxes.name:
            kind, words = Kind.INSERTED, padding_words(known[0]) if known else "inserted"
        else:
            kind, words = kind_of(known), padding_words(known[0]) if known else "no padding"
        if underived and kind in (Kind.REFUSED, Kind.UNKNOWN):
            lost.update(outputs)
        is_tracked = kind is not Kind.NONE or any(fact.axes for fact in known)
        notes = _notes(node, known, steps.get(name))
        boxes.append(Box(name, node.op_type, kind, words, is_tracked, notes, inputs, outputs))
    return tuple(boxes)


def _notes(node: ir.Node, known: Sequence[Fact], step: ReachedNode | None) -> tuple[str, ...]:
    lines = [f"{node.name}: {node.op_type}"]
    lines += [f"{value.name} {shape_text(value)}" for value in node.outputs]
    lines += [str(fact) for fact in known]
    if step is not None:
        lines += [f"rule {step.rule}: {step.reason}", *step.inserted]
    source = graphs.source_of(node)
    return (*lines, source) if source else tuple(lines)
