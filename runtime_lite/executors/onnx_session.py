"""Opens graph files in ONNX Runtime with the options that its executors share, and checks inputs and outputs.

ONNX Runtime gets a graph file and its weights as bytes whose hash was checked, and opens no file. Sessions execute one
node after another.
"""

from typing import Any, Protocol

import onnxruntime  # type: ignore[import-untyped, unused-ignore]
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state  # type: ignore[import-untyped, unused-ignore]

from runtime_lite.errors import BundleRefused, show
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph, Tensor

ORT_ERRORS = (
    ort_state.EPFail,
    ort_state.Fail,
    ort_state.InvalidArgument,
    ort_state.InvalidGraph,
    ort_state.InvalidProtobuf,
    ort_state.NotImplemented,
    ort_state.RuntimeException,
)
NO_MEMORY = "Failed to allocate memory"
"""What the backend says when there is too little; it has no error of its own for it."""

FATAL = 4
"""The level of the backend's log: errors reach the caller as exceptions, once."""

_ORT_TYPES = {"float16": "float16", "float32": "float", "float64": "double"}  # other dtypes have the same name


class Value(Protocol):
    """What onnxruntime says about an input or output."""

    name: str
    type: str
    shape: list[int | str | None]


def session_options(file: GraphFile, threads: int) -> Any:
    """Return the options of a session, with the external files of a graph, which are needed until it exists.

    Args:
        file: the graph.
        threads: threads of the session.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = FATAL
    options.add_session_config_entry("session.load_model_format", "ONNX")  # never guessed from the content
    if file.data:
        buffers: list[bytes] = list(file.data.values())
        options.add_external_initializers_from_files_in_memory(list(file.data), buffers, [len(b) for b in buffers])
    return options


def refused(where: str, error: Exception) -> BundleRefused:
    """Return the error of a graph that ONNX Runtime does not open."""
    return BundleRefused(
        f"{where}: expected a graph that ONNX Runtime {onnxruntime.__version__} runs, got {reason_of(error)}; "
        "rebuild the bundle or install the version it was verified with"
    )


def check_session(where: str, session: Any, graph: Graph, artifact: Artifact) -> None:
    """Refuse a session whose inputs and outputs are not those of the manifest.

    Raises:
        BundleRefused: names the first that differs.
    """
    _check_side(where, "inputs", session.get_inputs(), graph.inputs, graph, artifact)
    _check_side(where, "outputs", session.get_outputs(), graph.outputs, graph, artifact)


def _check_side(
    where: str, side: str, found: list[Value], expected: tuple[Tensor, ...], graph: Graph, artifact: Artifact
) -> None:
    wanted = [
        (tensor.name, f"tensor({_ORT_TYPES.get(tensor.dtype, tensor.dtype)})", graph.shape_in_file(tensor, artifact))
        for tensor in expected
    ]
    got = [(value.name, value.type, list(value.shape)) for value in found]
    if got != wanted:
        differs = next((pair for pair in zip(wanted, got, strict=False) if pair[0] != pair[1]), (len(wanted), len(got)))
        refuse(where, f"{side} as the manifest lists them ({show(differs[0])})", show(differs[1]))


def reason_of(error: Exception) -> str:
    """Return the first line of a backend's message, without its prefix."""
    lines = str(error).splitlines() or [""]
    return show(lines[0].rpartition(" : ")[2])
