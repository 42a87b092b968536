"""levers: every plan of the table is written once and measured in a process of its own."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import levers
from compiler.base.cache import store
from compiler.targets import TARGETS
from tests.kit.formed import LegalStatic
from tests.kit.models.project import stream_project

STANDARD = ["--set", "graphs.net.passes=[standard]"]

FIGURES = r"\d+\.\d{3} \(\d+\.\d{3}\.\.\d+\.\d{3}\) \| \d+\.\d{2}"


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph of one screen, for a target with toy forms."""
    monkeypatch.setitem(TARGETS, "onnx_static", LegalStatic)
    monkeypatch.setenv(store.FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    monkeypatch.chdir(tmp_path)
    stream_project(tmp_path, tmp_path / "cache")


@pytest.mark.usefixtures("stream")
@pytest.mark.slow
def test_each_lever_is_a_row_and_each_run_a_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["levers", "--recipe", "stream.yaml", "--runs", "2", "--rounds", "2"])
    levers.main()
    printed = capsys.readouterr().out
    rows = re.findall(rf"^\| `onnx_static` \| (.*) \| {FIGURES} \| {FIGURES} \|$", printed, re.MULTILINE)
    assert "| target | forms | batch=1 | to its floor | batch=2 | to its floor |" in printed
    assert rows[0] == "without forms"
    assert "| `onnx_static` | without forms | 1.000 (1.000..1.000) |" in printed
    assert {"swap_operands alone", "refuse_all alone (no change: refuse_all)"} <= set(rows)
    assert "all but refuse_all" in rows and "all forms (no change: refuse_all)" in rows
    assert len(rows) == 1 + 3 * len(LegalStatic.offers) + 1


@pytest.mark.slow
@pytest.mark.usefixtures("stream")
@pytest.mark.slow
def test_a_pass_that_is_left_out_is_a_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["levers", "--recipe", "stream.yaml", "--passes", "--rounds", "2", *STANDARD])
    levers.main()
    rows = re.findall(r"^\| `onnx_static` \| (standard forms, .*?) \|", capsys.readouterr().out, re.MULTILINE)
    assert rows == [
        "standard forms, without pass unstack_states",
        "standard forms, without pass fold_factors",
        "standard forms, without pass carry_contexts",
        "standard forms, states packed",
    ]
