"""Writes a lowered graph's artefacts with all or some of its variants, and finds the nodes to blame for an error."""

import time
from collections.abc import Sequence

from compiler.base.records.build_report import StageReport
from compiler.build.lowering.buckets import check_buckets
from compiler.build.lowering.lowering import Lowering
from compiler.build.lowering.run_passes import copy_of
from compiler.errors import GateFailed, SlipwayError
from compiler.graph.runners.stream import Advance, OriginalCall
from compiler.recipe.gates import Tolerance
from compiler.targets.base import Built
from compiler.targets.formed_graphs import VariantOutcome
from compiler.targets.weights_file import WeightsFile


def emit(lowering: Lowering, weights: WeightsFile | None = None) -> Built:
    """Return the target's artefacts, and report them and their variants.

    Args:
        lowering: the graph after its passes.
        weights: a file that other graphs share, to which the weights are added; None for a file of the graph's own.

    Raises:
        Refused: a bucket lies outside the proved lengths, or the target rejects the graph.
    """
    plan = lowering.plan
    with plan.progress.stage(plan.name, plan.target.name) as handle:
        started = time.perf_counter()
        try:
            check_buckets(lowering.graph.final, plan.buckets)
            built = plan.target.emit(lowering.graph.final, plan.buckets, weights)
        except SlipwayError as error:
            raise error.at(stage=plan.target.name, graph=plan.name) from None
        variants = [_report_of_variant(plan.name, outcome) for outcome in built.forms]
        plan.kept.keep_variants(plan.target_key, variants)
        handle.finish(_report_of_target(plan.name, plan.target.name, built, started))
    for report in variants:
        plan.progress.tell(report)
    return built


def recall_variants(lowering: Lowering) -> None:
    """Report the variants of the build that wrote the artefacts."""
    for report in lowering.plan.kept.forms(lowering.plan.target_key):
        lowering.plan.progress.tell(report)


def emit_with(lowering: Lowering, names: Sequence[str]) -> Built:
    """Return the artefacts with only these variants of the plan."""
    plan = lowering.plan
    return plan.target.with_plan(names).emit(lowering.graph.final, plan.buckets)


def emit_exact(lowering: Lowering) -> Built:
    """Return the artefacts of the graph before the first rounding pass, without variants and targets that round."""
    plan = lowering.plan
    names = [variant.name for variant in plan.target.plan if not variant.made.lossy]
    return plan.target.unrounded().with_plan(names).emit(lowering.graph.exact, plan.buckets)


def explain(
    lowering: Lowering, error: GateFailed, steps: Sequence[OriginalCall], limits: Tolerance, advance: Advance
) -> GateFailed:
    """Extend a gate's error by the nodes to blame, relative to the graph before the first rounding pass.

    Args:
        lowering: the graph after its passes.
        error: the error to explain.
        steps: the calls at which it was seen.
        limits: the tolerance.
        advance: called with the search's progress.
    """
    before, final = copy_of(lowering.graph.exact), lowering.graph.final
    return lowering.plan.parity.explain(error, before, final, steps, limits, advance, optimize=True)


def explain_variant(
    lowering: Lowering,
    names: Sequence[str],
    after: Built,
    error: GateFailed,
    steps: Sequence[OriginalCall],
    limits: Tolerance,
    advance: Advance,
) -> GateFailed:
    """Extend a gate's error by the nodes of one variant to blame; unchanged where no artefact runs a single row.

    Args:
        lowering: the graph after its passes.
        names: names of the variants before it.
        after: the artefacts with these variants and this one.
        error: the error to explain.
        steps: the calls at which it was seen.
        limits: the tolerance.
        advance: called with the search's progress.
    """
    first, second = emit_with(lowering, names).artifacts[0], after.artifacts[0]
    if first.sizes.get(str(second.lowered.batch_axis), 1) != 1 or second.lowered.padded_axes:
        return error
    parity = lowering.plan.parity
    return parity.explain(error, first.lowered, second.lowered, steps, limits, advance, optimize=True)


def _report_of_target(graph: str, stage: str, built: Built, started: float) -> StageReport:
    files = len({artifact.file for artifact in built.artifacts})
    detail = f"{len(built.artifacts)} graphs in {files} files"
    seconds = time.perf_counter() - started - sum(outcome.seconds for outcome in built.forms)
    return StageReport(graph, stage, seconds, refused=built.refused, detail=detail)


def _report_of_variant(graph: str, outcome: VariantOutcome) -> StageReport:
    return StageReport(
        graph,
        outcome.variant,
        outcome.seconds,
        matched=outcome.matched,
        rewritten=outcome.rewritten,
        refused=outcome.refused,
        detail=outcome.detail,
    )
