"""Derives and compares sizes and the elements of small integer tensors as expressions over axis names.

floor(time/2 - 3/2) + 2 = floor(time/2 + 1/2);  32*batch*time / (16*time) = 2*batch;  Div(Shape(x)[1], 2) = time//2
"""

import functools
import math
import re
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.model import array_of, dims_of, dims_read, integers_of
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.reductions import reduction_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.sizes.arithmetic import computed, plain
from compiler.graph.sizes.expressions import Dim, normal_form
from compiler.graph.sizes.growth import agree, truncated
from compiler.graph.sizes.held_numbers import can_hold

MOST = 64
"""Elements of a value that is followed as numbers; shapes, bounds and pads have fewer."""

SymbolicValues: TypeAlias = dict[ir.Value, tuple[Dim, ...] | None]
"""What values hold, where it has been found out."""


def names_in(size: Dim) -> set[sympy.Symbol]:
    """Return the axis names that a size mentions."""
    return set() if isinstance(size, int) else set(size.free_symbols)


def _coefficients(expanded: sympy.Expr) -> Iterator[sympy.Expr]:
    for term in sympy.Add.make_args(expanded):
        coefficient, rest = term.as_coeff_Mul()
        yield coefficient if rest.is_integer or rest == 1 else sympy.Rational(1, 2)


@functools.lru_cache(maxsize=4096)
def quotient(size: Dim, divisor: Dim) -> Dim | None:
    """Return size / divisor where it is an integer for all lengths; None elsewhere."""
    if size == divisor:
        return 1
    if isinstance(size, int) and isinstance(divisor, int):
        return size // divisor if divisor and size % divisor == 0 else None
    if divisor == 0:
        return None
    ratio = sympy.expand(sympy.cancel(sympy.sympify(size) / divisor))
    if ratio.is_Integer:
        return int(ratio)
    return ratio if sympy.fraction(ratio)[1] == 1 and all(c.is_Integer for c in _coefficients(ratio)) else None


@functools.lru_cache(maxsize=4096)
def same(a: Dim, b: Dim) -> bool:
    """Whether two sizes are equal for all lengths."""
    if a == b or normal_form(a) == normal_form(b):
        return True
    names = names_in(a) | names_in(b)
    return len(names) == 1 and agree(a, b, next(iter(names)), 1)


def symbolic_values_of(value: ir.Value | None, seen: SymbolicValues | None = None) -> tuple[Dim, ...] | None:
    """Return the elements of a small value that depends on constants and axis lengths, in row-major order; else None.

    Producers are followed where shape inference stopped.

    Args:
        value: the value.
        seen: elements of values of the same graph that are known; new ones are added.
    """
    return _numbers(value, {} if seen is None else seen)


def _numbers(value: ir.Value | None, seen: SymbolicValues) -> tuple[Dim, ...] | None:
    if value is None or not _is_small(value):
        return None
    if value not in seen:
        seen[value] = None  # of a graph that reads itself nothing is known
        seen[value] = _found(value, seen)
    return seen[value]


def _is_small(value: ir.Value) -> bool:
    """Whether a value has at most `MOST` elements, or an unknown number; larger ones are not followed."""
    dims = None if value.shape is None else list(value.shape)
    return dims is None or (
        all(isinstance(dim, int) for dim in dims) and math.prod(int(str(dim)) for dim in dims) <= MOST
    )


def _found(value: ir.Value, seen: SymbolicValues) -> tuple[Dim, ...] | None:
    array = array_of(value)
    if array is not None:
        return _elements(array)
    known = integers_of(value)
    if known is None or any(is_placeholder(name) for number in known for name in names_in(number)):
        node = value.producer()
        known = None if node is None or node.domain not in ("", "ai.onnx") else _computed(node, seen)
    fits = known is not None and _is_count(len(known), value) and all(can_hold(value.dtype, each) for each in known)
    return known if fits else None


def _is_count(count: int, value: ir.Value) -> bool:
    """Whether a value may have that number of elements; one of several axes has it exactly."""
    dims = dims_of(value)
    return dims is None or count == math.prod(dim for dim in dims if isinstance(dim, int))


def _elements(array: np.ndarray) -> tuple[Dim, ...] | None:
    if array.size > MOST or array.dtype.kind not in "iuf" or not np.all(np.isfinite(array)):
        return None
    whole = [int(x) for x in array.reshape(-1)]
    return tuple(whole) if np.all(array.reshape(-1) == whole) else None


def is_placeholder(name: sympy.Symbol) -> bool:
    """Whether shape inference invented the name for an unknown size."""
    return re.fullmatch(r"_d\d+", str(name)) is not None


def _computed(node: ir.Node, seen: SymbolicValues) -> tuple[Dim, ...] | None:
    if node.op_type == "Shape":
        dims = dims_of(node.inputs[0]) if node.inputs[0] is not None else None
        return None if dims is None else tuple(dims[axis] for axis in dims_read(node, len(dims)))
    operands = [_numbers(operand, seen) for operand in node.inputs if operand is not None]
    if any(entries is None for entries in operands):
        return None
    known = [entries for entries in operands if entries is not None]
    match node.op_type:
        case "Identity" | "Squeeze" | "Unsqueeze" | "Reshape":
            return known[0]
        case "Cast":
            return _converted(node, known[0])
        case "Concat":
            dims = dims_of(node.outputs[0]) or ()
            is_in_order = all(dim == 1 for dim in dims[: axis_of(node, len(dims))])
            return tuple(number for entries in known for number in entries) if is_in_order else None
        case "Gather":
            rank = len(dims_of(node.inputs[0]) or ()) if node.inputs[0] is not None else 0
            picked = [number for number in known[1] if isinstance(number, int)]
            inside = all(-len(known[0]) <= position < len(known[0]) for position in picked)
            usable = rank == 1 and inside and len(picked) == len(known[1])
            return tuple(known[0][position] for position in picked) if usable else None
        case "Slice":
            view = slice_of(node)
            picked_entries = None if view is None else view.picked(known[0], lambda value: _numbers(value, seen))
            return None if picked_entries is None else tuple(picked_entries)
        case "Floor":
            return tuple(normal_form(sympy.floor(number)) for number in known[0])
        case "Ceil":
            return tuple(normal_form(-sympy.floor(-sympy.sympify(number))) for number in known[0])
        case "ReduceProd" | "ReduceSum":
            reduction = reduction_of(node, lambda value: _numbers(value, seen))
            if reduction is None or reduction.rank != 1 or not known[0]:
                return None
            combined = math.prod(known[0]) if node.op_type == "ReduceProd" else sum(known[0])
            return (plain(combined),) if reduction.axes else known[0]
    return _arithmetic(node, known)


def _converted(node: ir.Node, known: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return numbers after a Cast; to integers, fractions are truncated. None where that is not known."""
    output = node.outputs[0].dtype
    if output is None or not output.is_integer() or all(map(_is_whole, known)):
        return known
    whole = [truncated(*sympy.fraction(sympy.together(number))) for number in known]
    return None if None in whole else tuple(plain(number) for number in whole if number is not None)


def _is_whole(number: Dim) -> bool:
    return isinstance(number, int) or bool(number.is_integer)


def _arithmetic(node: ir.Node, known: list[tuple[Dim, ...]]) -> tuple[Dim, ...] | None:
    length = max(len(each) for each in known)
    if any(len(each) not in (1, length) for each in known):
        return None
    if node.op_type != "Neg" and not all(_is_whole(number) for each in known for number in each):
        return None  # sums and products of fractions are rounded: 49 * (1 / 49) is less than 1
    columns = [each * length if len(each) == 1 else each for each in known]
    found = [computed(node, [column[at] for column in columns]) for at in range(length)]
    return None if any(each is None for each in found) else tuple(each for each in found if each is not None)


def count_of(start: Dim, limit: Dim, step: int) -> Dim:
    """Return the number of elements of a Range."""
    span = limit - start if step > 0 else start - limit
    return span if abs(step) == 1 else plain(-sympy.floor(-sympy.sympify(span) / abs(step)))


def at_zero(size: Dim) -> int | None:
    """Return a size at length 0; None where it is not an integer."""
    return at_length(size, 0)


def at_length(size: Dim, length: int) -> int | None:
    """Return a size with every axis at a length; None where it is not an integer."""
    if isinstance(size, int):
        return size
    value = size.subs(dict.fromkeys(size.free_symbols, length))
    return int(value) if value.is_Integer else None
