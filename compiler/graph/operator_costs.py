"""Estimates the cost of an operator from shapes alone: multiply-adds, bytes moved, and the longer of the two times.

A model of two figures (a roofline): arithmetic at one rate, memory at another, and an operator takes as long as the
slower one. It is there to compare two ways of computing the same, not to predict milliseconds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.operators.traits import VIEWS

Sizes = Mapping[str, int]
"""Sizes of named axes; an axis that is not named counts once."""

PICOSECONDS = 1e12


@dataclasses.dataclass(frozen=True)
class Rates:
    """The operations and bytes that a machine processes in a second.

    The defaults are one thread of the CPU that benchmarks/README.md describes: a large float32 product, and weights
    that do not fit the cache; `python -m benchmarks.chunk_step` measures both.

    Attributes:
        multiply_adds: in one second.
        bytes: read or written in one second.
    """

    multiply_adds: float = 137e9
    bytes: float = 14.8e9

    def picoseconds(self, multiply_adds: int, moved: int) -> int:
        """Return the time of an operator in picoseconds, an integer so that sums compare exactly."""
        return round(PICOSECONDS * max(multiply_adds / self.multiply_adds, moved / self.bytes))


def elements_of(value: ir.Value, sizes: Sizes) -> int:
    """Return the number of elements of a value of known rank."""
    dims = graphs.dims_of(value)
    assert dims is not None, f"{value.name} has no rank"
    return math.prod(size_of(dim, sizes) for dim in dims)


def bytes_of(values: Iterable[ir.Value | None], sizes: Sizes) -> int:
    """Return the total bytes of values; absent ones count 0, and an unknown type counts as float32."""
    total = 0
    for value in values:
        if value is not None:
            bits = 32 if value.dtype is None else round(8 * value.dtype.itemsize)
            total += -(-elements_of(value, sizes) * bits // 8)
    return total


def bytes_moved(node: ir.Node, sizes: Sizes) -> int:
    """Return the bytes of activations that a node reads and writes; weights, read at every length, are left out."""
    if graphs.is_op(node, *VIEWS):
        return 0
    return bytes_of([*(value for value in node.inputs if not _is_weight(value)), *node.outputs], sizes)


def multiply_adds(node: ir.Node, sizes: Sizes) -> int:
    """Return the multiply-adds of products, convolutions, contractions and recurrences; 0 for other operators."""
    count = COUNTED.get(node.op_type)
    return 0 if count is None else count(node, sizes)


def size_of(dim: graphs.Dim, sizes: Sizes) -> int:
    """Return a dimension at these sizes; an unknown one counts as 1."""
    if isinstance(dim, int):
        return dim
    named = {each: sizes.get(str(each), 1) for each in dim.free_symbols}
    size = sympy.sympify(dim).subs(named)
    return max(int(size), 0) if size.is_Integer else 1


def _is_weight(value: ir.Value | None) -> bool:
    return graphs.array_of(value) is not None


def _dim(node: ir.Node, operand: int, axis: int, sizes: Sizes) -> int:
    value = node.inputs[operand]
    dims = None if value is None else graphs.dims_of(value)
    return size_of(dims[axis], sizes) if dims else 1


def _product(node: ir.Node, sizes: Sizes) -> int:
    return elements_of(node.outputs[0], sizes) * _dim(node, 0, -1, sizes)


def _gemm(node: ir.Node, sizes: Sizes) -> int:
    inner = 0 if graphs.int_attribute(node, "transA", 0) else 1
    return elements_of(node.outputs[0], sizes) * _dim(node, 0, inner, sizes)


def _convolution(weight: int) -> Callable[[ir.Node, Sizes], int]:
    def count(node: ir.Node, sizes: Sizes) -> int:
        kernel = node.inputs[weight]
        assert kernel is not None
        return elements_of(node.outputs[0], sizes) * elements_of(kernel, sizes) // _dim(node, weight, 0, sizes)

    return count


def _transposed_convolution(node: ir.Node, sizes: Sizes) -> int:
    data, kernel = node.inputs[0], node.inputs[1]
    assert data is not None and kernel is not None
    return elements_of(data, sizes) * elements_of(kernel, sizes) // _dim(node, 1, 0, sizes)


def _contraction(node: ir.Node, sizes: Sizes) -> int:
    """Return the multiply-adds of an Einsum: the product of the sizes of all its labels."""
    left, _, kept = str(graphs.attribute(node, "equation", "")).replace(" ", "").partition("->")
    letters: dict[str, int] = {}
    for operand, term in enumerate(left.split(",")):
        front, _, back = term.partition("...")
        places = [*enumerate(front), *zip(range(-len(back), 0), back, strict=True)]
        letters |= {letter: _dim(node, operand, axis, sizes) for axis, letter in places}
    summed = (size for letter, size in letters.items() if (letter not in kept if kept else left.count(letter) > 1))
    return elements_of(node.outputs[0], sizes) * math.prod(summed)


def _recurrence(node: ir.Node, sizes: Sizes) -> int:
    steps = _dim(node, 0, 0, sizes) * _dim(node, 0, 1, sizes)
    weights = [value for value in node.inputs[1:3] if value is not None]
    return steps * sum(elements_of(value, sizes) for value in weights)


COUNTED: Mapping[str, Callable[[ir.Node, Sizes], int]] = {
    "MatMul": _product,
    "MatMulInteger": _product,
    "MatMulNBits": _product,
    "QLinearMatMul": _product,
    "Gemm": _gemm,
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution,
    "Einsum": _contraction,
    "RNN": _recurrence,
    "GRU": _recurrence,
    "LSTM": _recurrence,
}
