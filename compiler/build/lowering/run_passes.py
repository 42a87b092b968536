"""Runs the passes of a plan, and compares the graph after every pass with the original.

When anything after capture is missing, the passes run again, but for the expensive ones, and only stages without a
report are compared again. A certificate is always that of the graph at hand. A failed stage is never kept.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Self

from compiler.base.records.build_report import StageReport
from compiler.build.bundle.proof_files import Proof, proof_of
from compiler.build.lowering.certificates import replay_proof
from compiler.build.lowering.listed_passes import PlannedPass
from compiler.build.lowering.plan import LoweringPlan
from compiler.build.verify.differences import Difference, class_words
from compiler.errors import GateFailed, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.mapped_weights import map_weights, unload_weights
from compiler.graph.runners.structure import is_same
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Lowered, Outcome
from runtime_lite.format.canonical_json import canonical_json


@dataclasses.dataclass(frozen=True)
class PassedGraph:
    """A graph after its passes.

    Attributes:
        exact: the graph before the first pass that rounds on purpose; `final` itself where none does.
        final: the graph after all passes.
        proofs: the proofs of the passes, by the key of the pass, in order.
    """

    exact: Lowered
    final: Lowered
    proofs: Mapping[str, Proof]

    def copy(self) -> Self:
        """Return a copy with its own graphs."""
        final = copy_of(self.final)
        exact = final if self.exact is self.final else copy_of(self.exact)
        return dataclasses.replace(self, exact=exact, final=final)


def apply_passes(plan: LoweringPlan) -> PassedGraph:
    """Return the graph after all passes, whose results are in the cache already; nothing is compared."""
    lowered, exact, proofs = _captured(plan), None, dict[str, Proof]()
    for planned in plan.passes:
        before = copy_of(lowered)
        exact = before if exact is None and planned.made.lossy else exact
        lowered = _apply(plan, planned, before, lowered, proofs).lowered
    return PassedGraph(lowered if exact is None else exact, lowered, proofs)


def run_passes(plan: LoweringPlan) -> tuple[PassedGraph, tuple[StageReport, ...]]:
    """Return the graph after all passes, and a report on each; only what no earlier build knows is compared.

    Raises:
        SlipwayError: a pass refuses the graph, breaks parity, or has a certificate that does not hold.
    """
    lowered, exact, compared = _captured(plan), None, None
    proofs, reports, survived = dict[str, Proof](), list[StageReport](), set[bytes]()
    if not plan.passes:
        plan.parity.require_captured(lowered, plan.parity.steps(), plan.gate)
    for planned in plan.passes:
        with plan.progress.stage(plan.name, planned.made.name) as handle:
            started, before = time.perf_counter(), copy_of(lowered)
            exact = before if exact is None and planned.made.lossy else exact
            outcome = _apply(plan, planned, before, lowered, proofs)
            lowered = outcome.lowered
            records = [{"pass": planned.made.name, **record} for record in outcome.records]
            earlier = plan.kept.report(planned.key)
            if earlier is not None and canonical_json(earlier[1]) == canonical_json(records):
                report, compared = earlier[0], None
            else:
                steps = _replay(plan.name, planned, proofs, survived)
                rounded = {"was_rounded": planned.was_rounded, "is_rounded": planned.is_rounded}
                if compared is None or _changes(planned, before, outcome):
                    compared = plan.parity.compare(planned.made.name, before, lowered, handle.advance, **rounded)
                report = _report_of(planned.made.name, before, outcome, steps, *compared, started)
                plan.kept.keep_report(planned.key, report, records)
            reports.append(report)
            handle.finish(report)
        unload_weights()
    return PassedGraph(lowered if exact is None else exact, lowered, proofs), tuple(reports)


def recall_passes(plan: LoweringPlan) -> tuple[StageReport, ...]:
    """Return the stored reports of all passes of a plan, all of whose results an earlier build has kept."""
    reports = []
    for planned in plan.passes:
        with plan.progress.stage(plan.name, planned.made.name) as handle:
            earlier = plan.kept.report(planned.key)
            assert earlier is not None
            reports.append(earlier[0])
            handle.finish(earlier[0])
    return tuple(reports)


def copy_of(lowered: Lowered) -> Lowered:
    """Return a copy with its own graphs, as passes rewrite in place."""
    first = None if lowered.first_call is None else graphs.clone(lowered.first_call)
    return dataclasses.replace(lowered, model=graphs.clone(lowered.model), first_call=first)


def _captured(plan: LoweringPlan) -> Lowered:
    return dataclasses.replace(plan.original.start(), calibration=plan.original.calibration())


def _apply(
    plan: LoweringPlan, planned: PlannedPass, before: Lowered, lowered: Lowered, proofs: dict[str, Proof]
) -> Outcome:
    """Apply a pass to `lowered`, a copy of `before`, and add its proof."""
    try:
        outcome = plan.kept.apply(planned.made, planned.key, lowered)
        check_between_passes(outcome.lowered)
        map_weights(*outcome.lowered.models)
    except SlipwayError as error:
        raise error.at(stage=planned.made.name, graph=plan.name) from None
    proof = proof_of(planned.made.name, before, outcome)
    if proof is not None:
        proofs[planned.key] = proof
    return outcome


def _replay(graph: str, planned: PlannedPass, proofs: Mapping[str, Proof], survived: set[bytes]) -> int:
    """Replay the certificate of a pass; return the number of its steps."""
    try:
        return replay_proof(proofs.get(planned.key), survived)
    except GateFailed as error:
        raise error.at(stage=planned.made.name, graph=graph) from None


def _changes(planned: PlannedPass, before: Lowered, outcome: Outcome) -> bool:
    """Whether the graph after a pass has to be compared again: a byte or its limits changed."""
    after = outcome.lowered
    if outcome.rewritten or planned.was_rounded != planned.is_rounded:
        return True
    if dataclasses.replace(after, model=before.model, first_call=before.first_call) != before:
        return True
    return len(before.models) != len(after.models) or not all(map(is_same, before.models, after.models))


def _report_of(
    stage: str, before: Lowered, outcome: Outcome, steps: int, worst: Difference, limit: float, started: float
) -> StageReport:
    """Return the report on a pass, with the number of replayed steps of its certificates."""
    classes = "" if worst.classes is None else f"{worst.tensor} {class_words(worst.classes)}"
    replayed = f"certificate of {steps} steps replayed" if steps else ""
    return StageReport(
        before.graph,
        stage,
        time.perf_counter() - started,
        matched=outcome.matched,
        rewritten=outcome.rewritten,
        refused=tuple(map(str, outcome.refused)),
        max_abs=None if classes else worst.max_abs,
        limit=None if classes else limit,
        detail="; ".join(words for words in (outcome.detail, classes, replayed) if words),
        sqnr_db=worst.sqnr_db,
        precision=outcome.precision,
        compression=outcome.compression,
    )
