"""Prints the progress of a build in the terminal: one line per stage while it runs, and tables at the end.

On a terminal each stage is one live line (spinner, elapsed time, a count for long loops); elsewhere it is one plain
line when it ends. `show` prints the content of the records and nothing else, as `--report` writes them.
"""

import contextlib
import dataclasses
import errno
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner

from compiler.base.interruption import insisted
from compiler.base.records.build_report import BuildReport, EngineRow, StageReport, describe_stage
from compiler.build.report.tables import tables_of
from runtime_lite.errors import FRONT_DOOR

PLAIN_COLUMNS = 160


class StageHandle:
    """The methods by which a running stage reports to the terminal and the report.

    Args:
        graph: its name; empty for a stage of the whole bundle.
        stage: what runs.
        now: seconds of a clock that only runs forward.
    """

    def __init__(self, graph: str, stage: str, now: Callable[[], float]) -> None:
        self.graph = graph
        self.stage = stage
        self.now, self.started_s = now, now()
        self.count = ""
        self.outcome = ""
        self.report: StageReport | None = None

    def advance(self, done: int, total: int) -> None:
        """Show how far a long loop is."""
        self.count = f"{done}/{total}"

    def finish(self, report: StageReport) -> None:
        """Set the stage's report, which its line shows instead of the time alone."""
        self.report, self.outcome = report, describe_stage(report)

    def end(self, **found: Any) -> None:
        """Set the stage's report from fields, with the time until now."""
        self.finish(StageReport(self.graph, self.stage, self.now() - self.started_s, **found))


class Progress:
    """Prints a build as it runs, and keeps the reports of its stages.

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
        """Show one stage while it runs, and one line when it has ended or failed."""
        handle = StageHandle(graph, name, self._now)
        computed, ended = time.process_time(), "failed"
        try:
            with insisted(), self._live(handle):
                yield handle
            ended = handle.outcome or "done"
        except KeyboardInterrupt:
            ended = "interrupted"
            raise
        finally:
            seconds = self._now() - handle.started_s
            report = handle.report or StageReport(graph, name, seconds, detail=ended)
            self.stages.append(dataclasses.replace(report, processor_seconds=time.process_time() - computed))
            self._line(graph, name, seconds, ended)

    def tell(self, report: StageReport) -> None:
        """Print and record the line of a stage that ran inside another, which has the computing time of both."""
        self.stages.append(dataclasses.replace(report, processor_seconds=0.0))
        self._line(report.graph, report.stage, report.seconds, describe_stage(report))

    def say(self, line: str) -> None:
        """Print one line as it is."""
        self.console.print(escape(line), soft_wrap=True)

    def show(self, report: BuildReport) -> None:
        """Print what every pass did or refused, every gate's findings, sizes and speed, and the bundle's path."""
        for target in report.targets:
            self.say(f"\n{target.target}: {target.verdict}")
            if target.failure is None:
                self.show(target)
            else:
                self.say(f"{target.failure.message}; {target.failure.cure}".strip("; "))
        for table in tables_of(report):
            self.console.print()
            self.console.print(table)
        self.console.print()
        self.say(f"{'bundles' if report.targets else 'bundle'}: {report.bundle}")
        if report.forms:
            self.say(f"the same graphs on every machine: in the recipe's target {report.forms}")
        for status in ("not built", "built"):
            self._show_engines([row for row in report.engines if row.reason and row.status == status], report.bundle)

    def _show_engines(self, rows: Sequence[EngineRow], bundle: str) -> None:
        """Print what remains to be done for engines that are not built, or not run."""
        if not rows:
            return
        is_built, names = rows[0].status == "built", ", ".join(row.graph for row in rows)
        todo = (
            f"compare it on a machine with the device: {FRONT_DOOR} verify {bundle}"
            if is_built
            else f"finish it on the machine with the device: {FRONT_DOOR} finish {bundle}"
        )
        self.say(
            f"ENGINE NOT {'RUN' if is_built else 'BUILT'} ({names}): {rows[0].reason}; {rows[0].words}; all checks ran "
            f"on the ONNX graphs, no time was measured; {todo}"
        )

    def _line(self, graph: str, name: str, seconds: float, ended: str) -> None:
        self.say(f"{_label(graph, name):<40} {seconds:7.2f} s  {ended}")

    def _live(self, handle: StageHandle) -> contextlib.AbstractContextManager[object]:
        if not self.console.is_terminal:
            return contextlib.nullcontext()
        return Live(_StageLine(handle), console=self.console, transient=True, refresh_per_second=8)


class _PlainConsole(Console):
    """A console that leaves a closed pipe to the front door; rich would end the program with the code of a bug."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def standard_console() -> Console:
    """Return a console on standard output, with a fixed width where that is no terminal."""
    console = _PlainConsole(highlight=False)
    return console if console.is_terminal else _PlainConsole(highlight=False, width=PLAIN_COLUMNS)


class _StageLine:
    """The live line of a stage, drawn anew at each refresh."""

    def __init__(self, handle: StageHandle) -> None:
        self._handle = handle
        self._spinner = Spinner("dots")

    def __rich__(self) -> Spinner:
        elapsed_s = self._handle.now() - self._handle.started_s
        label = _label(self._handle.graph, self._handle.stage)
        self._spinner.update(text=escape(f"{label:<38} {elapsed_s:7.1f} s  {self._handle.count}"))
        return self._spinner


def _label(graph: str, stage: str) -> str:
    return f"{graph}: {stage}" if graph else stage
