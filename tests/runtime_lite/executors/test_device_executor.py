"""Buckets are opened once, closed with the device, and held to the manifest."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BundleRefused
from runtime_lite.executors.device_executor import check_tensors
from runtime_lite.executors.device_run import DeviceTensor
from runtime_lite.executors.onnx_cuda import OnnxCudaExecutor, tensors_of
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


def test_other_inputs_than_those_of_the_manifest_are_refused_by_name() -> None:
    graph = plain_graph()
    artifact = graph.artifacts[0]
    tensors = tensors_of(graph, artifact)
    check_tensors("b: g", tensors, graph, artifact)
    wrong = DeviceTensor("shift", (7,), np.dtype(np.int64), True)
    with pytest.raises(BundleRefused, match=r"^b: g: expected 'shift' as the manifest lists it .*\(7,\)"):
        check_tensors("b: g", (tensors[0], wrong, *tensors[2:]), graph, artifact)
