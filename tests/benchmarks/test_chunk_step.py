"""chunk_step: contenders run on bundles whose rows are open, and one that fails ends the command with its name."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import chunk_step, command
from tests.runtime_lite.bundles import write_open_bundle

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_open_bundle(tmp_path / "bundle")


@pytest.mark.parametrize("contender", [chunk_step.ours, chunk_step.stream])
def test_a_bundle_whose_rows_are_open_runs(contender: Callable[..., Any], bundle: Path) -> None:
    step, _ = contender(argparse.Namespace(bundle=bundle, graph="streaming"), "", 1)
    assert step() is not None


def test_a_contender_that_fails_is_named_behind_the_table(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed, well = "PyTorch eager", chunk_step.OURS

    def compared(*_: object) -> dict[str, Any]:
        figures = {"growth_mb": 1.0, "model_mb": 1.0, "rounds_ms": [1.0, 2.0]}
        return {failed: {"error": "TypeError: planted"}, well: figures, "floor": {"ms": 0.5, "told": "half"}}

    monkeypatch.setattr(chunk_step, "_compare", compared)
    words = ["--recipe", str(ROOT / "recipes" / "cpu.yaml"), "--bundle", str(bundle), "--graph", "streaming"]
    monkeypatch.setattr(sys, "argv", ["chunk_step", *words, "--threads", "1", "--contenders", failed, well])
    with pytest.raises(command.ContenderFailed, match="contender 'PyTorch eager': TypeError: planted"):
        chunk_step.main()
    printed = capsys.readouterr().out
    assert "TypeError: planted" in printed and "3.00 (2.20..3.80)" in printed


def test_the_floor_is_that_of_one_row(bundle: Path) -> None:
    work = chunk_step._work(bundle, "streaming")
    assert work.multiply_adds["float32"] == 3 * 2 * 2 and work.weight_bytes > 4 * 2 * 2
