"""What a build reports: frozen records of stages, parity, task, sizes and speed, and the lines a person sees.

On a terminal each stage is one live line (spinner, elapsed time, a count for long loops); elsewhere it is one plain
line when it ends. The records are the report: `show` prints nothing else, `--report` writes them as JSON.
"""

import contextlib
import dataclasses
import errno
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from compiler.interruption import insisted
from compiler.records import precision
from compiler.records.drift_curves import DriftCurve
from compiler.records.gate_rows import GateRow
from compiler.records.precision import Pin, PrecisionRecord
from runtime_lite.format.atomic_file import replace_file

PLAIN_COLUMNS = 160


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage of one graph.

    Attributes:
        graph: graph name; empty for stages of the whole bundle.
        stage: `capture`, a pass name, a target kind, `verify` and so on.
        seconds: wall time.
        cached: whether the result came from the stage cache.
        matched: places the pass looked at.
        rewritten: places it changed.
        refused: one reason per place it left alone.
        max_abs: largest difference to the graph before, None where it was not compared.
        limit: largest difference allowed.
        detail: anything a reader needs besides, in one phrase.
        sqnr_db: smallest ratio of signal to quantisation noise, None where it was not compared or nothing differs.
        precision: what a pass that rounds says of nodes and tensors.
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

    def to_json(self) -> dict[str, Any]:
        """Plain data, for the stage cache."""
        return {**dataclasses.asdict(self), "precision": precision.to_json(self.precision)}


def stage_report_of(content: Mapping[str, Any]) -> StageReport:
    """The report of `StageReport.to_json`."""
    lists = {"refused": tuple(content["refused"]), "precision": precision.from_json(content["precision"])}
    return StageReport(**{**content, **lists})


@dataclasses.dataclass(frozen=True)
class ParityRow:
    """One output or state compared with the original model over chained steps."""

    graph: str
    tensor: str
    steps: int
    max_abs: float
    reference_max: float
    limit: float
    sqnr_db: float | None = None
    sqnr_limit_db: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the difference is within the limits (NaN is not)."""
        quiet = self.sqnr_limit_db is None or self.sqnr_db is None or self.sqnr_db >= self.sqnr_limit_db
        return self.max_abs <= self.limit and quiet


@dataclasses.dataclass(frozen=True)
class TaskRow:
    """The task metric, original against bundle; smaller is better."""

    metric: str
    reference: float
    bundle: float
    increase: float
    limit: float
    recordings: int
    identical: int

    @property
    def holds(self) -> bool:
        """Whether the metric grew by no more than the limit (NaN does not)."""
        return self.increase <= self.limit


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """Measured time of one call; `sizes` names the artefact, e.g. `batch=1`."""

    graph: str
    sizes: str
    p50_ms: float
    p95_ms: float
    threads: int


@dataclasses.dataclass(frozen=True)
class EngineRow:
    """What came of the vendor's compiler for one graph; `reason` says why an engine is not built."""

    graph: str
    status: str
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Failure:
    """What has ended a build.

    Attributes:
        message: one sentence.
        cure: what the user can do about it.
        exit_code: of the front door.
        place: stage, graph, node, tensor, source line: what is known.
    """

    message: str
    cure: str
    exit_code: int
    place: dict[str, str]


SCHEMA_VERSION = 1
"""Of the report as JSON: raised when a key goes or changes its meaning."""


@dataclasses.dataclass(frozen=True)
class BuildReport:
    """Everything a build found out.

    Attributes:
        recipe: path of the recipe.
        bundle: path of the bundle.
        stages: in the order they ran.
        parity: one row per compared tensor.
        task: None without a task gate.
        sizes: bytes by file of the bundle.
        speed: one row per artefact.
        drift: by graph, the errors of outputs and states over many chained steps.
        engines: one row per graph whose target has a compiler of its vendor.
        gates: every gate with its bound and value; of a build that failed those that were not reached, too.
        verdict: how the build ended, in a few words.
        failure: what has ended it, or None.
    """

    recipe: str
    bundle: str
    stages: tuple[StageReport, ...] = ()
    parity: tuple[ParityRow, ...] = ()
    task: TaskRow | None = None
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    speed: tuple[SpeedRow, ...] = ()
    drift: dict[str, tuple[DriftCurve, ...]] = dataclasses.field(default_factory=dict)
    engines: tuple[EngineRow, ...] = ()
    gates: tuple[GateRow, ...] = ()
    verdict: str = "all gates hold"
    failure: Failure | None = None

    def to_json(self) -> str:
        """The report as JSON text; NaN and infinities become strings, which JSON has no numbers for."""
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


class StageHandle:
    """What a running stage may say about itself."""

    def __init__(self, graph: str, stage: str) -> None:
        self.graph = graph
        self.stage = stage
        self.count = ""
        self.outcome = ""
        self.report: StageReport | None = None

    def advance(self, done: int, total: int) -> None:
        """Say how far a long loop is."""
        self.count = f"{done}/{total}"

    def finish(self, report: StageReport) -> None:
        """Say how the stage ended; the line shows it instead of the bare time."""
        self.report, self.outcome = report, describe_stage(report)


class Progress:
    """Prints a build as it runs, and keeps what its stages report.

    Args:
        console: where to print; None is standard output.
        now: seconds of a clock that only runs forward, replaced in tests.
    """

    def __init__(self, console: Console | None = None, now: Callable[[], float] = time.perf_counter) -> None:
        self.console = console or standard_console()
        self.stages: list[StageReport] = []
        self._now = now

    @contextlib.contextmanager
    def stage(self, graph: str, name: str) -> Iterator[StageHandle]:
        """Show one stage while it runs, and one line when it has ended, well or not."""
        handle, started_s = StageHandle(graph, name), self._now()
        ended = "failed"
        try:
            with insisted(), self._live(handle, started_s):
                yield handle
            ended = handle.outcome or "done"
        except KeyboardInterrupt:
            ended = "interrupted"
            raise
        finally:
            seconds = self._now() - started_s
            self.stages.append(handle.report or StageReport(graph, name, seconds, detail=ended))
            self.say(f"{_label(handle):<40} {seconds:7.2f} s  {ended}")

    def say(self, line: str) -> None:
        """Print one line as it is."""
        self.console.print(escape(line), soft_wrap=True)

    def show(self, report: BuildReport) -> None:
        """Print the parity table, what every pass did or refused, sizes and speed, and where the bundle is."""
        for table in (
            _pass_table(report),
            _pin_table(report),
            _parity_table(report),
            _task_table(report),
            _size_table(report),
            _speed_table(report),
            _engine_table(report),
        ):
            if table is not None:
                self.console.print()
                self.console.print(table)
        self.console.print()
        self.say(f"bundle: {report.bundle}")
        waiting = [row for row in report.engines if row.reason]
        if waiting:
            names = ", ".join(row.graph for row in waiting)
            self.say(
                f"ENGINE NOT BUILT ({names}): {waiting[0].reason}; all checks ran on the ONNX graphs, no time was "
                f"measured; finish it on the machine with the device: python build.py finish {report.bundle}"
            )

    def _live(self, handle: StageHandle, started_s: float) -> contextlib.AbstractContextManager[object]:
        if not self.console.is_terminal:
            return contextlib.nullcontext()
        return Live(
            _StageLine(handle, started_s, self._now), console=self.console, transient=True, refresh_per_second=8
        )


class _PlainConsole(Console):
    """A console that leaves a closed pipe to the front door; rich would end the program with the code of a bug."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def standard_console() -> Console:
    """Standard output; a file or pipe has no width to fit tables into."""
    console = _PlainConsole(highlight=False)
    return console if console.is_terminal else _PlainConsole(highlight=False, width=PLAIN_COLUMNS)


class _StageLine:
    """The live line of a stage, drawn anew at each refresh."""

    def __init__(self, handle: StageHandle, started_s: float, now: Callable[[], float]) -> None:
        self._handle = handle
        self._started_s = started_s
        self._now = now
        self._spinner = Spinner("dots")

    def __rich__(self) -> Spinner:
        elapsed_s = self._now() - self._started_s
        self._spinner.update(text=escape(f"{_label(self._handle):<38} {elapsed_s:7.1f} s  {self._handle.count}"))
        return self._spinner


def _label(handle: StageHandle) -> str:
    return f"{handle.graph}: {handle.stage}" if handle.graph else handle.stage


def describe_stage(report: StageReport) -> str:
    """The end of a stage's line: `cached`, counts, the measured difference, the detail."""
    parts = ["cached" if report.cached else ""]
    if report.matched or report.rewritten or report.refused:
        parts.append(f"{report.rewritten} of {report.matched} rewritten")
    if report.refused:
        parts.append(f"{len(report.refused)} left as they are")
    if report.max_abs is not None:
        limit = f" (limit {report.limit:.1e})" if report.limit is not None else ""
        parts.append(f"differs by {report.max_abs:.1e}{limit}")
    return ", ".join(part for part in [*parts, report.detail] if part) or "done"


def _table(title: str, *columns: str) -> Table:
    """A table whose first columns are text and whose columns in `[brackets]` are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        is_number = column.startswith("[")
        table.add_column(column.strip("[]"), justify="right" if is_number else "left", overflow="fold")
    return table


def _pass_table(report: BuildReport) -> Table | None:
    passes = [stage for stage in report.stages if stage.matched or stage.rewritten or stage.refused]
    table = _table("Passes", "graph", "pass", "[matched]", "[rewritten]", "[left as they are]")
    for stage in passes:
        counts = (stage.matched, stage.rewritten, len(stage.refused))
        table.add_row(escape(stage.graph), escape(stage.stage), *map(str, counts))
    if any(stage.refused for stage in passes):
        table.caption = "what a pass leaves as it is was proved and compared with the rest; --report says why"
        table.caption_justify = "left"
    return table if passes else None


SHOWN_PINS = 16
"""Pins that the terminal lists per pass; the report has all of them."""


def _pin_table(report: BuildReport) -> Table | None:
    """Nodes that a pass has left more precise, the costliest first."""
    table = _table("Kept precise", "graph", "pass", "node", "operator", "why", "[costs]", "line")
    for stage in report.stages:
        pins = [record for record in stage.precision if isinstance(record, Pin)]
        for pin in sorted(pins, key=lambda pin: -(pin.cost or 0.0))[:SHOWN_PINS]:
            cost = "" if pin.cost is None else f"{pin.cost:.3g} {pin.cost_unit}"
            line = pin.source.split(": ")[0]
            cells = (stage.graph, stage.stage, pin.node, pin.op, f"{pin.kept}: {pin.reason}", cost, line)
            table.add_row(*map(escape, cells))
        if len(pins) > SHOWN_PINS:
            rest = f"and {len(pins) - SHOWN_PINS} more in the report"
            table.add_row(escape(stage.graph), escape(stage.stage), rest, "", "", "", "")
    return table if table.rows else None


def _parity_table(report: BuildReport) -> Table | None:
    table = _table(
        "Parity with the original", "graph", "tensor", "[steps]", "[max abs]", "[reference max]", "[limit]",
        "[SQNR dB]", "[at least]", "",
    )  # fmt: skip
    for row in report.parity:
        noise = ("" if value is None else f"{value:.1f}" for value in (row.sqnr_db, row.sqnr_limit_db))
        numbers = (f"{row.max_abs:.2e}", f"{row.reference_max:.3g}", f"{row.limit:.2e}", *noise)
        table.add_row(
            escape(row.graph), escape(row.tensor), str(row.steps), *numbers, "holds" if row.holds else "FAILS"
        )
    return table if report.parity else None


def _task_table(report: BuildReport) -> Table | None:
    if report.task is None:
        return None
    row = report.task
    table = _table(
        "Task", "metric", "[original]", "[bundle]", "[increase]", "[limit]", "[recordings]", "[identical]", ""
    )
    values = (f"{value:.4g}" for value in (row.reference, row.bundle, row.increase, row.limit))
    table.add_row(
        escape(row.metric), *values, str(row.recordings), str(row.identical), "holds" if row.holds else "FAILS"
    )
    return table


def _size_table(report: BuildReport) -> Table | None:
    table = _table("Size", "file", "[bytes]")
    for name, size_bytes in sorted(report.sizes.items()):
        table.add_row(escape(name), f"{size_bytes:,}")
    table.add_row("total", f"{sum(report.sizes.values()):,}")
    return table if report.sizes else None


def _speed_table(report: BuildReport) -> Table | None:
    table = _table("Speed", "graph", "sizes", "[threads]", "[p50 ms]", "[p95 ms]")
    for row in report.speed:
        table.add_row(escape(row.graph), escape(row.sizes), str(row.threads), f"{row.p50_ms:.3f}", f"{row.p95_ms:.3f}")
    return table if report.speed else None


def _engine_table(report: BuildReport) -> Table | None:
    table = _table("Engines", "graph", "engine", "speed", "why")
    for row in report.engines:
        is_built = row.status == "built"
        state, speed = (row.status, "see above") if is_built else (row.status.upper(), "not measured: engine not built")
        table.add_row(escape(row.graph), state, speed, escape(row.reason))
    return table if report.engines else None


def write_report(report: BuildReport, path: Path) -> None:
    """Write the report as JSON; a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        file.write(report.to_json().encode())
