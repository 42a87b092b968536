"""Computes which slots of a value belong to each row and are valid, from a certificate's record and given lengths."""

import ast
import dataclasses
import fractions
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper  # noqa: TID251 - nothing of the prover's vocabulary

from compiler.checker.graph import Array, Record, Rejected

Index = tuple[slice, ...] | tuple[Array, ...]
"""Chooses entries of an array, of each axis some places."""


@dataclasses.dataclass(frozen=True)
class Lengths:
    """One assignment of lengths: per axis the slots and the true length of every row."""

    slots: Mapping[str, int]
    true: Sequence[Mapping[str, int]]


class Layout:
    """The axes of one fact, with slots and validity for an assignment of lengths."""

    def __init__(self, record: Record, shape: Sequence[str | int], lengths: Lengths, batch: str | None) -> None:
        self.record, self.lengths = record, lengths
        self.axes = {int(axis): factors for axis, factors in record["axes"].items()}
        rows = len(lengths.true)
        slots = dict(lengths.slots) | ({batch: rows} if batch else {})
        self.shape = [
            math.prod(self._slots(factor, slots, rows) for factor in self.axes[axis])
            if axis in self.axes
            else size_of(dim, slots)
            for axis, dim in enumerate(shape)
        ]
        if min(self.shape, default=0) < 0:
            raise Rejected(f"a shape is {self.shape}: fewer entries than none")
        self.lines: dict[tuple[int, int], tuple[Array, Array]] = {}
        self.padded = [axis for axis, factors in self.axes.items() if any("frames" in factor for factor in factors)]

    def _slots(self, factor: Record, slots: Mapping[str, int], rows: int) -> int:
        if "rows" in factor:
            return rows
        if "frames" in factor:
            return sum(size_of(size, slots) for size, _ in factor["frames"])
        return size_of(factor["plain"], slots)

    def along(self, at: int, row: int) -> tuple[Array, Array]:
        """Return which slots of an axis belong to a row, and which of them are valid; bool [slots] each."""
        if (at, row) not in self.lines:
            self.lines[at, row] = self._line(at, row)
        return self.lines[at, row]

    def _line(self, at: int, row: int) -> tuple[Array, Array]:
        if at not in self.axes:
            every = np.ones(self.shape[at], bool)
            return every, every
        rows = len(self.lengths.true)
        mine, valid = np.ones(1, bool), np.ones(1, bool)
        for factor in self.axes[at]:
            factor_line = slots_valid = np.ones(1, bool)
            if "rows" in factor:
                factor_line = slots_valid = np.arange(rows) == row
            elif "frames" in factor:
                slots_valid = np.concatenate([self._segment(size, side, row) for size, side in factor["frames"]])
                factor_line = np.ones(slots_valid.size, bool)
            else:
                factor_line = slots_valid = np.ones(size_of(factor["plain"], self.lengths.slots), bool)
            mine = np.logical_and.outer(mine, factor_line).reshape(-1)
            valid = np.logical_and.outer(valid, slots_valid).reshape(-1)
        return mine, valid

    def _segment(self, size: str, side: str, row: int) -> Array:
        slots, true = size_of(size, self.lengths.slots), max(size_of(size, self.lengths.true[row]), 0)
        if true > slots:
            raise Rejected(f"a segment of {size} has {slots} slots for {true} entries")
        places = np.arange(slots)
        return places < true if side == "left" else places >= slots - true

    def chosen(self, row: int) -> Index:
        """Return the index of the valid entries of a row."""
        return _index([self.along(at, row)[1] for at in range(len(self.shape))])

    def regions(self, row: int) -> Iterator[tuple[frozenset[int], Index]]:
        """Yield every region of a row with the index of its entries."""
        lines = [self.along(at, row) for at in range(len(self.shape))]
        for count in range(len(self.padded) + 1):
            for region in itertools.combinations(self.padded, count):
                here = [mine & ~valid if at in region else valid for at, (mine, valid) in enumerate(lines)]
                yield frozenset(region), _index(here)

    def content(self, region: frozenset[int]) -> tuple[float, float, bool]:
        """Return the bounds, and whether NaN may occur, that the record gives for a region."""
        for axes, low, high, nan in self.record["contents"]:
            if frozenset(axes) == region:
                return float(low), float(high), bool(nan)
        return -math.inf, math.inf, True


def _index(lines: Sequence[Array]) -> Index:
    """Return the index of the entries selected along each axis; slices where contiguous, as a view copies nothing."""
    places = [np.flatnonzero(line) for line in lines]
    if all(each.size == 0 or each[-1] - each[0] < each.size for each in places):
        return tuple(slice(int(each[0]), int(each[-1]) + 1) if each.size else slice(0, 0) for each in places)
    return np.ix_(*places)


def size_of(size: str | int, values: Mapping[str, int]) -> int:
    """Return the value of an integer expression over axis names."""
    if isinstance(size, int):
        return size
    found = values.get(size)
    return math.floor(fractions.Fraction(_arithmetic(_parsed(size), values))) if found is None else found


def ones_of(
    dims: Sequence[str | int], kind: int, values: Mapping[str, int], span: Sequence[int] | None = None
) -> Array:
    """Return ones of a shape, or the number of a range that is closest to one.

    `kind` is the element type, as in `onnx.TensorProto`.
    """
    number = 1 if span is None else min(max(1, span[0]), span[1])
    return np.full([size_of(dim, values) for dim in dims], number, helper.tensor_dtype_to_np_dtype(kind))


def names_in(size: str) -> set[str]:
    """Return the axis names in an expression; text that is no expression is one name."""
    try:
        tree = _parsed(size)
    except SyntaxError:
        return {size}
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)} - set(_CALLS)


@functools.lru_cache(maxsize=4096)
def _parsed(size: str) -> ast.expr:
    return ast.parse(size, mode="eval").body


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: fractions.Fraction(a) / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: fractions.Fraction(a) ** b,
}


_CALLS: dict[str, Callable[..., Any]] = {
    "floor": math.floor, "ceiling": math.ceil, "Min": min, "Max": max, "min": min, "max": max, "Abs": abs,
    "Mod": lambda a, b: a % b,
}  # fmt: skip


def _arithmetic(tree: ast.expr, values: Mapping[str, int]) -> Any:
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name) if name in values:
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_arithmetic(operand, values)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_arithmetic(left, values), _arithmetic(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _CALLS:
            return _CALLS[name](*(_arithmetic(argument, values) for argument in arguments))
    raise Rejected(f"a size is {ast.unparse(tree)!r}, which is no arithmetic on axis names")
