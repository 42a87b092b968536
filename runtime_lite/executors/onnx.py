"""Runs the graph files of one graph of a bundle with ONNX Runtime on the CPU.

There is one session per graph file, opened at its first use and kept: buckets that share a file share its weights,
including packed ones, and the memory of runs. The memory of the first run of a bucket is freed, so that a bucket that
is open but not in use takes none. ONNX Runtime gets the graph file and its weights as bytes whose hash was checked, and
opens no file. A graph whose versions, inputs, outputs or external files differ from the manifest is refused. Sessions
run one node after the other with a fixed number of threads, so that equal feeds give equal bits on one machine. Feeds
are trusted, because `feeds.py` has checked them.
"""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import onnxruntime  # type: ignore[import-untyped, unused-ignore]
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state  # type: ignore[import-untyped, unused-ignore]

from runtime_lite.errors import BadInput, BundleRefused, ExecutorFailed, InternalError, show
from runtime_lite.executors.graph_file import read_graph_file
from runtime_lite.executors.heap import trim_heap
from runtime_lite.executors.pages import large_pages
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph, Tensor, bucket_name
from runtime_lite.format.reader import Bundle

_ORT_ERRORS = (
    ort_state.EPFail,
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
)
_ORT_TYPES = {"float16": "float16", "float32": "float", "float64": "double"}  # other dtypes have the same name
_NO_MEMORY = "Failed to allocate memory"  # the backend has no error of its own for it
_CPU = ort_state.OrtDevice(ort_state.OrtDevice.cpu(), ort_state.OrtDevice.default_memory(), 0)
_MEMORY = ort_state.OrtValue.ortvalue_from_numpy  # shares the array's memory, but for an input that is not contiguous
_OTHER_SHAPE = ("but the computed output shape for this run is", "Got invalid dimensions for output")
_GIVE_BACK = ("memory.enable_memory_arena_shrinkage", "cpu:0")  # of a run: the system gets what no tensor lies in
_FATAL = 4  # log level: errors reach the caller as exceptions, once


class _Value(Protocol):
    """The description of an input or output by onnxruntime."""

    name: str
    type: str
    shape: list[int | str | None]


class _Session(Protocol):
    """A session of onnxruntime, which has no types; it takes vectors of values in the memory of arrays."""

    def run_with_ortvaluevector(
        self, options: object, input_names: list[str], given: Any, output_names: list[str], places: Any, at: list[Any]
    ) -> None: ...


class OnnxExecutor:
    """The sessions of one graph, by graph file.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session.
    """

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Store the arguments; no session is opened yet."""
        self._bundle = bundle
        self._graph: Graph = bundle.manifest.graphs[name]
        self._where = f"{bundle.path}: graph {name!r}"
        self._threads = threads
        self._artifacts = {bucket_name(artifact.sizes): artifact for artifact in self._graph.runnable}
        self._built = {tuple(artifact.sizes.items()) for artifact in self._graph.artifacts}
        self._inputs = [tensor.name for tensor in self._graph.inputs]
        self._outputs = [tensor.name for tensor in self._graph.outputs]
        self._devices = [_CPU] * len(self._outputs)
        self._sessions: dict[str, _Session] = {}
        self._by_bucket: dict[tuple[tuple[str, int], ...], _Session] = {}
        self._lock = threading.Lock()

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: an array for every output to be written to, in the bucket's static shape, contiguous.

        Raises:
            BadInput: a value in the feed is outside what an operator accepts, e.g. an index beyond a table.
            BundleRefused: the bucket's graph file, or its outputs, differ from the manifest.
            ExecutorFailed: memory did not suffice.
            InternalError: the backend failed.
        """
        bucket, options = tuple(sizes.items()), ort_state.RunOptions()
        session = self._by_bucket.get(bucket)
        if session is None:
            session = self._by_bucket[bucket] = self._session_of(self._artifacts[bucket_name(sizes)])
            if bucket in self._built:  # runs of rows between two buckets are work: what they took is wanted again
                options.add_run_config_entry(*_GIVE_BACK)
        fed, places = ort_state.OrtValueVector(), ort_state.OrtValueVector()
        for name in self._inputs:
            fed.push_back(_MEMORY(inputs[name], _CPU))
        for name in self._outputs:
            places.push_back(_MEMORY(outputs[name], _CPU))
        try:
            session.run_with_ortvaluevector(options, self._inputs, fed, self._outputs, places, self._devices)
        except ort_state.InvalidArgument as error:
            if any(words in str(error) for words in _OTHER_SHAPE):
                raise BundleRefused(
                    f"{self._where}: bucket {bucket_name(sizes)}: expected outputs of the shapes that the manifest "
                    f"lists, got others ({_reason(error)}); rebuild the bundle"
                ) from error
            raise BadInput(
                f"{self._where}: expected values that its operators accept, got {_reason(error)}; check the feed"
            ) from error
        except _ORT_ERRORS as error:
            if _NO_MEMORY in str(error):
                raise ExecutorFailed(
                    f"{self._where}: bucket {bucket_name(sizes)}: expected memory for a run, got too little; free "
                    "some, or build smaller buckets",
                    "memory",
                ) from error
            raise InternalError(f"{self._where}: bucket {bucket_name(sizes)}: {_reason(error)}") from error

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            self._by_bucket.clear()
            self._sessions.clear()

    def _session_of(self, artifact: Artifact) -> _Session:
        with self._lock:
            if artifact.file not in self._sessions:
                self._sessions[artifact.file] = self._open_session(artifact)
            return self._sessions[artifact.file]

    def _open_session(self, artifact: Artifact) -> _Session:
        file = read_graph_file(self._bundle, self._graph, artifact)
        where, buffers = file.where, list(file.data.values())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.use_deterministic_compute = True
        options.enable_mem_pattern = False  # a block per shape beside the arena: up to twice its memory, and no quicker
        options.log_severity_level = _FATAL
        options.add_session_config_entry("session.load_model_format", "ONNX")  # never guessed from the content
        options.add_session_config_entry("session.force_spinning_stop", "1")  # idle sessions leave the cores alone
        if buffers:
            # the buffers are needed until the session exists; ONNX Runtime keeps copies of what it uses
            options.add_external_initializers_from_files_in_memory(list(file.data), buffers, [len(b) for b in buffers])
        try:
            with large_pages(len(file.content) + sum(len(buffer) for buffer in buffers)):
                session = onnxruntime.InferenceSession(file.content, options, providers=["CPUExecutionProvider"])
                trim_heap()
        except _ORT_ERRORS as error:
            raise BundleRefused(
                f"{where}: expected a graph that ONNX Runtime {onnxruntime.__version__} runs, got {_reason(error)}; "
                "rebuild the bundle or install the version it was verified with"
            ) from error
        self._check_signature(where, "inputs", session.get_inputs(), self._graph.inputs, artifact)
        self._check_signature(where, "outputs", session.get_outputs(), self._graph.outputs, artifact)
        backend: _Session = session._sess  # the wrapper cannot write into arrays and say what went wrong in types
        return backend

    def _check_signature(
        self, where: str, side: str, found: list[_Value], expected: tuple[Tensor, ...], artifact: Artifact
    ) -> None:
        wanted = [
            (
                tensor.name,
                f"tensor({_ORT_TYPES.get(tensor.dtype, tensor.dtype)})",
                self._graph.shape_in_file(tensor, artifact),
            )
            for tensor in expected
        ]
        got = [(value.name, value.type, list(value.shape)) for value in found]
        if got != wanted:
            differs = next(
                (pair for pair in zip(wanted, got, strict=False) if pair[0] != pair[1]), (len(wanted), len(got))
            )
            refuse(where, f"{side} as the manifest lists them ({show(differs[0])})", show(differs[1]))


def _reason(error: Exception) -> str:
    """Return the first line of a backend's message, without its prefix."""
    lines = str(error).splitlines() or [""]
    return show(lines[0].rpartition(" : ")[2])
