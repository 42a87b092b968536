"""Finds the source of every entry of a chain of movements, for known sizes, by running the chain on position labels.

[0 1 2]  Pad one in front            [-1 0 1 2]
[3 4 5]  ----------------> Reshape ->  [-1 3]  ...
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import array_of, attribute, dims_of, is_op
from compiler.graph.operators.axes import axis_of, changed_axes, perm_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.reshapes import target_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.operators.traits import PICKING
from compiler.graph.sizes.expressions import Dim
from compiler.graph.sizes.growth import number
from compiler.graph.sizes.held_numbers import can_hold
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Side

Array: TypeAlias = np.ndarray
Sizes: TypeAlias = Mapping[sympy.Basic, int]
"""Values of axis names, or of other parts of sizes."""


def entry_positions(axes: Mapping[int, Axis], dims: Sequence[Dim], row: int, slots: Sizes, true: Sizes) -> list[Array]:
    """Return, per axis, the slots in which the entries of one row lie."""
    return [_axis_positions(axes.get(at, (Plain(dim),)), row, slots, true) for at, dim in enumerate(dims)]


def _axis_positions(axis: Axis, row: int, slots: Sizes, true: Sizes) -> Array:
    places = np.zeros(1, np.int64)
    for factor in axis:
        size = number(factor.size, slots)
        if isinstance(factor, Rows):
            inner = np.array([row])
        elif isinstance(factor, Frames):
            inner = _frame_positions(factor, slots, true)
        else:
            inner = np.arange(size)
        places = (places[:, None] * size + inner[None, :]).reshape(-1)
    return places


def _frame_positions(frames: Frames, slots: Sizes, true: Sizes) -> Array:
    parts = []
    offset = 0
    for segment in frames.segments:
        size, valid = number(segment.size, slots), number(segment.size, true)
        if not 0 <= valid <= size:
            raise ValueError(f"{valid} of {size} slots")
        first = 0 if segment.side is Side.LEFT else size - valid
        parts.append(offset + first + np.arange(valid))
        offset += size
    return np.concatenate(parts)


def run(nodes: Sequence[ir.Node], start: ir.Value, array: Array, sizes: Sizes) -> Array:
    """Execute a chain of movements on an array that holds position labels.

    Raises:
        ValueError: it does not run, or a bound is not known.
        IndexError: the same.
    """
    current = start
    for node in nodes:
        array = STEPS[node.op_type](node, current, array, sizes)
        current = node.outputs[0]
    return array


def _reshape(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    target = target_of(node, lambda value: _read(value, sizes))
    if target is None:
        return array.reshape([number(dim, sizes) for dim in dims_of(node.outputs[0]) or ()])
    return array.reshape([size for size in target.of(array.shape) if isinstance(size, int)])


def _flatten(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    return array.reshape(int(np.prod(array.shape[: axis_of(node, array.ndim)])), -1)


def _slice(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    view = slice_of(node)
    axis_slices = None if view is None else view.axis_slices(lambda value: _read(value, sizes))
    kept = [slice(None)] * array.ndim
    for sliced in axis_slices or ():
        if sliced.as_slice is None or sliced.as_slice.step < 1:
            raise ValueError("backwards, or by bounds that are not known")
        kept[sliced.axis] = sliced.as_slice
    if axis_slices is None:
        raise ValueError("the axes of Slice are not known")
    return array[tuple(kept)]


def _read(value: ir.Value, sizes: Sizes) -> list[int] | None:
    numbers = symbolic_values_of(value)
    return None if numbers is None else [number(each, sizes) for each in numbers]


def _pad(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    pad = pad_of(node, lambda value: _read(value, sizes), array.ndim)
    numbers = None if pad is None or pad.mode != "constant" else pad.numbers
    if numbers is None or any(count < 0 for pair in numbers.values() for count in pair):
        raise ValueError("not a constant Pad by amounts that are known")
    added = pad_value(node)
    if added is None:
        raise ValueError("adds a number that is computed")
    return np.pad(array, [numbers.get(at, (0, 0)) for at in range(array.ndim)], constant_values=label(added))


def label(added: float) -> int:
    """Return a label for a number that a node adds, below those of all positions."""
    return -1 - abs(hash(added)) % 1_000_003


def _concat(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    parts = []
    for value in node.inputs:
        added = uniform(value)
        if value is current:
            parts.append(array)
        elif value is not None and added is not None:
            parts.append(np.full([number(dim, sizes) for dim in dims_of(value) or ()], label(added)))
        else:
            raise ValueError("joins something else")
    return np.concatenate(parts, axis_of(node, array.ndim))


def _transpose(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    return array.transpose(perm_of(node, array.ndim))


def _changed(node: ir.Node, current: ir.Value, array: Array, sizes: Sizes) -> Array:
    axes = changed_axes(node, symbolic_values_of)
    if axes is None:
        raise ValueError("axes are not known")
    return array.squeeze(axes) if node.op_type == "Squeeze" else np.expand_dims(array, axes)


STEPS: dict[str, Callable[[ir.Node, ir.Value, Array, Sizes], Array]] = {
    "Concat": _concat,
    "Flatten": _flatten,
    "Identity": lambda node, current, array, sizes: array,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _changed,
    "Transpose": _transpose,
    "Unsqueeze": _changed,
}
"""Every movement on place numbers. Raises ValueError where it cannot tell."""


def pad_value(node: ir.Node) -> float | None:
    """Return the constant that a Pad adds; None where it is computed."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    return 0.0 if value is None else uniform(value)


def uniform(value: ir.Value | None) -> float | None:
    """Return the number that a value holds everywhere; None where it is unknown or varies."""
    array = array_of(value)
    if array is not None:
        same = array.size > 0 and bool(np.all(array == array.reshape(-1)[0]))
        return float(array.reshape(-1)[0]) if same else None
    node = None if value is None else value.producer()
    if is_op(node, *PICKING):
        assert node is not None
        return uniform(node.inputs[0])
    if is_op(node, "Cast") and value is not None and value.dtype is not None:
        assert node is not None
        operand_number = uniform(node.inputs[0])
        if operand_number is None or not _is_held(value.dtype, operand_number):
            return None
        return float(np.asarray(operand_number).astype(value.dtype.numpy()))
    if is_op(node, "ConstantOfShape"):
        assert node is not None
        value_attribute = attribute(node, "value")
        return float(value_attribute.numpy().reshape(-1)[0]) if isinstance(value_attribute, ir.TensorProtocol) else 0.0
    return None


def _is_held(dtype: ir.DataType, number: float) -> bool:
    """Whether a type can hold a number without its fraction; runtimes cast other numbers differently."""
    return not dtype.is_integer() or (math.isfinite(number) and can_hold(dtype, int(number)))
