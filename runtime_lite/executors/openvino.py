"""Runs the graph files of one graph of a bundle with OpenVINO on the CPU.

There is one compiled graph per graph file, made at its first use from the bytes whose hash was checked, and kept;
buckets that share a file share it. A graph whose versions, inputs, outputs or external files differ from the manifest
is refused; if a file leaves rows open, the shapes of every bucket are checked before it runs. Runs follow one another,
each on a fixed number of threads. Feeds are trusted, because `feeds.py` has checked them, except for 64-bit integers:
OpenVINO computes with 32 bits, so that larger values are refused.
"""

import threading
from collections.abc import Mapping
from typing import Any

from runtime_lite.errors import BadInput, ExecutorFailed, InternalError, show
from runtime_lite.executors.graph_file import read_graph_file
from runtime_lite.executors.openvino_graph import (
    PRECISIONS,
    CompiledGraph,
    compile_graph,
    import_openvino,
    read_graph,
    reason_of,
    type_of,
    types_at,
)
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph, Tensor, bucket_name, static_shape
from runtime_lite.format.reader import Bundle

LEAST, MOST = -(2**31), 2**31 - 1
"""Range of the integers that OpenVINO computes with."""


class OpenvinoExecutor:
    """The compiled graphs of one graph, by graph file.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per run.

    Raises:
        BundleRefused: the manifest does not state the precision to compute in.
        EngineAbsent: OpenVINO is not installed.
    """

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        """Import OpenVINO; no graph is read or compiled yet."""
        self._bundle = bundle
        self._graph: Graph = bundle.manifest.graphs[name]
        self._where = f"{bundle.path}: graph {name!r}"
        self._threads = threads
        self._precision = str(self._graph.options.get("precision", "none"))
        if self._precision not in PRECISIONS:
            refuse(self._where, f"options.precision, one of {', '.join(PRECISIONS)}", show(self._precision))
        import_openvino()
        self._artifacts = {bucket_name(artifact.sizes): artifact for artifact in self._graph.runnable}
        self._inputs = [tensor.name for tensor in self._graph.inputs]
        self._outputs = [tensor.name for tensor in self._graph.outputs]
        self._wide = [tensor.name for tensor in self._graph.inputs if tensor.dtype in ("int64", "uint64")]
        self._compiled: dict[str, CompiledGraph] = {}
        self._by_bucket: dict[tuple[tuple[str, int], ...], CompiledGraph] = {}
        self._lock = threading.Lock()

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: an array for every output to be written to, in the bucket's static shape, contiguous.

        Raises:
            BadInput: an integer in the feed has more than 32 bits.
            BundleRefused: the bucket's graph file differs from the manifest.
            ExecutorFailed: memory did not suffice.
            InternalError: the backend failed.
        """
        for name in self._wide:
            self._check_range(name, inputs[name])
        bucket = tuple(sizes.items())
        graph = self._by_bucket.get(bucket)
        if graph is None:
            graph = self._by_bucket[bucket] = self._graph_of(self._artifacts[bucket_name(sizes)])
        where = f"{self._where}: bucket {bucket_name(sizes)}"
        try:
            graph.run([inputs[name] for name in self._inputs], [outputs[name] for name in self._outputs])
        except MemoryError as error:
            raise ExecutorFailed(
                f"{where}: expected memory for a run, got too little; free some, or build smaller buckets", "memory"
            ) from error
        except RuntimeError as error:
            raise InternalError(f"{where}: {reason_of(error)}") from error

    def close(self) -> None:
        """Drop all compiled graphs."""
        with self._lock:
            self._by_bucket.clear()
            self._compiled.clear()

    def _check_range(self, name: str, array: Array) -> None:
        if array.size and not LEAST <= array.min() <= array.max() <= MOST:
            far = next(value for value in (array.min(), array.max()) if not LEAST <= value <= MOST)
            raise BadInput(
                f"{self._where}: expected integers from {LEAST} to {MOST} in {name!r}, as OpenVINO computes with, got "
                f"{far}; check the feed"
            )

    def _graph_of(self, artifact: Artifact) -> CompiledGraph:
        with self._lock:
            if artifact.file not in self._compiled:
                self._compiled[artifact.file] = self._open(artifact)
            return self._compiled[artifact.file]

    def _open(self, artifact: Artifact) -> CompiledGraph:
        file = read_graph_file(self._bundle, self._graph, artifact)
        model = read_graph(file)
        self._check_ports(file.where, "inputs", model.inputs, self._graph.inputs, artifact)
        self._check_ports(file.where, "outputs", model.outputs, self._graph.outputs, artifact)
        for each in self._graph.runnable:
            if each.file == artifact.file:
                self._check_shapes(file.where, model, each)
        return compile_graph(file, model, self._precision, self._threads)

    def _check_ports(
        self, where: str, side: str, ports: list[Any], expected: tuple[Tensor, ...], artifact: Artifact
    ) -> None:
        """Check the names, dtypes and stated shapes of inputs or outputs against the manifest."""
        wanted = [
            (tensor.name, tensor.dtype, _opened(self._graph.shape_in_file(tensor, artifact))) for tensor in expected
        ]
        got = [
            (tensor.name if tensor.name in port.get_names() else port.get_any_name(), type_of(port)[0], _dims(port))
            for tensor, port in zip(expected, ports, strict=False)
        ]
        if len(ports) != len(expected):
            refuse(where, f"{len(expected)} {side}, as the manifest lists them", str(len(ports)))
        for theirs, ours in zip(wanted, got, strict=True):
            if theirs != ours:
                refuse(where, f"{side} as the manifest lists them ({show(theirs)})", show(ours))

    def _check_shapes(self, where: str, model: Any, artifact: Artifact) -> None:
        """Check the output shapes of a bucket, as OpenVINO would not write into arrays of other shapes."""
        wanted = [(each.dtype, static_shape(each.shape, artifact.sizes)) for each in self._graph.outputs]
        try:
            got = types_at(model, [static_shape(each.shape, artifact.sizes) for each in self._graph.inputs])
        except RuntimeError as error:
            refuse(where, f"a graph that takes the shapes of {bucket_name(artifact.sizes)}", reason_of(error))
        for name, expected, found in zip(self._outputs, wanted, got, strict=True):
            if expected != found:
                refuse(where, f"outputs of the shapes that the manifest lists ({show((name, *expected))})", show(found))


def _opened(shape: list[int | str]) -> list[int]:
    """Return the sizes of a shape in a graph file, -1 for an open one."""
    return [size if isinstance(size, int) else -1 for size in shape]


def _dims(port: Any) -> list[int]:
    """Return the sizes of an input or output of OpenVINO, -1 for an open one."""
    return [dim.get_length() if dim.is_static else -1 for dim in port.get_partial_shape()]
