"""The trial on the device, on doubles of the vendor's libraries: every step is a line of the report."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.base.pieces import write_files
from compiler.graph.stages import Lowered
from compiler.targets.tensorrt import verify
from compiler.targets.tensorrt.builder import build_one
from compiler.targets.tensorrt.target import Tensorrt
from compiler.targets.tensorrt.verify import RUNS, WARM_UP_RUNS, Trial, main
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.cuda import CudaPython, Device
from runtime_lite.executors.tensorrt_engine import HostCode
from runtime_lite.format.arrays import npz_from_arrays
from tests.kit import vendor
from tests.kit.graphs import parse
from tests.runtime_lite.engines import use_doubles

T4 = Device("Tesla T4", "7.5", "12.4")
STEPS = [
    "build", "build again with the timing cache", "layers", "accuracy", "latency", "latency with CUDA graphs",
    "two contexts", "refit",
]  # fmt: skip


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Plan, graphs and recorded feeds of one graph with two buckets."""
    text = "(float[batch,2] x, float[2] b, float[2,2] w) => (float[batch,2] y) { h = Add(x, b)  y = MatMul(h, w) }"
    model = parse(text, {"w": -np.eye(2, dtype=np.float32), "b": np.zeros(2, np.float32)})
    built = Tensorrt().emit(Lowered("net", model, batch_axis="batch"), {"batch": (1, 2)})
    arrays = {"tolerance": np.array(1e-5, np.float32)}
    for rows in (1, 2):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        arrays |= {f"batch={rows}/feed/x": x, f"batch={rows}/output/y": -x}
    write_files(tmp_path, {**built.files, "tensorrt/net.feeds.npz": npz_from_arrays(arrays)})
    return tmp_path


def tried(bundle: Path, library: Any) -> list[dict[str, Any]]:
    (bundle / "scratch").mkdir()
    return Trial(library, CudaPython(), T4, bundle, bundle / "scratch").run()


def test_every_step_of_every_engine_is_tried(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    vendor.MEMORY.log.clear()
    steps = tried(bundle, library)
    assert [step["step"] for step in steps] == ["copies", *[*STEPS, "version_compatible"] * 2]
    assert [step for step in steps if not step["ok"]] == []
    by_name = {(step["step"], step.get("bucket", "")): step for step in steps}
    assert by_name["copies", ""] == {"step": "copies", "ok": True, "provider": "cuda-python", "bytes": 2**20}
    assert by_name["layers", "batch=2"]["fused_attention"] == ["_mha_v2"]
    assert by_name["accuracy", "batch=2"]["max_error"] == {"y": 0.0}
    assert by_name["latency", "batch=1"]["device_p50_ms"] == 0.25
    assert by_name["latency", "batch=1"]["context_bytes"] == 4096
    assert vendor.MEMORY.log.count("launch") == 2 * (RUNS + WARM_UP_RUNS - 1)
    assert by_name["build", "batch=1"]["bytes"] > 0


def refit_of(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return next(step for step in steps if step["step"] == "refit")


def test_refit_exchanges_weights_and_looks_at_what_comes_of_it(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    exchange = vendor.Refitter.refit_cuda_engine
    seen: list[dict[str, Any]] = []

    def note(self: vendor.Refitter) -> bool:
        seen.append({name: array.any() for name, array in self.given.items()})
        return exchange(self)

    monkeypatch.setattr(vendor.Refitter, "refit_cuda_engine", note)
    assert refit_of(tried(bundle, library))["exchanged"] == "w"
    assert [each["w"] for each in seen[:2]] == [False, True], "zeros, then the weights again"
    assert seen[0].keys() == {"w", "b"}, "all at once: some weights are taken together only"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [(True, "expected other outputs with zeros in 'w', got the same"), (False, "an engine that takes its weights")],
)
def test_a_refit_that_does_nothing_is_seen(
    answer: bool, sentence: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = use_doubles(monkeypatch)
    monkeypatch.setattr(vendor.Refitter, "refit_cuda_engine", lambda self: answer)
    assert sentence in refit_of(tried(bundle, library))["error"]


def test_a_refit_that_does_not_bring_weights_back_is_seen(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    exchange = vendor.Refitter.refit_cuda_engine
    monkeypatch.setattr(vendor.Refitter, "refit_cuda_engine", lambda self: self.engine.refits > 0 or exchange(self))
    assert "expected equal bits of y" in refit_of(tried(bundle, library))["error"]


def test_two_contexts_of_one_engine_work_beside_each_other(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = use_doubles(monkeypatch)
    opened: list[vendor.CudaEngine] = []
    order: list[str] = []
    make, wait = vendor.CudaEngine.create_execution_context, vendor.CudaRuntime.cudaEventSynchronize
    enqueue = vendor.ExecutionContext.execute_async_v3

    def context(self: vendor.CudaEngine, strategy: Any) -> vendor.ExecutionContext:
        opened.append(self)
        return make(self, strategy)

    def queue(self: vendor.ExecutionContext, stream: int) -> bool:
        order.append(f"queue {stream}")
        return enqueue(self, stream)

    def synchronize(self: vendor.CudaRuntime, event: Any) -> Any:
        order.append(f"wait {event}")
        return wait(self, event)

    monkeypatch.setattr(vendor.CudaEngine, "create_execution_context", context)
    monkeypatch.setattr(vendor.ExecutionContext, "execute_async_v3", queue)
    monkeypatch.setattr(vendor.CudaRuntime, "cudaEventSynchronize", synchronize)
    trial = Trial(library, CudaPython(), T4, bundle, bundle)
    content = build_one(library, bundle, plan(bundle)["builder"], plan(bundle)["engines"][0], bundle / "c").content
    trial._two_contexts(content, HostCode.LIBRARY, {"x": np.ones((1, 2), np.float32)})
    assert len(opened) == 2
    assert opened[0] is opened[1], "one engine, whose weights they share"
    kinds = [each.split()[0] for each in order[2:6]]
    assert kinds == ["queue", "queue", "wait", "wait"]
    assert order[2] != order[3], "a stream each"


def plan(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "tensorrt/net.build_plan.json").read_text())
    return found


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
    monkeypatch.setattr(verify, "probe", lambda: T4)
    monkeypatch.setattr(verify, "probe_builder", lambda: "10.99.0")
    arguments = ["--bundle", str(bundle), "--report", str(bundle / "report.json")]
    assert main(arguments) == 0
    assert "19 of 19 steps held" in capsys.readouterr().out
    report = json.loads((bundle / "report.json").read_text())
    assert report["device"] == {"name": "Tesla T4", "capability": "7.5", "driver": "12.4"}
    assert report["providers"] == {"used": "cuda-python", "known": ["cuda-python", "pycuda"]}
    assert len(report["steps"]) == 19
    assert report["not_tried"]
    (bundle / "graphs/net.batch1.onnx").write_bytes(b"")
    assert main(arguments) == 4


def test_without_a_device_there_is_no_report(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Device:
        raise EngineAbsent("CUDA: expected a CUDA device, got none; buy one")

    monkeypatch.setattr(verify, "probe", refuse)
    assert main(["--bundle", str(bundle), "--report", str(bundle / "report.json")]) == 5
    assert not (bundle / "report.json").exists()
