"""A build's records are its report: as lines and tables for people, as JSON for programs."""

import io

import pytest
from rich.console import Console

from compiler.base.records.build_report import (
    SIMULATED,
    BuildReport,
    EngineRow,
)
from compiler.build.report.progress import Progress
from tests.kit.build_report import REPORT


class Terminal:
    """A console that writes into memory, and a clock that passes a second at each look."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        self.output = io.StringIO()
        self.console = Console(file=self.output, force_terminal=is_terminal, width=160, highlight=False)
        self.seconds = 0.0
        self.progress = Progress(self.console, now=self.tick)

    def tick(self) -> float:
        self.seconds += 1.0
        return self.seconds

    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


def test_each_stage_is_one_plain_line() -> None:
    terminal = Terminal()
    with terminal.progress.stage("encoder", "pad_axes") as handle:
        handle.advance(3, 10)
        assert terminal.lines() == []
        handle.finish(REPORT.stages[1])
    with terminal.progress.stage("", "bundle"):
        pass
    assert terminal.lines() == [
        "encoder: pad_axes                           1.00 s  2 of 3 rewritten, 2 left as they are",
        "bundle                                      1.00 s  done",
    ]
    assert all((stage.processor_seconds or 0.0) >= 0.0 for stage in terminal.progress.stages)
    assert None not in [stage.processor_seconds for stage in terminal.progress.stages], "what is told is measured, too"


def test_a_stage_that_ran_inside_another_has_its_line_and_its_time_behind_it() -> None:
    terminal = Terminal()
    terminal.progress.tell(REPORT.stages[1])
    (line,) = terminal.lines()
    assert line.startswith("encoder: pad_axes ")
    assert line.endswith(f"{REPORT.stages[1].seconds:.2f} s  2 of 3 rewritten, 2 left as they are")
    assert terminal.progress.stages[0].processor_seconds == 0.0


@pytest.mark.parametrize(("error", "word"), [(ValueError("x"), "failed"), (KeyboardInterrupt(), "interrupted")])
def test_stage_that_ends_badly_says_so(error: BaseException, word: str) -> None:
    terminal = Terminal()
    with pytest.raises(type(error)), terminal.progress.stage("encoder", "verify"):
        raise error
    assert terminal.lines() == [f"encoder: verify                             1.00 s  {word}"]


def test_terminal_shows_a_live_line_with_the_count() -> None:
    terminal = Terminal(is_terminal=True)
    with terminal.progress.stage("encoder", "verify") as handle:
        handle.advance(3, 10)
    text = terminal.output.getvalue()
    assert "3/10" in text
    assert text.rstrip().endswith("done")


def test_report_shows_everything_it_holds() -> None:
    terminal = Terminal()
    terminal.progress.show(REPORT)
    words = [" ".join(line.split()) for line in terminal.lines()]
    assert "encoder pad_axes 3 2 2" in words
    assert not any("axis cache is summed" in line for line in words), "a list of reasons reads like a failure"
    assert any(line.startswith("what a pass leaves as it is was proved and compared") for line in words)
    gates = [line for line in words if line.startswith(("parity.", "task.", "budget."))]
    assert gates == [
        "parity.max_abs encoder keys nan 1 FAILS",
        "task.identical encoder metric:wer 199 at least 200 FAILS",
        "budget.p95_ms 20 not reached",
        "parity.max_abs encoder logits 2e-06 0.00012 holds 100 steps",
    ]
    assert "graphs/encoder.weights 5,000,000" in words
    assert "total 5,001,234" in words
    assert "encoder batch=1 1 1.250 1.500" in words
    assert "encoder NOT BUILT linted, not built not measured: engine not built no toolchain on this machine" in words
    assert "head built built and run see above" in words
    assert words[-2:] == [
        "bundle: dist/tiny-cpu",
        "ENGINE NOT BUILT (encoder): no toolchain on this machine; linted, not built; all checks ran on the ONNX "
        "graphs, no time was measured; finish it on the machine with the device: python build.py finish dist/tiny-cpu",
    ]


def test_a_report_whose_engines_are_built_ends_with_the_bundle() -> None:
    terminal = Terminal()
    terminal.progress.show(BuildReport("r.yaml", "dist/x", engines=(EngineRow("head", "built", reached="run"),)))
    assert terminal.lines()[-1] == "bundle: dist/x"


def test_empty_report_shows_only_where_the_bundle_is() -> None:
    terminal = Terminal()
    terminal.progress.show(BuildReport("r.yaml", "dist/x"))
    assert terminal.lines() == ["", "bundle: dist/x"]


def test_engines_of_a_simulator_are_told_from_those_of_a_device() -> None:
    terminal = Terminal()
    row = EngineRow("head", "built", reached="simulated", by=SIMULATED)
    terminal.progress.show(BuildReport("r.yaml", "dist/x", engines=(row,)))
    words = " ".join(" ".join(terminal.lines()).split())
    assert "head built artefact executed in the vendor's simulator not measured: a simulator's time" in words
