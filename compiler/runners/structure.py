"""A graph and its large weights apart: passes share the weights, so all that has to be written anew is the structure.

A copy is written, compared and opened after every pass. With 100 MB of weights inside, moving them around takes longer
than running the graph.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

LEAST_BYTES = 1024
"""Smaller weights stay in the structure, where the runtime may read them as shapes and constants."""

WEIGHTS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8)
"""What weights are made of; whole numbers of other types are sizes and places."""

ELSEWHERE = "weights"
"""Where the structure says that its weights lie; no file of this name is ever read."""


def split(model: ir.Model) -> tuple[bytes, dict[str, ir.TensorProtocol]]:
    """The model as one protobuf that refers to its large weights by name, and these, shared with the model."""
    view = _WithoutWeights(model.graph, _elsewhere)
    return bytes(_written(model, view).SerializeToString(deterministic=True)), view.weights


def _written(model: ir.Model, graph: "_WithoutWeights") -> onnx.ModelProto:
    return ir.serde.serialize_model(_WithGraph(model, graph))  # type: ignore[arg-type]


def _elsewhere(name: str, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A reference to a weight."""
    shape = ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor(ELSEWHERE, None, None, tensor.dtype, shape=shape, name=name)


def _empty(name: str, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """A weight of no number, of the same type."""
    return ir.tensor(np.zeros(0, tensor.dtype.numpy()), name=name)


class _WithoutWeights:
    """A graph to be written, with something small in the place of every large weight: neither is copied.

    Args:
        graph: stays as it is.
        stand_in: what is written in the place of a weight, by its name and content.
    """

    def __init__(self, graph: ir.Graph, stand_in: Callable[[str, ir.TensorProtocol], ir.TensorProtocol]) -> None:
        self.graph, self.stand_in, self.weights = graph, stand_in, dict[str, ir.TensorProtocol]()
        self.initializers = {name: self._without(name, value) for name, value in graph.initializers.items()}

    def _without(self, name: str, value: ir.Value) -> ir.Value:
        tensor = value.const_value
        if tensor is None or not _is_weight(value, tensor):
            return value
        self.weights[name] = tensor
        return ir.Value(
            name=value.name,
            shape=value.shape,
            type=value.type,
            doc_string=value.doc_string,
            const_value=self.stand_in(name, tensor),
            metadata_props=dict(value.metadata_props),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.graph, name)

    def __iter__(self) -> Iterator[ir.Node]:
        return iter(self.graph)

    def __len__(self) -> int:
        return len(self.graph)


class _WithGraph:
    """A model to be written with another graph.

    Args:
        model: stays as it is.
        graph: is written in the place of its own.
    """

    def __init__(self, model: ir.Model, graph: _WithoutWeights) -> None:
        self.model, self.graph = model, graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def _is_weight(value: ir.Value, tensor: ir.TensorProtocol) -> bool:
    """Whether it is large, read by nodes, as the runtime drops what is not, and no input that callers may feed."""
    if value.is_graph_input() or value.is_graph_output() or not value.uses():
        return False
    return tensor.dtype in WEIGHTS and tensor.nbytes >= LEAST_BYTES


def is_same(before: ir.Model, after: ir.Model) -> bool:
    """Whether two models are equal to the byte."""
    (structure, weights), (other, others) = split(before), split(after)
    return structure == other and all(_is_equal(tensor, others[name]) for name, tensor in weights.items())


def _is_equal(tensor: ir.TensorProtocol, other: ir.TensorProtocol) -> bool:
    """Of tensors of one type and shape."""
    return tensor is other or tensor.tobytes() == other.tobytes()


def check_structure(model: ir.Model) -> None:
    """Check the model by the rules of ONNX; a weight is stood in for by an empty one of its type.

    Raises:
        onnx.checker.ValidationError: it breaks one.
    """
    onnx.checker.check_model(_written(model, _WithoutWeights(model.graph, _empty)))
