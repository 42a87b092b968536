"""Recipe to bundle: for every graph capture, passes and target, then the gates and the bundle.

data -> capture -> pass, pass, ... -> target -> verify -> task -> bundle
"""

import contextlib
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from compiler.assembly import Assembly
from compiler.bundle.staged_folder import check_replaceable
from compiler.cache.store import StageCache
from compiler.capture.original import Original
from compiler.culprits.reproducer import failure_folder, remove_reproducer
from compiler.errors import RecipeError, Refused, ToolchainAbsent
from compiler.gather_figures import gather_figures
from compiler.lowering import Lowering
from compiler.passes import PASSES
from compiler.recipe.load import LoadedRecipe
from compiler.records.build_report import BuildReport
from compiler.report.build_record import BuildRecord, write_reports
from compiler.report.progress import Progress
from compiler.targets import TARGETS
from compiler.targets.base import Target
from compiler.verify.gates import task_functions

Made = TypeVar("Made")


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


def pass_options() -> dict[str, tuple[str, ...]]:
    """Option names by pass, for checking recipes."""
    return {name: _fields(kind) for name, kind in PASSES.items()}


def target_options() -> dict[str, tuple[str, ...]]:
    """Option names by target, for checking recipes."""
    return {name: _fields(kind) for name, kind in TARGETS.items()}


def _check_option_values(loaded: LoadedRecipe) -> None:
    """Make every pass once, so that a wrong option is answered with its line before anything runs."""
    for name, graph in loaded.recipe.graphs.items():
        for index, spec in enumerate(graph.passes):
            where = loaded.where("graphs", name, "passes", index)
            made = _make(where, spec.name, PASSES[spec.name], spec.options)
            if made.lossy and loaded.recipe.gates.parity[name].lossy is None:
                raise RecipeError(
                    f"{where}: expected gates.parity.{name}.lossy, as {spec.name} rounds on purpose, got none",
                    cure="say how much may be lost, as in lossy: {max_abs: 0.5, sqnr_db: 25}",
                )


def _make(where: str, name: str, kind: Callable[..., Made], options: Mapping[str, Any]) -> Made:
    """A pass or a target with its options.

    Raises:
        RecipeError: an option is of another type, or the record refuses it.
    """
    fields = {field.name: field.type for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for option, value in options.items():
        if not _fits(value, fields[option]):
            raise RecipeError(
                f"{where}: {name}: {option}: expected {_name_of(fields[option])}, got {value!r}",
                cure="change the value",
            )
    try:
        return kind(**options)
    except RecipeError as error:
        raise RecipeError(f"{where}: {name}: {error.message}", cure=error.cure) from None


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of the recipe is of a field's type; an int is a float, a bool is neither."""
    if isinstance(wanted, types.UnionType):
        return any(_fits(value, each) for each in wanted.__args__)
    if wanted is types.NoneType:
        return value is None
    if wanted is float:
        return type(value) in (int, float)
    return wanted not in (bool, int, str) or type(value) is wanted


def _name_of(wanted: Any) -> str:
    return str(wanted) if isinstance(wanted, types.UnionType) else str(wanted.__name__)


def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def check(loaded: LoadedRecipe) -> Target:
    """The target of a recipe whose passes, targets and options hold together.

    Raises:
        RecipeError: a pass, a target or an option does not exist or has a wrong value.
        Refused: two targets ship.
    """
    loaded.check_passes(pass_options())
    _check_option_values(loaded)
    loaded.check_targets(target_options())
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
        _make(loaded.where("targets", index), target.kind, TARGETS[target.kind], target.options)
        for index, target in enumerate(loaded.recipe.targets)
    ]
    shipping = [target for target in targets if target.ships]
    if len(shipping) > 1:
        kinds = [target.kind for target in loaded.recipe.targets]
        raise Refused(f"one bundle holds one target, got {kinds}", cure="write one recipe per target")
    return shipping[0] if shipping else targets[0]
