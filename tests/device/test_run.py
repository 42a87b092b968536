"""The command for a device, on the double of CUDA: every step holds, a wrong answer fails, no device is a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_lite.executors.cuda import probe
from runtime_lite.executors.device_run import GRAPHS_SWITCH, Staging
from runtime_lite.executors.onnx_cuda import SessionRun
from tests.device import run as command
from tests.runtime_lite.engines import use_cpu_for_cuda, use_doubles, write_cuda_bundle

NO_DRIVER = 'print(\'{"error": "no CUDA driver"}\')'
"""What asks the driver of a machine that has none."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device, and few calls."""
    use_doubles(monkeypatch)
    use_cpu_for_cuda(monkeypatch)
    monkeypatch.setenv(GRAPHS_SWITCH, "1")
    whole = command.run
    monkeypatch.setattr(command, "run", lambda bundle: whole(bundle, calls=6, turns=6, runs=2))


@pytest.mark.usefixtures("few")
def test_every_step_holds_on_the_double(tmp_path: Path) -> None:
    bundle, out = write_cuda_bundle(tmp_path / "bundle"), tmp_path / "device.json"
    assert command.main([str(bundle), "--out", str(out)]) == 0
    steps = json.loads(out.read_text())["steps"]
    assert [(step["step"], step.get("cuda_graphs")) for step in steps] == [
        *((name, on) for on in (True, False) for name in ("golden", "chained", "joins", "poison", "speed")),
        ("peers", None),
    ]
    assert "PyTorch with CUDA" in steps[-1]["skipped"]
    assert steps[4]["buckets"][0]["crossed"] == steps[9]["buckets"][0]["crossed"]


@pytest.mark.usefixtures("few")
def test_a_wrong_answer_fails_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SessionRun.answer

    def wrong(self: SessionRun, staging: Staging) -> Any:
        outputs, elapsed_ms = answer(self, staging)
        return {name: array + 1 for name, array in outputs.items()}, elapsed_ms

    monkeypatch.setattr(SessionRun, "answer", wrong)
    bundle, out = write_cuda_bundle(tmp_path / "bundle"), tmp_path / "device.json"
    assert command.main([str(bundle), "--out", str(out)]) == 4
    failed = [step["step"] for step in json.loads(out.read_text())["steps"] if not step["ok"]]
    assert failed == ["golden", "chained", "joins"] * 2


def test_without_a_device_it_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(GRAPHS_SWITCH, "1")
    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", lambda: probe(NO_DRIVER))
    out = tmp_path / "device.json"
    assert command.main([str(write_cuda_bundle(tmp_path / "bundle")), "--out", str(out)]) == 5
    assert "expected a CUDA device, got no CUDA driver" in capsys.readouterr().err
    assert not out.exists()
