"""Reruns a step in double precision, to tell differences that rounding causes from those that padding causes.

An example is the variance of equal entries: it is 0 in exact numbers, but for entries of -1e30, which masks fill in, it
depends on the order of a sum in single precision. A comparison of two such results shows nothing about padding.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.checker.compare import is_near
from compiler.checker.graph import Array, Part, Weights, numbers_of


def is_rounding(part: Part, feeds: Mapping[str, Array], got: Sequence[Array], at: int = 0) -> bool:
    """Whether one output differs between double and single precision by more than the tolerance.

    Args:
        part: the step before padding.
        feeds: its inputs for one row.
        got: its results for them, per output.
        at: the output.

    Returns:
        False, too, where inputs are not finite, or where the step cannot be run in double precision: nothing then shows
        that rounding is to blame.
    """
    feed = {name: feeds[name] for name in part.sources}
    if not all(np.isfinite(array).all() for array in feed.values() if array.dtype.kind == "f"):
        return False
    double = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in feed.items()}
    try:
        with np.errstate(all="ignore"):
            exact = list(ReferenceEvaluator(in_double(part.model(), part.weights)).run(None, double))
    except Exception:  # noqa: BLE001 - the reference has no kernel for it, or none for these values
        return False
    single, precise = got[at], np.asarray(exact[at])
    return single.shape == precise.shape and not is_near(single.astype(np.float64), precise).all()


def in_double(model: onnx.ModelProto, weights: Weights = MappingProxyType({})) -> onnx.ModelProto:
    """Return the model, changed in place: weights are embedded, and single precision becomes double."""
    tensors = [*model.graph.initializer, *(a.t for node in model.graph.node for a in node.attribute if a.HasField("t"))]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT or tensor.external_data:
            array = numbers_of(tensor, weights)
            wide = array.astype(np.float64) if array.dtype == np.float32 else array
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "ConstantOfShape" and not node.attribute:  # single precision, where nothing is said
            zero = numpy_helper.from_array(np.zeros(1))
            node.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=zero))
    return model
