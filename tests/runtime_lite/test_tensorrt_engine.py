"""An engine is opened, fed and read; what the library answers is looked at, and what ends a process is a sentence."""

import gc
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from runtime_lite import tensorrt_engine
from runtime_lite.cuda import CudaPython
from runtime_lite.errors import EngineAbsent, InternalError
from runtime_lite.tensorrt_engine import (
    NEEDED_NAMES,
    StaticEngine,
    import_tensorrt,
    make_logger,
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


def opened(library: Any, content: bytes = ENGINE) -> StaticEngine:
    return StaticEngine(library, CudaPython(), content, False, "b: e.plan")


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
    assert engine.device_bytes == 4096


def test_an_engine_that_does_not_open_leaves_no_memory_behind(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(vendor.MEMORY.blocks)
    monkeypatch.setattr(vendor.ExecutionContext, "infer_shapes", lambda self: ["x"])
    with pytest.raises(InternalError):
        opened(library)
    assert vendor.MEMORY.blocks == before


def test_memory_is_freed(library: Any) -> None:
    before = dict(vendor.MEMORY.blocks)
    engine = opened(library)
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


def test_an_error_in_the_log_is_one_although_the_call_succeeds(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened(library)
    engine._logger.log(library.ILogger.Severity.WARNING, "slow")
    engine.run(FEEDS)
    engine._logger.log(library.ILogger.Severity.ERROR, "misaligned address")
    with pytest.raises(InternalError, match="misaligned address"):
        engine.run(FEEDS)


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
        open_engine(library, make_logger(library), ENGINE, True, "e")

    gc.collect()
    assert freed == [], "to free it would end the process as well"

    def nothing(logger: Any) -> None:
        raise TypeError("factory function returned nullptr")

    library.Runtime = nothing
    with pytest.raises(EngineAbsent, match="nullptr"):
        open_engine(library, make_logger(library), ENGINE, False, "e")


def test_code_inside_engines_is_allowed_only_where_the_plan_asks_for_it(library: Any) -> None:
    for host_code in (False, True):
        runtime, _ = open_engine(library, make_logger(library), ENGINE, host_code, "e")
        assert runtime.engine_host_code_allowed == host_code


def test_a_version_without_a_needed_name_is_refused_by_it(library: Any) -> None:
    assert import_tensorrt() is library
    del library.IExecutionContext
    with pytest.raises(EngineAbsent, match=r"expected IExecutionContext.set_tensor_address, got version 10.99.0 w"):
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
    try_engine(ENGINE, False, "e")
    with pytest.raises(EngineAbsent, match=r"^e: expected an engine that TensorRT 10.99.0 opens, got 'stream magic"):
        try_engine(b"PK", False, "e")


def test_a_crash_of_the_library_is_our_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", monkeypatch)
    with pytest.raises(EngineAbsent, match="got a process ended by SIGSEGV; check the driver"):
        try_engine(ENGINE, False, "e")


def test_no_library_in_the_child_is_our_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineAbsent, match="expected the Python package tensorrt"):
        try_engine(ENGINE, False, "e")


def test_an_engine_that_never_opens_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_library(tmp_path, "import time\ntime.sleep(60)\n", monkeypatch)
    monkeypatch.setattr(tensorrt_engine, "OPEN_S", 0.3)
    with pytest.raises(EngineAbsent, match="expected an engine that opens, got nothing within"):
        try_engine(ENGINE, False, "e")
