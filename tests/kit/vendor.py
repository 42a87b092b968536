"""Doubles of the vendor's libraries: CUDA with memory of its own, and a TensorRT whose engines ONNX Runtime computes.

They do what the documentation says, so that our code runs from end to end without a device. Whether the names and
signatures that our code uses exist in the genuine bindings is the question of tests/contract_tensorrt.
"""

import base64
import ctypes
import enum
import functools
import io
import itertools
import json
import random
import threading
import types
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime

from runtime_lite.format.arrays import Array

NUMPY_NAMES = {"HALF": "float16", "FLOAT": "float32", "INT64": "int64", "INT32": "int32", "BOOL": "bool"}


class Memory:
    """Memory of a device, by pointer; what happened to it is logged.

    It lies in this process, so that ONNX Runtime on the CPU reads and writes what is bound by address.
    """

    def __init__(self) -> None:
        self.blocks: dict[int, bytearray] = {}
        self.log: list[str] = []
        self.most = 1 << 40

    def alloc(self, size_bytes: int) -> int:
        block = bytearray(size_bytes)
        pointer = ctypes.addressof(ctypes.c_char.from_buffer(block))
        self.blocks[pointer] = block
        self.log.append("alloc")
        return pointer

    def free(self, pointer: int) -> None:
        del self.blocks[pointer]
        self.log.append("free")

    def write(self, pointer: int, content: bytes) -> None:
        self.part(pointer, len(content))[:] = content
        self.log.append("to device")

    def read(self, pointer: int, size_bytes: int) -> bytes:
        self.log.append("to host")
        return bytes(self.part(pointer, size_bytes))

    def part(self, pointer: int, size_bytes: int) -> memoryview:
        """Bytes from a pointer on, which have to lie in one block."""
        first = max((start for start in list(self.blocks) if start <= pointer), default=0)
        block = self.blocks.get(first, bytearray())
        assert pointer - first + size_bytes <= len(block), "an address outside of what is allocated"
        return memoryview(block)[pointer - first : pointer - first + size_bytes]

    def copy_rows(self, to: int, to_pitch: int, source: int, source_pitch: int, width: int, height: int) -> None:
        assert width <= min(to_pitch, source_pitch), "a row that is longer than a pitch"
        assert height > 0
        for row in range(height):
            self.part(to + row * to_pitch, width)[:] = bytes(self.part(source + row * source_pitch, width))
        self.log.append("on device")


MEMORY = Memory()
"""The one device of a process."""


class Handle(int):
    """A stream or event of cuda-python, which converts to int."""


CAPTURES: dict[int, list[Callable[[], None]]] = {}
"""What is recorded of queues that are being captured, by their number; nothing of it is done."""


class Queues:
    """What a device has been given and has not done yet: each queue in order, the queues beside each other.

    A queue goes on when somebody waits, and otherwise when `hurries` says so, at random by default. So what is
    overwritten before it is read, and what is read before it is written, shows in what comes out.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._given: dict[int, deque[Callable[[], bool]]] = {}
        self._moments: dict[int, tuple[int, int]] = {}  # of an event: how often it was recorded, and has passed
        self._random = random.Random(0)
        self.hurries: Callable[[], bool] = lambda: self._random.random() < 0.3

    def open(self, stream: int) -> None:
        self._given[stream] = deque()
        QUEUES_OF[stream] = self

    def close(self, stream: int) -> None:
        self.wait(stream)
        del self._given[stream], QUEUES_OF[stream]

    def give(self, stream: int, work: Callable[[], object]) -> None:
        """Queue work."""

        def step() -> bool:
            work()
            return True

        self._add(stream, step)

    def record(self, event: int, stream: int) -> None:
        """Queue the moment of an event."""
        recorded, passed = self._moments.get(event, (0, 0))
        self._moments[event] = recorded + 1, passed

        def step() -> bool:
            self._moments[event] = self._moments[event][0], self._moments[event][1] + 1
            return True

        self._add(stream, step)

    def wait_for(self, event: int, stream: int) -> None:
        """Hold a queue up until an event has passed as often as it has been recorded by now."""
        recorded, _ = self._moments.get(event, (0, 0))
        self._add(stream, lambda: self._has_passed(event, recorded))

    def _has_passed(self, event: int, times: int) -> bool:
        return self._moments.get(event, (0, 0))[1] >= times

    def _add(self, stream: int, step: Callable[[], bool]) -> None:
        """Queue a step, which is done when it returns true, and is tried again otherwise."""
        with self._lock:
            self._given[stream].append(step)
            if self.hurries():
                queue = self._given[self._random.choice(list(self._given))]
                while queue and queue[0]():
                    queue.popleft()

    def wait(self, stream: int) -> None:
        """Let the device go on until a queue is empty."""
        self._until(lambda: not self._given[stream])

    def wait_for_event(self, event: int) -> None:
        """Let the device go on until an event has passed as often as it was recorded."""
        recorded, _ = self._moments.get(event, (0, 0))
        self._until(lambda: self._has_passed(event, recorded))

    def _until(self, is_done: Callable[[], bool]) -> None:
        """Let queues go on, a step at a time, in random order."""
        with self._lock:
            while not is_done():
                queues = [queue for queue in self._given.values() if queue]
                self._random.shuffle(queues)
                ready = next((queue for queue in queues if queue[0]()), None)
                assert ready is not None, "queues that wait for each other"
                ready.popleft()


QUEUES_OF: dict[int, Queues] = {}
"""By the number of a queue."""

NUMBERS = itertools.count(8)
"""Of queues, events and graphs."""


class GraphOfCuda:
    """What a queue was given while it was captured: calls with the addresses that they had then."""

    def __init__(self, calls: list[Callable[[], None]]) -> None:
        self.calls = calls


class Error(enum.Enum):
    cudaSuccess = 0  # noqa: N815  (as the vendor writes it)
    cudaErrorMemoryAllocation = 2  # noqa: N815
    cudaErrorLaunchFailure = 719  # noqa: N815
    cudaErrorStreamCaptureInvalidated = 901  # noqa: N815


class CudaRuntime(types.ModuleType):
    """`cuda.bindings.runtime`: every call returns a tuple with the error first.

    Attributes:
        fail: calls that fail.
        calls_to_fault: the call of this number from now on fails; 0 for none.
        gone: whether the device is taken away.
        failed: how often each call has failed.
        crossed: bytes that were copied, by direction.
    """

    RELEASES: ClassVar[frozenset[str]] = frozenset(
        {
            "cudaFree",
            "cudaFreeHost",
            "cudaStreamDestroy",
            "cudaEventDestroy",
            "cudaGraphDestroy",
            "cudaGraphExecDestroy",
        }
    )
    """These may return the error of earlier work, by NVIDIA's documentation: what they release is released."""

    cudaError_t = Error  # noqa: N815
    cudaStreamCaptureMode = enum.Enum("cudaStreamCaptureMode", "cudaStreamCaptureModeThreadLocal")  # noqa: N815
    cudaMemcpyKind = enum.Enum(  # noqa: N815
        "cudaMemcpyKind", "cudaMemcpyHostToDevice cudaMemcpyDeviceToHost cudaMemcpyDeviceToDevice"
    )

    def __init__(self, memory: Memory = MEMORY) -> None:
        super().__init__("cuda.bindings.runtime")
        self.memory, self.fail = memory, set[str]()
        self.gone, self.calls_to_fault = False, 0
        self.crossed, self.failed = Counter[str](), Counter[str]()
        self.host: dict[int, Array] = {}
        self.live: list[Any] = []
        self.queues = Queues()

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        if not name.startswith("cuda") or not callable(found) or isinstance(found, type):
            return found
        if self.gone:
            return lambda *_: (Error.cudaErrorLaunchFailure, None)
        self.calls_to_fault -= 1
        if name not in self.fail and self.calls_to_fault:
            return found
        self.failed[name] += 1
        if name == "cudaStreamEndCapture":  # a queue is captured no longer, whatever the answer
            return lambda stream: (Error.cudaErrorStreamCaptureInvalidated, CAPTURES.pop(int(stream)) and None)
        if name in self.RELEASES:
            return lambda handle: (found(handle) and Error.cudaErrorMemoryAllocation, None)
        return lambda *_: (Error.cudaErrorMemoryAllocation, None)

    @classmethod
    def calls(cls) -> list[str]:
        """The names of all calls."""
        found = {name: getattr(cls, name) for name in dir(cls) if name.startswith("cuda")}
        return [name for name, call in found.items() if callable(call) and not isinstance(call, type)]

    def cudaSetDevice(self, device: int) -> tuple[Any, ...]:  # noqa: N802
        return (Error.cudaSuccess,)

    def cudaMalloc(self, size: int) -> tuple[Any, ...]:  # noqa: N802
        if sum(map(len, self.memory.blocks.values())) + size > self.memory.most:
            return Error.cudaErrorMemoryAllocation, None
        return Error.cudaSuccess, self.memory.alloc(size)

    def cudaFree(self, pointer: int) -> tuple[Any, ...]:  # noqa: N802
        self.memory.free(pointer)
        return (Error.cudaSuccess,)

    def cudaMallocHost(self, size: int) -> tuple[Any, ...]:  # noqa: N802
        array = np.zeros(size, np.uint8)
        self.host[array.ctypes.data] = array
        return Error.cudaSuccess, array.ctypes.data

    def cudaFreeHost(self, pointer: int) -> tuple[Any, ...]:  # noqa: N802
        del self.host[pointer]
        return (Error.cudaSuccess,)

    def cudaMemcpyAsync(self, to: int, source: int, count: int, kind: Any, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        assert stream in self.live
        self.crossed[kind.name] += count
        if kind is self.cudaMemcpyKind.cudaMemcpyHostToDevice:
            content = None if self._is_pinned(source) else ctypes.string_at(source, count)
            self.queues.give(stream, lambda: self.memory.write(to, content or ctypes.string_at(source, count)))
        else:
            self.queues.give(stream, lambda: ctypes.memmove(to, self.memory.read(source, count), count))
            if not self._is_pinned(to):
                self.queues.wait(stream)
        return (Error.cudaSuccess,)

    def _is_pinned(self, address: int) -> bool:
        """Whether a copy from or to the host goes on when the call has returned."""
        return any(start <= address < start + len(array) for start, array in list(self.host.items()))

    def cudaMemcpy2DAsync(  # noqa: N802
        self, to: int, to_pitch: int, source: int, source_pitch: int, width: int, height: int, kind: Any, stream: Any
    ) -> tuple[Any, ...]:
        assert stream in self.live
        assert kind is self.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self.queues.give(stream, lambda: self.memory.copy_rows(to, to_pitch, source, source_pitch, width, height))
        return (Error.cudaSuccess,)

    def _made(self) -> tuple[Any, ...]:
        self.live.append(Handle(next(NUMBERS)))
        return Error.cudaSuccess, self.live[-1]

    def _dropped(self, handle: Any) -> tuple[Any, ...]:
        self.live.remove(handle)
        return (Error.cudaSuccess,)

    cudaEventCreate = _made  # noqa: N815
    cudaEventDestroy = cudaGraphDestroy = cudaGraphExecDestroy = _dropped  # noqa: N815

    def cudaStreamCreate(self) -> tuple[Any, ...]:  # noqa: N802
        made = self._made()
        self.queues.open(made[1])
        return made

    def cudaStreamDestroy(self, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        self.queues.close(stream)
        return self._dropped(stream)

    def cudaStreamBeginCapture(self, stream: Any, mode: Any) -> tuple[Any, ...]:  # noqa: N802
        assert stream in self.live
        assert isinstance(mode, self.cudaStreamCaptureMode)
        CAPTURES[int(stream)] = []
        return (Error.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        self.live.append(GraphOfCuda(CAPTURES.pop(int(stream))))
        return Error.cudaSuccess, self.live[-1]

    def cudaGraphInstantiate(self, graph: GraphOfCuda, flags: int) -> tuple[Any, ...]:  # noqa: N802
        self.live.append(GraphOfCuda(graph.calls))
        return Error.cudaSuccess, self.live[-1]

    def cudaGraphLaunch(self, graph: GraphOfCuda, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        assert graph in self.live
        assert stream in self.live
        self.memory.log.append("launch")
        for call in graph.calls:
            self.queues.give(stream, call)
        return (Error.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        assert stream in self.live
        assert int(stream) not in CAPTURES
        self.queues.wait(stream)
        return (Error.cudaSuccess,)

    def cudaStreamWaitEvent(self, stream: Any, event: Any, flags: int) -> tuple[Any, ...]:  # noqa: N802
        assert event in self.live
        assert stream in self.live
        self.queues.wait_for(event, stream)
        return (Error.cudaSuccess,)

    def cudaEventRecord(self, event: Any, stream: Any) -> tuple[Any, ...]:  # noqa: N802
        assert event in self.live
        assert stream in self.live
        self.queues.record(event, stream)
        return (Error.cudaSuccess,)

    def cudaEventSynchronize(self, event: Any) -> tuple[Any, ...]:  # noqa: N802
        assert event in self.live
        self.queues.wait_for_event(event)
        return (Error.cudaSuccess,)

    def cudaEventElapsedTime(self, first: Any, second: Any) -> tuple[Any, ...]:  # noqa: N802
        return Error.cudaSuccess, 0.25


class PyCudaContext:
    """A primary context of pycuda: what is current lies on a stack, and `detach` takes it off."""

    def __init__(self, driver: "PyCudaDriver") -> None:
        self.driver, self.is_valid = driver, True

    def push(self) -> None:
        assert self.is_valid
        self.driver.contexts.append(self)

    def pop(self) -> None:
        if not self.driver.contexts:
            raise PyCudaDriver.Error("context::pop failed: invalid device context - cannot pop non-current context")
        self.driver.contexts.pop()

    def detach(self) -> None:
        if not self.is_valid:
            raise PyCudaDriver.Error("context::detach failed: invalid device context")
        self.is_valid = False
        while self.driver.contexts and not self.driver.contexts[-1].is_valid:
            self.driver.contexts.pop()
        self.driver.memory.log.append("detach")


class PyCudaCopy:
    """`Memcpy2D`: a copy that is described first and queued when it is called."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.source = self.target = self.src_pitch = self.dst_pitch = self.width_in_bytes = self.height = 0

    def set_src_device(self, pointer: int) -> None:
        self.source = pointer

    def set_dst_device(self, pointer: int) -> None:
        self.target = pointer

    def __call__(self, stream: Any) -> None:
        self.memory.copy_rows(
            self.target, self.dst_pitch, self.source, self.src_pitch, self.width_in_bytes, self.height
        )


class PyCudaDriver(types.ModuleType):
    """`pycuda.driver`: objects that free themselves, errors as exceptions, contexts on a stack."""

    class Error(Exception):
        """What every call may raise."""

    def __init__(self, memory: Memory = MEMORY) -> None:
        super().__init__("pycuda.driver")
        self.memory, self.fail = memory, False
        self.contexts: list[PyCudaContext] = []

    @property
    def stack(self) -> int:
        return len(self.contexts)

    def init(self) -> None:
        """Nothing to do."""

    def Device(self, number: int) -> Any:  # noqa: N802
        return types.SimpleNamespace(retain_primary_context=lambda: PyCudaContext(self))

    def mem_alloc(self, size: int) -> Any:
        assert self.stack
        if self.fail:
            raise PyCudaDriver.Error("out of memory")
        memory = self.memory

        class Allocation(int):
            def free(self) -> None:
                memory.free(int(self))

        return Allocation(memory.alloc(size))

    def pagelocked_empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.zeros(shape, dtype)

    def memcpy_htod_async(self, to: int, source: Array, stream: Any) -> None:
        assert self.stack
        self.memory.write(to, source.tobytes())

    def memcpy_dtoh_async(self, to: Array, source: int, stream: Any) -> None:
        to[...] = np.frombuffer(self.memory.read(source, to.nbytes), to.dtype).reshape(to.shape)

    def Memcpy2D(self) -> Any:  # noqa: N802
        return PyCudaCopy(self.memory)

    def Stream(self) -> Any:  # noqa: N802
        log = self.memory.log
        return types.SimpleNamespace(
            handle=next(NUMBERS),
            synchronize=lambda: log.append("synchronize"),
            wait_for_event=lambda event: log.append("wait"),
        )

    def Event(self) -> Any:  # noqa: N802
        log = self.memory.log
        return types.SimpleNamespace(
            record=lambda stream: None, time_till=lambda other: 0.25, synchronize=lambda: log.append("event")
        )


# TensorRT. `genuine` names the class of the vendor that a double stands for.


class Network:
    genuine: ClassVar[str] = "INetworkDefinition"

    def __init__(self, flags: int) -> None:
        self.flags, self.model = flags, onnx.ModelProto()

    @property
    def num_inputs(self) -> int:
        return len(self.model.graph.input)

    def get_input(self, index: int) -> Any:
        return NetworkTensor(self.model.graph.input[index])


class NetworkTensor:
    genuine: ClassVar[str] = "ITensor"

    def __init__(self, info: onnx.ValueInfoProto) -> None:
        self.name = info.name
        self.shape = tuple(dim.dim_value or -1 for dim in info.type.tensor_type.shape.dim)


class ParserError:
    genuine: ClassVar[str] = "ParserError"

    def desc(self) -> str:
        return "no importer for this operator"

    def node_name(self) -> str:
        return "node_7"

    def node_operator(self) -> str:
        return "Unique"


class OnnxParser:
    genuine: ClassVar[str] = "OnnxParser"

    def __init__(self, network: Any, logger: Any) -> None:
        self.network, self.refuses = network, False
        self.flags: list[Any] = []
        self.num_subgraphs = 2

    def set_flag(self, flag: Any) -> None:
        self.flags.append(flag)

    def parse_from_file(self, path: str) -> bool:
        self.network.model = onnx.load(path)
        self.refuses = any(node.op_type == "Unique" for node in self.network.model.graph.node)
        return not self.refuses

    @property
    def num_errors(self) -> int:
        return int(self.refuses)

    def get_error(self, index: int) -> ParserError:
        return ParserError()

    def supports_model_v2(self, content: bytes, path: str) -> bool:
        return "Unique" not in {
            node.op_type for node in onnx.load(io.BytesIO(content), load_external_data=False).graph.node
        }

    def is_subgraph_supported(self, index: int) -> bool:
        return index == 0

    def get_subgraph_nodes(self, index: int) -> list[int]:
        return [7]


class TimingCache:
    genuine: ClassVar[str] = "ITimingCache"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content + b"t"


class OptimizationProfile:
    """Shapes of the inputs that an engine is built for."""

    genuine: ClassVar[str] = "IOptimizationProfile"

    def __init__(self) -> None:
        self.shapes: dict[str, list[list[int]]] = {}

    def set_shape(self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]) -> None:
        self.shapes[input] = [list(min), list(opt), list(max)]


class BuilderConfig:
    genuine: ClassVar[str] = "IBuilderConfig"

    def __init__(self) -> None:
        self.flags: set[Any] = set()
        self.pools: dict[Any, int] = {}
        self.cache: Any = None
        self.builder_optimization_level = 3
        self.profiling_verbosity: Any = None
        self.hardware_compatibility_level: Any = None
        self.profiles: list[OptimizationProfile] = []

    def add_optimization_profile(self, profile: OptimizationProfile) -> int:
        if any(size < 1 for shapes in profile.shapes.values() for shape in shapes for size in shape):
            return -1
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self.pools[pool] = pool_size

    def create_timing_cache(self, content: bytes) -> TimingCache:
        return TimingCache(bytes(content))

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return not cache.content.startswith(b"other device")

    def get_timing_cache(self) -> Any:
        return self.cache


class Builder:
    genuine: ClassVar[str] = "Builder"
    made: ClassVar[list["BuilderConfig"]] = []

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def create_network(self, flags: int = 0) -> Network:
        return Network(flags)

    def create_builder_config(self) -> BuilderConfig:
        self.made.append(BuilderConfig())
        return self.made[-1]

    def create_optimization_profile(self) -> OptimizationProfile:
        return OptimizationProfile()

    def build_serialized_network(self, network: Any, config: Any) -> bytes | None:
        graph = network.model.graph
        if any(node.op_type == "Det" for node in graph.node):
            self.logger.log(self.logger.Severity.ERROR, "no tactic for Det")
            return None
        tensors = [{"input": True, **described(info)} for info in graph.input]
        tensors += [{"input": False, **described(info)} for info in graph.output]
        model = base64.b64encode(network.model.SerializeToString()).decode()
        flags = sorted(getattr(flag, "name", flag) for flag in config.flags) if config is not None else []
        profiles = [profile.shapes for profile in config.profiles] if config is not None else []
        if any(-1 in tensor["shape"] for tensor in tensors) and not profiles:
            self.logger.log(self.logger.Severity.ERROR, "network has dynamic inputs, but no profile has been defined")
            return None
        return json.dumps({"tensors": tensors, "model": model, "flags": flags, "profiles": profiles}).encode()


def described(info: onnx.ValueInfoProto) -> dict[str, Any]:
    """Name, shape and type of a network input or output; -1 is an open size."""
    kind = info.type.tensor_type
    names = {1: "FLOAT", 10: "HALF", 7: "INT64", 6: "INT32", 9: "BOOL"}
    shape = [-1 if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
    return {"name": info.name, "shape": shape, "type": names[kind.elem_type]}


class Runtime:
    genuine: ClassVar[str] = "Runtime"

    def __init__(self, logger: Any, is_lean: bool = False) -> None:
        self.logger, self.engine_host_code_allowed, self.is_lean = logger, False, is_lean

    def load_runtime(self, path: str) -> "Runtime | None":
        if Path(path).is_file():
            return Runtime(self.logger, is_lean=True)
        self.logger.log(self.logger.Severity.ERROR, f"cannot open {path}")
        return None

    def deserialize_cuda_engine(self, content: bytes) -> "CudaEngine | None":
        try:
            plain = json.loads(bytes(content))
        except ValueError:
            return self._refused("stream magic does not match")
        if "EXCLUDE_LEAN_RUNTIME" in plain["flags"]:
            return CudaEngine(plain) if self.is_lean else self._refused("the plan holds no lean runtime")
        if "VERSION_COMPATIBLE" in plain["flags"] and not self.engine_host_code_allowed:
            return self._refused("engine host code is not allowed")
        return CudaEngine(plain)

    def _refused(self, reason: str) -> "CudaEngine | None":
        self.logger.log(self.logger.Severity.ERROR, reason)
        return None


class CudaEngine:
    genuine: ClassVar[str] = "ICudaEngine"

    def __init__(self, content: dict[str, Any]) -> None:
        self.content, self.tensors = content, {each["name"]: each for each in content["tensors"]}
        self.num_io_tensors = len(self.tensors)
        self.num_optimization_profiles = max(len(content["profiles"]), 1)
        self.refits = 0
        self.device_memory_size_v2 = 4096

    def get_tensor_name(self, index: int) -> str:
        return str(list(self.tensors)[index])

    def get_tensor_mode(self, name: str) -> str:
        return "INPUT" if bool(self.tensors[name]["input"]) else "OUTPUT"

    def get_tensor_dtype(self, name: str) -> str:
        return str(self.tensors[name]["type"])

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name]["shape"])

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.content["profiles"][profile_index][name]]

    def create_execution_context(self, strategy: Any) -> "ExecutionContext":
        if isinstance(strategy, RuntimeConfig) and strategy.cache is not None:
            strategy.cache.kernels.append("compiled")
        return ExecutionContext(self)

    def create_runtime_config(self) -> "RuntimeConfig":
        return RuntimeConfig()

    def create_engine_inspector(self) -> "EngineInspector":
        return EngineInspector()


class RuntimeCache:
    """Kernels that contexts compile; those of another machine are not taken."""

    genuine: ClassVar[str] = "IRuntimeCache"

    def __init__(self) -> None:
        self.kernels: list[str] = []

    def deserialize(self, blob: bytes) -> bool:
        found = blob.decode().split()
        is_of_here = set(found) <= {"compiled"}
        self.kernels += found if is_of_here else []
        return is_of_here

    def serialize(self) -> bytes:
        return " ".join(self.kernels).encode()


class RuntimeConfig:
    genuine: ClassVar[str] = "IRuntimeConfig"

    def __init__(self) -> None:
        self.cache: RuntimeCache | None = None

    def create_runtime_cache(self) -> RuntimeCache:
        return RuntimeCache()

    def set_runtime_cache(self, cache: RuntimeCache) -> bool:
        self.cache = cache
        return True

    def set_execution_context_allocation_strategy(self, strategy: Any) -> None:
        assert getattr(strategy, "name", strategy) in ("STATIC", "ON_PROFILE_CHANGE")


class EngineInspector:
    genuine: ClassVar[str] = "EngineInspector"

    def get_engine_information(self, form: Any) -> str:
        return json.dumps({"Layers": ["fc1", {"Name": "_mha_v2"}], "Bindings": []})


class ExecutionContext:
    genuine: ClassVar[str] = "IExecutionContext"

    def __init__(self, engine: CudaEngine) -> None:
        self.engine, self.addresses = engine, dict[str, int]()
        self.session: Any = None
        self.refits = 0
        self.shapes = {name: tuple(tensor["shape"]) for name, tensor in engine.tensors.items() if tensor["input"]}
        self.profile: int | None = None

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        self.profile = profile_index
        return 0 <= profile_index < self.engine.num_optimization_profiles

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert self.profile is not None, "a context of an engine with profiles chooses one first"
        self.shapes[name] = tuple(shape)
        return self.engine.get_tensor_profile_shape(name, self.profile)[1] == tuple(shape)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if name in self.shapes:
            return self.shapes[name]
        open_sizes = {
            size
            for each, shape in self.shapes.items()
            for size, said in zip(shape, self.engine.get_tensor_shape(each), strict=True)
            if said == -1
        }
        (rows,) = open_sizes or {-1}
        return tuple(rows if size == -1 else size for size in self.engine.get_tensor_shape(name))

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self.addresses[name] = memory
        return name in self.engine.tensors

    def infer_shapes(self) -> list[str]:
        return [name for name, shape in self.shapes.items() if -1 in shape]

    def execute_async_v3(self, stream_handle: int) -> bool:
        addresses = dict(self.addresses)
        if stream_handle in CAPTURES:
            CAPTURES[stream_handle].append(lambda: self._compute(addresses))
            return True
        MEMORY.log.append("enqueue")
        work = functools.partial(self._compute, addresses)
        if stream_handle in QUEUES_OF:
            QUEUES_OF[stream_handle].give(stream_handle, work)
        else:
            work()
        return True

    def _compute(self, addresses: dict[str, int]) -> None:
        """Read inputs and write outputs at some addresses."""
        if self.session is None or self.refits != self.engine.refits:
            self.refits = self.engine.refits
            model = base64.b64decode(self.engine.content["model"])
            self.session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        feeds = {}
        for name, tensor in self.engine.tensors.items():
            if tensor["input"]:
                kind = np.dtype(NUMPY_NAMES[tensor["type"]])
                shape = self.shapes[name]
                content = MEMORY.read(addresses[name], int(np.prod(shape)) * kind.itemsize)
                feeds[name] = np.frombuffer(content, kind).reshape(shape)
        outputs = [name for name, tensor in self.engine.tensors.items() if not tensor["input"]]
        for name, array in zip(outputs, self.session.run(outputs, feeds), strict=True):
            MEMORY.write(addresses[name], np.ascontiguousarray(array).tobytes())


class WeightsPrototype:
    genuine: ClassVar[str] = "Weights"

    def __init__(self, array: Array) -> None:
        self.dtype = next(name for name, kind in NUMPY_NAMES.items() if kind == array.dtype.name)
        self.size = array.size


class Refitter:
    """Weights are exchanged at once, when all are given; before, nothing changes."""

    genuine: ClassVar[str] = "Refitter"

    def __init__(self, engine: CudaEngine, logger: Any) -> None:
        if "REFIT" not in engine.content["flags"]:
            logger.log(logger.Severity.ERROR, "the engine was not built with REFIT")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        self.engine, self.given = engine, dict[str, Array]()

    def _weights(self) -> dict[str, onnx.TensorProto]:
        self.model = onnx.ModelProto.FromString(base64.b64decode(self.engine.content["model"]))
        return {tensor.name: tensor for tensor in self.model.graph.initializer}

    def get_all_weights(self) -> list[str]:
        return list(self._weights())

    def get_weights_prototype(self, name: str) -> WeightsPrototype:
        return WeightsPrototype(onnx.numpy_helper.to_array(self._weights()[name]))

    def set_named_weights(self, name: str, weights: Any) -> bool:
        self.given[name] = weights.numpy()
        return name in self._weights()

    def refit_cuda_engine(self) -> bool:
        weights = self._weights()
        if self.given.keys() != weights.keys():
            return False
        for name, tensor in weights.items():
            array = self.given[name].reshape(tuple(tensor.dims))
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array(array), name))
        self.engine.content["model"] = base64.b64encode(self.model.SerializeToString()).decode()
        self.engine.refits += 1
        return True


class OnnxParserRefitter:
    genuine: ClassVar[str] = "OnnxParserRefitter"

    def __init__(self, refitter: Refitter, logger: Any) -> None:
        self.refitter = refitter

    def refit_from_file(self, path: str) -> bool:
        for tensor in onnx.load(path).graph.initializer:
            self.refitter.given[tensor.name] = onnx.numpy_helper.to_array(tensor)
        return True


class Weights:
    """What weights are handed over in: no copy."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def numpy(self) -> Array:
        return self.array


DOUBLES = (Builder, OnnxParser, Runtime, Refitter, OnnxParserRefitter)
"""What our code makes itself; the others come from these."""


class Severity(enum.Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3


class ILogger:
    """Base of loggers."""

    Severity = Severity

    def log(self, severity: Any, msg: str) -> None:
        """Overridden."""


def names(kind: str, *members: str) -> Any:
    """A class that holds names only, where the genuine one is an enumeration."""
    return type(kind, (), {member: member for member in members})


def plain_library() -> types.ModuleType:
    """A module with the names of TensorRT that our code uses."""
    made = types.ModuleType("tensorrt")
    made.__dict__.update(
        __version__="10.99.0",
        Builder=Builder,
        OnnxParser=OnnxParser,
        Runtime=Runtime,
        Refitter=Refitter,
        OnnxParserRefitter=OnnxParserRefitter,
        Weights=Weights,
        ILogger=ILogger,
        IBuilderConfig=_with_fields(BuilderConfig),
        IOptimizationProfile=OptimizationProfile,
        ICudaEngine=_with_fields(CudaEngine, "num_io_tensors", "num_optimization_profiles", "device_memory_size_v2"),
        IExecutionContext=ExecutionContext,
        NetworkDefinitionCreationFlag=type("NetworkDefinitionCreationFlag", (), {"STRONGLY_TYPED": 1}),
        OnnxParserFlag=names("OnnxParserFlag", "NATIVE_INSTANCENORM"),
        MemoryPoolType=names("MemoryPoolType", "WORKSPACE"),
        BuilderFlag=names("BuilderFlag", "TF32", "REFIT", "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"),
        ProfilingVerbosity=names("ProfilingVerbosity", "DETAILED"),
        HardwareCompatibilityLevel=names("HardwareCompatibilityLevel", "NONE", "SAME_COMPUTE_CAPABILITY"),
        ExecutionContextAllocationStrategy=names("ExecutionContextAllocationStrategy", "STATIC", "ON_PROFILE_CHANGE"),
        LayerInformationFormat=names("LayerInformationFormat", "JSON"),
        TensorIOMode=names("TensorIOMode", "INPUT", "OUTPUT"),
        nptype=lambda kind: np.dtype(NUMPY_NAMES[kind]).type,
    )
    made.Runtime = type("Runtime", (Runtime,), {"engine_host_code_allowed": False})  # type: ignore[attr-defined]
    made.OnnxParser = type("OnnxParser", (OnnxParser,), {})  # type: ignore[attr-defined]
    return made


def _with_fields(kind: type, *fields: str) -> type:
    """A class that shows its instances' fields, as bound classes do."""
    shown = fields or ("builder_optimization_level", "profiling_verbosity", "hardware_compatibility_level")
    return type(kind.__name__, (kind,), dict.fromkeys(shown))


DRIVER_CODE = {
    "cuInit": b"\x31\xc0\xc3",
    "cuDriverGetVersion": b"\xc7\x07\x08\x2f\x00\x00\x31\xc0\xc3",  # *version = 12040
    "cuDeviceGetCount": b"\xc7\x07\x01\x00\x00\x00\x31\xc0\xc3",  # *count = 1
    "cuDeviceGet": b"\x31\xc0\xc3",
    "cuDeviceGetAttribute": b"\xb8\x9d\x00\x00\x00\x29\xf0\x29\xf0\x89\x07\x31\xc0\xc3",  # 75 -> 7, 76 -> 5
    "cuDeviceGetName": b"\xc7\x07\x54\x34\x00\x00\x31\xc0\xc3",  # "T4"
}
"""Machine code of a CUDA driver with one T4: x86-64, arguments in rdi, rsi, rdx."""

PACKAGES = {
    "tensorrt/__init__.py": "import sys\nfrom tests.kit.vendor import plain_library\n"
    "globals().update({k: v for k, v in vars(plain_library()).items() if k != '__name__'})\n",
    "cuda/__init__.py": "",
    "cuda/bindings/__init__.py": "from tests.kit.vendor import CudaRuntime\nruntime = CudaRuntime()\n"
    "class utils: get_cuda_native_handle = int\n",
}


def write_lean_runtime(folder: Path) -> Path:
    """The package that holds the library of the lean runtime."""
    (folder / "tensorrt_lean_libs").mkdir()
    (folder / "tensorrt_lean_libs/__init__.py").write_text("")
    (folder / "tensorrt_lean_libs/libnvinfer_lean.so.10").write_bytes(b"")
    return folder


def write_packages(folder: Path) -> Path:
    """Packages `tensorrt` and `cuda` made of these doubles, for processes of their own."""
    for name, text in PACKAGES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
