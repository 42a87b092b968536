"""Computes the nodes of a static ONNX graph with torch operators, with one function per operator.

Every function reads the node through its view, so that a spelling is decoded once. Sizes, axes and bounds have to be
constants: what is computed from data is refused by name, and so is an operator that is not in the table.

Source: the definitions of ai.onnx up to operator set 23; torch has the same operators under other names but for the
places that comments name.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir
import torch
from torch import Tensor
from torch.nn import functional

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, axis_operand, changed_axes, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.reductions import reduction_of
from compiler.graph.operators.repeats import expand_of, tile_of
from compiler.graph.operators.reshapes import LEFT_OVER, target_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.windows import Window, window_of

CURE = "write that part with other operators in the model, or build for another target"

TYPES: Mapping[ir.DataType, torch.dtype] = {
    ir.DataType.BOOL: torch.bool,
    ir.DataType.DOUBLE: torch.float64,
    ir.DataType.FLOAT: torch.float32,
    ir.DataType.FLOAT16: torch.float16,
    ir.DataType.BFLOAT16: torch.bfloat16,
    ir.DataType.INT8: torch.int8,
    ir.DataType.INT16: torch.int16,
    ir.DataType.INT32: torch.int32,
    ir.DataType.INT64: torch.int64,
    ir.DataType.UINT8: torch.uint8,
}


@dataclasses.dataclass(frozen=True)
class Call:
    """A node and its operands.

    Attributes:
        node: the node.
        operands: a tensor per operand; None for one that is left out.
    """

    node: ir.Node
    operands: Sequence[Tensor | None]

    def __getitem__(self, at: int) -> Tensor:
        """Return an operand that the operator requires."""
        operand = self.operands[at]
        assert operand is not None, f"{self.node.op_type} without operand {at}"
        return operand

    def optional(self, at: int) -> Tensor | None:
        """Return an operand, or None where it is left out."""
        return self.operands[at] if at < len(self.operands) else None

    @property
    def rank(self) -> int:
        """Return the rank of the first operand."""
        return self[0].dim()

    @property
    def axis(self) -> int:
        """Return the axis that an attribute, an operand or the default names, from the front."""
        named = axis_operand(self.node)
        return axis_of(self.node, self.rank, None if named is None else self.integers(named)[0])

    def integers(self, value: ir.Value | None) -> tuple[int, ...]:
        """Return the integers that an operand holds.

        Raises:
            Refused: they are computed.
        """
        numbers = graphs.integers_of(value) or ()
        known = tuple(number for number in numbers if isinstance(number, int))
        if value is None or graphs.integers_of(value) is None or len(known) < len(numbers):
            raise self.refused("reads sizes or positions that are computed")
        return known

    def refused(self, why: str) -> Refused:
        """Return the refusal of the node."""
        return Refused(
            f"{self.node.op_type} {why}",
            cure=CURE,
            place=Location(node=str(self.node.name), op=self.node.op_type, source=graphs.source_of(self.node)),
        )


Rule: TypeAlias = Callable[[Call], Tensor | tuple[Tensor, ...]]


def compute(node: ir.Node, operands: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Return the results of a node.

    Args:
        node: a node of a static graph.
        operands: a tensor per operand, constants included; None for one that is left out.

    Raises:
        Refused: the operator has no function here, or something that it needs is computed from data.
    """
    call = Call(node, operands)
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise call.refused("has no counterpart in torch here")
    results = rule(call)
    return results if isinstance(results, tuple) else (results,)


def refused_nodes(model: ir.Model) -> list[ir.Node]:
    """Return the nodes whose operator has no function here, in order; a Constant needs none."""
    known = {*RULES, "Constant"}
    return [node for node in model.graph if node.domain not in ("", "ai.onnx") or node.op_type not in known]


# Entry by entry


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda call: function(call[0])


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda call: function(call[0], call[1])


def _folded(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    """Return the rule of an operator of any number of operands."""
    return lambda call: functools.reduce(function, (call[at] for at in range(len(call.operands))))


def _divided(call: Call) -> Tensor:
    """Divide; integers are cut towards zero."""
    return torch.div(call[0], call[1], rounding_mode=None if call[0].is_floating_point() else "trunc")


def _remainder(call: Call) -> Tensor:
    is_of_dividend = bool(graphs.int_attribute(call.node, "fmod", 0))
    return (torch.fmod if is_of_dividend else torch.remainder)(call[0], call[1])


def _cast(call: Call) -> Tensor:
    to = ir.DataType(graphs.int_attribute(call.node, "to", 1))
    if to not in TYPES:
        raise call.refused(f"to {to.name} has no counterpart in torch here")
    return call[0].to(TYPES[to])


def _clipped(call: Call) -> Tensor:
    low, high = call.optional(1), call.optional(2)
    result = call[0] if low is None else torch.maximum(call[0], low)
    return result if high is None else torch.minimum(result, high)


def _mean_of(call: Call) -> Tensor:
    return functools.reduce(torch.add, (call[at] for at in range(len(call.operands)))) / len(call.operands)


def _float(call: Call, name: str, default: float) -> float:
    stated = call.node.attributes.get(name)
    return default if stated is None else stated.as_float()


def _gelu(call: Call) -> Tensor:
    stated = call.node.attributes.get("approximate")
    return functional.gelu(call[0], approximate="none" if stated is None else stated.as_string())


# Moves


def _identity(call: Call) -> Tensor:
    return call[0]


def _reshaped(call: Call) -> Tensor:
    target = target_of(call.node, call.integers)
    assert target is not None
    sizes = [size for size in target.of(tuple(call[0].shape)) if isinstance(size, int)]
    return call[0].reshape([-1 if size == LEFT_OVER else size for size in sizes])


def _flattened(call: Call) -> Tensor:
    axis = axis_of(call.node, call.rank)
    return call[0].reshape(math.prod(call[0].shape[:axis]), -1)


def _squeezed(call: Call) -> Tensor:
    axes = changed_axes(call.node, call.integers)
    assert axes is not None, "the rank of the operand is known"
    return call[0].squeeze(axes)


def _unsqueezed(call: Call) -> Tensor:
    axes = changed_axes(call.node, call.integers)
    assert axes is not None, "the rank of the result is known"
    result = call[0]
    for axis in sorted(axes):
        result = result.unsqueeze(axis)
    return result


def _transposed(call: Call) -> Tensor:
    return call[0].permute(perm_of(call.node, call.rank))


def _expanded(call: Call) -> Tensor:
    view = expand_of(call.node, call.integers)
    if view is None:
        raise call.refused("gives sizes that are not known")
    return call[0].expand([size for size in view.of(call[0].shape) if isinstance(size, int)])


def _tiled(call: Call) -> Tensor:
    view = tile_of(call.node, call.integers, call.rank)
    if view is None:
        raise call.refused("gives repeats that are not known")
    return call[0].repeat([count for count in view.repeats if isinstance(count, int)])


def _joined(call: Call) -> Tensor:
    return torch.cat([call[at] for at in range(len(call.operands))], dim=call.axis)


def _parted(call: Call) -> tuple[Tensor, ...]:
    sizes = [graphs.dims_of(value) for value in call.node.outputs]
    along = [dims[call.axis] for dims in sizes if dims is not None]
    whole = [size for size in along if isinstance(size, int)]
    if len(whole) < len(call.node.outputs):
        raise call.refused("gives sizes that are not known")
    bounds = itertools.pairwise(itertools.accumulate(whole, initial=0))
    front = [slice(None)] * call.axis
    return tuple(call[0][(*front, slice(start, end))] for start, end in bounds)


def _sliced(call: Call) -> Tensor:
    view = slice_of(call.node, call.rank)
    slices = None if view is None else view.axis_slices(call.integers)
    if slices is None or any(sliced.as_slice is None for sliced in slices):
        raise call.refused("has bounds that are computed")
    result = call[0]
    for sliced in slices:
        bounds = sliced.as_slice
        assert bounds is not None
        first, last, step = bounds.indices(result.shape[sliced.axis])
        if step > 0:
            result = result[(*[slice(None)] * sliced.axis, slice(first, max(first, last), step))]
        else:  # torch has no negative steps
            kept = torch.arange(first, last, step, device=result.device)
            result = result.index_select(sliced.axis, kept)
    return result


def _padded(call: Call) -> Tensor:
    pad = pad_of(call.node, call.integers, call.rank)
    if pad is None or pad.numbers is None or pad.mode != "constant":
        raise call.refused("has a mode or amounts that are not constant")
    if pad.value is not None and graphs.array_of(pad.value) is None:
        raise call.refused("adds a number that is computed")
    value = 0.0 if pad.value is None else float(graphs.array_of(pad.value).reshape(-1)[0])  # type: ignore[union-attr]
    amounts = [amount for axis in reversed(range(call.rank)) for amount in pad.numbers.get(axis, (0, 0))]
    if call[0].dtype == torch.bool:
        return functional.pad(call[0].to(torch.uint8), amounts, value=value).bool()
    return functional.pad(call[0], amounts, value=value)


def _looked_up(call: Call) -> Tensor:
    """Look entries up along an axis; negative indices count from the end."""
    indices, axis = call[1].long(), call.axis
    size = call[0].shape[axis]
    flat = torch.where(indices < 0, indices + size, indices).reshape(-1)
    found = call[0].index_select(axis, flat)
    return found.reshape(*call[0].shape[:axis], *indices.shape, *call[0].shape[axis + 1 :])


def _looked_up_each(call: Call) -> Tensor:
    indices, axis = call[1].long(), call.axis
    return torch.gather(call[0], axis, torch.where(indices < 0, indices + call[0].shape[axis], indices))


def _filled(call: Call) -> Tensor:
    stated = call.node.attributes.get("value")
    sizes = call.integers(call.node.inputs[0])
    if stated is None:
        return torch.zeros(sizes)
    array = stated.as_tensor().numpy()
    return torch.full(sizes, array.reshape(-1)[0].item(), dtype=torch.from_numpy(array).dtype)


def _triangle(call: Call) -> Tensor:
    diagonal = call.node.inputs[1] if len(call.node.inputs) > 1 else None
    by = 0 if diagonal is None else call.integers(diagonal)[0]
    return (torch.triu if graphs.int_attribute(call.node, "upper", 1) else torch.tril)(call[0], by)


# Along axes


def _reduced(function: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> Rule:
    def rule(call: Call) -> Tensor:
        view = reduction_of(call.node, call.integers, call.rank)
        if view is None:
            raise call.refused("reduces axes that are computed")
        return function(call[0], view.axes, view.keeps) if view.axes else call[0]

    return rule


def _searched(function: Callable[..., Tensor]) -> Rule:
    """Return the rule of ArgMax or ArgMin, whose first of several equal entries counts."""

    def rule(call: Call) -> Tensor:
        if graphs.int_attribute(call.node, "select_last_index", 0):
            raise call.refused("selects the last of several equal entries")
        view = reduction_of(call.node, call.integers, call.rank)
        assert view is not None
        return function(call[0], dim=view.axes[0], keepdim=view.keeps)

    return rule


def _softmax(call: Call) -> Tensor:
    return torch.softmax(call[0], dim=call.axis)


def _log_softmax(call: Call) -> Tensor:
    return torch.log_softmax(call[0], dim=call.axis)


def _layer_norm(call: Call) -> Tensor:
    sizes, bias = list(call[0].shape[call.axis :]), call.optional(2)
    scale = _in_sizes(call[1], sizes)
    return functional.layer_norm(
        call[0], sizes, scale, None if bias is None else _in_sizes(bias, sizes), _float(call, "epsilon", 1e-5)
    )


def _rms_norm(call: Call) -> Tensor:
    sizes = list(call[0].shape[call.axis :])
    return functional.rms_norm(call[0], sizes, _in_sizes(call[1], sizes), _float(call, "epsilon", 1e-5))


def _in_sizes(weight: Tensor, sizes: Sequence[int]) -> Tensor:
    """Expand a weight where that is needed: a compiler takes one that is expanded for computed."""
    return weight if list(weight.shape) == list(sizes) else weight.expand(sizes)


def _batch_norm(call: Call) -> Tensor:
    if graphs.int_attribute(call.node, "training_mode", 0):
        raise call.refused("measures what it is given")
    scale, bias, mean, variance = (call[at] for at in (1, 2, 3, 4))
    return functional.batch_norm(call[0], mean, variance, scale, bias, eps=_float(call, "epsilon", 1e-5))


def _instance_norm(call: Call) -> Tensor:
    return functional.instance_norm(call[0], weight=call[1], bias=call[2], eps=_float(call, "epsilon", 1e-5))


def _running_sum(call: Call) -> Tensor:
    if graphs.int_attribute(call.node, "exclusive", 0) or graphs.int_attribute(call.node, "reverse", 0):
        raise call.refused("is exclusive or reversed")
    return torch.cumsum(call[0], dim=call.axis, dtype=call[0].dtype)


# Products and windows


def _gemm(call: Call) -> Tensor:
    left = call[0].T if graphs.int_attribute(call.node, "transA", 0) else call[0]
    right = call[1].T if graphs.int_attribute(call.node, "transB", 0) else call[1]
    product, bias = _float(call, "alpha", 1.0) * (left @ right), call.optional(2)
    return product if bias is None else product + _float(call, "beta", 1.0) * bias


def _einsum(call: Call) -> Tensor:
    equation = str(graphs.attribute(call.node, "equation", ""))
    return torch.einsum(equation, *(call[at] for at in range(len(call.operands))))


def _window(call: Call, functions: Mapping[int, Callable[..., Tensor]]) -> tuple[Window, Callable[..., Tensor]]:
    """Return the window of a node, and the function of torch that slides it.

    Raises:
        Refused: torch slides along other numbers of axes, or pads follow from sizes.
    """
    view, spatial = window_of(call.node, call.rank), call.rank - 2
    assert view is not None
    if spatial not in functions:
        raise call.refused(f"slides along {spatial} axes")
    if view.pads is None or view.rounds_up:
        raise call.refused("pads as sizes ask for, or rounds them up")
    return view, functions[spatial]


def _amounts(view: Window) -> list[int]:
    """Return the pads as torch takes them: those of the last axis first."""
    return [amount for pair in reversed(view.pads or ()) for amount in pair]


def _convolved(call: Call) -> Tensor:
    view, function = _window(call, {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d})
    data = functional.pad(call[0], _amounts(view)) if view.has_pads else call[0]
    return function(data, call[1], call.optional(2), stride=view.strides, dilation=view.dilations, groups=view.groups)


def _transposed_convolution(call: Call) -> Tensor:
    view, function = _window(call, {1: functional.conv_transpose1d, 2: functional.conv_transpose2d})
    if "output_shape" in call.node.attributes:
        raise call.refused("asks for sizes")
    result = function(
        call[0],
        call[1],
        call.optional(2),
        stride=view.strides,
        output_padding=graphs.ints_attribute(call.node, "output_padding") or (0,) * (call.rank - 2),
        groups=view.groups,
        dilation=view.dilations,
    )
    for axis, (front, behind) in enumerate(view.pads or (), 2):  # torch removes equally many entries at both ends
        result = result.narrow(axis, front, result.shape[axis] - front - behind)
    return result


def _largest_of_windows(call: Call) -> Tensor:
    if len(call.node.outputs) > 1:
        raise call.refused("gives positions")
    view, function = _window(call, {1: functional.max_pool1d, 2: functional.max_pool2d})
    data = functional.pad(call[0], _amounts(view), value=-math.inf) if view.has_pads else call[0]
    return function(data, view.kernel, view.strides, dilation=view.dilations)


RULES: Mapping[str, Rule] = {
    "Abs": _unary(torch.abs),
    "Add": _binary(torch.add),
    "And": _binary(torch.logical_and),
    "ArgMax": _searched(torch.argmax),
    "ArgMin": _searched(torch.argmin),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Ceil": _unary(torch.ceil),
    "Clip": _clipped,
    "Concat": _joined,
    "ConstantOfShape": _filled,
    "Conv": _convolved,
    "ConvTranspose": _transposed_convolution,
    "Cos": _unary(torch.cos),
    "CumSum": _running_sum,
    "Div": _divided,
    "Einsum": _einsum,
    "Elu": lambda call: functional.elu(call[0], _float(call, "alpha", 1.0)),
    "Equal": _binary(torch.eq),
    "Erf": _unary(torch.erf),
    "Exp": _unary(torch.exp),
    "Expand": _expanded,
    "Flatten": _flattened,
    "Floor": _unary(torch.floor),
    "Gather": _looked_up,
    "GatherElements": _looked_up_each,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "Greater": _binary(torch.gt),
    "GreaterOrEqual": _binary(torch.ge),
    "HardSigmoid": lambda call: (_float(call, "alpha", 0.2) * call[0] + _float(call, "beta", 0.5)).clamp(0.0, 1.0),
    "HardSwish": _unary(functional.hardswish),
    "Identity": _identity,
    "InstanceNormalization": _instance_norm,
    "IsInf": _unary(torch.isinf),
    "IsNaN": _unary(torch.isnan),
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda call: functional.leaky_relu(call[0], _float(call, "alpha", 0.01)),
    "Less": _binary(torch.lt),
    "LessOrEqual": _binary(torch.le),
    "Log": _unary(torch.log),
    "LogSoftmax": _log_softmax,
    "MatMul": _binary(torch.matmul),
    "Max": _folded(torch.maximum),
    "MaxPool": _largest_of_windows,
    "Mean": _mean_of,
    "Min": _folded(torch.minimum),
    "Mod": _remainder,
    "Mul": _binary(torch.mul),
    "Neg": _unary(torch.neg),
    "Not": _unary(torch.logical_not),
    "Or": _binary(torch.logical_or),
    "PRelu": lambda call: torch.where(call[0] < 0, call[0] * call[1], call[0]),
    "Pad": _padded,
    "Pow": lambda call: torch.pow(call[0], call[1]).to(call[0].dtype),
    "RMSNormalization": _rms_norm,
    "Reciprocal": _unary(torch.reciprocal),
    "ReduceL2": _reduced(lambda data, axes, keeps: torch.linalg.vector_norm(data, dim=axes, keepdim=keeps)),
    "ReduceLogSumExp": _reduced(lambda data, axes, keeps: torch.logsumexp(data, dim=axes, keepdim=keeps)),
    "ReduceMax": _reduced(lambda data, axes, keeps: torch.amax(data, dim=axes, keepdim=keeps)),
    "ReduceMean": _reduced(lambda data, axes, keeps: torch.mean(data, dim=axes, keepdim=keeps)),
    "ReduceMin": _reduced(lambda data, axes, keeps: torch.amin(data, dim=axes, keepdim=keeps)),
    "ReduceSum": _reduced(lambda data, axes, keeps: torch.sum(data, dim=axes, keepdim=keeps, dtype=data.dtype)),
    "ReduceSumSquare": _reduced(lambda data, axes, keeps: torch.sum(data * data, dim=axes, keepdim=keeps)),
    "Relu": _unary(torch.relu),
    "Reshape": _reshaped,
    "Round": _unary(torch.round),
    "Sigmoid": _unary(torch.sigmoid),
    "Sign": _unary(torch.sign),
    "Sin": _unary(torch.sin),
    "Slice": _sliced,
    "Softmax": _softmax,
    "Softplus": lambda call: torch.logaddexp(call[0], torch.zeros_like(call[0])),
    "Split": _parted,
    "Sqrt": _unary(torch.sqrt),
    "Squeeze": _squeezed,
    "Sub": _binary(torch.sub),
    "Sum": _folded(torch.add),
    "Swish": lambda call: call[0] * torch.sigmoid(_float(call, "alpha", 1.0) * call[0]),
    "Tanh": _unary(torch.tanh),
    "Tile": _tiled,
    "Transpose": _transposed,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueezed,
    "Where": lambda call: torch.where(call[0], call[1], call[2]),
    "Xor": _binary(torch.logical_xor),
}
"""How torch computes every operator; of others the graph is refused."""
