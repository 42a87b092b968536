"""Lowers one graph for one target: runs its passes, and searches for the fastest variants if the recipe asks for it."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence

from compiler.base.records.build_report import StageReport
from compiler.base.records.precision import PrecisionRecord
from compiler.base.records.searches import Search
from compiler.build.lowering.plan import LoweringPlan
from compiler.build.lowering.run_passes import PassedGraph, apply_passes, recall_passes, run_passes
from compiler.build.search.searched import searched
from compiler.errors import SlipwayError
from compiler.graph.runners.stream import OriginalCall, chained_steps
from compiler.graph.stages import Lowered
from compiler.targets.forms import SEARCH

SEARCH_STEPS = 24
"""Calls on which a search measures noise: twice what is compared after each pass."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lowering:
    """One graph after its passes.

    Attributes:
        plan: its passes and its target, whose variants are known.
        reports: on the passes.
        passed: the graph, where this build has run the passes; None where an earlier one has.
    """

    plan: LoweringPlan
    reports: tuple[StageReport, ...]
    passed: PassedGraph | None

    @functools.cached_property
    def graph(self) -> PassedGraph:
        """Return the graph after the passes, which run again where only their reports are known."""
        return apply_passes(self.plan) if self.passed is None else self.passed

    @property
    def precision(self) -> list[PrecisionRecord]:
        """Return the passes' records about the precision of nodes."""
        return [record for report in self.reports for record in report.precision]


def lower(plan: LoweringPlan, beside: Iterable[Lowering] = ()) -> Lowering:
    """Run the passes, or read their reports from the cache when all of them and the artefacts are there.

    Args:
        plan: the graph's passes and target.
        beside: lowerings of the same graph for other targets, whose passes are not run again.

    Raises:
        SlipwayError: a pass or a variant refuses the graph, or breaks parity.
    """
    alike = next((one for one in beside if (one.plan.name, one.plan.key) == (plan.name, plan.key)), None)
    if plan.is_known():
        lowering = Lowering(plan, recall_passes(plan), None)
    elif alike is not None and alike.passed is not None:
        lowering = Lowering(
            plan, tuple(dataclasses.replace(report, cached=True) for report in alike.reports), alike.passed.copy()
        )
        for report in lowering.reports:
            plan.progress.tell(report)
    else:
        passed, reports = run_passes(plan)
        lowering = Lowering(plan, reports, passed)
    if plan.target.searches:
        return dataclasses.replace(lowering, plan=_search(plan, lowering.graph.final))
    if plan.searched is not None:
        with plan.progress.stage(plan.name, SEARCH) as handle:
            handle.end(cached=True, detail=_search_words(plan.searched))
    return lowering


def _search(plan: LoweringPlan, final: Lowered) -> LoweringPlan:
    """Choose the variants by measuring, keep the result, and return the plan with them."""
    with plan.progress.stage(plan.name, SEARCH) as handle:
        try:
            search = searched(plan.target, final, plan.buckets, plan.gate, _answers(plan), handle.advance)
        except SlipwayError as error:
            raise error.at(stage=SEARCH, graph=plan.name) from None
        plan.kept.keep_search(plan.search_key, search)
        handle.end(detail=_search_words(search))
    return plan.with_search(search)


def _answers(plan: LoweringPlan) -> Callable[[], Sequence[OriginalCall]] | None:
    """Return a function that returns the original's calls on the first calibration stream; None without data."""
    calibration = plan.original.calibration()
    if calibration is None:
        return None
    stream, run = calibration.streams[0], plan.original.reference().run
    return functools.cache(lambda: chained_steps(run, stream, min(len(stream), SEARCH_STEPS)))


def _search_words(search: Search) -> str:
    total = "" if search.total is None else f", {search.total.together.median:.2f} of the time without"
    return f"forms: {', '.join(search.plan) or 'none'}{total}; {search.machine}"
