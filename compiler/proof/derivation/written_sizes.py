"""Writes the sizes of a derived graph as nodes, computed from the numbers of new and of cached frames."""

import enum
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import Dim
from compiler.proof.derivation.regrouping import RULE_CURE

STAMP = "derive_steps"
INT64S = ir.TensorType(ir.DataType.INT64)


class Part(enum.Enum):
    """Which entries of a time axis: new frames, they and those that sliding masks show, a prefix, all, or both."""

    NEW = "new"
    RECENT = "recent"
    FIRST = "first"
    SINCE = "since"
    ALL = "all"


Parts: TypeAlias = tuple[tuple[int, Part], ...]
"""By time axis of a value, ascending."""


class Sizes:
    """Sizes of one derived graph, each written once.

    Args:
        model: the derived graph.
        frames: the number of frames; in the derived graph that of a call.
        past: the number of cached frames.
        recent: frames in front of those of a call that are kept where a mask slides.
    """

    def __init__(self, model: ir.Model, frames: sympy.Symbol, past: sympy.Symbol, recent: int = 0) -> None:
        self.model, self.graph, self.recent = model, model.graph, recent
        self.frames, self.past, self.total = frames, past, frames + past
        self.known: dict[Dim, ir.Value] = {}

    def scalar(self, size: Dim, kind: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Return a size as a scalar value of a type."""
        insert = graphs.Inserter(self.model, STAMP)
        value = insert.op("Squeeze", [self.one(size)], name="length", shape=[], dtype=ir.DataType.INT64)
        if kind == ir.DataType.INT64:
            return value
        return insert.op("Cast", [value], {"to": int(kind)}, name=f"{value.name}_cast", shape=[])

    def one(self, size: Dim) -> ir.Value:
        """Return a size as a value, int64 [1]."""
        if size not in self.known:
            self.known[size] = self._one(size)
        return self.known[size]

    def _one(self, size: Dim) -> ir.Value:
        insert = graphs.Inserter(self.model, STAMP)
        if isinstance(size, int) or size.is_Integer:
            return insert.int64s(int(size))
        if size in (self.past, self.total):  # of a cache, and none may have been found yet
            return ir.Value(name=graphs.fresh_name(self.graph, "length"), shape=ir.Shape([1]), type=INT64S)
        if size.is_Symbol:
            return self._read(size)
        if size.is_Add or size.is_Mul:
            parts = [self.one(int(argument) if argument.is_Integer else argument) for argument in size.args]
            total = parts[0]
            for part in parts[1:]:
                total = insert.op("Add" if size.is_Add else "Mul", [total, part], name="size", shape=[1])
            return total
        raise Refused(f"no steps can be derived: a size of {size}", cure=RULE_CURE)

    def _read(self, name: sympy.Symbol) -> ir.Value:
        """Read a size from an input that has the axis of that name."""
        for value in self.graph.inputs:
            for at, dim in enumerate(dims(value)):
                if dim == name:
                    attributes = {"start": at, "end": at + 1}
                    insert = graphs.Inserter(self.model, STAMP)
                    return insert.op(
                        "Shape", [value], attributes, name=f"{name}_size", shape=[1], dtype=ir.DataType.INT64
                    )
        raise Refused(f"no steps can be derived: no input has an axis {name}", cure=RULE_CURE)

    def several(self, sizes: Sequence[Dim], name: str) -> ir.Value:
        """Return sizes as a value, int64 [count]."""
        insert = graphs.Inserter(self.model, STAMP)
        if all(isinstance(size, int) for size in sizes):
            return insert.int64s(*(int(size) for size in sizes))
        parts = [self.one(size) for size in sizes]
        return insert.op("Concat", parts, {"axis": 0}, name=f"{name}_shape", dtype=ir.DataType.INT64)

    def number(self, value: ir.Value) -> ir.Value:
        """Write an integer value that is computed from sizes other than the length."""
        known, insert, name = symbolic_values_of(value), graphs.Inserter(self.model, STAMP), str(value.name)
        assert known is not None
        parts = [self.one(each) for each in known]
        found = parts[0] if len(parts) == 1 else insert.op("Concat", parts, {"axis": 0}, name=name)
        if not dims(value):
            found = insert.op("Squeeze", [found], name=name)
        if value.dtype in (None, ir.DataType.INT64):
            return found
        assert value.dtype is not None
        return insert.op("Cast", [found], {"to": int(value.dtype)}, name=name)

    def count(self, part: Part, before: Dim = 0) -> Dim:
        """Return the number of entries of a part of an axis.

        Args:
            part: the part.
            before: entries of the axis in front of its frames.
        """
        counts = {
            Part.NEW: self.frames,
            Part.RECENT: self.frames + self.recent,
            Part.FIRST: before,
            Part.SINCE: self.total,
        }
        return counts.get(part, graphs.normal_form(before + self.total))

    def places(self, part: Part, source: str, before: Dim = 0, repeated: Dim | None = None) -> ir.Value:
        """Return the positions of a part, int64 [entries]; frames are counted from the end of their prefix.

        Entries before the stream's first frame, which `RECENT` has at its start, get the first position.

        Args:
            part: the part.
            source: source line of the model, for messages.
            before: number of entries of the prefix.
            repeated: number of prefix entries that share one position; None where each has its own.
        """
        insert = graphs.Inserter(self.model, STAMP, source=source)
        if part is Part.ALL and before != 0:  # counted apart, as each may be padded on another side
            both = [self.places(part_of_both, source, before, repeated) for part_of_both in (Part.FIRST, Part.SINCE)]
            shape = [written_size(self.count(part, before if repeated is None else repeated))]
            return insert.op("Concat", both, {"axis": 0}, name="places_of_all", shape=shape)
        zero, one = insert.constant(np.array(0, np.int64), "zero"), insert.constant(np.array(1, np.int64), "one")
        count = self.count(part, before if repeated is None else repeated)
        shape = [written_size(count)]
        counted = insert.op("Range", [zero, self.scalar(count), one], name="places", shape=shape)
        if part is Part.FIRST and repeated is not None:
            return insert.op("Min", [counted, zero], name="places_of_prefix", shape=shape)
        if part in (Part.NEW, Part.RECENT):
            counted = insert.op("Add", [counted, self.one(self.past)], name="places_now", shape=shape)
        if part is Part.RECENT:
            counted = insert.op("Sub", [counted, insert.int64s(self.recent)], name="places_of_recent", shape=shape)
            return insert.op("Max", [counted, zero], name="places_heard", shape=shape)
        if part is Part.FIRST or before == 0:
            return counted
        return insert.op("Add", [counted, self.one(before)], name="places_behind", shape=shape)

    def heard(self, source: str) -> ir.Value:
        """Return which entries of `RECENT` are frames of the stream, bool [entries]."""
        insert = graphs.Inserter(self.model, STAMP, source=source)
        zero, one = insert.constant(np.array(0, np.int64), "zero"), insert.constant(np.array(1, np.int64), "one")
        count = self.count(Part.RECENT)
        shape = [written_size(count)]
        counted = insert.op("Range", [zero, self.scalar(count), one], name="places", shape=shape)
        placed = insert.op("Add", [counted, self.one(self.past)], name="places_now", shape=shape)
        first = insert.int64s(self.recent)
        return insert.op("GreaterOrEqual", [placed, first], name="heard", shape=shape, dtype=ir.DataType.BOOL)

    def measure(self, caches: Sequence[tuple[ir.Value, ir.Value, int]]) -> None:
        """Read the number of cached frames, and of cached and new ones, from the caches.

        The sum is read from the first joined value that does not itself depend on it.

        Args:
            caches: for each, its input, the value that joins it with new frames, and the axis of frames.

        Raises:
            Refused: a number is needed, and there is no cache.
        """
        total = self.known.get(self.total)
        if (self.past in self.known or total is not None) and not caches:
            raise Refused(
                "no steps can be derived: places are counted, and nothing is cached whose frames could be counted",
                cure="a model without attention has no caches; export it as a stream with an offset that counts",
            )
        if total is not None:
            free = [(joined, axis) for _, joined, axis in caches if not _hangs_on(joined, total)]
            if free:
                self._shape_of(*free[0], total)
            else:
                parts = [self.one(self.past), self.one(self.frames)]
                self.graph.append(ir.node("Add", parts, outputs=[total], name=f"{total.name}_node"))
        if self.past in self.known:
            self._shape_of(caches[0][0], caches[0][2], self.known[self.past])
        self.graph.sort()

    def _shape_of(self, value: ir.Value, axis: int, size: ir.Value) -> None:
        """Define a needed size as the size of a value's axis."""
        attributes = {"start": axis, "end": axis + 1}
        self.graph.append(ir.node("Shape", [value], attributes, outputs=[size], name=f"{size.name}_node"))


def written_size(size: Dim) -> int | str:
    """Return a size as a graph's shapes hold it: an int, or an expression as text."""
    return size if isinstance(size, int) else graphs.written(size)


def _hangs_on(value: ir.Value, size: ir.Value) -> bool:
    """Whether a value is computed from a size."""
    seen: set[ir.Value] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current is size:
            return True
        node = current.producer()
        for operand in () if node is None else node.inputs:
            if operand is not None and operand not in seen:
                seen.add(operand)
                waiting.append(operand)
    return False
