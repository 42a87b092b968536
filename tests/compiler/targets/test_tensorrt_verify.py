"""The trial on the device, on doubles of the vendor's libraries: every step is a line of the report."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.stages import Lowered
from compiler.targets import tensorrt_verify
from compiler.targets.tensorrt import Tensorrt
from compiler.targets.tensorrt_verify import Trial, main
from runtime_lite.arrays import npz_from_arrays
from runtime_lite.cuda import CudaPython, Device
from runtime_lite.errors import EngineAbsent
from tests.kit import vendor
from tests.kit.graphs import parse
from tests.runtime_lite.engines import use_doubles

T4 = Device("Tesla T4", "7.5", "12.4")
STEPS = ["build", "build again with the timing cache", "layers", "accuracy", "latency", "opened twice", "refit"]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Plan, graphs and recorded feeds of one graph with two buckets."""
    text = "(float[batch,2] x) => (float[batch,2] y) { y = Neg(x) }"
    built = Tensorrt().emit(Lowered("net", parse(text), batch_axis="batch"), {"batch": (1, 2)})
    arrays = {"tolerance": np.array(1e-5, np.float32)}
    for rows in (1, 2):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        arrays |= {f"batch={rows}/feed/x": x, f"batch={rows}/output/y": -x}
    for name, content in {**built.files, "tensorrt/net.feeds.npz": npz_from_arrays(arrays)}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def tried(bundle: Path, library: Any) -> list[dict[str, Any]]:
    (bundle / "scratch").mkdir()
    return Trial(library, CudaPython(), T4, bundle, bundle / "scratch").run()


def test_every_step_of_every_engine_is_tried(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tried(bundle, use_doubles(monkeypatch))
    assert [step["step"] for step in steps] == ["copies", *[*STEPS, "version_compatible"] * 2]
    assert [step for step in steps if not step["ok"]] == []
    by_name = {(step["step"], step.get("bucket", "")): step for step in steps}
    assert by_name["copies", ""] == {"step": "copies", "ok": True, "provider": "cuda-python", "bytes": 2**20}
    assert by_name["layers", "batch=2"]["fused_attention"] == ["_mha_v2"]
    assert by_name["accuracy", "batch=2"]["max_error"] == {"y": 0.0}
    assert by_name["latency", "batch=1"]["device_p50_ms"] == 0.25
    assert by_name["latency", "batch=1"]["context_bytes"] == 4096
    assert by_name["build", "batch=1"]["bytes"] > 0


def test_a_step_that_fails_is_a_line_and_the_others_are_tried(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    arrays = dict(np.load(bundle / "tensorrt/net.feeds.npz"))
    arrays["batch=1/output/y"] = arrays["batch=1/output/y"] + 1
    arrays["batch=2/output/y"] = np.full_like(arrays["batch=2/output/y"], np.nan)
    (bundle / "tensorrt/net.feeds.npz").write_bytes(npz_from_arrays(arrays))
    steps = tried(bundle, library)
    failed = [step for step in steps if not step["ok"]]
    assert [(step["step"], step["bucket"]) for step in failed] == [("accuracy", "batch=1"), ("accuracy", "batch=2")]
    assert "expected every output within" in failed[0]["error"]


def test_copies_that_arrive_otherwise_are_seen(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    read = vendor.Memory.read
    monkeypatch.setattr(vendor.Memory, "read", lambda self, at, size: bytes(reversed(read(self, at, size))))
    assert "expected the bytes that were sent" in tried(bundle, library)[0]["error"]


def test_an_engine_that_is_not_built_ends_its_own_steps_only(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    (bundle / "graphs/net.batch1.onnx").write_bytes(b"")
    steps = [(step["step"], step.get("bucket"), step["ok"]) for step in tried(bundle, library)]
    assert steps[:3] == [("copies", None, True), ("build", "batch=1", False), ("build", "batch=2", True)]


def test_the_report_is_written_and_the_exit_code_says_whether_all_held(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", use_doubles(monkeypatch))
    monkeypatch.setattr(tensorrt_verify, "probe", lambda: T4)
    monkeypatch.setattr(tensorrt_verify, "probe_builder", lambda: "10.99.0")
    arguments = ["--bundle", str(bundle), "--report", str(bundle / "report.json")]
    assert main(arguments) == 0
    assert "17 of 17 steps held" in capsys.readouterr().out
    report = json.loads((bundle / "report.json").read_text())
    assert report["device"] == {"name": "Tesla T4", "capability": "7.5", "driver": "12.4"}
    assert report["providers"] == {"used": "cuda-python", "known": ["cuda-python", "pycuda"]}
    assert len(report["steps"]) == 17
    assert report["not_tried"]
    (bundle / "graphs/net.batch1.onnx").write_bytes(b"")
    assert main(arguments) == 4


def test_without_a_device_there_is_no_report(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got none; buy one")

    monkeypatch.setattr(tensorrt_verify, "probe", refuse)
    assert main(["--bundle", str(bundle), "--report", str(bundle / "report.json")]) == 5
    assert not (bundle / "report.json").exists()
