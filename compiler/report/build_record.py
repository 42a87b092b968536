"""What a build has found so far; it becomes the build's report however the build ends."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

from compiler.errors import GateFailed, blamed
from compiler.recipe.gates import BudgetGate, Gates
from compiler.records.build_report import BuildReport, EngineRow, Failure, ParityRow, SpeedRow, TaskRow, write_report
from compiler.records.drift_curves import DriftCurve
from compiler.records.gate_rows import GateRow
from compiler.report.page import write_page
from compiler.report.page_figures import GraphFigures
from compiler.report.progress import Progress

INTERRUPTED = 130

VERDICTS = {
    1: "ended by a bug of Slipway",
    2: "wrong input",
    3: "refused",
    4: "a gate failed",
    5: "a toolchain is absent",
    INTERRUPTED: "interrupted",
}
"""By exit code."""


class BuildRecord:
    """Stages are those that have ended; everything else is filled in as it is measured.

    Args:
        recipe: its path.
        gates: what the recipe promises.
        bundle: where the bundle goes.
        progress: knows the stages.
    """

    def __init__(self, recipe: str, gates: Gates, bundle: str, progress: Progress) -> None:
        self.recipe, self.promised, self.bundle, self.progress = recipe, gates, bundle, progress
        self.parity: list[ParityRow] = []
        self.gates: list[GateRow] = []
        self.task: TaskRow | None = None
        self.sizes: dict[str, int] = {}
        self.speed: list[SpeedRow] = []
        self.drift: dict[str, tuple[DriftCurve, ...]] = {}
        self.engines: tuple[EngineRow, ...] = ()

    def report(self, error: BaseException | None = None) -> BuildReport:
        """The report.

        Args:
            error: what has ended the build; None where all gates hold.
        """
        failure = None if error is None else _failure(error)
        rows = [*self.gates, *(_rows_of(error) if isinstance(error, GateFailed) else ())]
        return BuildReport(
            self.recipe,
            self.bundle,
            tuple(self.progress.stages),
            tuple(self.parity),
            self.task,
            self.sizes,
            tuple(self.speed),
            self.drift,
            self.engines,
            tuple(rows) if failure is None else with_unreached(rows, self.promised),
            "all gates hold" if failure is None else VERDICTS[failure.exit_code],
            failure,
        )


def write_reports(
    report: BuildReport, figures: Sequence[GraphFigures], json_file: Path | None, page: Path | None
) -> None:
    """Write what was asked for: JSON for programs, one page for people."""
    if json_file is not None:
        write_report(report, json_file)
    if page is not None:
        write_page(report, figures, page)


def _rows_of(error: GateFailed) -> tuple[GateRow, ...]:
    """What the failure says was measured; a promise that has no number is known by its stage."""
    return error.rows or (GateRow(error.place.stage, error.place.graph, error.place.tensor, holds=False),)


def _failure(error: BaseException) -> Failure:
    if not isinstance(error, Exception):
        return Failure("interrupted", "", INTERRUPTED, {})
    ended = blamed(error)
    place = {name: value for name, value in dataclasses.asdict(ended.place).items() if value}
    return Failure(ended.message, ended.cure, ended.exit_code, place)


def with_unreached(rows: Sequence[GateRow], gates: Gates) -> tuple[GateRow, ...]:
    """The rows and, behind them, one per gate of the recipe that none of them is about."""
    known = {(row.gate, graph) for row in rows for graph in (row.graph, "")}
    return (*rows, *(row for row in _asked_for(gates) if (row.gate, row.graph) not in known))


def _asked_for(gates: Gates) -> Iterable[GateRow]:
    for graph, parity in gates.parity.items():
        yield GateRow("parity.max_abs", graph, bound=parity.max_abs)
        if parity.sqnr_db is not None:
            yield GateRow("parity.sqnr_db", graph, bound=parity.sqnr_db)
        yield GateRow("edges", graph)
        yield GateRow("buckets", graph)
        yield GateRow("invariance", graph)
        if parity.drift is not None:
            yield GateRow("parity.drift", graph, bound=parity.drift.max_growth)
    if gates.task is not None:
        yield GateRow("task.max_increase", bound=gates.task.max_increase)
        if gates.task.identical:
            yield GateRow("task.identical")
    budget = gates.budget or BudgetGate()
    for name in type(budget).model_fields:
        if getattr(budget, name) is not None:
            yield GateRow(f"budget.{name}", bound=getattr(budget, name))
