"""Runs the graph files of one graph of a bundle with ONNX Runtime on the machine's CUDA device.

One session per bucket, opened at its first use from the bytes whose hash was checked. Inputs and outputs lie on the
device and are bound by address, states where an earlier run left them. Where its CUDA libraries are absent, or a node
has no kernel there, ONNX Runtime runs nodes on the CPU without a word: both are errors here, the second with the names
of the nodes.
"""

import contextlib
import io
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped, unused-ignore]

from runtime_lite.errors import BundleRefused, EngineAbsent, ExecutorFailed, InternalError, show
from runtime_lite.executors.cuda import Cuda, probe
from runtime_lite.executors.device_executor import DeviceExecutor
from runtime_lite.executors.device_run import GRAPHS_SWITCH, DeviceRun, DeviceTensor
from runtime_lite.executors.graph_file import read_graph_file
from runtime_lite.executors.onnx_session import (
    FATAL,
    NO_MEMORY,
    ORT_ERRORS,
    check_session,
    reason_of,
    refused,
    session_options,
)
from runtime_lite.format.manifest import Artifact, Graph, static_shape
from runtime_lite.format.reader import Bundle

LEAST_DRIVER = (13, 0)
"""The CUDA version that onnxruntime-gpu 1.31 is built with; an older driver does not run its kernels."""

LEAST_CAPABILITY = (7, 5)
"""The oldest compute capability that its CUDA provider has kernels for."""

MOST_CAPTURES = 64
"""Graphs that one session captures in its life. A number is never used twice, and a provider that cannot release what
it captured under one keeps it."""

INSTALL = (
    "pip install onnxruntime-gpu==1.31.1 cuda-python==12.9.10 nvidia-cublas==13.0.2.14 nvidia-cuda-runtime==13.0.96 "
    "nvidia-curand==10.4.0.35"
)
"""As the extra `cuda` of pyproject.toml."""

_NO_GRAPH = "-1"  # of `gpu_graph_id`: neither capture nor launch
_NO_DEVICE_MEMORY = ("out of memory", NO_MEMORY)
_NAMED = 3  # nodes in a message


@dataclass(frozen=True)
class Provider:
    """What executes the nodes.

    Attributes:
        name: as onnxruntime calls it.
        device: where it reads and writes what is bound.
        options: of it.
    """

    name: str
    device: str
    options: Mapping[str, str] = field(default_factory=dict)


CUDA = Provider("CUDAExecutionProvider", "cuda", {"device_id": "0", "use_tf32": "0"})
"""float32 products in float32: TF32 keeps 10 bits of them."""


class OnnxCudaExecutor(DeviceExecutor):
    """Sessions of one graph, by bucket.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session, for what is not queued.

    Raises:
        EngineAbsent: this machine has no device, an old driver, or an onnxruntime without CUDA.
    """

    provider = CUDA

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Ask for the device; no session is opened yet."""
        super().__init__(bundle, name)
        self._threads = threads
        try:
            device_here()
            library_here(self.provider)
        except EngineAbsent as error:
            raise EngineAbsent(f"{self._where}: {error}") from None

    def _start_library(self) -> None:
        """Load the CUDA libraries that lie in packages of NVIDIA; what is not found there, the system may have."""
        onnxruntime.set_default_logger_severity(FATAL)  # what it says of a provider that does not start is said here
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
            onnxruntime.preload_dlls(cudnn=False)

    def _open(self, artifact: Artifact, cuda: Cuda, captures: bool) -> DeviceRun:
        file = read_graph_file(self._bundle, self._graph, artifact)
        options = session_options(file, self._threads)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        given = {**self.provider.options, **({"enable_cuda_graph": "1"} if captures else {})}
        try:
            providers = [(self.provider.name, given)]
            session = onnxruntime.InferenceSession(file.content, options, providers=providers, enable_fallback=0)
        except ORT_ERRORS as error:
            if any(words in str(error) for words in _NO_DEVICE_MEMORY):
                raise _too_little(file.where, error) from error
            raise refused(file.where, error) from error
        self._require_placement(file.where, session)
        check_session(file.where, session, self._graph, artifact)
        tensors = tensors_of(self._graph, artifact)
        queue = self.memory.stream, captures, self._lock
        return SessionRun(cuda, session, tensors, self.provider.device, file.where, *queue)

    def _require_placement(self, where: str, session: Any) -> None:
        """Refuse a session that leaves nodes to another provider.

        Raises:
            EngineAbsent: the provider did not start.
            BundleRefused: names nodes that it does not execute.
        """
        if self.provider.name not in session.get_providers():
            raise EngineAbsent(
                f"{where}: expected {self.provider.name} to start, got {', '.join(session.get_providers())}; install "
                f"the CUDA libraries that onnxruntime {onnxruntime.__version__} needs: {INSTALL}"
            )
        elsewhere = [
            f"{show(node.name)} ({show(node.op_type)}, {part.ep_name})"
            for part in session.get_provider_graph_assignment_info()
            if part.ep_name != self.provider.name
            for node in part.get_nodes()
        ]
        if elsewhere:
            more = f" and {len(elsewhere) - _NAMED} more" if len(elsewhere) > _NAMED else ""
            raise BundleRefused(
                f"{where}: expected every node on {self.provider.name}, got {', '.join(elsewhere[:_NAMED])}{more}; "
                "keep these operators out of the graph, or build for onnx_static"
            )


def device_here() -> str:
    """Return what the device of this machine is, if it runs the kernels of onnxruntime-gpu.

    Raises:
        EngineAbsent: there is none, or it or its driver is too old; both are named.
    """
    device = probe()
    if _number(device.driver) < LEAST_DRIVER:
        raise EngineAbsent(
            f"CUDA: expected a driver for CUDA {LEAST_DRIVER[0]}.{LEAST_DRIVER[1]} or later, got one for "
            f"{device.driver}; install a newer NVIDIA driver"
        )
    if _number(device.capability) < LEAST_CAPABILITY:
        raise EngineAbsent(
            f"CUDA: expected a device of compute capability {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]} or later, got "
            f"{device.name} of {device.capability}; build for onnx_static"
        )
    return f"{device.name}, compute capability {device.capability}, driver for CUDA {device.driver}"


def library_here(provider: Provider = CUDA) -> str:
    """Return the version of the installed onnxruntime, if it was built with a provider.

    Raises:
        EngineAbsent: it was not; names the providers that it has.
    """
    known = onnxruntime.get_available_providers()
    if provider.name not in known:
        raise EngineAbsent(
            f"onnxruntime: expected one with {provider.name}, got {onnxruntime.__version__} with {', '.join(known)}; "
            f"in an environment without onnxruntime, {INSTALL}"
        )
    return str(onnxruntime.__version__)


class SessionRun(DeviceRun):
    """A session of fixed shapes, whose inputs and outputs are bound by address.

    ONNX Runtime captures by itself, under a number that a run says, and launches what it has under that number,
    whatever is bound. So each set of addresses has a number of its own, which no other set ever gets.

    Args:
        cuda: the device, active in this thread.
        session: of ONNX Runtime.
        tensors: its inputs and outputs.
        device: as `bind_input` calls where these lie.
        where: for messages.
        stream: the queue of all copies.
        captures: whether the session was opened to capture graphs.
        lock: held while something is put into the queue of all work; None for one of its own.
    """

    def __init__(
        self,
        cuda: Cuda,
        session: Any,
        tensors: tuple[DeviceTensor, ...],
        device: str,
        where: str,
        stream: int,
        captures: bool,
        lock: "threading.RLock | None" = None,
    ) -> None:
        """Bind nothing yet."""
        self._session, self._device, self._where = session, device, where
        self._bindings: dict[int, Any] = {}
        self._numbers = 0
        super().__init__(cuda, tensors, stream, captures, lock)

    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        self._run(self._bound(addresses), _NO_GRAPH)

    def _capture(self, addresses: tuple[int, ...]) -> int | None:
        if self._numbers == MOST_CAPTURES:
            return None
        self._numbers += 1
        self._bindings[self._numbers] = self._bound(addresses)
        return self._numbers

    def _launch(self, graph: int) -> None:
        self._run(self._bindings[graph], str(graph))

    def _drop(self, graph: int) -> None:
        del self._bindings[graph]
        self._session.release_captured_graph(graph)

    def _bound(self, addresses: tuple[int, ...]) -> Any:
        """The inputs and outputs at some addresses."""
        binding = self._session.io_binding()
        for tensor, address in zip(self.tensors, addresses, strict=True):
            bind = binding.bind_input if tensor.is_input else binding.bind_output
            bind(tensor.name, self._device, 0, tensor.dtype.type, tensor.shape, address)
        return binding

    def _run(self, binding: Any, number: str) -> None:
        """Run on the session's own queue, behind all copies; it is empty when this returns.

        Raises:
            ExecutorFailed: there is too little memory of the device.
            InternalError: the session failed.
        """
        options = onnxruntime.RunOptions()
        if self._captures:
            options.add_run_config_entry("gpu_graph_id", number)
        self._cuda.synchronize(self._stream)
        try:
            self._session.run_with_iobinding(binding, options)
        except ORT_ERRORS as error:
            if any(words in str(error) for words in _NO_DEVICE_MEMORY):
                raise _too_little(self._where, error) from error
            cure = f"set {GRAPHS_SWITCH}=0 in the environment to run without CUDA graphs" if self._captures else ""
            raise InternalError(
                f"{self._where}: expected a run without errors, got {reason_of(error)}; "
                f"{cure or 'look at the log of the driver'}"
            ) from error

    def close(self) -> None:
        """Drop graphs, session and buffers; a second call does nothing."""
        super().close()
        self._bindings.clear()
        self._session = None


def tensors_of(graph: Graph, artifact: Artifact) -> tuple[DeviceTensor, ...]:
    """Return the inputs and outputs of a graph in a bucket."""
    return tuple(
        DeviceTensor(tensor.name, static_shape(tensor.shape, artifact.sizes), np.dtype(tensor.dtype), is_input)
        for tensors, is_input in ((graph.inputs, True), (graph.outputs, False))
        for tensor in tensors
    )


def _too_little(where: str, error: Exception) -> ExecutorFailed:
    return ExecutorFailed(
        f"{where}: expected memory of the device for a run, got too little ({reason_of(error)}); close streams, or "
        "build smaller buckets",
        "memory",
    )


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
