"""Runs a graph's passes and its target; after every pass the graph is compared with the original.

The key of a stage is made from the record of its inputs: see `stage_inputs.py`. When anything after capture is missing,
the passes run again, but for the expensive ones, and only stages without a report are compared again. A certificate is
always that of the graph at hand. A failed stage is never kept.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from compiler.base.records.build_report import StageReport
from compiler.base.records.precision import PrecisionRecord
from compiler.base.records.searches import Search
from compiler.build.bundle.proof_files import Proof, proof_of
from compiler.build.capture.original import Original
from compiler.build.lowering.buckets import check_buckets
from compiler.build.lowering.certificates import replay_proof
from compiler.build.lowering.kept_passes import KeptPasses
from compiler.build.lowering.listed_passes import PlannedPass, plan_of
from compiler.build.lowering.pass_parity import PassParity
from compiler.build.search.searched import searched
from compiler.build.verify.differences import Difference, class_words
from compiler.errors import GateFailed, SlipwayError
from compiler.graph import model as graphs
from compiler.graph.runners.mapped_weights import map_weights, unload_weights
from compiler.graph.runners.stream import Advance, OriginalCall, chained_steps
from compiler.graph.runners.structure import is_same
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Lowered, Outcome
from compiler.recipe.gates import Tolerance
from compiler.recipe.stage_inputs import SearchInputs, TargetInputs, key_of
from compiler.targets.base import Built, Target
from compiler.targets.formed_graphs import VariantOutcome
from compiler.targets.forms import SEARCH
from compiler.targets.weights_file import WeightsFile
from runtime_lite.format.canonical_json import canonical_json

SEARCH_STEPS = 24
"""Calls on which a search measures noise: twice what is compared after each pass."""


class Lowering:
    """One graph between capture and its artefacts.

    Args:
        original: the captured graph and the reference.
        target: what the graph is lowered to.
        failures: folder for the reproducer of a gate that fails, or None.

    Attributes:
        plan: the passes, in order.
        target: the same with its variants for this graph written out, once these are known.
        searched: how they were found by measuring, where the recipe asks for that.
    """

    def __init__(self, original: Original, target: Target, failures: Path | None = None) -> None:
        self.original, self.progress = original, original.progress
        self.name, self.gate, self.buckets = original.name, original.gate, original.buckets
        self.target = target.planned(self.name, lossy=self.gate.lossy is not None)
        self.parity, self.kept = PassParity(original, failures), KeptPasses(original)
        self.precision: list[PrecisionRecord] = []
        self.proofs: dict[str, Proof] = {}
        self._survived: set[bytes] = set()
        self._exact: Lowered | None = None
        self._final: Lowered | None = None
        self._reports: list[StageReport] = []
        key = key_of(original.lowering_inputs())
        self.plan = plan_of(key, original.passes, target.pass_options)
        last = self.plan[-1].key if self.plan else key
        self._last_key = last
        self._search_key = key_of(SearchInputs(last, target.name, repr(target), self.buckets))
        self.searched: Search | None = None
        if self.target.searches:
            self._take_over(self.kept.search(self._search_key))

    @property
    def is_rounded(self) -> bool:
        """Whether a pass, a variant or the target rounds on purpose: half precision, int8."""
        is_rounded = bool(self.plan) and self.plan[-1].is_rounded
        return is_rounded or self.target.rounds or any(variant.made.lossy for variant in self.target.plan)

    @property
    def target_key(self) -> str:
        """Return the key of the artefacts."""
        return key_of(TargetInputs(self._last_key, self.target.name, repr(self.target), self.buckets))

    def is_known(self) -> bool:
        """Whether the reports on all passes, the variants and the artefacts are in the cache."""
        if self.target.searches:
            return False
        return all(map(self.kept.knows, (*(each.key for each in self.plan), self.target_key)))

    def run(self, beside: Iterable["Lowering"] = ()) -> None:
        """Run the passes, or read their reports from the cache when all of them and the artefacts are there.

        Args:
            beside: lowerings of the same graph for other targets, whose passes are not run again.
        """
        alike = next((each for each in beside if (each.name, each._last_key) == (self.name, self._last_key)), None)
        if self.is_known():
            self._recall_passes()
        elif alike is not None and alike._final is not None:
            self._share_passes(alike)
        else:
            self._final = self._run_passes()
        if self.target.searches:
            self._search(self.final())
        elif self.searched is not None:
            with self.progress.stage(self.name, SEARCH) as handle:
                handle.end(cached=True, detail=_search_words(self.searched))

    def _share_passes(self, other: "Lowering") -> None:
        self._final, self.proofs = _copy_of(other.final()), dict(other.proofs)
        for report in other._reports:
            self.progress.tell(dataclasses.replace(report, cached=True))
            self._take_in(report)

    def _recall_passes(self) -> None:
        for each in self.plan:
            with self.progress.stage(self.name, each.made.name) as handle:
                found = self.kept.report(each.key)
                assert found is not None
                self._take_in(found[0])
                handle.finish(found[0])

    def _search(self, final: Lowered) -> None:
        """Choose the variants by measuring, and keep the result."""
        with self.progress.stage(self.name, SEARCH) as handle:
            try:
                found = searched(self.target, final, self.buckets, self.gate, self._answers, handle.advance)
            except SlipwayError as error:
                raise error.at(stage=SEARCH, graph=self.name) from None
            self.kept.keep_search(self._search_key, found)
            self._take_over(found)
            handle.end(detail=_search_words(found))

    def _take_over(self, found: Search | None) -> None:
        if found is not None:
            self.searched, self.target = found, self.target.with_plan(found.plan)

    @property
    def _answers(self) -> Callable[[], Sequence[OriginalCall]] | None:
        """Return a function that returns the original's calls on the first calibration stream; None without data."""
        calibration = self.original.calibration()
        if calibration is None:
            return None
        stream, run = calibration.streams[0], self.original.reference().run
        return functools.cache(lambda: chained_steps(run, stream, min(len(stream), SEARCH_STEPS)))

    def _run_passes(self) -> Lowered:
        lowered, compared = self._start(), None
        if not self.plan:
            self.parity.require_captured(lowered, self.parity.steps(), self.gate)
        for each in self.plan:
            with self.progress.stage(self.name, each.made.name) as handle:
                started, before = time.perf_counter(), _copy_of(lowered)
                if each.made.lossy and self._exact is None:
                    self._exact = before
                outcome = self._apply(each, before, lowered)
                lowered = outcome.lowered
                records = [{"pass": each.made.name, **record} for record in outcome.records]
                known = self.kept.report(each.key)
                if known is not None and canonical_json(known[1]) == canonical_json(records):
                    report, compared = known[0], None
                else:
                    steps = self._replay(each)
                    rounded = {"was_rounded": each.was_rounded, "is_rounded": each.is_rounded}
                    is_same = not outcome.rewritten and each.was_rounded == each.is_rounded
                    if compared is None or not is_same or not _is_same(before, lowered):
                        compared = self.parity.compare(each.made.name, before, lowered, handle.advance, **rounded)
                    report = _report_of(each.made.name, before, outcome, steps, *compared, started)
                    self.kept.keep_report(each.key, report, records)
                self._take_in(report)
                handle.finish(report)
            unload_weights()
        return lowered

    def _start(self) -> Lowered:
        return dataclasses.replace(self.original.start(), calibration=self.original.calibration())

    def _apply(self, planned: PlannedPass, before: Lowered, lowered: Lowered) -> Outcome:
        """Apply a pass to `lowered`, a copy of `before`, and record its proof."""
        made = planned.made
        try:
            outcome = self.kept.apply(made, planned.key, lowered)
            check_between_passes(outcome.lowered)
            map_weights(*outcome.lowered.models)
        except SlipwayError as error:
            raise error.at(stage=made.name, graph=self.name) from None
        proof = proof_of(made.name, before, outcome)
        if proof is not None:
            self.proofs[planned.key] = proof
        return outcome

    def _replay(self, planned: PlannedPass) -> int:
        try:
            return replay_proof(self.proofs.get(planned.key), self._survived)
        except GateFailed as error:
            raise error.at(stage=planned.made.name, graph=self.name) from None

    def _after(self, plan: Iterable[PlannedPass]) -> Lowered:
        """Return the graph after some passes, which are run again where they are not kept."""
        lowered = self._start()
        for each in plan:
            lowered = self._apply(each, _copy_of(lowered), lowered).lowered
        return lowered

    def exact(self) -> Lowered:
        """Return the graph before the first pass that rounds on purpose."""
        if self._exact is None:
            self._exact = self._after(itertools.takewhile(lambda each: not each.made.lossy, self.plan))
        return self._exact

    def final(self) -> Lowered:
        """Return the graph after all passes."""
        if self._final is None:
            self._final = self._after(self.plan)
        return self._final

    def explain(
        self, error: GateFailed, steps: Sequence[OriginalCall], limits: Tolerance, advance: Advance
    ) -> GateFailed:
        """Extend a gate's error by the nodes to blame, relative to the graph before the first rounding pass."""
        final = self.final()
        before = self.exact() if self.is_rounded else _copy_of(final)
        return self.parity.explain(error, before, final, steps, limits, advance, optimize=True)

    def explain_variant(
        self,
        forms: Sequence[str],
        after: Built,
        error: GateFailed,
        steps: Sequence[OriginalCall],
        limits: Tolerance,
        advance: Advance,
    ) -> GateFailed:
        """Extend a gate's error by the nodes of one variant to blame; unchanged where no artefact runs a single row.

        Args:
            forms: names of the variants before it.
            after: the artefacts with these variants and this one.
            error: the error to explain.
            steps: the calls.
            limits: the tolerance.
            advance: called with the search's progress.
        """
        first, second = self.emit_with(forms).artifacts[0], after.artifacts[0]
        if first.sizes.get(str(second.lowered.batch_axis), 1) != 1 or second.lowered.padded_axes:
            return error
        return self.parity.explain(error, first.lowered, second.lowered, steps, limits, advance, optimize=True)

    def emit(self, weights: WeightsFile | None = None) -> Built:
        """Return the target's artefacts; their weights are added to a shared file, if one is given."""
        with self.progress.stage(self.name, self.target.name) as handle:
            started = time.perf_counter()
            try:
                check_buckets(self.final(), self.buckets)
                built = self.target.emit(self.final(), self.buckets, weights)
            except SlipwayError as error:
                raise error.at(stage=self.target.name, graph=self.name) from None
            forms = [_report_of_variant(self.name, each) for each in built.forms]
            self.kept.keep_variants(self.target_key, forms)
            handle.finish(_report_of_target(self.name, self.target.name, built, started))
        for each in forms:
            self.progress.tell(each)
        return built

    def recall_variants(self) -> None:
        """Report the variants of the build that wrote the artefacts."""
        for each in self.kept.forms(self.target_key):
            self.progress.tell(each)

    def emit_with(self, names: Sequence[str]) -> Built:
        """Return the artefacts with only these variants of the plan."""
        return self.target.with_plan(names).emit(self.final(), self.buckets)

    def emit_exact(self) -> Built:
        """Return the artefacts of the graph before the first rounding pass, without variants and targets that round."""
        names = [variant.name for variant in self.target.plan if not variant.made.lossy]
        return self.target.unrounded().with_plan(names).emit(self.exact(), self.buckets)

    def _take_in(self, report: StageReport) -> None:
        """Record a report on a pass."""
        self._reports.append(report)
        self.precision += report.precision


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
        detail="; ".join(each for each in (outcome.detail, classes, replayed) if each),
        sqnr_db=worst.sqnr_db,
        precision=outcome.precision,
    )


def _report_of_target(graph: str, stage: str, built: Built, started: float) -> StageReport:
    files = len({artifact.file for artifact in built.artifacts})
    detail = f"{len(built.artifacts)} graphs in {files} files"
    seconds = time.perf_counter() - started - sum(variant.seconds for variant in built.forms)
    return StageReport(graph, stage, seconds, refused=built.refused, detail=detail)


def _search_words(found: Search) -> str:
    total = "" if found.total is None else f", {found.total.together.median:.2f} of the time without"
    return f"forms: {', '.join(found.plan) or 'none'}{total}; {found.machine}"


def _report_of_variant(graph: str, done: VariantOutcome) -> StageReport:
    return StageReport(
        graph,
        done.variant,
        done.seconds,
        matched=done.matched,
        rewritten=done.rewritten,
        refused=done.refused,
        detail=done.detail,
    )


def _copy_of(lowered: Lowered) -> Lowered:
    """Return a copy with its own graphs, as passes rewrite in place."""
    first = None if lowered.first_call is None else graphs.clone(lowered.first_call)
    return dataclasses.replace(lowered, model=graphs.clone(lowered.model), first_call=first)


def _is_same(before: Lowered, after: Lowered) -> bool:
    """Whether a pass changed nothing, to the byte, so that no comparison has to be repeated."""
    if dataclasses.replace(after, model=before.model, first_call=before.first_call) != before:
        return False
    return len(before.models) == len(after.models) and all(map(is_same, before.models, after.models))
