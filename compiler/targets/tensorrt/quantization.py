"""Checks that Q/DQ pairs are placed so that TensorRT runs the operators between them in INT8.

Source: the parser's importer of QuantizeLinear and DequantizeLinear (10.15), the vendor's guide to explicit
quantisation. Weights are quantised per channel on the output axis, activations per tensor, all of them symmetrically.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from compiler.graph.model import array_of, attribute, consumers_of, int_attribute, is_op
from compiler.graph.operators.axes import axis_of, has_axis
from compiler.targets.tensorrt.rule import Breach, DeviceLimits, Rule, every_node

WEIGHTED = ("MatMul", "Gemm", "Conv", "ConvTranspose")

FLOAT_ONLY = (
    "LayerNormalization",
    "RMSNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "Softmax",
    "LogSoftmax",
    "Gelu",
    "Erf",
)
"""Operators that lose more in INT8 than they gain; no DequantizeLinear feeds them."""

LOWEST_WEIGHT = -127


def _pairs(model: ir.Model) -> Iterator[ir.Node]:
    return (node for node in every_node(model) if is_op(node, "QuantizeLinear", "DequantizeLinear"))


def _operand(node: ir.Node, at: int) -> ir.Value | None:
    return node.inputs[at] if len(node.inputs) > at else None


def _integers(node: ir.Node) -> ir.Value | None:
    """Return the quantized side of a quantizing or dequantizing node."""
    return node.outputs[0] if is_op(node, "QuantizeLinear") else node.inputs[0]


def _type(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        integers, zero = _integers(node), _operand(node, 2)
        declared = attribute(node, "output_dtype", 0) if is_op(node, "QuantizeLinear") else 0
        if zero is None and declared != ir.DataType.INT8 and is_op(node, "QuantizeLinear"):
            got = "none, which means UINT8"
        elif zero is not None and zero.dtype != ir.DataType.INT8:
            got = f"{zero.dtype.name if zero.dtype else 'an unknown type'}"
        elif integers is not None and integers.dtype not in (None, ir.DataType.INT8):
            got = str(integers.dtype.name)
        else:
            continue
        yield Breach(f"expected a zero point of INT8, got {got}", "give it an int8 zero point of 0", node, zero)


def _zero_point(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        zero = _operand(node, 2)
        if zero is None:
            continue
        array = array_of(zero)
        if array is None or np.any(array != 0):
            got = "a computed value" if array is None else f"{np.unique(array)[:4].tolist()}"
            yield Breach(f"expected a constant zero point of 0, got {got}", "quantise symmetrically", node, zero)


def _scale(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        scale = _operand(node, 1)
        array = array_of(scale)
        if array is None:
            yield Breach("expected a constant scale, got a computed value", "calibrate it at build time", node, scale)
        elif not np.all(np.isfinite(array) & (array > 0)):
            wide = np.asarray(array, np.float64)
            worst = float(wide[~(np.isfinite(wide) & (wide > 0))][0])
            yield Breach(
                f"expected finite scales above 0, got {worst:g}", "calibrate on data that are not constant", node, scale
            )


def _lengths(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        scale, zero = array_of(_operand(node, 1)), array_of(_operand(node, 2))
        if scale is not None and zero is not None and scale.size != zero.size:
            yield Breach(
                f"expected scale and zero point of one length, got {scale.size} and {zero.size}",
                "write one zero point per scale",
                node,
                node.inputs[2],
            )


def _channels(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        scale, data = array_of(_operand(node, 1)), node.inputs[0]
        if scale is None or scale.size == 1 or data is None or data.shape is None:
            continue
        shape = data.shape
        axis = axis_of(node, len(shape))
        dim = shape[axis] if has_axis(node, len(shape)) else None
        if scale.ndim != 1 or dim != scale.size:
            yield Breach(
                f"expected as many scales as places on axis {axis} of {shape}, got {list(scale.shape)}",
                "write one scale per channel and name its axis",
                node,
                node.inputs[1],
            )


def _blocks(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        if int_attribute(node, "block_size", 0) != 0:
            yield Breach("expected scales per tensor or per channel, got blocks", "quantise per channel", node)


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and array_of(value) is not None


def _is_weight(node: ir.Node) -> bool:
    """Whether a quantizing or dequantizing node works on a constant."""
    made = node.inputs[0].producer() if node.inputs[0] is not None else None
    quantized = made is not None and is_op(made, "QuantizeLinear") and _is_constant(made.inputs[0])
    return quantized or _is_constant(node.inputs[0])


def _activation(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        scale = array_of(_operand(node, 1))
        if scale is not None and scale.size > 1 and not _is_weight(node):
            yield Breach(
                f"expected one scale for an activation, got {scale.size}",
                "quantise activations per tensor",
                node,
                node.inputs[1],
            )


def _output_axis(reader: ir.Node, at: int, rank: int) -> int | None:
    """Return the axis of a weight's output channels; None where the reader has no such axis."""
    if is_op(reader, "MatMul") and rank >= 2:
        return rank - 1 if at == 1 else rank - 2
    if is_op(reader, "Gemm") and at == 1:
        return 0 if int_attribute(reader, "transB", 0) else 1
    if is_op(reader, "Conv") and at == 1:
        return 0
    return 1 if is_op(reader, "ConvTranspose") and at == 1 else None


def _weight_axis(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        data, scale = node.inputs[0], array_of(_operand(node, 1))
        if not is_op(node, "DequantizeLinear") or not _is_weight(node) or data is None or data.shape is None:
            continue
        rank = len(data.shape)
        for use in node.outputs[0].uses():
            wanted = _output_axis(use.node, use.idx, rank)
            if wanted is None or wanted >= rank or scale is None or data.shape[wanted] == 1:
                continue
            axis = axis_of(node, rank)
            if scale.size == 1 or axis != wanted:
                got = "one scale" if scale.size == 1 else f"axis {axis}"
                yield Breach(
                    f"expected the weight of {use.node.op_type} quantised per channel on axis {wanted}, got {got}",
                    "quantise weights on the axis of the output channels",
                    node,
                    data,
                )


def _weight_range(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in _pairs(model):
        integers = _quantized_constant(node)
        if integers is not None and integers.size and int(integers.min()) < LOWEST_WEIGHT:
            yield Breach(
                f"expected weights from {LOWEST_WEIGHT} to 127, got {int(integers.min())}",
                "divide the range by 127, so that it is symmetric",
                node,
                node.inputs[0],
            )


def _quantized_constant(node: ir.Node) -> np.ndarray | None:
    """Return the integers of a quantized constant; None for other values."""
    data, scale = array_of(node.inputs[0]), array_of(_operand(node, 1))
    if data is None or scale is None:
        return None
    if is_op(node, "DequantizeLinear"):
        return data if data.dtype == np.int8 else None
    if scale.size != 1:
        axis = axis_of(node, data.ndim)
        if not has_axis(node, data.ndim) or data.shape[axis] != scale.size:
            return None  # what is wrong here is the business of another rule
        shape = [1] * data.ndim
        shape[axis] = scale.size
        scale = scale.reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.rint(data.astype(np.float64) / scale)
    return np.asarray(np.clip(np.nan_to_num(rounded), -128, 127))


def _float_only(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    for node in every_node(model):
        for value in node.inputs if is_op(node, *FLOAT_ONLY) else ():
            if value is not None and is_op(value.producer(), "DequantizeLinear"):
                yield Breach(
                    f"expected {node.op_type} over floating point, got a DequantizeLinear in front of it",
                    "leave the operator out of the quantised ones",
                    node,
                    value,
                )


def _bias(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield quantized biases: a weighted operator's third operand, or a constant vector added to its result."""
    for node in every_node(model):
        if is_op(node, "Gemm", "Conv", "ConvTranspose"):
            biases = [_operand(node, 2)]
        elif is_op(node, "Add") and any(is_op(v.producer(), *WEIGHTED) for v in node.inputs if v is not None):
            biases = [value for value in node.inputs if value is not None and _is_vector_of_weights(value)]
        else:
            continue
        for value in biases:
            if value is not None and is_op(value.producer(), "DequantizeLinear"):
                yield Breach(
                    f"expected the bias of {node.op_type} in floating point, got a quantised one",
                    "leave biases as they are",
                    node,
                    value,
                )


def _is_vector_of_weights(value: ir.Value) -> bool:
    made = value.producer()
    rank = None if value.shape is None else len(value.shape)
    return made is not None and is_op(made, "DequantizeLinear") and _is_weight(made) and rank in (None, 0, 1)


def _both_halves(model: ir.Model, limits: DeviceLimits) -> Iterator[Breach]:
    """Yield quantized values that are not dequantized; a constant needs DequantizeLinear only."""
    for node in _pairs(model):
        if is_op(node, "QuantizeLinear"):
            readers = consumers_of(node.outputs[0])
            if readers and all(is_op(reader, "DequantizeLinear") for reader in readers):
                continue
            got = ", ".join(reader.op_type for reader in readers) or "no reader"
            yield Breach(f"expected DequantizeLinear behind QuantizeLinear, got {got}", "write the pair", node)
        elif not _is_constant(node.inputs[0]):
            maker = node.inputs[0].producer() if node.inputs[0] is not None else None
            if not is_op(maker, "QuantizeLinear"):
                got = maker.op_type if maker is not None else "a network input"
                yield Breach(f"expected QuantizeLinear before DequantizeLinear, got {got}", "write the pair", node)


QUANTIZATION_RULES = (
    Rule("quantized-type", _type),
    Rule("zero-point", _zero_point),
    Rule("scale", _scale),
    Rule("scale-lengths", _lengths),
    Rule("scale-channels", _channels),
    Rule("scale-blocks", _blocks),
    Rule("activation-per-tensor", _activation),
    Rule("weight-axis", _weight_axis),
    Rule("weight-range", _weight_range),
    Rule("float-only", _float_only),
    Rule("float-bias", _bias),
    Rule("both-halves", _both_halves),
)
