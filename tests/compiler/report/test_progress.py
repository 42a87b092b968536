"""A build's records are its report: as lines and tables for people, as JSON for programs."""

import errno
import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from compiler.records.precision import Pin
from compiler.report.progress import (
    BuildReport,
    EngineRow,
    ParityRow,
    Progress,
    SpeedRow,
    StageReport,
    TaskRow,
    describe_stage,
    write_report,
)

REPORT = BuildReport(
    recipe="recipes/cpu.yaml",
    bundle="dist/tiny-cpu",
    stages=(
        StageReport("encoder", "capture", 1.5, cached=True),
        StageReport(
            "encoder", "pad_axes", 0.25, matched=3, rewritten=2, refused=("[MatMul m1]: axis cache is summed",) * 2
        ),
    ),
    parity=(
        ParityRow("encoder", "logits", 100, 2e-6, 12.0, 1.2e-4),
        ParityRow("encoder", "keys", 100, float("nan"), 1, 1),
    ),
    task=TaskRow("metric:wer", 0.031, 0.032, 0.001, 0.0, 200, 199),
    sizes={"graphs/encoder.batch1.onnx": 1_234, "graphs/encoder.weights": 5_000_000},
    speed=(SpeedRow("encoder", "batch=1", 1.25, 1.5, 1),),
    engines=(EngineRow("encoder", "not built", "no toolchain on this machine"), EngineRow("head", "built")),
)


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


def test_what_a_stage_did_in_one_phrase() -> None:
    assert describe_stage(StageReport("g", "s", 0.0)) == "done"
    assert describe_stage(StageReport("g", "s", 0.0, cached=True, detail="opset 20")) == "cached, opset 20"
    measured = StageReport("g", "s", 0.0, matched=1, max_abs=1e-7, limit=1e-5)
    assert describe_stage(measured) == "0 of 1 rewritten, differs by 1.0e-07 (limit 1.0e-05)"


def test_report_shows_everything_it_holds() -> None:
    terminal = Terminal()
    terminal.progress.show(REPORT)
    words = [" ".join(line.split()) for line in terminal.lines()]
    assert "encoder pad_axes 3 2 2" in words
    assert not any("axis cache is summed" in line for line in words), "a list of reasons reads like a failure"
    assert any(line.startswith("what a pass leaves as it is was proved and compared") for line in words)
    assert "encoder logits 100 2.00e-06 12 1.20e-04 holds" in words
    assert "encoder keys 100 nan 1 1.00e+00 FAILS" in words
    assert "metric:wer 0.031 0.032 0.001 0 200 199 FAILS" in words
    assert "graphs/encoder.weights 5,000,000" in words
    assert "total 5,001,234" in words
    assert "encoder batch=1 1 1.250 1.500" in words
    assert "encoder NOT BUILT not measured: engine not built no toolchain on this machine" in words
    assert "head built see above" in words
    assert words[-2:] == [
        "bundle: dist/tiny-cpu",
        "ENGINE NOT BUILT (encoder): no toolchain on this machine; all checks ran on the ONNX graphs, no time was "
        "measured; finish it on the machine with the device: python build.py finish dist/tiny-cpu",
    ]


def test_a_report_whose_engines_are_built_ends_with_the_bundle() -> None:
    terminal = Terminal()
    terminal.progress.show(BuildReport("r.yaml", "dist/x", engines=(EngineRow("head", "built"),)))
    assert terminal.lines()[-1] == "bundle: dist/x"


def test_nodes_that_stay_precise_are_listed_the_costliest_first_and_not_without_end() -> None:
    pins = tuple(
        Pin(f"n{i}", "Exp", f"reaches {i}", "t", 1.0, f"m.py:{i} in forward: x", float(i), "us") for i in range(20)
    )
    console = Console(file=io.StringIO(), width=160)
    Progress(console).show(BuildReport("r", "b", (StageReport("net", "lower", 0.1, precision=pins),)))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "float32: reaches 19" in text and "19 us" in text and "m.py:19 in forward" in text
    assert "reaches 3" not in text and "and 4 more in the report" in text


def test_empty_report_shows_only_where_the_bundle_is() -> None:
    terminal = Terminal()
    terminal.progress.show(BuildReport("r.yaml", "dist/x"))
    assert terminal.lines() == ["", "bundle: dist/x"]


def test_report_as_json() -> None:
    plain = json.loads(REPORT.to_json())
    assert plain["stages"][1]["refused"] == ["[MatMul m1]: axis cache is summed"] * 2
    assert plain["parity"][1]["max_abs"] == "nan"
    assert plain["task"]["identical"] == 199
    assert plain["sizes"]["graphs/encoder.weights"] == 5_000_000


def test_report_file_is_whole_or_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "report.json"
    write_report(REPORT, path)
    assert json.loads(path.read_text())["bundle"] == "dist/tiny-cpu"

    def fail(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_report(BuildReport("r.yaml", "dist/x"), path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]
