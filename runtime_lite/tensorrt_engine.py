"""Opens a TensorRT engine of fixed shapes and runs it: everything of TensorRT that the runtime calls.

One code path for TensorRT 10.9 and later and 11. The library is handed over as a module, so that this file imports
without it; every call's answer is looked at, and what the library's logger calls an error is one. Without a driver the
library's objects end the process at first use, so nothing here is called before `runtime_lite.cuda.probe` has answered,
and `try_engine` opens an engine in a process of its own first.
"""

import ctypes
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from runtime_lite.cuda import Array, Cuda, signal_name
from runtime_lite.errors import EngineAbsent, InternalError, show

REASON_CHARACTERS = 300

OPEN_S = 600.0
"""Longer than the largest engine takes to load from a slow disk."""

NEEDED_NAMES: dict[str, tuple[str, ...]] = {
    "Runtime": ("deserialize_cuda_engine", "engine_host_code_allowed"),
    "ICudaEngine": (
        "num_io_tensors",
        "get_tensor_name",
        "get_tensor_mode",
        "get_tensor_dtype",
        "get_tensor_shape",
        "create_execution_context",
        "device_memory_size_v2",
    ),
    "IExecutionContext": ("set_tensor_address", "infer_shapes", "execute_async_v3"),
    "TensorIOMode": ("INPUT",),
}
"""What a version must have; older ones, which come with some images, are refused by name."""


@dataclass(frozen=True)
class EngineTensor:
    """An input or output of an engine.

    Attributes:
        name: as in the graph.
        shape: fixed.
        dtype: as NumPy has it.
        is_input: whether it is fed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_input: bool


def import_tensorrt() -> ModuleType:
    """The installed TensorRT.

    Raises:
        EngineAbsent: it is not installed or does not load, or it lacks a name that is needed.
    """
    try:
        found = importlib.import_module("tensorrt")
    except (ImportError, OSError) as error:
        raise EngineAbsent(
            f"TensorRT: expected the Python package tensorrt 10.9 or later, got {show(str(error))}; "
            "install it (tensorrt-cu12 or tensorrt-cu13, by the driver's CUDA version)"
        ) from error
    require_names(found, NEEDED_NAMES)
    return found


def require_names(trt: ModuleType, needed: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a version that lacks a name.

    Raises:
        EngineAbsent: lists what is missing.
    """
    missing = [
        f"{kind}.{name}"
        for kind, names in needed.items()
        for name in names
        if not hasattr(getattr(trt, kind, None), name)
    ]
    if missing:
        version = getattr(trt, "__version__", "of unknown version")
        raise EngineAbsent(
            f"TensorRT: expected {missing[0]}, got version {version} without it "
            f"({len(missing)} names missing); install 10.9 or later"
        )


def make_logger(trt: Any) -> Any:
    """A logger that keeps what the library calls errors, in `errors`."""

    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors.append(msg)

    return Logger()


class StaticEngine:
    """An engine of fixed shapes with one execution context, its buffers and a stream of its own.

    Args:
        trt: the library.
        cuda: the device, active in this thread.
        content: the serialised engine; only from a trusted source, it holds code.
        host_code: whether it carries a runtime of its own (version-compatible engines).
        where: for messages.

    Raises:
        EngineAbsent: the library cannot open it on this machine.
    """

    def __init__(self, trt: Any, cuda: Cuda, content: bytes, host_code: bool, where: str) -> None:
        """Open the engine and reserve everything that a run needs."""
        self._cuda, self._where = cuda, where
        self._logger = make_logger(trt)
        self._runtime, self._engine = open_engine(trt, self._logger, content, host_code, where)
        self._context = self._engine.create_execution_context(trt.ExecutionContextAllocationStrategy.STATIC)
        self._require(self._context is not None, "an execution context", "none")
        self.tensors = tensors_of(trt, self._engine)
        self._stream = cuda.stream()
        self._before, self._after = cuda.event(), cuda.event()
        self._device: dict[str, int] = {}
        self._host: dict[str, Array] = {}
        try:
            self._reserve()
        except BaseException:
            self.close()
            raise

    def _reserve(self) -> None:
        """Buffers on both sides for every tensor."""
        cuda = self._cuda
        for tensor in self.tensors:
            size_bytes = int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize
            pointer = self._device[tensor.name] = cuda.alloc(max(size_bytes, 1))
            self._host[tensor.name] = cuda.pinned(tensor.shape, tensor.dtype)
            accepted = self._context.set_tensor_address(tensor.name, pointer)
            self._require(accepted, f"an address for {tensor.name} to be taken", "a refusal")
        missing = list(self._context.infer_shapes())
        self._require(not missing, "fixed shapes", f"open ones of {missing}")

    @property
    def device_bytes(self) -> int:
        """Memory of the device that the context needs besides weights and buffers."""
        return int(self._engine.device_memory_size_v2)

    def run(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], float]:
        """Run once; the device must be active in this thread, and runs may not overlap.

        Args:
            feeds: every input, of exactly the engine's shape and dtype.

        Returns:
            Every output by name, and the milliseconds that the device worked on it, copies aside.
        """
        for tensor in self.tensors:
            if tensor.is_input:
                np.copyto(self._host[tensor.name], feeds[tensor.name], casting="no")
                self._cuda.copy_to_device(self._device[tensor.name], self._host[tensor.name], self._stream)
        self._cuda.record(self._before, self._stream)
        accepted = self._context.execute_async_v3(self._stream)
        self._require(accepted, "the run to be queued", "a refusal")
        self._cuda.record(self._after, self._stream)
        outputs = [tensor for tensor in self.tensors if not tensor.is_input]
        for tensor in outputs:
            self._cuda.copy_to_host(self._host[tensor.name], self._device[tensor.name], self._stream)
        self._cuda.synchronize(self._stream)
        self._require(not self._logger.errors, "a run without errors", "one with")
        elapsed_ms = self._cuda.elapsed_ms(self._before, self._after)
        return {tensor.name: self._host[tensor.name].copy() for tensor in outputs}, elapsed_ms

    def close(self) -> None:
        """Free the buffers, then drop context, engine and runtime, in reverse order."""
        while self._device:
            self._cuda.free(self._device.popitem()[1])
        self._host.clear()
        self._context = self._engine = self._runtime = None

    def _require(self, holds: Any, expected: str, got: str) -> None:
        if holds:
            return
        said = f" ({show(self._logger.errors[0])})" if self._logger.errors else ""
        raise InternalError(
            f"{self._where}: expected {expected}, got {got}{said}; build the engine again on this machine"
        )


def open_engine(trt: Any, logger: Any, content: bytes, host_code: bool, where: str) -> tuple[Any, Any]:
    """The library's runtime and the engine it opened.

    Raises:
        EngineAbsent: it cannot be opened here.
    """
    try:
        runtime = trt.Runtime(logger)
    except TypeError as error:  # the binding's word for a library that returned nothing
        raise _not_opened(trt, where, str(error)) from error
    if logger.errors:  # the object is there all the same, and using it would end the process
        keep_for_ever(runtime)
        raise _not_opened(trt, where, logger.errors[0])
    if host_code:
        runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None or logger.errors:
        raise _not_opened(trt, where, logger.errors[0] if logger.errors else "no reason")
    return runtime, engine


def one_line(reason: str) -> str:
    """What the library says, on one line of bounded length; its reasons stand behind long names of its parts."""
    return ascii(" ".join(reason.split())[:REASON_CHARACTERS])


def keep_for_ever(broken: object) -> None:
    """Hold on to an object of the library that was not made well: to free it would end the process as well."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(broken))


def _not_opened(trt: Any, where: str, reason: str) -> EngineAbsent:
    return EngineAbsent(
        f"{where}: expected an engine that TensorRT {getattr(trt, '__version__', '?')} opens, got {one_line(reason)}; "
        "run `build.py finish` on this machine"
    )


def tensors_of(trt: Any, engine: Any) -> tuple[EngineTensor, ...]:
    """Inputs and outputs in the engine's order."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return tuple(
        EngineTensor(
            name,
            tuple(int(size) for size in engine.get_tensor_shape(name)),
            np.dtype(trt.nptype(engine.get_tensor_dtype(name))),
            engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
        )
        for name in names
    )


_CHILD = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).open_in_child(bool(int(sys.argv[3])), sys.argv[4])
"""


def try_engine(content: bytes, host_code: bool, where: str) -> None:
    """Open an engine in a process of its own, which may be ended by it.

    Raises:
        EngineAbsent: it cannot be opened here; the reason is the library's, or the signal that ended the process.
    """
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path), __name__, str(int(host_code)), where]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=OPEN_S)
    except subprocess.TimeoutExpired:
        raise EngineAbsent(f"{where}: expected an engine that opens, got nothing within {OPEN_S:.0f} s") from None
    if done.returncode < 0:
        raise EngineAbsent(
            f"{where}: expected an engine that opens, got a process ended by {signal_name(done.returncode)}; "
            "check the driver and the version of TensorRT with `build.py doctor`, and build the engine on this machine"
        )
    if done.returncode:
        raise EngineAbsent(done.stderr.decode(errors="replace").strip().splitlines()[-1])


def open_in_child(host_code: bool, where: str) -> None:
    """What the process of `try_engine` does: open the engine on standard input and end well, or say why not."""
    try:
        trt = import_tensorrt()
        open_engine(trt, make_logger(trt), sys.stdin.buffer.read(), host_code, where)
    except EngineAbsent as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
