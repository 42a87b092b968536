"""Builds one bundle per target from a recipe: runs capture, passes, target and gates for every graph.

heads shared, where asked for: checkpoint -> checkpoint
data -> capture -> pass, pass, ... -> target -> verify -> task -> bundle
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from compiler.base.cache.results import StageResults
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.records.build_report import BuildReport
from compiler.build.assembly import (
    assembly_of,
    close,
    emit_graphs,
    finish_engines,
    keep,
    measure,
    recall,
    record_parts,
    record_together,
    replay,
    source_files,
    write_bundle,
)
from compiler.build.bundle.finish import SCRATCH
from compiler.build.bundle.kept_bundle import KeptBundle, bundle_inputs, checkpoint_hashes, code_of_gates
from compiler.build.bundle.staged_folder import check_bundle_or_nothing, check_folder, check_replaceable, staged
from compiler.build.capture.original import Original, original_of
from compiler.build.culprits.reproducer import check_reproducer, failure_folder, remove_reproducer
from compiler.build.distilled_recipe import distilled_recipe
from compiler.build.lowering.listed_passes import check_passes
from compiler.build.lowering.listed_targets import ListedTarget, require_packages, targets_of_recipe
from compiler.build.lowering.lowering import Lowering, lower
from compiler.build.lowering.plan import plan_lowering
from compiler.build.measure_page_figures import measure_page_figures
from compiler.build.report.build_record import BuildRecord, Several, write_reports
from compiler.build.report.page_figures import GraphFigures
from compiler.build.report.progress import Progress
from compiler.build.verify.gates import promises
from compiler.build.verify.gates.engine_layers import require_read
from compiler.build.verify.gates.task import task_functions
from compiler.build.verify.side_by_side import side_by_side
from compiler.errors import InternalError, ToolchainAbsent, blamed
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.not_lowered import require_lowered_parts
from compiler.targets.base import Target
from runtime_lite.errors import FRONT_DOOR


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        out: the bundle; for a recipe with several targets the folder of their bundles.
        strict: a target whose toolchain is absent fails the build.
        cache: results of earlier builds, or None.
        report: JSON file for programs, written at the end, or None.
        page: HTML file for people, written at the end, or None.
    """

    out: Path
    strict: bool = False
    cache: StageCache | None = None
    report: Path | None = None
    page: Path | None = None


def check(loaded: LoadedRecipe) -> tuple[ListedTarget, ...]:
    """Check passes, targets, variants and options of a recipe, and return its targets.

    Raises:
        RecipeError: a pass, target, variant or option does not exist, or an option has a wrong value.
        Refused: the recipe has caches or wires whose lowering is not implemented.
    """
    require_lowered_parts(loaded)
    check_passes(loaded)
    return targets_of_recipe(loaded)


def build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build, verify and write one bundle per target; reports are written also if the build fails.

    All targets are built even if one fails: valid bundles stay, and the first failure in the recipe's order is raised.

    Raises:
        SlipwayError: of the class that names whose fault it is; no partial bundle remains, and a previous one is
            unchanged.
    """
    record = BuildRecord(str(loaded.path), promises(loaded.recipe), str(options.out), progress)
    with contextlib.ExitStack() as resources:
        try:
            listed = _startable(loaded, options)
            ready = resources.enter_context(distilled_recipe(loaded, options.cache, progress))
            originals = [
                original_of(ready, name, spec, options.cache, progress) for name, spec in ready.recipe.graphs.items()
            ]
            if len(listed) > 1:
                several = _build_several(ready, originals, listed, options, progress)
            else:
                alone = ready.with_limits_of(listed[0].label)
                graphs = _build(alone, originals, listed[0].target, options, progress, record)
        except (Exception, KeyboardInterrupt) as error:
            with contextlib.suppress(OSError):  # what has ended the build is what is to be said
                write_reports(record.report(error), {}, options.report, options.page)
            raise
        if len(listed) > 1:
            report, figures, failure = record.of_several(several), several.figures, several.failure
        else:
            report, figures, failure = record.report(), {"": _figures(graphs, options, progress)}, None
        write_reports(report, figures, options.report, options.page)
    if failure is not None:
        progress.show(report)
        raise failure
    return report


def _figures(graphs: Sequence[Lowering], options: BuildOptions, progress: Progress) -> list[GraphFigures]:
    """Measure the figures for the HTML page, if one is requested."""
    if options.page is None:
        return []
    with progress.stage("", "page"):
        return [measure_page_figures(graph) for graph in graphs]


def _startable(loaded: LoadedRecipe, options: BuildOptions) -> tuple[ListedTarget, ...]:
    """Return the targets after all quick checks that the build can succeed: packages, output folder, toolchain."""
    listed = check(loaded)
    if len(listed) > 1:
        check_folder(options.out)
    for target in listed:
        require_packages(target.target)
        out = options.out / target.label if len(listed) > 1 else options.out
        check_replaceable(out)
        check_reproducer(failure_folder(out))
        if options.strict and (absent := target.target.absent()) is not None:
            raise ToolchainAbsent(
                f"target {target.target.name}: {absent}",
                cure=f"build without --strict and run `{FRONT_DOOR} finish` on the machine with the device",
            )
    return listed


def _build_several(
    loaded: LoadedRecipe,
    originals: Sequence[Original],
    listed: Sequence[ListedTarget],
    options: BuildOptions,
    progress: Progress,
) -> Several:
    """Build one bundle per target from the same originals; targets share the results of passes."""
    results, beside = Several(), list[Lowering]()
    for target in listed:
        one = dataclasses.replace(options, out=options.out / target.label)
        alone = loaded.for_target(target.index).with_limits_of(target.label)
        record = BuildRecord(str(loaded.path), promises(alone.recipe), str(one.out), progress, target.label)
        progress.say(f"target {target.label}")
        try:
            graphs = _build(alone, originals, target.target, one, progress, record, beside)
            results.add(record.report(), _figures(graphs, options, progress))
        except Exception as error:
            if blamed(error).exit_code == InternalError.exit_code:
                raise
            results.add(record.report(error), (), error)  # raised once the other targets have had their turn
    timed = [target.label for target in listed if target.target.times_here]
    bundles = {
        target_report.target: Path(target_report.bundle)
        for target_report in results.held()
        if target_report.target in timed
    }
    if len(bundles) > 1:
        with progress.stage("", "side by side"):
            results.ratios = side_by_side(bundles)
    return results


def _build(
    loaded: LoadedRecipe,
    originals: Sequence[Original],
    target: Target,
    options: BuildOptions,
    progress: Progress,
    record: BuildRecord,
    beside: "list[Lowering] | None" = None,
) -> Sequence[Lowering]:
    """Build the graphs of one target's bundle and return them; empty where the target emits nothing.

    Args:
        loaded: the recipe, with this target alone where it has several.
        originals: the originals of its graphs.
        target: the target to lower to.
        options: options of the build.
        progress: shows the stages.
        record: collects the findings.
        beside: lowerings of the same graphs for other targets; these are appended.
    """
    failures = failure_folder(options.out)
    parity = loaded.recipe.gates.parity
    plans = [plan_lowering(original, target, parity[original.name], failures) for original in originals]
    task = loaded.recipe.gates.task
    if task is not None and not all(plan.is_known() for plan in plans):
        task_functions(loaded, task)  # a wrong name is answered before the passes run, not after
    graphs = {plan.name: lower(plan, beside or ()) for plan in plans}
    record.searches += [lowering.plan.searched for lowering in graphs.values() if lowering.plan.searched is not None]
    if beside is not None:
        beside += graphs.values()
    if not target.ships:
        record.bundle = "no bundle: the null target emits nothing"
        return ()
    _assemble(loaded, options, progress, graphs, record)
    remove_reproducer(failures)
    return tuple(graphs.values())


def _assemble(
    loaded: LoadedRecipe,
    options: BuildOptions,
    progress: Progress,
    graphs: Mapping[str, Lowering],
    record: BuildRecord,
) -> None:
    """Write the bundle: emit it from lowered graphs and run all gates, or restore it from an earlier build."""
    earlier = _kept(loaded, options.cache, graphs)
    with staged(options.out, check_bundle_or_nothing) as folder, TemporaryDirectory(prefix=SCRATCH) as scratch:
        assembly = assembly_of(loaded, folder, Path(scratch) / "engines", graphs, progress, record)
        if earlier.entry is not None:
            assembly = recall(assembly, earlier)
        else:
            assembly = record_parts(emit_graphs(assembly).check("graphs"))
            write_bundle(assembly)
            assembly = record_together(replay(assembly).check("bundle"))
            write_bundle(assembly)
            measure(assembly)
            keep(assembly, earlier)
        if options.strict:
            require_read(record.findings)
        caches = options.cache.folder if options.cache is not None else default_folder()
        close(finish_engines(assembly, caches / "timing"))


def _kept(loaded: LoadedRecipe, cache: StageCache | None, graphs: Mapping[str, Lowering]) -> KeptBundle:
    first = next(iter(graphs.values()))
    keys = {name: graph.plan.target_key for name, graph in graphs.items()}
    checkpoints = checkpoint_hashes(source_files(graphs))
    inputs = bundle_inputs(loaded, first.plan.original.surroundings, keys, checkpoints, first.plan.target)
    code = {name: named for graph in graphs.values() for name, named in graph.plan.original.code().items()}
    return KeptBundle(StageResults(cache, loaded.path.parent), inputs, {**code, **code_of_gates(loaded)})
