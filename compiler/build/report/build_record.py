"""Collects the results of a build while it runs, and makes the build's report from them, also when the build fails."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.base.records.build_report import BuildReport, EngineRow, Failure, RatioRow, SpeedRow, write_report
from compiler.base.records.drift_curves import DriftCurve
from compiler.base.records.findings import Finding, with_unreached
from compiler.base.records.searches import Search, pinned
from compiler.build.report.page import write_page
from compiler.build.report.page_figures import GraphFigures
from compiler.build.report.progress import Progress
from compiler.errors import GateFailed, blamed

INTERRUPTED = 130

HELD = "all gates hold"

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
        promised: the promises of the recipe, without measurements.
        bundle: where the bundle goes.
        progress: knows the stages; those that have ended already are of another record.
        target: the target's name where a recipe has several targets.
    """

    def __init__(
        self, recipe: str, promised: Sequence[Finding], bundle: str, progress: Progress, target: str = ""
    ) -> None:
        self.target, self._first = target, len(progress.stages)
        self.recipe, self.promised, self.bundle, self.progress = recipe, promised, bundle, progress
        self.findings: list[Finding] = []
        self.sizes: dict[str, int] = {}
        self.speed: list[SpeedRow] = []
        self.drift: dict[str, tuple[DriftCurve, ...]] = {}
        self.call_bytes: dict[str, int] = {}
        self.engines: tuple[EngineRow, ...] = ()
        self.searches: list[Search] = []

    def report(self, error: BaseException | None = None) -> BuildReport:
        """Return the build's report.

        Args:
            error: the error that ended the build; None where all gates hold.
        """
        failure = None if error is None else _failure(error)
        findings = [*self.findings, *(_findings_of(error) if isinstance(error, GateFailed) else ())]
        latest = {finding.thing: finding for finding in findings}
        return BuildReport(
            recipe=self.recipe,
            bundle=self.bundle,
            stages=tuple(self.progress.stages[self._first :]),
            sizes=self.sizes,
            speed=tuple(self.speed),
            drift=self.drift,
            call_bytes=self.call_bytes,
            engines=self.engines,
            searches=tuple(self.searches),
            forms=pinned(self.searches) if self.searches else "",
            gates=with_unreached(latest.values(), self.promised),
            verdict=_held(self.engines) if failure is None else VERDICTS[failure.exit_code],
            failure=failure,
            target=self.target,
        )

    def of_several(self, several: "Several") -> BuildReport:
        """Return the report of a build for several targets."""
        ended = self.report(several.failure)
        reports, ratios = tuple(several.reports), tuple(several.ratios)
        engines = [row for report in reports for row in report.engines]
        verdict = _held(engines) if several.failure is None else ended.verdict
        return dataclasses.replace(ended, gates=(), targets=reports, ratios=ratios, verdict=verdict)


class Several:
    """The results of several targets; each is filled in when its build has ended.

    Attributes:
        reports: in the order of the recipe.
        figures: for the page, by target.
        ratios: how their bundles' times compare.
        failure: the first, or None where all gates hold.
    """

    def __init__(self) -> None:
        self.reports: list[BuildReport] = []
        self.figures: dict[str, Sequence[GraphFigures]] = {}
        self.ratios: Sequence[RatioRow] = ()
        self.failure: Exception | None = None

    def add(self, report: BuildReport, figures: Sequence[GraphFigures], failure: Exception | None = None) -> None:
        """Add the result of one target."""
        self.reports.append(report)
        self.figures[report.target] = figures
        self.failure = self.failure or failure

    def held(self) -> list[BuildReport]:
        """Return the reports of the targets that have a bundle."""
        return [report for report in self.reports if report.failure is None]


def write_reports(
    report: BuildReport, figures: Mapping[str, Sequence[GraphFigures]], json_file: Path | None, page: Path | None
) -> None:
    """Write the requested reports: JSON for programs, one page for people."""
    if json_file is not None:
        write_report(report, json_file)
    if page is not None:
        write_page(report, figures, page)


def _held(engines: Sequence[EngineRow]) -> str:
    """Return the verdict that all gates hold, limited to the graphs where their engines have not been run."""
    order = ("linted", "built", "simulated", "run")
    least = min(engines, key=lambda row: order.index(row.reached), default=None)
    if least is None or least.reached == "run":
        return HELD
    return f"{HELD}; {least.words}" if least.reached == "simulated" else f"{HELD} for the graphs; engines {least.words}"


def _findings_of(error: GateFailed) -> tuple[Finding, ...]:
    """Return the findings of a failure; without any, one named after its stage."""
    place = error.place
    return error.findings or (Finding(place.stage, place.graph, place.tensor, holds=False, detail=error.message),)


def _failure(error: BaseException) -> Failure:
    if not isinstance(error, Exception):
        return Failure("interrupted", "", INTERRUPTED, {})
    ended = blamed(error)
    place = {name: value for name, value in dataclasses.asdict(ended.place).items() if value}
    return Failure(ended.message, ended.cure, ended.exit_code, place)
