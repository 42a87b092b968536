"""Opens a TensorRT engine and executes it at fixed shapes.

No other module of the runtime calls TensorRT. One code path for TensorRT 10.9 and later and 11. The library is handed
over as a module, so that this file imports without it; every call's answer is looked at, and what the library's logger
calls an error is one. Without a driver the library's objects end the process at first use, so nothing here is called
before `cuda.probe` has answered, and `try_engine` opens an engine in a process of its own first.
"""

import ctypes
import enum
import importlib
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np

from runtime_lite.errors import FRONT_DOOR, EngineAbsent, InternalError, show
from runtime_lite.executors.cuda import Array, Cuda, signal_name
from runtime_lite.executors.device_run import GRAPHS_SWITCH, DeviceRun, DeviceTensor, Staging

REASON_CHARACTERS = 300

OPEN_S = 600.0
"""Longer than the largest engine takes to load from a slow disk."""

LAYERS_HEAD = "Layers:"
"""How the message begins that lists the layers of an engine."""

NEEDED_NAMES: dict[str, tuple[str, ...]] = {
    "Runtime": ("deserialize_cuda_engine", "engine_host_code_allowed", "load_runtime"),
    "ICudaEngine": (
        "num_io_tensors",
        "get_tensor_name",
        "get_tensor_mode",
        "get_tensor_dtype",
        "get_tensor_shape",
        "get_tensor_profile_shape",
        "num_optimization_profiles",
        "create_execution_context",
        "device_memory_size_v2",
    ),
    "IExecutionContext": (
        "set_optimization_profile_async",
        "set_input_shape",
        "get_tensor_shape",
        "set_tensor_address",
        "infer_shapes",
        "execute_async_v3",
    ),
    "TensorIOMode": ("INPUT",),
}
"""What a version must have; older ones, which come with some images, are refused by name."""


class HostCode(enum.Enum):
    """Where the code comes from that runs an engine on the host."""

    LIBRARY = "library"
    """The installed TensorRT, of the version that built the engine."""

    ENGINE = "engine"
    """The engine: it carries a runtime, so that later versions open it; only from a trusted source."""

    LEAN = "lean"
    """The installed lean runtime, of the version that built the engine; the engine carries none."""

    RTX = "rtx"
    """The installed TensorRT-RTX, of the version that built the engine."""


def host_code_of(flags: Collection[str]) -> HostCode:
    """What the builder flags of an engine, by name, mean for who opens it."""
    if "VERSION_COMPATIBLE" not in flags:
        return HostCode.LIBRARY
    return HostCode.LEAN if "EXCLUDE_LEAN_RUNTIME" in flags else HostCode.ENGINE


def import_tensorrt(host_code: HostCode = HostCode.LIBRARY) -> ModuleType:
    """The installed TensorRT; its lean runtime alone will do for engines that leave theirs out. Or TensorRT-RTX.

    Raises:
        EngineAbsent: it is not installed or does not load, or it lacks a name that is needed.
    """
    others = {HostCode.LEAN: ("tensorrt", "tensorrt_lean"), HostCode.RTX: ("tensorrt_rtx",)}
    names = others.get(host_code, ("tensorrt",))
    missing: list[str] = []
    for name in names:
        try:
            found = importlib.import_module(name)
        except (ImportError, OSError) as error:
            missing.append(str(error))
            continue
        if found.__spec__ is None or found.__spec__.origin is not None:
            require_names(found, NEEDED_NAMES)
            return found
        missing.append(f"No module named {name!r} but folders of that name: {list(found.__path__)}")
    older = "" if host_code is HostCode.RTX else " 10.9 or later"
    distributions = "tensorrt-rtx-cu13" if host_code is HostCode.RTX else "tensorrt-cu12 or tensorrt-cu13"
    raise EngineAbsent(
        f"TensorRT: expected the Python package {' or '.join(names)}{older}, got {one_line('; '.join(missing))}; "
        f"install it ({distributions}, by the driver's CUDA version)"
    )


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
    """A logger that keeps what the library calls errors in `errors`, the internal ones in `internal_errors`, too.

    The list of an engine's layers, which a builder that profiles in detail logs at its end, is kept in `layers`.
    """

    class Logger(trt.ILogger):  # type: ignore[misc]  # the base is known at run time only
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.internal_errors: list[str] = []
            self.layers = ""

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors.append(msg)
            if severity == trt.ILogger.Severity.INTERNAL_ERROR:
                self.internal_errors.append(msg)
            if msg.startswith(LAYERS_HEAD):
                self.layers = msg

    return Logger()


@dataclass(frozen=True)
class OpenedEngine:
    """An engine in the library's hands; it holds weights on the device, and no buffers.

    Attributes:
        trt: the library.
        runtime: the library's runtime, which the engine needs as long as it is there.
        engine: the library's engine.
        logger: what both log to.
        tensors: inputs and outputs in the engine's order; -1 is a size that a profile fixes.
        where: for messages.
        kernels: compiled kernels that contexts share and add to, where the library compiles them on the device.
    """

    trt: Any
    runtime: Any
    engine: Any
    logger: Any
    tensors: tuple[DeviceTensor, ...]
    where: str
    kernels: Any = None

    @property
    def has_profiles(self) -> bool:
        """Whether sizes are open until a context has chosen a profile."""
        return any(-1 in tensor.shape for tensor in self.tensors)

    def profile_of(self, shapes: Mapping[str, Sequence[int]]) -> int | None:
        """The number of the profile for these shapes of all inputs, by name; None where there is none."""
        if {tensor.name for tensor in self.tensors if tensor.is_input} != set(shapes):
            return None
        return next((each for each in range(self.engine.num_optimization_profiles) if self._fits(each, shapes)), None)

    def _fits(self, profile: int, shapes: Mapping[str, Sequence[int]]) -> bool:
        usual = {name: self.engine.get_tensor_profile_shape(name, profile)[1] for name in shapes}
        return all(tuple(map(int, usual[name])) == tuple(shape) for name, shape in shapes.items())

    def context(self) -> Any:
        """A new execution context that holds its memory from the start; None where the library refuses.

        With profiles it holds the memory that its profile needs, from when it has chosen one.
        """
        strategies = self.trt.ExecutionContextAllocationStrategy
        strategy = strategies.ON_PROFILE_CHANGE if self.has_profiles else strategies.STATIC
        if self.kernels is None:
            return self.engine.create_execution_context(strategy)
        config = self.engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        self.require(config.set_runtime_cache(self.kernels), "the cache of kernels to be taken", "a refusal")
        return self.engine.create_execution_context(config)

    @property
    def device_bytes(self) -> int:
        """Memory of the device that one context needs besides weights and buffers."""
        return int(self.engine.device_memory_size_v2)

    def require(self, holds: Any, expected: str, got: str) -> None:
        """Stop unless the library did what was asked of it.

        Raises:
            InternalError: with what the library says.
        """
        if holds:
            return
        said = f" ({show(self.logger.errors[-1])})" if self.logger.errors else ""
        raise InternalError(
            f"{self.where}: expected {expected}, got {got}{said}; build the engine again on this machine"
        )


class StaticEngine(DeviceRun):
    """One execution context of an engine of fixed shapes; contexts of one engine share its weights.

    Args:
        cuda: the device, active in this thread.
        opened: the engine.
        stream: the queue of all work; None for one of its own.
        captures: whether runs are captured as CUDA graphs.
        lock: held while something is put into the queue of all work; None for one of its own.
        shapes: of the inputs, which choose the profile of an engine that has several; unused for one of fixed shapes.

    Raises:
        InternalError: the library refuses a context or a shape; nothing stays reserved.
    """

    def __init__(
        self,
        cuda: Cuda,
        opened: OpenedEngine,
        stream: int | None = None,
        captures: bool = False,
        lock: "threading.RLock | None" = None,
        shapes: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        """Make the context, and what measures a run."""
        self._opened = opened
        self._context = opened.context()
        opened.require(self._context is not None, "an execution context", "none")
        if opened.has_profiles:
            self._choose_profile(cuda, shapes)
        missing = list(self._context.infer_shapes())
        opened.require(not missing, "fixed shapes", f"open ones of {missing}")
        self._addresses: dict[str, int] = {}
        self._started: dict[Staging, int] = {}
        super().__init__(cuda, tuple(map(self._at_profile, opened.tensors)), stream, captures, lock)

    def _choose_profile(self, cuda: Cuda, shapes: Mapping[str, Sequence[int]]) -> None:
        """Fix the sizes of the inputs; the library copies what it needs for that in a queue, which is waited for."""
        profile = self._opened.profile_of(shapes)
        self._opened.require(profile is not None, f"a profile for inputs of shapes {dict(shapes)}", "none")
        queue = cuda.stream()
        try:
            accepted = self._context.set_optimization_profile_async(profile, queue)
            self._opened.require(accepted, f"profile {profile} to be taken", "a refusal")
            cuda.synchronize(queue)
        finally:
            cuda.free_stream(queue)
        for name, shape in shapes.items():
            accepted = self._context.set_input_shape(name, tuple(shape))
            self._opened.require(accepted, f"{name} of shape {tuple(shape)} to be taken", "a refusal")

    def _at_profile(self, tensor: DeviceTensor) -> DeviceTensor:
        if -1 not in tensor.shape:
            return tensor
        return replace(tensor, shape=tuple(map(int, self._context.get_tensor_shape(tensor.name))))

    def start(self, staging: Staging) -> None:
        """Queue one run; what was logged before it is forgotten, unless a run that is not answered may be why."""
        with self._lock:
            errors = self._opened.logger.errors
            if not self._started:
                errors.clear()
            self._started[staging] = before = len(errors)
            try:
                super().start(staging)
                self._require_silence(staging)
            except BaseException:
                del self._started[staging]
                del errors[before:]  # they are of this run
                raise

    def answer(self, staging: Staging) -> tuple[dict[str, Array], float]:
        """Wait for a run, since whose start the library must have logged no error."""
        try:
            answer = super().answer(staging)
            self._require_silence(staging)
        finally:
            del self._started[staging]
        return answer

    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        self._set_addresses(addresses)
        self._execute()

    def _capture(self, addresses: tuple[int, ...]) -> int:
        self._set_addresses(addresses)
        try:
            return self._cuda.capture(self._stream, self._execute)
        except InternalError as error:
            raise InternalError(
                f"{self._opened.where}: expected its work as a CUDA graph, got none ({error}); set {GRAPHS_SWITCH}=0 "
                "in the environment to run without"
            ) from error

    def _launch(self, graph: int) -> None:
        self._cuda.launch(graph, self._stream)

    def _drop(self, graph: int) -> None:
        self._cuda.free_graph(graph)

    def _execute(self) -> None:
        accepted = self._context.execute_async_v3(self._stream)
        self._opened.require(accepted, "the run to be queued", "a refusal")

    def _set_addresses(self, addresses: tuple[int, ...]) -> None:
        for tensor, address in zip(self.tensors, addresses, strict=True):
            if self._addresses.get(tensor.name) != address:
                accepted = self._context.set_tensor_address(tensor.name, address)
                self._opened.require(accepted, f"an address for {tensor.name} to be taken", "a refusal")
                self._addresses[tensor.name] = address

    def close(self) -> None:
        """Drop graphs, context and buffers; a second call does nothing."""
        super().close()
        self._context = None
        self._addresses.clear()

    def _require_silence(self, staging: Staging) -> None:
        errors = self._opened.logger.errors[self._started[staging] :]
        self._opened.require(not errors, "a run without errors", "one with")


def open_engine(trt: Any, content: bytes, host_code: HostCode, where: str) -> OpenedEngine:
    """Open an engine.

    Args:
        trt: the library.
        content: the serialised engine.
        host_code: where the code comes from that runs it; `ENGINE` only where the caller trusts it.
        where: for messages.

    Raises:
        EngineAbsent: it cannot be opened here.
    """
    logger = make_logger(trt)
    try:
        runtime = trt.Runtime(logger)
    except TypeError as error:  # the binding's word for a library that returned nothing
        raise _not_opened(trt, where, str(error), host_code) from error
    if logger.errors:  # the object is there all the same, and using it would end the process
        keep_for_ever(runtime)
        raise _not_opened(trt, where, logger.errors[0], host_code)
    if host_code is HostCode.ENGINE:
        runtime.engine_host_code_allowed = True
    if host_code is HostCode.LEAN and trt.__name__ != "tensorrt_lean":
        runtime = _lean_runtime(runtime, logger, where)
    engine = runtime.deserialize_cuda_engine(content)
    if engine is None or logger.errors:
        raise _not_opened(trt, where, logger.errors[0] if logger.errors else "no reason", host_code)
    return OpenedEngine(trt, runtime, engine, logger, tensors_of(trt, engine), where)


def _lean_runtime(runtime: Any, logger: Any, where: str) -> Any:
    """The lean runtime of the package that holds its library, loaded by a full runtime.

    Raises:
        EngineAbsent: the package is not installed, or its library is not taken.
    """
    cure = "install tensorrt-lean-cu12 or tensorrt-lean-cu13 of the version that built the engine"
    spec = importlib.util.find_spec("tensorrt_lean_libs")
    folders = spec.submodule_search_locations if spec is not None else None
    found = sorted(path for folder in folders or () for path in Path(folder).glob("libnvinfer_lean.so*"))
    if not found:
        raise EngineAbsent(
            f"{where}: expected the lean runtime, which this engine leaves out, got no libnvinfer_lean.so; {cure}"
        )
    loaded = runtime.load_runtime(str(found[0]))
    if loaded is None:
        said = logger.errors[0] if logger.errors else "no reason"
        raise EngineAbsent(f"{where}: expected the lean runtime {found[0].name} to load, got {one_line(said)}; {cure}")
    return loaded


def one_line(reason: str) -> str:
    """What the library says, on one line of bounded length; its reasons stand behind long names of its parts."""
    return ascii(" ".join(reason.split())[:REASON_CHARACTERS])


def keep_for_ever(broken: object) -> None:
    """Hold on to an object of the library that was not made well: to free it would end the process as well."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(broken))


def _not_opened(trt: Any, where: str, reason: str, host_code: HostCode) -> EngineAbsent:
    library, cure = "TensorRT", f"run `{FRONT_DOOR} finish` on this machine"
    if host_code is HostCode.RTX:
        library, cure = "TensorRT-RTX", "build the bundle again for this device"
    return EngineAbsent(
        f"{where}: expected an engine that {library} {getattr(trt, '__version__', '?')} opens, got {one_line(reason)}; "
        f"{cure}"
    )


def tensors_of(trt: Any, engine: Any) -> tuple[DeviceTensor, ...]:
    """Inputs and outputs in the engine's order."""
    names = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
    return tuple(
        DeviceTensor(
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
importlib.import_module(sys.argv[2]).open_in_child(sys.argv[3], sys.argv[4])
"""


def try_engine(content: bytes, host_code: HostCode, where: str) -> None:
    """Open an engine in a process of its own, which may be ended by it.

    Raises:
        EngineAbsent: it cannot be opened here; the reason is the library's, or the signal that ended the process.
    """
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path), __name__, host_code.value, where]
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=OPEN_S)
    except subprocess.TimeoutExpired:
        raise EngineAbsent(f"{where}: expected an engine that opens, got nothing within {OPEN_S:.0f} s") from None
    if done.returncode < 0:
        raise EngineAbsent(
            f"{where}: expected an engine that opens, got a process ended by {signal_name(done.returncode)}; "
            f"check the driver and the version of TensorRT with `{FRONT_DOOR} doctor`, and build the engine here"
        )
    if done.returncode:
        raise EngineAbsent(done.stderr.decode(errors="replace").strip().splitlines()[-1])


def open_in_child(host_code: str, where: str) -> None:
    """What the process of `try_engine` does: open the engine on standard input and end well, or say why not."""
    try:
        trt = import_tensorrt(HostCode(host_code))
        open_engine(trt, sys.stdin.buffer.read(), HostCode(host_code), where)
    except EngineAbsent as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
