"""Recipe to bundle: for every graph capture, passes and target, then the gates and the bundle.

heads shared, where asked for: checkpoint -> checkpoint
data -> capture -> pass, pass, ... -> target -> verify -> task -> bundle
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.assembly import Assembly, source_files
from compiler.bundle.kept_bundle import KeptBundle, bundle_inputs, checkpoint_hashes, code_of_gates
from compiler.bundle.staged_folder import check_replaceable, staged
from compiler.cache.results import StageResults
from compiler.cache.store import StageCache, default_folder
from compiler.capture.original import Original
from compiler.culprits.reproducer import failure_folder, remove_reproducer
from compiler.errors import ToolchainAbsent
from compiler.healing.healed_recipe import healed_recipe
from compiler.lowering.listed_passes import check_passes
from compiler.lowering.listed_targets import require_packages, target_of_recipe
from compiler.lowering.lowering import Lowering
from compiler.measure_page_figures import measure_page_figures
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.not_lowered import require_lowered_parts
from compiler.records.build_report import BuildReport
from compiler.report.build_record import BuildRecord, write_reports
from compiler.report.progress import Progress
from compiler.targets.base import Target
from compiler.verify.gates import promises
from compiler.verify.gates.task import task_functions


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """How to build.

    Attributes:
        out: the bundle.
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


def check(loaded: LoadedRecipe) -> Target:
    """The target of a recipe whose passes, targets, forms and options hold together.

    Raises:
        RecipeError: a pass, a target, a form or an option does not exist or has a wrong value.
        Refused: two targets ship, or the recipe asks for caches or wires that are not lowered yet.
    """
    require_lowered_parts(loaded)
    check_passes(loaded)
    return target_of_recipe(loaded)


def build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build, verify and write one bundle; reports are written however it ends.

    Raises:
        SlipwayError: by fault, with the place; nothing is left behind and a previous bundle is untouched.
    """
    record = BuildRecord(str(loaded.path), promises(loaded.recipe), str(options.out), progress)
    with contextlib.ExitStack() as kept:
        try:
            target = _startable(loaded, options)
            ready = kept.enter_context(healed_recipe(loaded, options.cache, progress))
            graphs = _build(ready, target, options, progress, record)
        except (Exception, KeyboardInterrupt) as error:
            with contextlib.suppress(OSError):  # what has ended the build is what is to be said
                write_reports(record.report(error), (), options.report, options.page)
            raise
        report = record.report()
        if options.page is None:
            figures = []
        else:
            with progress.stage("", "page"):
                figures = [measure_page_figures(graph) for graph in graphs]
        write_reports(report, figures, options.report, options.page)
    return report


def _startable(loaded: LoadedRecipe, options: BuildOptions) -> Target:
    """The target, where nothing stands against a build that may take long."""
    target = check(loaded)
    require_packages(target)
    check_replaceable(options.out)
    if options.strict and (absent := target.absent()) is not None:
        raise ToolchainAbsent(
            f"target {target.name}: {absent}",
            cure="build without --strict and run `build.py finish` on the machine with the device",
        )
    return target


def _build(
    loaded: LoadedRecipe, target: Target, options: BuildOptions, progress: Progress, record: BuildRecord
) -> Sequence[Lowering]:
    """The graphs of the bundle that was built; none where the target emits nothing."""
    originals = [Original(loaded, name, spec, options.cache, progress) for name, spec in loaded.recipe.graphs.items()]
    failures = failure_folder(options.out)
    graphs = {original.name: Lowering(original, target, failures) for original in originals}
    task = loaded.recipe.gates.task
    if task is not None and not all(graph.is_known() for graph in graphs.values()):
        task_functions(loaded, task)  # a wrong name is answered before the passes run, not after
    for graph in graphs.values():
        graph.run()
        record.searches += [] if graph.searched is None else [graph.searched]
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
    """Lowered graphs to the bundle in its place: made and held to every gate, or as an earlier build has left it."""
    kept = _kept(loaded, options.cache, graphs)
    with staged(options.out) as folder:
        bundle = Assembly(loaded, folder, graphs, progress, record)
        if kept.entry is not None:
            bundle.recall(kept)
        else:
            bundle.emit()
            bundle.check("graphs")
            bundle.write()
            bundle.replay()
            bundle.check("bundle")
            bundle.record_together()
            bundle.write()
            bundle.measure()
            bundle.keep(kept)
        bundle.build_engines((options.cache.folder if options.cache is not None else default_folder()) / "timing")
        bundle.close()


def _kept(loaded: LoadedRecipe, cache: StageCache | None, graphs: Mapping[str, Lowering]) -> KeptBundle:
    first = next(iter(graphs.values()))
    keys = {name: graph.target_key for name, graph in graphs.items()}
    checkpoints = checkpoint_hashes(source_files(graphs))
    inputs = bundle_inputs(loaded, first.original.surroundings, keys, checkpoints, first.target)
    code = {name: named for graph in graphs.values() for name, named in graph.original.code().items()}
    return KeptBundle(StageResults(cache, loaded.path.parent), inputs, {**code, **code_of_gates(loaded)})
