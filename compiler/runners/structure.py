"""A graph and its large weights apart: passes share the weights, so all that has to be written anew is the structure.

A copy is written, compared and opened after every pass. With 100 MB of weights inside, moving them around takes longer
than running the graph.
"""

import numpy as np
import onnx
import onnx_ir as ir

from compiler import ir as house

LEAST_BYTES = 1024
"""Smaller weights stay in the structure, where the runtime may read them as shapes and constants."""

WEIGHTS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8)
"""What weights are made of; whole numbers of other types are sizes and places."""

ELSEWHERE = "weights"
"""Where the structure says that its weights lie; no file of this name is ever read."""


def split(model: ir.Model) -> tuple[bytes, dict[str, ir.TensorProtocol]]:
    """The model as one protobuf that refers to its large weights by name, and these, shared with the model."""
    copy, weights = house.clone(model), dict[str, ir.TensorProtocol]()
    for name, value in copy.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and _is_weight(value, tensor):
            weights[name] = tensor
            shape = ir.Shape(tensor.shape.numpy())
            value.const_value = ir.ExternalTensor(ELSEWHERE, None, None, tensor.dtype, shape=shape, name=name)
    return house.serialized(copy), weights


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
    # Written whole: a malformed graph cannot be copied.
    proto, weights = ir.serde.serialize_model(model), model.graph.initializers
    for tensor in proto.graph.initializer:
        held = weights[tensor.name].const_value
        if held is not None and _is_weight(weights[tensor.name], held):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.zeros(0, held.dtype.numpy()), tensor.name))
    onnx.checker.check_model(proto)
