"""Runs a graph file on OpenVINO to verify it, by the same calls that the runtime makes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.errors import Refused, ToolchainAbsent
from compiler.graph.stages import Array
from compiler.targets.openvino.parts import INSTALL
from runtime_lite.errors import BundleRefused, EngineAbsent
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.executors.openvino_graph import CompiledGraph, Types, compile_graph, read_graph
from runtime_lite.format.onnx_file import scan_onnx


class OpenvinoSession:
    """A graph that was compiled for this machine.

    Args:
        model: the model that it was compiled from.
        graph: the compiled one.
    """

    def __init__(self, model: Any, graph: CompiledGraph) -> None:
        self.graph = graph
        self.inputs = [port.get_any_name() for port in model.inputs]
        self.outputs = {name: index for index, port in enumerate(model.outputs) for name in port.get_names()}
        self._types: dict[tuple[tuple[int, ...], ...], Types] = {}

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """Return outputs in the order of `names`; all outputs where it is None."""
        given = [feeds[name] for name in self.inputs]
        shapes = tuple(array.shape for array in given)
        if shapes not in self._types:
            self._types[shapes] = self.graph.types_for(given)
        places = [np.empty(shape, dtype) for dtype, shape in self._types[shapes]]
        self.graph.run(given, places)
        return places if names is None else [places[self.outputs[name]] for name in names]


def open_graph(path: Path, precision: str) -> OpenvinoSession:
    """Open a graph file on one thread.

    Args:
        path: the ONNX file, with its external files beside it.
        precision: the type it computes in.

    Raises:
        Refused: OpenVINO rejects the graph.
        ToolchainAbsent: OpenVINO is not installed.
    """
    content = path.read_bytes()
    locations = {tensor.location for tensor in scan_onnx(content, path.name).external}
    data = {location: (path.parent / location).read_bytes() for location in sorted(locations)}
    file = GraphFile(path.name, content, data)
    try:
        model = read_graph(file)
        return OpenvinoSession(model, compile_graph(file, model, precision, threads=1))
    except EngineAbsent as error:
        raise ToolchainAbsent(str(error), cure=INSTALL) from None
    except BundleRefused as error:
        message, _, _ = str(error).partition("; ")
        raise Refused(message, cure="keep the operator out of the graph, or build for another target") from None
