"""Recipe to bundle: for every graph capture, passes and target, then the gates and the bundle.

data -> capture -> pass, pass, ... -> target -> verify -> task -> bundle
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from compiler.assembly import Assembly
from compiler.bundle.staged_folder import check_replaceable
from compiler.cache.store import StageCache
from compiler.capture.original import Original
from compiler.culprits.reproducer import failure_folder, remove_reproducer
from compiler.errors import Refused, ToolchainAbsent
from compiler.gather_figures import gather_figures
from compiler.lowering.lowering import Lowering
from compiler.lowering.plan import check_passes
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.options import make
from compiler.records.build_report import BuildReport
from compiler.report.build_record import BuildRecord, write_reports
from compiler.report.progress import Progress
from compiler.targets import TARGETS
from compiler.targets.base import Target
from compiler.verify.gates import task_functions


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
    """The target of a recipe whose passes, targets and options hold together.

    Raises:
        RecipeError: a pass, a target or an option does not exist or has a wrong value.
        Refused: two targets ship.
    """
    check_passes(loaded)
    return _the_target(loaded)


def build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress) -> BuildReport:
    """Build, verify and write one bundle; reports are written however it ends.

    Raises:
        SlipwayError: by fault, with the place; nothing is left behind and a previous bundle is untouched.
    """
    record = BuildRecord(str(loaded.path), loaded.recipe.gates, str(options.out), progress)
    try:
        graphs = _build(loaded, options, progress, record)
    except (Exception, KeyboardInterrupt) as error:
        with contextlib.suppress(OSError):  # what has ended the build is what is to be said
            write_reports(record.report(error), (), options.report, options.page)
        raise
    report = record.report()
    if options.page is None:
        figures = []
    else:
        with progress.stage("", "page"):
            figures = [gather_figures(graph) for graph in graphs]
    write_reports(report, figures, options.report, options.page)
    return report


def _build(loaded: LoadedRecipe, options: BuildOptions, progress: Progress, record: BuildRecord) -> Sequence[Lowering]:
    """The graphs of the bundle that was built; none where the target emits nothing."""
    target = check(loaded)
    check_replaceable(options.out)
    if options.strict and (absent := target.absent()) is not None:
        raise ToolchainAbsent(
            f"target {target.name}: {absent}",
            cure="build without --strict and run `build.py finish` on the machine with the device",
        )
    originals = [Original(loaded, name, spec, options.cache, progress) for name, spec in loaded.recipe.graphs.items()]
    failures = failure_folder(options.out)
    graphs = {original.name: Lowering(original, target, failures) for original in originals}
    task = loaded.recipe.gates.task
    if task is not None and not all(graph.is_known() for graph in graphs.values()):
        task_functions(loaded, task)  # a wrong name is answered before the passes run, not after
    for graph in graphs.values():
        graph.run()
    if not target.ships:
        record.bundle = "no bundle: the null target emits nothing"
        return ()
    Assembly(loaded, options.out, options.cache, progress, graphs, record).finish()
    remove_reproducer(failures)
    return tuple(graphs.values())


def _the_target(loaded: LoadedRecipe) -> Target:
    """The one target that ships, or else a target that emits nothing."""
    targets = [
        make(loaded.where("targets", index), "target", target.kind, TARGETS, target.options)
        for index, target in enumerate(loaded.recipe.targets)
    ]
    shipping = [target for target in targets if target.ships]
    if len(shipping) > 1:
        kinds = [target.kind for target in loaded.recipe.targets]
        raise Refused(f"one bundle holds one target, got {kinds}", cure="write one recipe per target")
    return shipping[0] if shipping else targets[0]
