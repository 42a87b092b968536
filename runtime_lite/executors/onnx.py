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

from runtime_lite.errors import BadInput, BundleRefused, ExecutorFailed, InternalError
from runtime_lite.executors.graph_file import read_graph_file
from runtime_lite.executors.heap import trim_heap
from runtime_lite.executors.onnx_session import (
    NO_MEMORY,
    ORT_ERRORS,
    check_session,
    reason_of,
    refused,
    session_options,
)
from runtime_lite.executors.pages import large_pages
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Artifact, Graph, bucket_name
from runtime_lite.format.reader import Bundle

_CPU = ort_state.OrtDevice(ort_state.OrtDevice.cpu(), ort_state.OrtDevice.default_memory(), 0)
_MEMORY = ort_state.OrtValue.ortvalue_from_numpy  # shares the array's memory, but for an input that is not contiguous
_OTHER_SHAPE = ("but the computed output shape for this run is", "Got invalid dimensions for output")
_GIVE_BACK = ("memory.enable_memory_arena_shrinkage", "cpu:0")  # of a run: the system gets what no tensor lies in


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
                    f"lists, got others ({reason_of(error)}); rebuild the bundle"
                ) from error
            raise BadInput(
                f"{self._where}: expected values that its operators accept, got {reason_of(error)}; check the feed"
            ) from error
        except ORT_ERRORS as error:
            if NO_MEMORY in str(error):
                raise ExecutorFailed(
                    f"{self._where}: bucket {bucket_name(sizes)}: expected memory for a run, got too little; free "
                    "some, or build smaller buckets",
                    "memory",
                ) from error
            raise InternalError(f"{self._where}: bucket {bucket_name(sizes)}: {reason_of(error)}") from error

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
        options = session_options(file, self._threads)
        options.enable_mem_pattern = False  # a block per shape beside the arena: up to twice its memory, and no quicker
        options.add_session_config_entry("session.force_spinning_stop", "1")  # idle sessions leave the cores alone
        try:
            with large_pages(len(file.content) + sum(map(len, file.data.values()))):
                session = onnxruntime.InferenceSession(file.content, options, providers=["CPUExecutionProvider"])
                trim_heap()
        except ORT_ERRORS as error:
            raise refused(file.where, error) from error
        check_session(file.where, session, self._graph, artifact)
        backend: _Session = session._sess  # the wrapper cannot write into arrays and say what went wrong in types
        return backend
