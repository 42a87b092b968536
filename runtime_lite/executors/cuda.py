"""Wraps device memory, pinned buffers, streams and events of one CUDA device, by cuda-python or by pycuda.

Everything outside this file passes integers: device pointers and stream handles, which is what TensorRT takes. The
first choice is cuda-python (`cuda.bindings`); pycuda is accepted where it is what a machine's image ships. Neither is
imported before `probe` has found a driver and a device, and neither is needed to import this file.

`probe` asks the driver in a process of its own: a broken driver ends that process, not this one.
"""

import contextlib
import ctypes
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from runtime_lite.errors import EngineAbsent, ExecutorFailed, InternalError, show

Array = npt.NDArray[Any]

GONE = frozenset(
    {
        "cudaErrorContextIsDestroyed",
        "cudaErrorDeviceUninitialized",
        "cudaErrorDevicesUnavailable",
        "cudaErrorECCUncorrectable",
        "cudaErrorHardwareStackError",
        "cudaErrorIllegalAddress",
        "cudaErrorLaunchFailure",
        "cudaErrorNoDevice",
        "cudaErrorNvlinkUncorrectable",
        "cudaErrorUnknown",
    }
)
"""Errors of CUDA behind which every call of the process fails, by NVIDIA's documentation of the runtime API."""

PROBE_S = 60.0
"""Longer than a driver needs to wake a device that sleeps."""

_PROBE = """
import ctypes, json
def ask():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"error": "no CUDA driver (libcuda.so.1)"}
    code = cuda.cuInit(0)
    if code:
        return {"error": f"a CUDA driver that does not start (cuInit says {code})"}
    version, count, device, major, minor = (ctypes.c_int() for _ in range(5))
    cuda.cuDriverGetVersion(ctypes.byref(version))
    if cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return {"error": "a CUDA driver without a device"}
    if cuda.cuDeviceGet(ctypes.byref(device), 0):
        return {"error": "a CUDA driver that does not hand out its device"}
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, device)
    return {"name": name.value.decode(errors="replace"), "driver": version.value, "count": count.value,
            "major": major.value, "minor": minor.value}
print(json.dumps(ask()))
"""
"""75 and 76 are CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR."""


@dataclass(frozen=True)
class Device:
    """The CUDA device that everything runs on, the first of the machine.

    Attributes:
        name: as the driver says it, e.g. `Tesla T4`.
        capability: compute capability, e.g. `7.5`.
        driver: the CUDA version that the driver supports, e.g. `12.4`.
    """

    name: str
    capability: str
    driver: str


def probe(source: str = _PROBE) -> Device:
    """Ask the driver for its device, in a process of its own.

    Args:
        source: the program that asks; replaced in tests.

    Raises:
        EngineAbsent: there is no driver or no device, or asking ended the process.
    """
    try:
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        raise _absent("a CUDA driver that answers", f"none within {PROBE_S:.0f} s") from None
    if done.returncode < 0:
        raise _absent("a CUDA driver that answers", f"one whose probe was ended by {signal_name(done.returncode)}")
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise _absent("an answer of the CUDA driver", show(done.stderr.strip()[-200:] or done.stdout)) from None
    if "error" in found:
        raise _absent("a CUDA device", str(found["error"]))
    driver = f"{found['driver'] // 1000}.{found['driver'] % 1000 // 10}"
    return Device(found["name"], f"{found['major']}.{found['minor']}", driver)


def signal_name(returncode: int) -> str:
    """How messages call the signal that ended a child, by its negative return code."""
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _absent(expected: str, got: str) -> EngineAbsent:
    return EngineAbsent(f"CUDA: expected {expected}, got {got}; run it on the machine with the device")


class Cuda(Protocol):
    """One device. Pointers and streams are integers; everything is freed by its owner, the last first.

    Attributes:
        name: of the provider.
        captures: whether `capture` is there.
    """

    name: str
    captures: bool

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Make the device current in this thread, around everything else."""
        ...

    def alloc(self, size_bytes: int) -> int:
        """Device memory."""
        ...

    def free(self, pointer: int) -> None:
        """Free device memory."""
        ...

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A host array that the device copies from and to without a detour."""
        ...

    def free_pinned(self, array: Array) -> None:
        """Free what `pinned` gave."""
        ...

    def copy_to_device(self, pointer: int, array: Array, stream: int) -> None:
        """Queue a copy from a contiguous host array."""
        ...

    def copy_to_host(self, array: Array, pointer: int, stream: int) -> None:
        """Queue a copy into a contiguous host array."""
        ...

    def copy_on_device(
        self, to: int, source: int, to_pitch: int, source_pitch: int, width: int, height: int, stream: int
    ) -> None:
        """Queue a copy of rows of bytes within the device, each row a pitch behind the one before."""
        ...

    def stream(self) -> int:
        """A queue of work."""
        ...

    def free_stream(self, stream: int) -> None:
        """Free a queue that is empty."""
        ...

    def synchronize(self, stream: int) -> None:
        """Wait until a queue is empty; errors of queued work are raised here."""
        ...

    def event(self) -> int:
        """What holds a moment of a queue."""
        ...

    def free_event(self, event: int) -> None:
        """Free an event."""
        ...

    def record(self, event: int, stream: int) -> None:
        """Queue the moment that an event is to hold."""
        ...

    def wait_for(self, event: int, stream: int) -> None:
        """Let what is queued from now on begin behind the moment that an event holds, of this or another queue."""
        ...

    def synchronize_event(self, event: int) -> None:
        """Wait until the moment that an event holds has passed; errors of work before it are raised here."""
        ...

    def elapsed_ms(self, first: int, second: int) -> float:
        """Time between the moments of two events, both passed."""
        ...

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        """A graph of what some work queues, which is recorded and not done; no device memory may be reserved in it."""
        ...

    def launch(self, graph: int, stream: int) -> None:
        """Queue what a graph holds, at the addresses that it was captured with."""
        ...

    def free_graph(self, graph: int) -> None:
        """Free a graph."""
        ...

    def close(self) -> None:
        """Free graphs, streams, events and pinned buffers that are left, and leave the device; outside of `active`."""
        ...


class DeviceArray:
    """An array in memory of a device.

    Args:
        holder: holds the memory that it lies in.
        address: of its first entry.
        layout: shape, strides and dtype, as an array of NumPy that is never read.
    """

    __slots__ = ("address", "holder", "layout")

    def __init__(self, holder: Any, address: int, layout: Array) -> None:
        """Hold what it lies in."""
        self.holder, self.address, self.layout = holder, address, layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Entries along each axis."""
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an entry."""
        return self.layout.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return self.layout.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether its entries lie one after the other."""
        return self.layout.flags.c_contiguous

    def __getitem__(self, index: Any) -> "DeviceArray":
        """A view of a part, by slices and numbers."""
        given = index if isinstance(index, tuple) else (index,)
        part = self.layout[given if Ellipsis in given else (*given, ...)]
        return DeviceArray(self.holder, self.address + _start(part) - _start(self.layout), part)

    def __setitem__(self, index: Any, source: Any) -> None:
        """Copy into a part, by the memory that it lies in."""
        self.holder.content.memory.copy(self[index], source)


def _start(layout: Array) -> int:
    return int(layout.__array_interface__["data"][0])


class CudaPython:
    """cuda-python, 12.8 or later, on the primary context."""

    name = "cuda-python"
    captures = True

    def __init__(self) -> None:
        """Import the bindings and take the first device."""
        from cuda.bindings import runtime

        self._cuda = runtime
        self._native = _native_handle()
        self._streams: dict[int, Any] = {}
        self._events: dict[int, Any] = {}
        self._graphs: dict[int, Any] = {}
        self._pinned: dict[int, tuple[Array, Any]] = {}
        self._check(runtime.cudaSetDevice(0))

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        self._check(self._cuda.cudaSetDevice(0))
        yield

    def alloc(self, size_bytes: int) -> int:
        return int(self._check(self._cuda.cudaMalloc(size_bytes)))

    def free(self, pointer: int) -> None:
        self._check(self._cuda.cudaFree(pointer))

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        size_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        pointer = self._check(self._cuda.cudaMallocHost(max(size_bytes, 1)))
        memory = (ctypes.c_uint8 * size_bytes).from_address(int(pointer))
        array = np.frombuffer(memoryview(memory), dtype).reshape(shape)
        self._pinned[id(array)] = array, pointer
        return array

    def free_pinned(self, array: Array) -> None:
        _, pointer = self._pinned.pop(id(array))
        self._check(self._cuda.cudaFreeHost(pointer))

    def copy_to_device(self, pointer: int, array: Array, stream: int) -> None:
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._check(self._cuda.cudaMemcpyAsync(pointer, array.ctypes.data, array.nbytes, kind, self._streams[stream]))

    def copy_to_host(self, array: Array, pointer: int, stream: int) -> None:
        kind = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._check(self._cuda.cudaMemcpyAsync(array.ctypes.data, pointer, array.nbytes, kind, self._streams[stream]))

    def copy_on_device(
        self, to: int, source: int, to_pitch: int, source_pitch: int, width: int, height: int, stream: int
    ) -> None:
        kind, queue = self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToDevice, self._streams[stream]
        self._check(self._cuda.cudaMemcpy2DAsync(to, to_pitch, source, source_pitch, width, height, kind, queue))

    def stream(self) -> int:
        made = self._check(self._cuda.cudaStreamCreate())
        handle = int(self._native(made))
        self._streams[handle] = made
        return handle

    def free_stream(self, stream: int) -> None:
        self._check(self._cuda.cudaStreamDestroy(self._streams.pop(stream)))

    def synchronize(self, stream: int) -> None:
        self._check(self._cuda.cudaStreamSynchronize(self._streams[stream]))

    def event(self) -> int:
        made = self._check(self._cuda.cudaEventCreate())
        handle = int(self._native(made))
        self._events[handle] = made
        return handle

    def free_event(self, event: int) -> None:
        self._check(self._cuda.cudaEventDestroy(self._events.pop(event)))

    def record(self, event: int, stream: int) -> None:
        self._check(self._cuda.cudaEventRecord(self._events[event], self._streams[stream]))

    def wait_for(self, event: int, stream: int) -> None:
        self._check(self._cuda.cudaStreamWaitEvent(self._streams[stream], self._events[event], 0))

    def synchronize_event(self, event: int) -> None:
        self._check(self._cuda.cudaEventSynchronize(self._events[event]))

    def elapsed_ms(self, first: int, second: int) -> float:
        return float(self._check(self._cuda.cudaEventElapsedTime(self._events[first], self._events[second])))

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        queue, modes = self._streams[stream], self._cuda.cudaStreamCaptureMode
        # other threads may reserve memory meanwhile
        self._check(self._cuda.cudaStreamBeginCapture(queue, modes.cudaStreamCaptureModeThreadLocal))
        try:
            work()
        except BaseException:
            error, graph = self._cuda.cudaStreamEndCapture(queue)
            if error == self._cuda.cudaError_t.cudaSuccess:
                self._cuda.cudaGraphDestroy(graph)
            raise
        graph = self._check(self._cuda.cudaStreamEndCapture(queue))
        try:
            made = self._check(self._cuda.cudaGraphInstantiate(graph, 0))
        finally:
            self._cuda.cudaGraphDestroy(graph)
        self._graphs[id(made)] = made
        return id(made)

    def launch(self, graph: int, stream: int) -> None:
        self._check(self._cuda.cudaGraphLaunch(self._graphs[graph], self._streams[stream]))

    def free_graph(self, graph: int) -> None:
        self._check(self._cuda.cudaGraphExecDestroy(self._graphs.pop(graph)))

    def close(self) -> None:
        with self.active():
            for graph in reversed(list(self._graphs)):
                self.free_graph(graph)
            for event in reversed(list(self._events)):
                self.free_event(event)
            for stream in reversed(list(self._streams)):
                self.free_stream(stream)
            for array, _ in reversed(list(self._pinned.values())):
                self.free_pinned(array)

    def _check(self, answer: tuple[Any, ...]) -> Any:
        """What a call returned behind its error, which every call returns first."""
        error, *found = answer
        if getattr(error, "name", "") in GONE:
            raise ExecutorFailed(
                f"CUDA: expected the device, got {error.name}: what lay there is lost; start the process again when "
                "the device is back, and restore snapshots",
                "crash",
            )
        if error != self._cuda.cudaError_t.cudaSuccess:
            raise InternalError(f"CUDA: expected success, got {show(error)}; look at the driver's log")
        return found[0] if found else None


def _native_handle() -> Callable[[Any], int]:
    """What makes a number of a stream or an event; before 12.9.1 there is no such function, and they convert."""
    try:
        from cuda.bindings import utils
    except ImportError:
        return int
    found: Callable[[Any], int] = getattr(utils, "get_cuda_native_handle", int)
    return found


class PyCuda:
    """pycuda on the primary context, which it shares with TensorRT; pushed and popped per thread."""

    name = "pycuda"
    captures = False

    def __init__(self) -> None:
        """Import the library and retain the primary context of the first device."""
        import pycuda.driver as driver

        driver.init()
        self._cuda = driver
        self._context = driver.Device(0).retain_primary_context()
        self._memory: dict[int, Any] = {}
        self._streams: dict[int, Any] = {}
        self._events: dict[int, Any] = {}
        self._pinned: dict[int, Array] = {}
        self._closed = False

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        self._context.push()
        try:
            yield
        except self._cuda.Error as error:
            raise InternalError(f"CUDA: expected success, got {show(str(error))}; look at the driver's log") from error
        finally:
            self._context.pop()

    def alloc(self, size_bytes: int) -> int:
        made = self._cuda.mem_alloc(size_bytes)
        self._memory[int(made)] = made
        return int(made)

    def free(self, pointer: int) -> None:
        self._memory.pop(pointer).free()

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        made: Array = self._cuda.pagelocked_empty(shape, dtype)
        self._pinned[id(made)] = made
        return made

    def free_pinned(self, array: Array) -> None:
        del self._pinned[id(array)]  # pycuda frees what nobody holds, here and below

    def copy_to_device(self, pointer: int, array: Array, stream: int) -> None:
        self._cuda.memcpy_htod_async(pointer, array, self._streams[stream])

    def copy_to_host(self, array: Array, pointer: int, stream: int) -> None:
        self._cuda.memcpy_dtoh_async(array, pointer, self._streams[stream])

    def copy_on_device(
        self, to: int, source: int, to_pitch: int, source_pitch: int, width: int, height: int, stream: int
    ) -> None:
        copy = self._cuda.Memcpy2D()
        copy.set_src_device(source)
        copy.set_dst_device(to)
        copy.src_pitch, copy.dst_pitch = source_pitch, to_pitch
        copy.width_in_bytes, copy.height = width, height
        copy(self._streams[stream])

    def stream(self) -> int:
        made = self._cuda.Stream()
        self._streams[int(made.handle)] = made
        return int(made.handle)

    def free_stream(self, stream: int) -> None:
        del self._streams[stream]

    def synchronize(self, stream: int) -> None:
        self._streams[stream].synchronize()

    def event(self) -> int:
        made = self._cuda.Event()
        self._events[id(made)] = made
        return id(made)

    def free_event(self, event: int) -> None:
        del self._events[event]

    def record(self, event: int, stream: int) -> None:
        self._events[event].record(self._streams[stream])

    def wait_for(self, event: int, stream: int) -> None:
        self._streams[stream].wait_for_event(self._events[event])

    def synchronize_event(self, event: int) -> None:
        self._events[event].synchronize()

    def elapsed_ms(self, first: int, second: int) -> float:
        return float(self._events[first].time_till(self._events[second]))

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        raise _no_graphs()

    def launch(self, graph: int, stream: int) -> None:
        raise _no_graphs()

    def free_graph(self, graph: int) -> None:
        raise _no_graphs()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with self.active():
            self._events.clear()
            self._streams.clear()
            self._pinned.clear()
        self._context.detach()  # inside of `active` it would take the context off the stack that `pop` looks at


def _no_graphs() -> InternalError:
    return InternalError("pycuda: expected no CUDA graph, got one; install cuda-python")


PROVIDERS: tuple[type[CudaPython] | type[PyCuda], ...] = (CudaPython, PyCuda)
"""In the order of choice."""


def open_cuda(providers: tuple[Any, ...] = PROVIDERS) -> Cuda:
    """The first provider that this machine has; call `probe` first.

    Raises:
        EngineAbsent: it has none.
    """
    missing: list[str] = []
    for provider in providers:
        try:
            made: Cuda = provider()
        except ImportError as error:
            missing.append(f"{provider.name}: {error}")
            continue
        return made
    names = " or ".join(provider.name for provider in providers)
    raise EngineAbsent(f"CUDA: expected {names}, got neither ({'; '.join(missing)}); pip install cuda-python")
