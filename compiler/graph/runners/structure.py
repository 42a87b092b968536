"""Splits a graph into its structure and its large weights, so that the graphs of several passes share the weights.

Passes share the weights, so all that has to be written anew is the structure. With the weights inside, a copy after
every pass would take longer than running the graph, and no protobuf holds more than 2 GiB. In the place of a weight the
structure has the digest of its content: structures are equal where graphs are, to the last weight.
"""

import dataclasses
import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from compiler.base.pieces import flat
from compiler.errors import Refused
from compiler.graph.stages import Array

LEAST_BYTES = 1024
"""Smaller weights stay in the structure, where the runtime may read them as shapes and constants."""

LARGEST_PROTOBUF = 2**31 - 1
"""Bytes of the largest protobuf that can be read."""

WEIGHTS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8)
"""What weights are made of; whole numbers of other types are sizes and places."""


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """A graph whose large weights lie beside it.

    Attributes:
        proto: in the place of each large weight it has a reference to external data, whose location is a digest.
        weights: the arrays by digest, shared with the graph; `array_of` gives them the shape and type of a place.
    """

    proto: onnx.ModelProto
    weights: Mapping[str, Array]

    @property
    def nbytes(self) -> int:
        """Return the total bytes of the large weights."""
        return sum(array.nbytes for array in self.weights.values())

    @property
    def content(self) -> bytes:
        """Return the serialized structure, which identifies the graph, as it holds the digests of the weights."""
        return written(self.proto)

    def model(self) -> ir.Model:
        """Return the graph, with the same arrays."""
        model = ir.from_proto(self.proto)
        for tensor in outside(self.proto):
            value = model.graph.initializers[tensor.name]
            value.const_value = ir.tensor(self.array_of(tensor), name=tensor.name)
            remember_digest(value.const_value, _reference(tensor))
        return model

    def array_of(self, tensor: onnx.TensorProto) -> Array:
        """Return a weight in its declared shape and type; weights of equal bytes are stored once."""
        array, kind, shape = self.weights[_reference(tensor)], ir.DataType(tensor.data_type).numpy(), tuple(tensor.dims)
        if (array.dtype, array.shape) == (kind, shape):
            return array
        return np.ascontiguousarray(array).reshape(-1).view(kind).reshape(shape)


def split(model: ir.Model) -> Structure:
    """Return the structure of a model, and its large weights, shared with the model."""
    view = _WithoutWeights(model.graph)
    proto = ir.serde.serialize_model(_WithGraph(model, view))  # type: ignore[arg-type]
    return Structure(proto, view.weights)


def references(proto: onnx.ModelProto) -> dict[str, str]:
    """Return the digests of the weights outside a structure, by name."""
    return {tensor.name: _reference(tensor) for tensor in outside(proto)}


def outside(proto: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Return the weights outside a structure, as it declares them."""
    return [tensor for tensor in proto.graph.initializer if tensor.external_data]


def _reference(tensor: onnx.TensorProto) -> str:
    return str(tensor.external_data[0].value)


Place = Callable[[str, Array, onnx.TensorProto], Mapping[str, str]]
"""Says where a weight lies, as ONNX writes it, by its digest, its content and how it is declared."""


def with_weights_placed(structure: Structure, place: Place, inline_bytes: int) -> bytes:
    """Return a graph file whose weights lie elsewhere.

    Args:
        structure: the graph; not changed.
        place: called for every weight, also those inside the structure.
        inline_bytes: largest size of constants that stay in the file.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(structure.proto)
    for tensor in proto.graph.initializer:
        if tensor.external_data:
            digest, array = _reference(tensor), structure.array_of(tensor)
        elif len(tensor.raw_data) > inline_bytes:
            digest, array = hashlib.sha256(tensor.raw_data).hexdigest(), np.frombuffer(tensor.raw_data, np.uint8)
        else:
            continue
        where = place(digest, array, tensor)
        tensor.ClearField("raw_data")
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in where.items():
            tensor.external_data.add(key=key, value=value)
    return written(proto)


def written(proto: onnx.ModelProto) -> bytes:
    """Return a model, serialized.

    Raises:
        Refused: it exceeds the size limit of a protobuf.
    """
    if proto.ByteSize() > LARGEST_PROTOBUF:
        raise Refused(
            f"expected a graph of at most {LARGEST_PROTOBUF} bytes without its large weights, got {proto.ByteSize()}",
            cure="make constants that nodes hold, and tables of whole numbers, parameters or buffers of real numbers",
        )
    return bytes(proto.SerializeToString(deterministic=True))


_DIGESTS: "weakref.WeakKeyDictionary[ir.TensorProtocol, str]" = weakref.WeakKeyDictionary()
"""Of weights, which stay as they are as long as they live: each is digested once for all copies of a graph."""


def digest_of(tensor: ir.TensorProtocol) -> str:
    """Return SHA-256 of the content of a weight."""
    if tensor not in _DIGESTS:
        _DIGESTS[tensor] = hashlib.sha256(flat(tensor.numpy())).hexdigest()
    return _DIGESTS[tensor]


def remember_digest(tensor: ir.TensorProtocol, digest: str) -> None:
    """Record the digest of a weight whose content equals another's."""
    _DIGESTS[tensor] = digest


class _WithoutWeights:
    """A graph to be written, with a reference in the place of every large weight: neither is copied.

    Args:
        graph: stays as it is.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph, self.weights = graph, dict[str, Array]()
        self.initializers = {name: self._without(value) for name, value in graph.initializers.items()}

    def _without(self, value: ir.Value) -> ir.Value:
        tensor = value.const_value
        if tensor is None or not _is_weight(value, tensor):
            return value
        digest = digest_of(tensor)
        self.weights[digest] = tensor.numpy()
        reference = ir.ExternalTensor(
            digest, None, None, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=str(value.name)
        )
        return ir.Value(
            name=value.name,
            shape=value.shape,
            type=value.type,
            doc_string=value.doc_string,
            const_value=reference,
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
    """Whether a value is large, read by nodes (the runtime drops others), and no input that callers may feed."""
    if value.is_graph_input() or value.is_graph_output() or not value.uses():
        return False
    return tensor.dtype in WEIGHTS and tensor.nbytes >= LEAST_BYTES


def is_same(before: ir.Model, after: ir.Model) -> bool:
    """Whether two models are equal to the byte."""
    return split(before).content == split(after).content


def check_structure(model: ir.Model) -> None:
    """Check the model by the rules of ONNX, with empty constants in place of large weights.

    Raises:
        onnx.checker.ValidationError: it breaks a rule.
    """
    proto = split(model).proto
    for tensor in proto.graph.initializer:
        if tensor.external_data:
            nothing = np.zeros(0, ir.DataType(tensor.data_type).numpy())
            tensor.CopyFrom(onnx.numpy_helper.from_array(nothing, tensor.name))
    onnx.checker.check_model(proto)
