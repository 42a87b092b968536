"""Rules that say more than they may: every verdict of a rule, weakened in one way while a node or graph is judged."""

import dataclasses
from collections.abc import Callable, Iterable

from compiler.errors import Refused
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, Fill, Need, Verdict
from compiler.proof.facts.interval import ZERO, Interval
from compiler.proof.facts.layout import Axis, Frames, Rows, Segment, Side
from tests.property.corpus import Corpus, Rule

Weaken = Callable[[Verdict], Verdict]


@dataclasses.dataclass(frozen=True)
class Weakening:
    """One way in which all verdicts of one rule are weakened.

    Attributes:
        rule: identifier of the rule, or the operator that is refused.
        kind: which way.
        change: of a verdict; the same verdict where it does not apply.
        of_refusals: the change is made to what the operator is refused for.
    """

    rule: str
    kind: str
    change: Weaken
    of_refusals: bool = False

    @property
    def key(self) -> str:
        """Names it in the report."""
        return f"{self.rule}: {self.kind}"

    def wrap(self, rule: Rule) -> Rule:
        """The rule, weakened."""

        def weakened(case: Case) -> Verdict:
            if self.of_refusals and case.op == self.rule:
                given = list(case.facts)
                try:
                    return rule(case)
                except Refused:
                    case.facts, case.needs = given, []
                    return _elementwise(case)
            verdict = rule(case)
            return self.change(verdict) if verdict.rule == self.rule else verdict

        return weakened


def weakenings_of(corpus: Corpus) -> list[Weakening]:
    """Every weakening that changes something that was seen and came into force: a refused graph claims nothing."""
    seen: dict[str, list[Verdict]] = {}
    for attacked in [*(node.seen for node in corpus.nodes), *(graph.seen for graph in corpus.graphs)]:
        for _, verdict in attacked.verdicts if not attacked.refused else ():
            seen.setdefault(verdict.rule, []).append(verdict)
    found = []
    for rule, verdicts in sorted(seen.items()):
        for kind, change in _ways(verdicts):
            if any(change(verdict) != verdict for verdict in verdicts):
                found.append(Weakening(rule, kind, change))
    refused = sorted({each.node.op for each in corpus.nodes if each.seen.refused})
    return [*found, *(Weakening(op, "refused node accepted", lambda same: same, True) for op in refused)]


def _elementwise(case: Case) -> Verdict:
    """What an operator that looks at single entries would be given: the facts of its first operand."""
    first = next((fact for fact in case.facts if fact is not None), Fact())
    return case.verdict("weakened", "as if it were elementwise", first)


def _ways(verdicts: Iterable[Verdict]) -> list[tuple[str, Weaken]]:
    most = max(len(verdict.needs) for verdict in verdicts)
    return [
        *((f"need {at} dropped", _without_need(at)) for at in range(most)),
        ("fills with another number", _refilled),
        ("fills another axis", _filled_elsewhere),
        ("padding claimed to be 0", _contents(lambda content: content if content.is_constant else ZERO)),
        ("padding claimed to be no NaN", _contents(lambda content: dataclasses.replace(content, nan=False))),
        ("padding claimed within half its interval", _contents(_upper_half)),
        ("no size has to be 1", lambda verdict: dataclasses.replace(verdict, at_least_one=())),
        ("claimed pointwise", lambda verdict: dataclasses.replace(verdict, pointwise=True)),
        ("valid entries on the other side", _segments(_turned)),
        ("one slot more", _segments(lambda each: dataclasses.replace(each, size=each.size + 1))),
        ("numbers as data", _facts(lambda fact: Fact() if fact.is_number else fact)),
        ("rows forgotten", _facts(_without_rows)),
        ("padding forgotten", _facts(_without_padding)),
        ("counts from one further", _facts(_counted_on)),
    ]


def _without_need(at: int) -> Weaken:
    def change(verdict: Verdict) -> Verdict:
        needs = verdict.needs[:at] + verdict.needs[at + 1 :]
        return dataclasses.replace(verdict, needs=needs)

    return change


def _needs(change: Callable[[Verdict, Fill], Need]) -> Weaken:
    return lambda verdict: dataclasses.replace(
        verdict, needs=tuple(change(verdict, need) if isinstance(need, Fill) else need for need in verdict.needs)
    )


_refilled = _needs(lambda verdict, need: dataclasses.replace(need, value=1.0 if need.value == 0.0 else 0.0))


def _elsewhere(verdict: Verdict, need: Fill) -> Fill:
    others = [axis for axis in verdict.outputs[0].padded if axis != need.axis]
    return dataclasses.replace(need, axis=others[0]) if others else need


_filled_elsewhere = _needs(_elsewhere)


def _facts(change: Callable[[Fact], Fact]) -> Weaken:
    return lambda verdict: dataclasses.replace(verdict, outputs=tuple(change(fact) for fact in verdict.outputs))


def _contents(change: Callable[[Interval], Interval]) -> Weaken:
    return _facts(
        lambda fact: dataclasses.replace(
            fact, contents=tuple((region, change(each) if region else each) for region, each in fact.contents)
        )
    )


def _upper_half(content: Interval) -> Interval:
    if content.low == content.high:
        return content
    middle = (content.low + content.high) / 2 if content.is_finite else 0.0
    return Interval(middle, content.high, content.nan) if content.low < middle < content.high else content


def _segments(change: Callable[[Segment], Segment]) -> Weaken:
    """The first padded segment of every padded axis of an output is another one."""

    def axis(layout: Axis) -> Axis:
        factors = []
        for factor in layout:
            if isinstance(factor, Frames):
                at = next(at for at, each in enumerate(factor.segments) if not each.is_full)
                changed = change(factor.segments[at])
                factor = Frames((*factor.segments[:at], changed, *factor.segments[at + 1 :]))
            factors.append(factor)
        return tuple(factors)

    return _facts(lambda fact: dataclasses.replace(fact, axes=tuple((at, axis(each)) for at, each in fact.axes)))


def _turned(segment: Segment) -> Segment:
    return dataclasses.replace(segment, side=Side.LEFT if segment.side is Side.RIGHT else Side.RIGHT)


def _without_rows(fact: Fact) -> Fact:
    kept = tuple((at, axis) for at, axis in fact.axes if not any(isinstance(factor, Rows) for factor in axis))
    return dataclasses.replace(fact, axes=kept)


def _without_padding(fact: Fact) -> Fact:
    kept = tuple((at, axis) for at, axis in fact.axes if not any(isinstance(factor, Frames) for factor in axis))
    return dataclasses.replace(fact, axes=kept, contents=fact.contents[:1])


def _counted_on(fact: Fact) -> Fact:
    if fact.index is None:
        return fact
    return dataclasses.replace(fact, index=dataclasses.replace(fact.index, offset=fact.index.offset + 1))
