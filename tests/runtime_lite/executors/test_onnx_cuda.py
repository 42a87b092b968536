"""ONNX Runtime on a CUDA device, with the provider for CPUs in its place: placement, numbers of graphs, refusals."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from runtime_lite import Runtime
from runtime_lite.errors import BundleRefused, EngineAbsent, ExecutorFailed, InternalError
from runtime_lite.executors.cuda import CudaPython, Device, DeviceArray, probe
from runtime_lite.executors.device_run import MOST_GRAPHS, DeviceTensor
from runtime_lite.executors.onnx_cuda import CUDA, MOST_CAPTURES, OnnxCudaExecutor, SessionRun
from runtime_lite.verify import verify_model
from tests.kit import vendor
from tests.runtime_lite.bundles import STEP, WIDTH
from tests.runtime_lite.engines import CapturingSession, use_cpu_for_cuda, use_doubles, write_cuda_bundle

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float[2,3] x, int64[2] n) => (float[2,3] y, int64[2] m) { y = Add(x, x)  m = Neg(n) }"""
FLOAT = np.dtype(np.float32)
TENSORS = (
    DeviceTensor("x", (2, 3), FLOAT, True),
    DeviceTensor("n", (2,), np.dtype(np.int64), True),
    DeviceTensor("y", (2, 3), FLOAT, False),
    DeviceTensor("m", (2,), np.dtype(np.int64), False),
)
NO_DRIVER = {"error": "no CUDA driver (libcuda.so.1)"}
FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array([4, 5])}


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaPython]:
    """The device, of which nothing is left at the end."""
    use_doubles(monkeypatch)
    use_cpu_for_cuda(monkeypatch)
    found, before = CudaPython(), dict(vendor.MEMORY.blocks)
    yield found
    assert vendor.MEMORY.blocks == before


def opened(cuda: CudaPython, *, captures: bool = True) -> SessionRun:
    content = onnx.parser.parse_model(TEXT).SerializeToString()
    session = CapturingSession(content, providers=["CPUExecutionProvider"])
    return SessionRun(cuda, session, TENSORS, "cpu", "b: g.onnx", cuda.stream(), captures)


def test_a_bundle_replays_its_golden_feeds(tmp_path: Path) -> None:
    with Runtime() as runtime:
        model = runtime.load(write_cuda_bundle(tmp_path / "bundle"))
        assert all(result.holds for result in verify_model(model))


def test_no_set_of_addresses_gets_the_number_of_another(cuda: CudaPython) -> None:
    """The session launches what it captured under a number, and releases nothing of it."""
    run = opened(cuda)
    places = [cuda.alloc(24) for _ in range(MOST_GRAPHS + 2)]
    for turn in range(3):
        for number, place in enumerate(places):
            array = DeviceArray(None, place, np.zeros((2, 3), FLOAT))
            for add in range(3):
                x = FEEDS["x"] + 100 * turn + 10 * number + add
                run.run({**FEEDS, "x": x}, {"y": array})
                np.testing.assert_array_equal(np.frombuffer(vendor.MEMORY.read(place, 24), FLOAT), 2 * x.ravel())
    assert run._numbers > MOST_GRAPHS and len(run._graphs) == MOST_GRAPHS
    run.close()
    run.close()
    for place in places:
        cuda.free(place)


def test_a_session_captures_no_more_than_it_may_keep(cuda: CudaPython, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(cuda)
    run._numbers = MOST_CAPTURES
    for _ in range(3):
        np.testing.assert_array_equal(run.run(FEEDS)[0]["y"], 2 * FEEDS["x"])
    assert not run._graphs
    run.close()


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        ("CUDA failure 2: out of memory", ExecutorFailed, "expected memory of the device for a run, got too little"),
        ("CUDA failure 700", InternalError, r"expected a run without errors, .*RUNTIME_LITE_CUDA_GRAPHS=0 in the"),
    ],
)
def test_a_run_that_fails_says_why_and_the_next_is_right(
    said: str, kind: type[Exception], expected: str, cuda: CudaPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = opened(cuda)
    for number in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(CapturingSession, "run_with_iobinding", _failing(said))
            with pytest.raises(kind, match=expected):
                run.run(FEEDS)
        np.testing.assert_array_equal(run.run({**FEEDS, "x": FEEDS["x"] + number})[0]["y"], 2 * FEEDS["x"] + 2 * number)
    run.close()


def _failing(said: str) -> Any:
    def fail(*_: object) -> None:
        raise onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException(f"[ONNXRuntimeError] : 6 : {said}")

    return fail


def test_a_node_that_is_placed_elsewhere_is_an_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = SimpleNamespace(
        ep_name="CPUExecutionProvider", get_nodes=lambda: [SimpleNamespace(name="n7", op_type="Det")]
    )
    monkeypatch.setattr(CapturingSession, "get_provider_graph_assignment_info", lambda self: [part])
    bundle = write_cuda_bundle(tmp_path / "bundle")
    with Runtime() as runtime, runtime.load(bundle).open_stream() as stream:
        stream.push({"x": np.zeros((1, STEP, WIDTH), np.float32)})
    part.ep_name = "AnotherProvider"
    with (
        Runtime() as runtime,
        runtime.load(bundle).open_stream() as stream,
        pytest.raises(BundleRefused, match=r"expected every node on CPUExec\w*, got 'n7' \('Det', AnotherProvider\)"),
    ):
        stream.push({"x": np.zeros((1, STEP, WIDTH), np.float32)})


def test_a_provider_that_does_not_start_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CapturingSession, "get_providers", lambda self: ["OtherProvider"])
    with Runtime() as runtime:
        stream = runtime.load(write_cuda_bundle(tmp_path / "bundle")).open_stream()
        with pytest.raises(EngineAbsent, match="expected CPUExecutionProvider to start, got OtherProvider; install "):
            stream.push({"x": np.zeros((1, STEP, WIDTH), np.float32)})


def test_an_onnxruntime_without_cuda_is_refused_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnnxCudaExecutor, "provider", CUDA)
    with (
        Runtime() as runtime,
        pytest.raises(EngineAbsent, match=r"onnxruntime: expected one with CUDAExecutionProvider, got"),
    ):
        runtime.load(write_cuda_bundle(tmp_path / "bundle"))


@pytest.mark.parametrize(
    ("capability", "driver", "expected"),
    [
        ("9.0", "12.4", "expected a driver for CUDA 13.0 or later, got one for 12.4; install a newer NVIDIA driver"),
        ("7.0", "13.0", "expected a device of compute capability 7.5 or later, got H100 of 7.0; build for onnx_static"),
    ],
)
def test_an_old_driver_or_device_is_refused_by_name(
    capability: str, driver: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", lambda: Device("H100", capability, driver))
    with Runtime() as runtime, pytest.raises(EngineAbsent, match=expected):
        runtime.load(write_cuda_bundle(tmp_path / "bundle"))


def test_without_a_device_loading_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_lite.executors.onnx_cuda.probe", lambda: probe(f"print({json.dumps(NO_DRIVER)!r})"))
    with Runtime() as runtime, pytest.raises(EngineAbsent, match="CUDA: expected a CUDA device, got no CUDA driver"):
        runtime.load(write_cuda_bundle(tmp_path / "bundle"))
