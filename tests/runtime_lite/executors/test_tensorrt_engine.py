"""An engine is opened, fed and read; what the library answers is looked at, and what ends a process is a sentence."""

import gc
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from runtime_lite.errors import EngineAbsent, InternalError
from runtime_lite.executors import tensorrt_engine
from runtime_lite.executors.cuda import Array, CudaPython, DeviceArray
from runtime_lite.executors.device_run import MOST_GRAPHS
from runtime_lite.executors.tensorrt_engine import (
    NEEDED_NAMES,
    HostCode,
    StaticEngine,
    host_code_of,
    import_tensorrt,
    open_engine,
    require_names,
    try_engine,
)
from tests.kit import vendor
from tests.runtime_lite.engines import engine_of, use_doubles

TEXT = """<ir_version: 10, opset_import: ["" : 20]>
g (float16[2,3] x, int64[2] n) => (float16[2,3] y, int64[2] m) { y = Add(x, x)  m = Neg(n) }"""

ENGINE = engine_of(onnx.parser.parse_model(TEXT))
FEEDS = {"x": np.arange(6, dtype=np.float16).reshape(2, 3), "n": np.array([4, 5])}


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    return use_doubles(monkeypatch)


def opened(
    library: Any, content: bytes = ENGINE, cuda: CudaPython | None = None, *, captures: bool = False
) -> StaticEngine:
    found = open_engine(library, content, HostCode.LIBRARY, "b: e.plan")
    return StaticEngine(cuda or CudaPython(), found, captures=captures)


def test_feeds_go_in_and_outputs_come_out_as_arrays_of_their_own(library: Any) -> None:
    engine = opened(library)
    outputs, elapsed_ms = engine.run(FEEDS)
    np.testing.assert_array_equal(outputs["y"], 2 * FEEDS["x"])
    np.testing.assert_array_equal(outputs["m"], [-4, -5])
    assert outputs["y"].dtype == np.float16
    assert elapsed_ms == 0.25
    again, _ = engine.run({"x": FEEDS["x"] + 1, "n": FEEDS["n"]})
    assert outputs["y"][0, 0] == 0, "the first answer is the caller's"
    assert again["y"][0, 0] == 2
    assert open_engine(library, ENGINE, HostCode.LIBRARY, "e").device_bytes == 4096


@pytest.mark.parametrize(
    ("kind", "method", "answer"),
    [
        ("CudaEngine", "create_execution_context", None),
        ("ExecutionContext", "infer_shapes", ["x"]),
    ],
)
def test_an_engine_that_is_not_made_ready_leaves_nothing_behind(
    kind: str, method: str, answer: object, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cuda = dict(vendor.MEMORY.blocks), CudaPython()
    monkeypatch.setattr(getattr(vendor, kind), method, lambda *_: answer)
    with pytest.raises(InternalError):
        opened(library, cuda=cuda)
    assert vendor.MEMORY.blocks == before
    assert (cuda._cuda.live, cuda._cuda.host) == ([], {})


def test_memory_is_freed(library: Any) -> None:
    before = dict(vendor.MEMORY.blocks)
    engine = opened(library)
    assert vendor.MEMORY.blocks == before, "buffers are reserved when they are needed"
    for _ in range(2):
        engine.run(FEEDS)
        assert len(vendor.MEMORY.blocks) == len(before) + 4
    engine.close()
    engine.close()
    assert vendor.MEMORY.blocks == before


@pytest.mark.parametrize(
    ("kind", "method", "answer", "expected"),
    [
        ("CudaEngine", "create_execution_context", None, "expected an execution context, got none"),
        ("ExecutionContext", "set_tensor_address", False, "expected an address for x to be taken, got a refusal"),
        ("ExecutionContext", "infer_shapes", ["x"], "expected fixed shapes, got open ones of"),
        ("ExecutionContext", "execute_async_v3", False, "expected the run to be queued, got a refusal"),
    ],
)
def test_every_answer_is_looked_at(
    kind: str, method: str, answer: object, expected: str, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getattr(vendor, kind), method, lambda *_: answer)
    with pytest.raises(InternalError, match=expected):
        opened(library).run(FEEDS)


def test_an_error_that_is_logged_fails_its_own_run_and_no_other(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(library)
    severity, logger = library.ILogger.Severity, engine._opened.logger
    logger.log(severity.ERROR, "of somebody else, before")
    engine.run(FEEDS)
    enqueue = vendor.ExecutionContext.execute_async_v3

    def complain(self: vendor.ExecutionContext, stream: int) -> bool:
        logger.log(severity.WARNING, "slow")
        logger.log(severity.ERROR, "misaligned address")
        return enqueue(self, stream)

    with monkeypatch.context() as patched:
        patched.setattr(vendor.ExecutionContext, "execute_async_v3", complain)
        with pytest.raises(InternalError, match="misaligned address"):
            engine.run(FEEDS)
    engine.run(FEEDS)


def test_contexts_of_one_engine_are_queued_beside_each_other(library: Any) -> None:
    shared = open_engine(library, ENGINE, HostCode.LIBRARY, "e")
    engines = [StaticEngine(CudaPython(), shared) for _ in range(2)]
    vendor.MEMORY.log.clear()
    stagings = [engine.upload({**FEEDS, "x": FEEDS["x"] + number}) for number, engine in enumerate(engines)]
    for engine, staging in zip(engines, stagings, strict=True):
        engine.start(staging)
    assert vendor.MEMORY.log.count("enqueue") == 2, "neither has waited"
    for number, (engine, staging) in enumerate(zip(engines, stagings, strict=True)):
        np.testing.assert_array_equal(engine.answer(staging)[0]["y"], 2 * (FEEDS["x"] + number))


def test_an_error_that_is_logged_while_runs_are_at_work_fails_these_and_no_other(library: Any) -> None:
    engine = opened(library)
    logger, severity = engine._opened.logger, library.ILogger.Severity
    first, second = engine.upload(FEEDS), engine.upload(FEEDS)
    engine.start(first)
    logger.log(severity.ERROR, "misaligned address")
    engine.start(second)
    np.testing.assert_array_equal(engine.answer(second)[0]["y"], 2 * FEEDS["x"])
    with pytest.raises(InternalError, match="misaligned address"):
        engine.answer(first)
    engine.run(FEEDS)
    first, second = engine.upload(FEEDS), engine.upload(FEEDS)
    engine.start(first)
    engine._context.execute_async_v3 = lambda _: logger.log(severity.ERROR, "of the second")
    with pytest.raises(InternalError, match="of the second"):
        engine.start(second)
    np.testing.assert_array_equal(engine.answer(first)[0]["y"], 2 * FEEDS["x"])


class OnDevice:
    """Arrays of the device, each in bytes of its own."""

    def __init__(self, cuda: CudaPython) -> None:
        self.cuda, self.pointers = cuda, list[int]()

    def array(self, values: Array) -> DeviceArray:
        self.pointers.append(self.cuda.alloc(values.nbytes))
        vendor.MEMORY.write(self.pointers[-1], values.tobytes())
        return DeviceArray(None, self.pointers[-1], values)

    def free(self) -> None:
        while self.pointers:
            self.cuda.free(self.pointers.pop())


def values_of(array: DeviceArray) -> Array:
    return np.frombuffer(vendor.MEMORY.read(array.address, array.nbytes), array.dtype).reshape(array.shape)


def test_the_second_run_at_the_same_addresses_is_captured_and_later_ones_launch_it(library: Any) -> None:
    cuda = CudaPython()
    engine = opened(library, cuda=cuda, captures=True)
    vendor.MEMORY.log.clear()
    for number in range(4):
        outputs, _ = engine.run({**FEEDS, "x": FEEDS["x"] + number})
        np.testing.assert_array_equal(outputs["y"], 2 * (FEEDS["x"] + number))
    assert (vendor.MEMORY.log.count("enqueue"), vendor.MEMORY.log.count("launch")) == (1, 3)
    engine.close()
    assert cuda._cuda.live == []


def test_no_run_is_captured_unless_that_is_wanted(library: Any) -> None:
    engine = opened(library)
    vendor.MEMORY.log.clear()
    for _ in range(3):
        engine.run(FEEDS)
    assert (vendor.MEMORY.log.count("enqueue"), vendor.MEMORY.log.count("launch")) == (3, 0)


@pytest.mark.parametrize("changed", ["x", "y"])
def test_a_graph_is_not_launched_at_other_addresses(changed: str, library: Any) -> None:
    """Whichever of them changes, the run reads and writes where it is told, and nothing else is written."""
    cuda = CudaPython()
    engine, arrays = opened(library, cuda=cuda, captures=True), OnDevice(cuda)
    x, y = arrays.array(FEEDS["x"]), arrays.array(np.zeros((2, 3), np.float16))
    for _ in range(3):
        engine.run({**FEEDS, "x": x}, {"y": y})
    there = arrays.array(FEEDS["x"] + 5 if changed == "x" else np.zeros((2, 3), np.float16))
    x, second = (there, y) if changed == "x" else (x, there)
    vendor.MEMORY.log.clear()
    engine.run({**FEEDS, "x": x}, {"y": second})
    assert (vendor.MEMORY.log.count("enqueue"), vendor.MEMORY.log.count("launch")) == (1, 0)
    np.testing.assert_array_equal(values_of(second), 2 * values_of(x))
    vendor.MEMORY.write(x.address, (FEEDS["x"] + 7).tobytes())
    for _ in range(2):
        engine.run({**FEEDS, "x": x}, {"y": second})
    np.testing.assert_array_equal(values_of(second), 2 * FEEDS["x"] + 14)
    assert vendor.MEMORY.log.count("launch") == 2
    arrays.free()


def test_graphs_that_were_used_longest_ago_are_dropped(library: Any) -> None:
    cuda = CudaPython()
    engine, arrays = opened(library, cuda=cuda, captures=True), OnDevice(cuda)
    places = [arrays.array(np.zeros((2, 3), np.float16)) for _ in range(MOST_GRAPHS + 1)]
    for place in places:
        for _ in range(2):
            engine.run(FEEDS, {"y": place})
        engine.run(FEEDS, {"y": places[0]})  # the first is used all the time
    kept = [each for each in cuda._cuda.live if isinstance(each, vendor.GraphOfCuda)]
    assert len(kept) == len(engine._graphs) == MOST_GRAPHS
    vendor.MEMORY.log.clear()
    engine.run(FEEDS, {"y": places[0]})
    engine.run(FEEDS, {"y": places[1]})
    assert (vendor.MEMORY.log.count("launch"), vendor.MEMORY.log.count("enqueue")) == (1, 1)
    engine.close()
    arrays.free()
    assert cuda._cuda.live == []


@pytest.mark.parametrize("fault", ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "refusal"])
def test_a_run_that_cannot_be_captured_says_how_to_do_without(
    fault: str, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = CudaPython()
    engine = opened(library, cuda=cuda, captures=True)
    engine.run(FEEDS)
    with monkeypatch.context() as patched:
        if fault == "refusal":
            patched.setattr(vendor.ExecutionContext, "execute_async_v3", lambda *_: False)
        cuda._cuda.fail.add(fault)
        with pytest.raises(InternalError, match=r"expected its work as a CUDA graph, got none .*CUDA_GRAPHS=0 in the"):
            engine.run(FEEDS)
    cuda._cuda.fail.clear()
    for _ in range(2):
        np.testing.assert_array_equal(engine.run(FEEDS)[0]["y"], 2 * FEEDS["x"])
    engine.close()
    assert cuda._cuda.live == []


def test_feeds_of_another_type_are_not_converted(library: Any) -> None:
    with pytest.raises(TypeError):
        opened(library).run({**FEEDS, "x": FEEDS["x"].astype(np.float32)})


def test_a_file_that_is_no_engine_is_refused_with_the_librarys_reason(library: Any) -> None:
    with pytest.raises(EngineAbsent, match=r"TensorRT 10.99.0 opens, got 'stream magic does not match'; run"):
        opened(library, b"PK")


def test_an_error_while_the_runtime_is_made_stops_before_its_first_use(library: Any) -> None:
    class Broken(vendor.Runtime):
        """As the vendor's without a driver: it says so, and any use ends the process."""

        def __init__(self, logger: Any) -> None:
            logger.log(logger.Severity.ERROR, "CUDA initialization failure with error: 35")

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("used")

        def __del__(self) -> None:
            freed.append(1)

    freed: list[int] = []

    library.Runtime = Broken
    with pytest.raises(EngineAbsent, match="error: 35"):
        open_engine(library, ENGINE, HostCode.ENGINE, "e")

    gc.collect()
    assert freed == [], "to free it would end the process as well"

    def nothing(logger: Any) -> None:
        raise TypeError("factory function returned nullptr")

    library.Runtime = nothing
    with pytest.raises(EngineAbsent, match="nullptr"):
        open_engine(library, ENGINE, HostCode.LIBRARY, "e")


MODEL = onnx.parser.parse_model(TEXT)
COMPATIBLE = ("VERSION_COMPATIBLE",)
LEAN = ("EXCLUDE_LEAN_RUNTIME", "VERSION_COMPATIBLE")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), HostCode.LIBRARY),
        (("REFIT",), HostCode.LIBRARY),
        (COMPATIBLE, HostCode.ENGINE),
        (LEAN, HostCode.LEAN),
        (("EXCLUDE_LEAN_RUNTIME",), HostCode.LIBRARY),
    ],
)
def test_flags_say_where_the_code_on_the_host_comes_from(flags: tuple[str, ...], expected: HostCode) -> None:
    assert host_code_of(flags) is expected


def test_code_inside_engines_is_allowed_only_where_it_is_asked_for(library: Any) -> None:
    for host_code in HostCode:
        if host_code is not HostCode.LEAN:
            runtime = open_engine(library, ENGINE, host_code, "e").runtime
            assert runtime.engine_host_code_allowed == (host_code is HostCode.ENGINE)
    carrying = engine_of(MODEL, COMPATIBLE)
    with pytest.raises(EngineAbsent, match="engine host code is not allowed"):
        open_engine(library, carrying, HostCode.LIBRARY, "e")
    assert open_engine(library, carrying, HostCode.ENGINE, "e").tensors


def test_an_engine_without_its_lean_runtime_is_opened_by_the_installed_one(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = engine_of(MODEL, LEAN)
    with pytest.raises(EngineAbsent, match=r"which this engine leaves out, got no libnvinfer_lean.so; install tensorr"):
        open_engine(library, lean, HostCode.LEAN, "e")
    monkeypatch.syspath_prepend(str(vendor.write_lean_runtime(tmp_path)))
    found = open_engine(library, lean, HostCode.LEAN, "e")
    outputs, _ = StaticEngine(CudaPython(), found).run(FEEDS)
    np.testing.assert_array_equal(outputs["y"], 2 * FEEDS["x"])
    assert not found.runtime.engine_host_code_allowed
    monkeypatch.setattr(vendor.Runtime, "load_runtime", lambda self, path: None)
    with pytest.raises(EngineAbsent, match=r"expected the lean runtime libnvinfer_lean.so.10 to load, got"):
        open_engine(library, lean, HostCode.LEAN, "e")


def test_a_machine_with_the_lean_runtime_alone_opens_engines_that_leave_theirs_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = vendor.plain_library()
    alone.__name__ = "tensorrt_lean"
    alone.Runtime = type("Runtime", (alone.Runtime,), {"__init__": lambda self, logger: _as_lean(self, logger)})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    monkeypatch.setitem(sys.modules, "tensorrt_lean", alone)
    assert import_tensorrt(HostCode.LEAN) is alone
    assert open_engine(alone, engine_of(MODEL, LEAN), HostCode.LEAN, "e").tensors
    with pytest.raises(EngineAbsent, match=r"expected the Python package tensorrt 10.9 or later"):
        import_tensorrt(HostCode.ENGINE)


def _as_lean(runtime: vendor.Runtime, logger: Any) -> None:
    vendor.Runtime.__init__(runtime, logger, is_lean=True)


def test_a_folder_called_tensorrt_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the folder of a bundle, where Python takes any folder for a package."""
    (tmp_path / "tensorrt").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    with pytest.raises(EngineAbsent, match=r"package tensorrt 10.9 or later, got .*No module .* but folders of that n"):
        import_tensorrt()
    sys.modules.pop("tensorrt", None)


def test_a_version_without_a_needed_name_is_refused_by_it(library: Any) -> None:
    assert import_tensorrt() is library
    del library.IExecutionContext
    with pytest.raises(
        EngineAbsent, match=r"expected IExecutionContext.set_optimization_profile_async, got version 10.99.0 w"
    ):
        require_names(library, NEEDED_NAMES)


def test_no_tensorrt_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(EngineAbsent, match=r"expected the Python package tensorrt 10.9 or later"):
        import_tensorrt()


# In a process of its own


def with_library(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tensorrt.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


def test_an_engine_that_opens_in_a_child_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(vendor.write_packages(tmp_path)))
    try_engine(ENGINE, HostCode.LIBRARY, "e")
    with pytest.raises(EngineAbsent, match=r"^e: expected an engine that TensorRT 10.99.0 opens, got 'stream magic"):
        try_engine(b"PK", HostCode.LIBRARY, "e")


def test_the_child_is_told_where_code_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(vendor.write_packages(tmp_path)))
    carrying = engine_of(MODEL, COMPATIBLE)
    try_engine(carrying, HostCode.ENGINE, "e")
    with pytest.raises(EngineAbsent, match="engine host code is not allowed"):
        try_engine(carrying, HostCode.LIBRARY, "e")


def test_a_crash_of_the_library_is_our_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", monkeypatch)
    with pytest.raises(EngineAbsent, match="got a process ended by SIGSEGV; check the driver"):
        try_engine(ENGINE, HostCode.LIBRARY, "e")


def test_no_library_in_the_child_is_our_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineAbsent, match="expected the Python package tensorrt"):
        try_engine(ENGINE, HostCode.LIBRARY, "e")


def test_an_engine_that_never_opens_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(tmp_path, "import time\ntime.sleep(60)\n", monkeypatch)
    monkeypatch.setattr(tensorrt_engine, "OPEN_S", 0.3)
    with pytest.raises(EngineAbsent, match="expected an engine that opens, got nothing within"):
        try_engine(ENGINE, HostCode.LIBRARY, "e")
