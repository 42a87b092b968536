"""Buckets are opened once, closed with the device, and held to the manifest."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BundleRefused
from runtime_lite.executors.device_executor import check_tensors
from runtime_lite.executors.device_run import DeviceTensor, Staging
from runtime_lite.executors.onnx_cuda import OnnxCudaExecutor, SessionRun, tensors_of
from runtime_lite.format.reader import read_bundle
from tests.kit import vendor
from tests.runtime_lite.bundles import plain_graph
from tests.runtime_lite.engines import use_cpu_for_cuda, use_doubles, write_cuda_bundle


def test_a_bucket_is_opened_at_its_first_use_and_closed_with_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    use_cpu_for_cuda(monkeypatch)
    before, x = dict(vendor.MEMORY.blocks), np.ones((1, 2, 2), np.float32)
    sizes = {"batch": 1, "frames": 2}
    with read_bundle(write_cuda_bundle(tmp_path / "bundle", "plain")) as bundle:
        executor = OnnxCudaExecutor(bundle, "plain", 1)
        assert (executor._cuda, executor._opened) == (None, {})
        y: dict[str, Any] = {"y": np.empty_like(x)}
        for _ in range(2):
            executor.run(sizes, {"x": x, "shift": np.array([3])}, y)
        assert list(executor._opened) == ["batch=1,frames=2"]
        assert executor.memory.crossed == (2 * (x.nbytes + 8), 2 * x.nbytes)
        executor.close()
        executor.close()
    assert vendor.MEMORY.blocks == before


def test_a_run_is_uploaded_while_the_session_is_at_work_on_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_doubles(monkeypatch)
    use_cpu_for_cuda(monkeypatch)
    sizes, x = {"batch": 1, "frames": 2}, np.ones((1, 2, 2), np.float32)
    answers = [{"y": np.empty_like(x)} for _ in range(2)]
    begun, uploaded, may_end = threading.Event(), threading.Event(), threading.Event()
    run, upload = SessionRun._run, SessionRun.upload

    def runs(self: SessionRun, *arguments: Any) -> None:
        begun.set()
        assert may_end.wait(60)
        run(self, *arguments)

    def uploads(self: SessionRun, *arguments: Any) -> Staging:
        staging = upload(self, *arguments)
        if begun.is_set():
            uploaded.set()
        return staging

    with read_bundle(write_cuda_bundle(tmp_path / "bundle", "plain")) as bundle:
        executor = OnnxCudaExecutor(bundle, "plain", 1)
        executor.run(sizes, {"x": x, "shift": np.array([0])}, answers[0])
        monkeypatch.setattr(SessionRun, "_run", runs)
        monkeypatch.setattr(SessionRun, "upload", uploads)
        threads = [
            threading.Thread(target=executor.run, args=(sizes, {"x": x + shift, "shift": np.array([shift])}, answer))
            for shift, answer in enumerate(answers)
        ]
        threads[0].start()
        assert begun.wait(60)
        threads[1].start()
        assert uploaded.wait(60), "the second run is uploaded, and the first is not answered"
        may_end.set()
        for thread in threads:
            thread.join()
        for shift, answer in enumerate(answers):
            wanted = {"y": np.empty_like(x)}
            executor.run(sizes, {"x": x + shift, "shift": np.array([shift])}, wanted)
            np.testing.assert_array_equal(answer["y"], wanted["y"])
        assert (answers[0]["y"] != answers[1]["y"]).any()
        executor.close()


def test_other_inputs_than_those_of_the_manifest_are_refused_by_name() -> None:
    graph = plain_graph()
    artifact = graph.artifacts[0]
    tensors = tensors_of(graph, artifact)
    check_tensors("b: g", tensors, graph, artifact)
    wrong = DeviceTensor("shift", (7,), np.dtype(np.int64), True)
    with pytest.raises(BundleRefused, match=r"^b: g: expected 'shift' as the manifest lists it .*\(7,\)"):
        check_tensors("b: g", (tensors[0], wrong, *tensors[2:]), graph, artifact)
