"""Defines the record of a build's result (stages, findings, figures, failure), and writes this record as JSON."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from compiler.base.records import precision
from compiler.base.records.compression import Compression, compression_of
from compiler.base.records.drift_curves import DriftCurve
from compiler.base.records.findings import Finding
from compiler.base.records.precision import PrecisionRecord
from compiler.base.records.searches import Search
from runtime_lite.format.atomic_file import replace_file


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage of one graph.

    Attributes:
        graph: graph name; empty for stages of the whole bundle.
        stage: `capture`, a pass name, a target kind, `verify` and so on.
        seconds: wall time.
        processor_seconds: computing time of all threads of the build, which other work on the machine does not stretch;
            None of a stage that is not over.
        cached: whether the result came from the stage cache.
        matched: number of places that the pass examined.
        rewritten: places it changed.
        refused: one reason per place it left alone.
        max_abs: largest difference to the graph before, None where it was not compared.
        limit: largest difference allowed.
        detail: anything a reader needs besides, in one phrase.
        sqnr_db: smallest ratio of signal to quantisation noise, None where it was not compared or nothing differs.
        precision: the records of a rounding pass about nodes and tensors.
        compression: the record of a pass that takes channels out; None of others.
    """

    graph: str
    stage: str
    seconds: float
    cached: bool = False
    matched: int = 0
    rewritten: int = 0
    refused: tuple[str, ...] = ()
    max_abs: float | None = None
    limit: float | None = None
    detail: str = ""
    sqnr_db: float | None = None
    precision: tuple[PrecisionRecord, ...] = ()
    compression: Compression | None = None
    processor_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain data, for the stage cache."""
        return {**dataclasses.asdict(self), "precision": precision.to_json(self.precision)}


def stage_report_of(content: Mapping[str, Any]) -> StageReport:
    """Return the report that `StageReport.to_json` wrote."""
    taken_out = content["compression"]
    records = {
        "refused": tuple(content["refused"]),
        "precision": precision.from_json(content["precision"]),
        "compression": None if taken_out is None else compression_of(taken_out),
    }
    return StageReport(**{**content, **records})


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """Measured time of one call; `sizes` names the artefact, e.g. `batch=1`."""

    graph: str
    sizes: str
    p50_ms: float
    p95_ms: float
    threads: int


@dataclasses.dataclass(frozen=True)
class RatioRow:
    """Time of one call of a target's bundle over that of another's on this machine, round by round.

    Attributes:
        graph: graph name.
        sizes: the bucket.
        target: whose time.
        against: to whose.
        median: over the rounds.
        low: 10th percentile.
        high: 90th percentile.
    """

    graph: str
    sizes: str
    target: str
    against: str
    median: float
    low: float
    high: float


SIMULATED = "artefact executed in the vendor's simulator"
"""What is said of engines that the vendor's simulator has executed in the place of the device."""


@dataclasses.dataclass(frozen=True)
class EngineRow:
    """What came of the vendor's compiler for one graph.

    Attributes:
        graph: graph name.
        status: `built` or `not built`: whether the bundle holds engines.
        reason: why it holds none, or why nobody has run them.
        reached: how far its engines were looked at: `linted` by rules of ours alone, `built` by a vendor's builder,
            `simulated`, that is executed in the vendor's simulator and compared, or `run` on a device and compared.
        by: for `built` which builder, for what; for `simulated` what was executed in what; for `linted` why no builder,
            where one could be had.
    """

    graph: str
    status: str
    reason: str = ""
    reached: Literal["linted", "built", "simulated", "run"] = "linted"
    by: str = ""

    @property
    def words(self) -> str:
        """Say in words how thoroughly the graph's engines were checked."""
        linted = f"linted, not built ({self.by})" if self.by else "linted, not built"
        return {"linted": linted, "built": self.by, "simulated": self.by, "run": "built and run"}[self.reached]


@dataclasses.dataclass(frozen=True)
class Failure:
    """The error that ended a build.

    Attributes:
        message: one sentence.
        cure: the action by which the user can solve it.
        exit_code: of the front door.
        place: stage, graph, node, tensor and source line, as far as they are known.
    """

    message: str
    cure: str
    exit_code: int
    place: dict[str, str]


SCHEMA_VERSION = 2
"""Of the report as JSON: raised when a key goes or changes its meaning."""


@dataclasses.dataclass(frozen=True)
class BuildReport:
    """Everything a build found out.

    Attributes:
        recipe: path of the recipe.
        bundle: path of the bundle.
        stages: in the order they ran.
        sizes: bytes by file of the bundle.
        speed: one row per artefact.
        drift: by graph, the errors of outputs and states over many chained steps.
        call_bytes: by graph, bytes that go into one call and come out of it at the smallest bucket, states included.
        engines: one row per graph whose target has a compiler of its vendor.
        searches: by graph, how the forms that are on were found by measuring.
        forms: the same as the line of a recipe; empty where nothing was searched.
        gates: the findings of every gate, and every promise of the recipe that no gate has checked.
        verdict: how the build ended, in a few words.
        failure: the error that ended the build, or None; of several targets the first.
        target: the target's name where a recipe has several; empty otherwise.
        targets: of a recipe with several targets a report for each; the bundle is then the folder of their bundles.
        ratios: of several targets, how their bundles' times compare on this machine.
    """

    recipe: str
    bundle: str
    stages: tuple[StageReport, ...] = ()
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    speed: tuple[SpeedRow, ...] = ()
    drift: dict[str, tuple[DriftCurve, ...]] = dataclasses.field(default_factory=dict)
    call_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    engines: tuple[EngineRow, ...] = ()
    searches: tuple[Search, ...] = ()
    forms: str = ""
    gates: tuple[Finding, ...] = ()
    verdict: str = "all gates hold"
    failure: Failure | None = None
    target: str = ""
    targets: "tuple[BuildReport, ...]" = ()
    ratios: tuple[RatioRow, ...] = ()

    def to_json(self) -> str:
        """Return the report as JSON text, with NaN and infinities as strings, which JSON cannot write as numbers."""
        content = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        return json.dumps(_jsonable(content), indent=1, allow_nan=False) + "\n"


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(child) for child in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value


def describe_stage(report: StageReport) -> str:
    """Describe the result of a stage in its line: `cached`, counts, the measured difference, the detail."""
    parts = ["cached" if report.cached else ""]
    if report.matched or report.rewritten or report.refused:
        parts.append(f"{report.rewritten} of {report.matched} rewritten")
    if report.refused:
        parts.append(f"{len(report.refused)} left as they are")
    if report.max_abs is not None:
        limit = f" (limit {report.limit:.1e})" if report.limit is not None else ""
        parts.append(f"differs by {report.max_abs:.1e}{limit}")
    return ", ".join(part for part in [*parts, report.detail] if part) or "done"


def write_report(report: BuildReport, path: Path) -> None:
    """Write the report as JSON, atomically: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(report.to_json().encode())
