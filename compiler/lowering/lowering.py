"""Runs a graph's passes and its target; after every pass the graph is compared with the original.

The key of a stage is made from the record of its inputs: see `stage_inputs.py`. Reports are kept, graphs between passes
are not: when anything after capture is missing, the passes run again, which is quick, and only stages without a report
are compared again. A certificate is always that of the graph at hand. A failed stage is never kept.
"""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler import ir as house
from compiler.bundle.proof_files import Proof, proof_of
from compiler.capture.original import Original
from compiler.culprits.failure_message import explained
from compiler.errors import GateFailed, Place, Refused, SlipwayError
from compiler.lowering.certificates import replay_certificates
from compiler.lowering.plan import plan_of
from compiler.recipe.gates import Limits
from compiler.records.build_report import StageReport, stage_report_of
from compiler.records.precision import PrecisionRecord
from compiler.report.progress import StageHandle
from compiler.runners.choose import runner_of, runners_of
from compiler.runners.stream import Advance, CallRunner, Step
from compiler.runners.structure import is_same
from compiler.spec import check_between_passes
from compiler.stage_inputs import TargetInputs, key_of
from compiler.stages import Lowered, Outcome, Pass
from compiler.targets.base import Built, Target
from compiler.verify.differences import Difference, compare, worst_of
from compiler.verify.edges import EDGE_CURE, first_disagreement, limits_at_edges
from compiler.verify.gates.parity import parity_findings, require_parity
from runtime_lite.format.canonical_json import canonical_json

PASS_STEPS = 12
"""Chained steps compared after each pass: enough to overflow a window of 128 frames by chunks of 16."""


class Lowering:
    """One graph between capture and its artefacts.

    Args:
        original: the captured graph and the reference.
        target: what the graph is lowered to.
        failures: folder for the reproducer of a gate that fails, or None.
    """

    def __init__(self, original: Original, target: Target, failures: Path | None = None) -> None:
        self.original, self.target, self.failures = original, target, failures
        self.name, self.gate, self.buckets = original.name, original.gate, original.buckets
        self.results, self.progress = original.results, original.progress
        self.precision: list[PrecisionRecord] = []
        self.lowered: Lowered | None = None
        self.proofs: dict[str, Proof] = {}
        self.key = key_of(original.lowering_inputs())
        self.plan = plan_of(self.key, original.passes)
        last = self.plan[-1][1] if self.plan else self.key
        self.target_key = key_of(TargetInputs(last, target.name, repr(target), self.buckets))

    def run(self) -> None:
        """Run the passes, or look their reports up when all of them and the artefacts are known."""
        if self.is_known():
            self._recall()
        else:
            self._run_passes()

    def is_known(self) -> bool:
        """Whether the reports of all passes and the artefacts are in the cache."""
        return all(self.results.find(key) is not None for key in (*(key for _, key in self.plan), self.target_key))

    def _recall(self) -> None:
        """Reports of the passes from the cache."""
        for made, key in self.plan:
            with self.progress.stage(self.name, made.name) as handle:
                found = self._cached_report(key)
                assert found is not None
                self._done(handle, found[0])

    def _cached_report(self, key: str) -> tuple[StageReport, list[dict[str, Any]]] | None:
        """What an earlier build said of a pass, and the records of its certificate."""
        entry = self.results.find(key)
        if entry is None:
            return None
        content = json.loads((entry / "report.json").read_text())
        return dataclasses.replace(stage_report_of(content["report"]), cached=True), content["records"]

    def _keep(self, key: str, files: Mapping[str, bytes]) -> None:
        code = dict(self.original.code())
        task = self.original.lowering_inputs().task
        if task is not None:
            code |= {task.decode: bool(task.files), task.metric: bool(task.files)}
        self.results.keep(key, files, code, self.original.is_data)

    def _run_passes(self) -> None:
        lowered = self._start()
        found: tuple[Difference, float] | None = None
        for made, key in self.plan:
            with self.progress.stage(self.name, made.name) as handle:
                started = time.perf_counter()
                before = _copy_of(lowered)
                outcome = self._apply(made, lowered)
                self._keep_proof(key, made, before, outcome)
                lowered = outcome.lowered
                records = [{"pass": made.name, **record} for record in outcome.records]
                known = self._cached_report(key)
                if known is not None and canonical_json(known[1]) == canonical_json(records):
                    report, found = known[0], None
                else:
                    steps = self._replay(made.name, before, outcome)
                    if found is None or not _is_same(before, lowered):
                        found = self._compare(made.name, before, lowered, handle.advance)
                    worst, limit = found
                    report = StageReport(
                        self.name,
                        made.name,
                        time.perf_counter() - started,
                        matched=outcome.matched,
                        rewritten=outcome.rewritten,
                        refused=tuple(map(str, outcome.refused)),
                        max_abs=worst.max_abs,
                        limit=limit,
                        detail="; ".join(
                            each
                            for each in (outcome.detail, f"certificate of {steps} steps replayed" if steps else "")
                            if each
                        ),
                        sqnr_db=worst.sqnr_db,
                        precision=outcome.precision,
                    )
                    content = {"report": report.to_json(), "records": records}
                    self._keep(key, {"report.json": canonical_json(content)})
                self._done(handle, report)
        self.lowered = lowered

    def _start(self) -> Lowered:
        return dataclasses.replace(self.original.start(), evidence=self.original.evidence())

    def _apply(self, made: Pass, lowered: Lowered) -> Outcome:
        try:
            outcome = made.apply(lowered)
            check_between_passes(outcome.lowered)
        except SlipwayError as error:
            raise error.at(stage=made.name, graph=self.name) from None
        after = dataclasses.replace(outcome.lowered, lossy=lowered.lossy or made.lossy)
        return dataclasses.replace(outcome, lowered=after)

    def _replay(self, stage: str, before: Lowered, outcome: Outcome) -> int:
        try:
            return replay_certificates(before, outcome)
        except GateFailed as error:
            raise error.at(stage=stage, graph=self.name) from None

    def _compare(self, stage: str, before: Lowered, after: Lowered, advance: Advance) -> tuple[Difference, float]:
        """Parity after a pass; on failure the nodes that are to blame."""
        steps = self.original.steps(min(PASS_STEPS, self.gate.chained_steps))
        fresh = runners_of(after)
        differences = compare(after, fresh(), steps)
        limits = self.gate.limits(lossy=after.lossy)
        worst = worst_of(differences, limits)
        if worst.holds(limits):
            self._compare_edges(stage, before, after, fresh, advance)
            return worst, worst.limit(limits)
        require_parity(
            self.name, "capture", compare(before, runner_of(before), steps), limits,
            "the exported graph differs before any pass has touched it: compare with a looser max_abs, or report it",
        )  # fmt: skip
        error = GateFailed(
            f"expected {worst.tensor} after {stage} {worst.exceeded(limits)}",
            cure=f"remove {stage} from the recipe's passes and report it; it is the pass that broke parity",
            place=Place(stage=stage, graph=self.name, tensor=worst.tensor),
            findings=parity_findings(self.name, differences, limits),
        )
        raise explained(error, before, after, steps, limits, self.failures, advance=advance)

    def _compare_edges(
        self, stage: str, before: Lowered, after: Lowered, fresh: Callable[[], CallRunner], advance: Advance
    ) -> None:
        """The same on edge feeds."""
        cases, limits = self.original.edges(), limits_at_edges(self.gate, lossy=after.lossy)
        found = first_disagreement(after, fresh, cases, limits)
        if found is None:
            return
        earlier = first_disagreement(
            before, runners_of(before), [found.case], limits_at_edges(self.gate, lossy=before.lossy)
        )
        if earlier is not None:
            raise earlier.failure(
                self.name, "capture",
                f"the exported graph differs before any pass has touched it: report it; {EDGE_CURE}",
            )  # fmt: skip
        error = found.failure(
            self.name, stage,
            f"remove {stage} from the recipe's passes and report it; it is the pass that broke this; {EDGE_CURE}",
        )  # fmt: skip
        raise explained(error, before, after, found.case.steps, limits, self.failures, advance=advance)

    def explain(self, error: GateFailed, steps: Sequence[Step], limits: Limits, advance: Advance) -> GateFailed:
        """A failure of what ships with the nodes to blame, by the graph before the first pass that rounds."""
        final = self.final()
        before = self.exact() if final.lossy else dataclasses.replace(final, model=house.clone(final.model))
        return explained(error, before, final, steps, limits, self.failures, optimize=True, advance=advance)

    def exact(self) -> Lowered:
        """The graph before the first pass that rounds on purpose."""
        lowered = self._start()
        for made in itertools.takewhile(lambda made: not made.lossy, (made for made, _ in self.plan)):
            lowered = self._apply(made, lowered).lowered
        return lowered

    def final(self) -> Lowered:
        """The graph after all passes, run again when everything came from the cache."""
        if self.lowered is None:
            lowered = self._start()
            for made, key in self.plan:
                before = _copy_of(lowered)
                outcome = self._apply(made, lowered)
                self._keep_proof(key, made, before, outcome)
                lowered = outcome.lowered
            self.lowered = lowered
        return self.lowered

    def _keep_proof(self, key: str, made: Pass, before: Lowered, outcome: Outcome) -> None:
        proof = proof_of(made.name, before, outcome)
        if proof is not None:
            self.proofs[key] = proof

    def emit(self) -> Built:
        """The target's artefacts."""
        with self.progress.stage(self.name, self.target.name) as handle:
            started = time.perf_counter()
            try:
                _check_buckets(self.final(), self.buckets)
                built = self.target.emit(self.final(), self.buckets)
            except SlipwayError as error:
                raise error.at(stage=self.target.name, graph=self.name) from None
            self._keep(self.target_key, {"emitted": b"1"})
            report = StageReport(
                self.name, self.target.name, time.perf_counter() - started, detail=f"{len(built.artifacts)} graphs"
            )
            self._done(handle, report)
        return built

    def _done(self, handle: StageHandle, report: StageReport) -> None:
        self.precision += report.precision
        handle.finish(report)

    def parts(self) -> dict[str, tuple[str, ...]]:
        """What packed states hold."""
        groups = [group for state_map in self.final().state_maps for group in getattr(state_map, "groups", ())]
        return dict(groups)


def _copy_of(lowered: Lowered) -> Lowered:
    """The same with graphs of its own: a pass rewrites in place."""
    first = None if lowered.first_call is None else house.clone(lowered.first_call)
    return dataclasses.replace(lowered, model=house.clone(lowered.model), first_call=first)


def _is_same(before: Lowered, after: Lowered) -> bool:
    """Whether a pass left everything as it was, to the byte: what was compared then need not be compared again."""
    if dataclasses.replace(after, model=before.model, first_call=before.first_call) != before:
        return False
    return len(before.models) == len(after.models) and all(map(is_same, before.models, after.models))


def _check_buckets(lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> None:
    """Every bucket lies within the lengths that were proved, and several rows share a call only under a proof.

    Raises:
        Refused: names the bucket.
    """
    for each in lowered.padded_axes:
        for slots in buckets[each.axis]:
            if slots < each.minimum or slots > (each.maximum or slots):
                limit = f"at least {each.minimum}" if slots < each.minimum else f"at most {each.maximum}"
                raise Refused(
                    f"expected buckets of {each.axis} of {limit}, for which the proof holds, got {slots}",
                    cure="drop the bucket",
                ).at(axis=each.axis)
    rows = buckets.get(lowered.batch_axis or "", (1,))
    if rows[-1] > 1 and not lowered.rows_independent:
        raise Refused(
            f"expected a proof that rows are independent for buckets of {rows[-1]} rows, got none",
            cure="put pad_axes into the recipe's passes, or build buckets: [1]",
        ).at(axis=str(lowered.batch_axis))
