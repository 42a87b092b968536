"""Device memory through both providers, and the probe, against doubles of the libraries and a driver of three lines."""

import contextlib
import os
import platform
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import EngineAbsent, InternalError
from runtime_lite.executors.cuda import CudaPython, Device, PyCuda, open_cuda, probe, signal_name
from tests.kit.placeholder import shared_library
from tests.kit.vendor import CAPTURES, DRIVER_CODE, CudaRuntime, Memory, PyCudaDriver

X86_LINUX = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="the driver's double is x86-64 machine code"
)


def package(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture(params=["cuda-python", "cuda-python 12.9.0", "cuda-python 12.8.0", "pycuda"])
def cuda(request: pytest.FixtureRequest, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Each provider over the same memory."""
    if request.param == "pycuda":
        package(monkeypatch, "pycuda", driver=PyCudaDriver(memory))
        monkeypatch.setitem(sys.modules, "pycuda.driver", sys.modules["pycuda"].driver)
        yield PyCuda()
        return
    utils = types.SimpleNamespace(get_cuda_native_handle=int)
    package(monkeypatch, "cuda")
    package(monkeypatch, "cuda.bindings", runtime=CudaRuntime(memory))
    if request.param == "cuda-python":
        vars(sys.modules["cuda.bindings"]).update(utils=utils)  # the older ones have no module of this name
    yield CudaPython()


def test_bytes_go_to_the_device_and_come_back(cuda: Any, memory: Memory) -> None:
    with cuda.active():
        stream = cuda.stream()
        sent = cuda.pinned((2, 3), np.dtype(np.float16))
        sent[:] = np.arange(6).reshape(2, 3)
        back = cuda.pinned((2, 3), np.dtype(np.float16))
        pointer = cuda.alloc(sent.nbytes)
        assert type(pointer) is int
        assert type(stream) is int
        cuda.copy_to_device(pointer, sent, stream)
        cuda.synchronize(stream)
        assert bytes(memory.blocks[pointer]) == sent.tobytes()
        cuda.copy_to_host(back, pointer, stream)
        cuda.synchronize(stream)
        np.testing.assert_array_equal(back, sent)
        cuda.free(pointer)
        assert memory.blocks == {}
    cuda.close()


def test_rows_are_copied_on_the_device(cuda: Any, memory: Memory) -> None:
    with cuda.active():
        stream, first, second = cuda.stream(), cuda.alloc(64), cuda.alloc(64)
        memory.write(first, bytes(range(64)))
        cuda.copy_on_device(second + 8, first, 8, 16, 8, 3, stream)
        cuda.synchronize(stream)
        wanted = bytes(8) + bytes([*range(8), *range(16, 24), *range(32, 40)]) + bytes(32)
        assert bytes(memory.blocks[second]) == wanted
        cuda.free(second)
        cuda.free(first)
    cuda.close()


def test_moments_are_measured_between_events_that_are_used_again(cuda: Any) -> None:
    with cuda.active():
        stream, first, second = cuda.stream(), cuda.event(), cuda.event()
        for _ in range(3):
            cuda.record(first, stream)
            cuda.record(second, stream)
            cuda.synchronize_event(second)
            assert cuda.elapsed_ms(first, second) == 0.25
    cuda.close()


def test_a_queue_waits_for_a_moment_of_another(cuda: Any, memory: Memory) -> None:
    with cuda.active():
        uploads, work, moment = cuda.stream(), cuda.stream(), cuda.event()
        sent, back = (cuda.pinned((4,), np.dtype(np.uint8)) for _ in range(2))
        pointer = cuda.alloc(4)
        for value in range(20):
            sent[:] = value
            cuda.copy_to_device(pointer, sent, uploads)
            cuda.record(moment, uploads)
            cuda.wait_for(moment, work)
            cuda.copy_to_host(back, pointer, work)
            cuda.synchronize(work)
            assert (back == value).all()
        cuda.free(pointer)
    cuda.close()


def test_what_is_captured_is_done_when_it_is_launched(cuda: Any) -> None:
    with cuda.active():
        stream, done = cuda.stream(), list[str]()
        if not cuda.captures:
            for method, arguments in (
                (cuda.capture, (stream, None)),
                (cuda.launch, (1, stream)),
                (cuda.free_graph, (1,)),
            ):
                with pytest.raises(InternalError, match="expected no CUDA graph"):
                    method(*arguments)
            cuda.free_stream(stream)
            return
        graph = cuda.capture(stream, lambda: CAPTURES[stream].append(lambda: done.append("work")))
        assert done == []
        for _ in range(2):
            cuda.launch(graph, stream)
        cuda.synchronize(stream)
        assert done == ["work", "work"]
        cuda.free_graph(graph)
        with pytest.raises(ZeroDivisionError):
            cuda.capture(stream, lambda: done.append(str(1 // 0)))
        assert not CAPTURES
        cuda.capture(stream, lambda: None)
    cuda.close()
    assert cuda._cuda.live == []


def test_empty_arrays_are_no_error(cuda: Any) -> None:
    with cuda.active():
        assert cuda.pinned((0, 3), np.dtype(np.int64)).shape == (0, 3)


def test_an_error_of_the_library_is_ours(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    runtime, driver = CudaRuntime(memory), PyCudaDriver(memory)
    package(monkeypatch, "cuda")
    package(monkeypatch, "cuda.bindings", runtime=runtime, utils=object())
    package(monkeypatch, "pycuda", driver=driver)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    providers = CudaPython(), PyCuda()
    runtime.fail.add("cudaMalloc")
    driver.fail = True
    for made in providers:
        with pytest.raises(InternalError, match="CUDA: expected success, got"), made.active():
            made.alloc(16)
    assert driver.stack == 0, "the context is popped all the same"


def test_everything_is_freed_at_the_end(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    runtime = CudaRuntime(memory)
    package(monkeypatch, "cuda")
    package(monkeypatch, "cuda.bindings", runtime=runtime, utils=object())
    made = CudaPython()
    made.stream()
    made.event()
    made.pinned((4,), np.dtype(np.uint8))
    made.close()
    made.close()
    assert (runtime.live, runtime.host) == ([], {})


def test_what_is_freed_early_is_not_freed_again(cuda: Any) -> None:
    with cuda.active():
        stream, event, array = cuda.stream(), cuda.event(), cuda.pinned((4,), np.dtype(np.uint8))
        cuda.free_pinned(array)
        cuda.free_event(event)
        cuda.free_stream(stream)
    cuda.close()


def test_bindings_without_utils_are_cuda_python(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    """cuda-bindings 12.8.0 and 12.9.0 have `runtime` and no `utils`."""
    package(monkeypatch, "cuda")
    package(monkeypatch, "cuda.bindings", runtime=CudaRuntime(memory))
    assert open_cuda((CudaPython,)).name == "cuda-python"


@pytest.mark.parametrize("times", [1, 2])
def test_pycuda_leaves_its_context_before_it_gives_it_back(
    times: int, monkeypatch: pytest.MonkeyPatch, memory: Memory
) -> None:
    driver = PyCudaDriver(memory)
    package(monkeypatch, "pycuda", driver=driver)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    made = PyCuda()
    with made.active():
        made.stream()
    for _ in range(times):
        made.close()
    assert (driver.stack, memory.log) == (0, ["detach"])


def test_the_first_provider_that_is_there_is_taken() -> None:
    class Absent:
        name = "absent"

        def __init__(self) -> None:
            raise ImportError("libcudart.so.12: cannot open")

    class There:
        name = "there"

    assert open_cuda((Absent, There)).name == "there"
    with pytest.raises(EngineAbsent, match=r"got neither \(absent: libcudart.so.12: cannot open; absent: "):
        open_cuda((Absent, Absent))


# The probe


def with_driver(folder: Path, functions: dict[str, bytes]) -> contextlib.AbstractContextManager[None]:
    (folder / "libcuda.so.1").write_bytes(shared_library("libcuda.so.1", functions))

    @contextlib.contextmanager
    def path() -> Iterator[None]:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = str(folder)
        try:
            yield
        finally:
            if before is None:
                del os.environ["LD_LIBRARY_PATH"]
            else:
                os.environ["LD_LIBRARY_PATH"] = before

    return path()


@X86_LINUX
def test_the_driver_is_asked_for_its_device(tmp_path: Path) -> None:
    with with_driver(tmp_path, DRIVER_CODE):
        assert probe() == Device("T4", "7.5", "12.4")


FAIL = b"\xb8\x23\x00\x00\x00\xc3"  # return 35
CRASH = b"\x0f\x0b"  # ud2: SIGILL
NONE_THERE = b"\xc7\x07\x00\x00\x00\x00\x31\xc0\xc3"


@X86_LINUX
@pytest.mark.parametrize(
    ("function", "code", "sentence"),
    [
        ("cuInit", FAIL, "got a CUDA driver that does not start (cuInit says 35)"),
        ("cuInit", CRASH, "got one whose probe was ended by SIGILL"),
        ("cuDeviceGetCount", NONE_THERE, "got a CUDA driver without a device"),
        ("cuDeviceGet", FAIL, "got a CUDA driver that does not hand out its device"),
    ],
)
def test_a_driver_that_does_not_work_is_a_sentence(function: str, code: bytes, sentence: str, tmp_path: Path) -> None:
    with with_driver(tmp_path, {**DRIVER_CODE, function: code}), pytest.raises(EngineAbsent) as caught:
        probe()
    assert sentence in str(caught.value)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("print('no json')", "expected an answer of the CUDA driver"),
        ("", "expected an answer of the CUDA driver"),
        ('print(\'{"error": "no CUDA driver"}\')', "expected a CUDA device, got no CUDA driver"),
    ],
)
def test_what_a_probe_may_end_with_is_a_sentence(program: str, sentence: str) -> None:
    with pytest.raises(EngineAbsent, match=sentence):
        probe(program)


def test_a_driver_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_lite.executors.cuda.PROBE_S", 0.2)
    with pytest.raises(EngineAbsent, match="expected a CUDA driver that answers, got none within"):
        probe("import time; time.sleep(60)")


def test_signals_have_names() -> None:
    assert (signal_name(-11), signal_name(-99)) == ("SIGSEGV", "signal 99")
