"""Compiles one graph file with OpenVINO for this machine's processor, and runs it on the memory of NumPy arrays.

OpenVINO gets bytes, not a path, and opens no file. Options that it would choose by the machine are set: the type of
products (bfloat16 by default if the processor has it), the number of threads, their cores, and that no activation is
rounded to integers unless the graph does so. Rows that a file leaves open stay open: there is one compiled graph, and
one packed copy of its weights, for all numbers of rows.
"""

import ctypes
import functools
import io
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from runtime_lite.errors import BundleRefused, EngineAbsent, show
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.executors.heap import trim_heap
from runtime_lite.format.arrays import Array
from runtime_lite.format.onnx_memory import in_memory

PRECISIONS = {"float32": "f32", "bfloat16": "bf16"}
"""Types in which products and convolutions are computed, with OpenVINO's names."""

_FAILURES = (
    "GeneralFailure", "InitializationFailure", "NotImplementedFailure", "OpConversionFailure", "OpValidationFailure",
)  # fmt: skip

Types = tuple[tuple[str, tuple[int, ...]], ...]
"""Dtype and shape of each array."""


def import_openvino() -> ModuleType:
    """Import and return the package openvino.

    Raises:
        EngineAbsent: it is not installed, or its import fails.
    """
    try:
        import openvino
        import openvino.frontend
    except (ImportError, OSError) as error:
        raise EngineAbsent(f"expected the package openvino, got {show(str(error))}; pip install openvino") from error
    package: ModuleType = openvino
    return package


@functools.cache
def _core() -> Any:
    return import_openvino().Core()


def read_graph(file: GraphFile) -> Any:
    """Return OpenVINO's model of a graph file, with a copy of its weights.

    Raises:
        BundleRefused: it cannot be read, or has an operator that OpenVINO lacks.
        EngineAbsent: OpenVINO is not installed.
    """
    addresses = {location: _address(content) for location, content in file.data.items()}
    content = in_memory(file.content, file.where, addresses)
    frontend = import_openvino().frontend
    reader = frontend.FrontEndManager().load_by_framework("onnx")  # never guessed from the content
    failures = (RuntimeError, *(getattr(frontend, name) for name in _FAILURES))
    try:
        return reader.convert(reader.load(io.BytesIO(content)))
    except failures as error:
        raise _refused(file, error) from error


def compile_graph(file: GraphFile, model: Any, precision: str, threads: int) -> "CompiledGraph":
    """Compile a model that `read_graph` returned.

    Args:
        file: the file of the model, for messages.
        model: the model.
        precision: one of `PRECISIONS`; a processor without instructions for it computes in float32.
        threads: number of threads of a call, including the caller's.

    Raises:
        BundleRefused: OpenVINO does not compile it.
    """
    options = {
        "INFERENCE_PRECISION_HINT": PRECISIONS[precision],
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        "CPU_DENORMALS_OPTIMIZATION": False,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,  # threads of the caller and of other graphs have the cores, too
    }
    try:
        compiled = _core().compile_model(model, "CPU", options)
    except RuntimeError as error:
        raise _refused(file, error) from error
    trim_heap()
    return CompiledGraph(compiled)


class CompiledGraph:
    """A graph that runs on this machine; calls may be made at the same time and follow one another.

    Args:
        compiled: OpenVINO's compiled model.
    """

    def __init__(self, compiled: Any) -> None:
        """Store the compiled model; requests for calls are made when they are first needed, and kept."""
        self.compiled = compiled
        self._tensor = import_openvino().Tensor
        self._idle: list[Any] = []

    def run(self, given: Sequence[Array], places: Sequence[Array]) -> None:
        """Run one call.

        Args:
            given: an array for every input, in a shape that the graph takes, of any memory layout.
            places: an array for every output to be written to, in the shape of the output, contiguous.

        Raises:
            MemoryError: memory did not suffice.
            RuntimeError: OpenVINO failed.
        """
        try:
            request = self._idle.pop()
        except IndexError:
            request = self.compiled.create_infer_request()
        tensors = self._fed(request, given)
        for index, place in enumerate(places):
            tensors.append(self._tensor(place, shared_memory=True))
            request.set_output_tensor(index, tensors[-1])
        request.infer(share_outputs=True)
        tensors.clear()  # whoever holds them has held the arrays until now, which a request does not
        self._idle.append(request)  # one that has failed is not used again

    def types_for(self, given: Sequence[Array]) -> Types:
        """Run the graph on some inputs and return the types of all outputs."""
        request = self.compiled.create_infer_request()  # one that has no places to write to
        tensors = self._fed(request, given)
        request.infer(share_outputs=True)
        tensors.clear()
        return tuple((str(each.data.dtype), tuple(each.shape)) for each in request.output_tensors)

    def _fed(self, request: Any, given: Sequence[Array]) -> list[Any]:
        """Set the inputs of a request; return the tensors, which must be referenced while it runs."""
        # memory that is read where it lies is dense, aligned and, though nothing is written there, writable
        dense = [np.require(array, requirements=["C", "A", "W"]) for array in given]
        tensors = [self._tensor(array, shared_memory=True) for array in dense]
        for index, tensor in enumerate(tensors):
            request.set_input_tensor(index, tensor)
        return tensors


def types_at(model: Any, shapes: Sequence[Sequence[int]]) -> Sequence[tuple[str, tuple[int, ...] | None]]:
    """Return dtype and shape of all outputs of a model for some input shapes; None for an unknown shape.

    Raises:
        RuntimeError: OpenVINO finds no shapes.
    """
    copy = model.clone()
    copy.reshape({copy.inputs[index]: list(shape) for index, shape in enumerate(shapes)})
    return [type_of(port) for port in copy.outputs]


def type_of(port: Any) -> tuple[str, tuple[int, ...] | None]:
    """Return dtype and shape of an input or output; the shape is None if a dimension is open."""
    shape = port.get_partial_shape()
    return str(port.get_element_type().to_dtype()), tuple(shape.to_shape()) if shape.is_static else None


def _address(content: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0


def _refused(file: GraphFile, error: Exception) -> BundleRefused:
    version = import_openvino().__version__.split("-")[0]
    return BundleRefused(
        f"{file.where}: expected a graph that OpenVINO {version} runs, got {reason_of(error)}; rebuild the bundle or "
        "install the version it was verified with"
    )


def reason_of(error: Exception) -> str:
    """Return the line of OpenVINO's message that states the cause: the last list item, else the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    listed = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
    return show((listed or lines or [""])[-1])
