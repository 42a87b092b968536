"""Finds the pairs of positions to which an attention mask gives zero softmax weight, directly or by a very low score.

Masks of positions alone are evaluated: for a shorter sequence the mask is the upper left part of the longest one's,
whatever nodes compute it (comparisons, a table, a triangle, sums of ones). Where it changes with the size of another
axis, or a prefix is joined to the frames, it is evaluated for every size. Masks that depend on data are bounded.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import axis_map_of, dims
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import VIEWS
from compiler.proof.derivation.contents import Contents, Tables, beginning_behind, combined, moved, triangle, uniform
from compiler.proof.derivation.dependence import Dependence, Kind, Outside
from compiler.proof.derivation.other_sizes import NotBounded, sizes_of
from compiler.proof.derivation.placed import Placed
from compiler.proof.derivation.spans import (
    LOW,
    SCORE,
    TRUTH,
    UNKNOWN,
    ZERO,
    Span,
    cast,
    of_data,
    rule_of,
    weighted,
)
from compiler.proof.facts.shape_only import ShapeOnly

MIXING = frozenset(
    {
        "AveragePool", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "GroupNormalization", "InstanceNormalization",
        "LSTM", "LayerNormalization", "MatMul", "MatMulInteger", "RMSNormalization", "RNN",
    }
)  # fmt: skip
"""A list of its own: operators whose results are scores, or what is made of scores, whatever they are computed of."""

Array = npt.NDArray[Any]


class Known(Protocol):
    """Gives the dependence of values that is known so far."""

    def of(self, value: ir.Value | None) -> Dependence:
        """Return the dependence of a value on frames."""
        ...


class Masks:
    """Says what values may hold by their places.

    Args:
        judging: the analysis of their axes.
        frames: the number of frames.
        longest: frames of the longest sequence.
        most: the largest sizes of other axes, by name.

    Attributes:
        tables: what values of places hold that no rule follows.
        unbounded: why nothing is known of a value that is computed of places.
    """

    def __init__(self, judging: Known, frames: graphs.Dim, longest: int, most: Mapping[str, int]) -> None:
        self.judging, self.frames, self.longest, self.most = judging, frames, longest, most
        self.tables: dict[ir.Value, Placed] = {}
        self.unbounded: dict[ir.Value, str] = {}
        self._known: dict[ir.Value, Contents] = {}
        self._outsides: dict[tuple[ir.Value, Kind], Outside | None] = {}
        self._hidden: dict[tuple[object, ...], tuple[Contents, Array]] = {}

    def of(self, value: ir.Value) -> Contents:
        """Return the intervals that the entries of a value may hold."""
        if value not in self._known:
            self._known[value] = self._first_seen(value)
        return self._known[value]

    def _first_seen(self, value: ir.Value) -> Contents:
        array, rank = graphs.array_of(value), len(dims(value))
        if array is not None:
            return uniform(_span_of(array), rank)
        if self.judging.of(value).is_data:
            is_truth = value.dtype == ir.DataType.BOOL
            return uniform(TRUTH if is_truth else SCORE, rank)
        return self._evaluated(value) or uniform(UNKNOWN, rank)

    # Of places alone

    def _evaluated(self, value: ir.Value) -> Contents | None:
        """Return the contents of a value that depends on positions alone; None where they are not known."""
        fact = self.judging.of(value)
        if fact.whole is not None:
            return None
        before = {axis: along_axis.before for axis, along_axis in sorted(fact.along.items()) if along_axis.is_alone}
        tables = Tables(self.longest, {axis: count != 0 for axis, count in before.items()})
        try:
            for array, prefixes in self._arrays(value, before):
                if not tables.add(array, prefixes):
                    return None
        except ValueError:  # it depends on data, or does not run for some size
            return None
        except NotBounded as never:
            self.unbounded[value] = str(never)
            return None
        return tables.contents()

    def _arrays(self, value: ir.Value, before: Mapping[int, graphs.Dim]) -> Iterator[tuple[Array, dict[int, int]]]:
        """Yield the entries of a value for the longest sequence and every other size, with the size of each prefix."""
        table = self.tables.get(value)
        if table is not None and all(isinstance(prefix, int) for prefix in table.prefixes.values()):
            yield table.array, {axis: int(table.prefixes.get(axis, 0)) for axis in before}
            return
        evaluated = ShapeOnly([value])
        for sizes in sizes_of(evaluated, graphs.symbol(str(self.frames)), self.most):
            lengths = {name: sizes.get(name, self.longest) for name in evaluated.names}
            counts = {
                axis: prefix if isinstance(prefix, int) else prefix.subs(sizes) for axis, prefix in before.items()
            }
            if not all(isinstance(prefix, int) or prefix.is_number for prefix in counts.values()):
                return
            yield evaluated.at(lengths)[0], {axis: int(prefix) for axis, prefix in counts.items()}

    # Of data

    def note(self, node: ir.Node) -> None:
        """Record the contents of the results of a node that computes with data."""
        for value in node.outputs:
            if value.name and self.judging.of(value).is_data:
                self._known[value] = self._followed(node, value) or self._of_data(node, value)

    def _of_data(self, node: ir.Node, value: ir.Value) -> Contents:
        rank, is_truth = len(graphs.dims_of(value) or ()), value.dtype == ir.DataType.BOOL
        if node.op_type in MIXING:
            return uniform(SCORE, rank)
        if node.op_type in ("Softmax", "Sigmoid"):
            return uniform(TRUTH, rank)
        reals = (each for each in node.inputs if each is not None and each.dtype is not None)
        operands = (self.of(each) for each in reals if each.dtype is not None and each.dtype.is_floating_point())
        return uniform(of_data((span for each in operands for span in each.spans), is_truth=is_truth), rank)

    def _followed(self, node: ir.Node, value: ir.Value) -> Contents | None:
        """Return the contents of a result by the rule of its operator; None where nothing is known."""
        if node.domain not in ("", "ai.onnx"):
            return None
        rank = len(dims(value))
        rule = rule_of(node.op_type, is_whole=value.dtype is not None and value.dtype.is_integer())
        if rule is not None:
            return combined(rule, [self._operand(node, number) for number in range(len(node.inputs))], rank)
        operand_contents = self.of(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if operand_contents is None:
            return None
        if node.op_type in ("Cast", "CastLike"):
            kind = value.dtype or ir.DataType.UNDEFINED
            to_truth, to_whole = kind == ir.DataType.BOOL, kind.is_integer()
            return combined(lambda span: cast(span, to_truth=to_truth, to_whole=to_whole), [operand_contents], rank)
        if node.op_type == "Softmax":
            return self._softmax(node, operand_contents, rank)
        if node.op_type == "Trilu":
            return self._trilu(node, operand_contents, rank)
        axes = self.places_before(node, rank)
        if axes is None:
            return None
        if node.op_type == "Slice":
            operand_contents = self._behind_prefixes(node, operand_contents)
        return moved(operand_contents, axes, rank)

    def _operand(self, node: ir.Node, at: int) -> Contents:
        value = node.inputs[at]
        if value is not None:
            return self.of(value)
        return uniform(Span(-math.inf, -math.inf) if at == 1 else Span(math.inf, math.inf), 0)  # no bound of a Clip

    def places_before(self, node: ir.Node, rank: int) -> dict[int, int] | None:
        """Map the axes of the result to those of the first operand; None where entries move otherwise."""
        operand = node.inputs[0]
        before, after = self.judging.of(operand).along, self.judging.of(node.outputs[0]).along
        if node.op_type in VIEWS or node.op_type == "Slice":
            return dict(zip(sorted(after), sorted(before), strict=True)) if len(before) == len(after) else None
        if node.op_type not in ("Expand", "Transpose"):
            return None
        return {new: operand_axes[0] for new, operand_axes in axis_map_of(node).axes.items() if operand_axes}

    def _behind_prefixes(self, node: ir.Node, given: Contents) -> Contents:
        before, after = (self.judging.of(each).along for each in (node.inputs[0], node.outputs[0]))
        for axis in before:
            if axis in after and before[axis].before != 0 and after[axis].before == 0:
                given = beginning_behind(given, axis)
        return given

    def _softmax(self, node: ir.Node, given: Contents, rank: int) -> Contents:
        axis = axis_of(node, rank)
        return combined(weighted, [given], rank) if given.covers(axis) else uniform(TRUTH, rank)

    def _trilu(self, node: ir.Node, given: Contents, rank: int) -> Contents | None:
        along = self.judging.of(node.outputs[0]).along
        diagonal = graphs.integers_of(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else (0,)
        are_frames = all(at in along and along[at].is_alone and along[at].before == 0 for at in (rank - 2, rank - 1))
        if not are_frames or diagonal is None or not isinstance(diagonal[0], int):
            return None
        kept = triangle(self.longest, rank, diagonal[0], upper=bool(graphs.int_attribute(node, "upper", 1)))
        return combined(lambda span, is_kept: span if is_kept != ZERO else ZERO, [given, kept], rank)

    # What masks leave

    def outside(self, value: ir.Value | None, kind: Kind) -> Outside | None:
        """Return the positions outside a mask over two axes of frames; None where no mask is known.

        Args:
            value: the masked value.
            kind: the content that the mask must leave there: zeros, or scores without weight.
        """
        if value is None or graphs.array_of(value) is not None:
            return None
        if (value, kind) not in self._outsides:
            self._outsides[value, kind] = self._outside(value, kind)
        return self._outsides[value, kind]

    def _outside(self, value: ir.Value, kind: Kind) -> Outside | None:
        along = self.judging.of(value).along
        if len(along) != 2 or not all(along_axis.is_alone for along_axis in along.values()):
            return None
        row, column = sorted(along)
        contents = self.of(value)
        is_hidden = tuple(span.hides if kind == "low" else span == ZERO for span in contents.spans)
        if not any(is_hidden):
            return None
        rows, columns = (int(along[axis].before != 0) for axis in (row, column))
        size = self.longest + rows, self.longest + columns
        hidden = self._where(contents, is_hidden, size, row, column)
        support = ~hidden[rows:, columns:]
        if support.all():
            return None
        level = max(span.high for span, is_one in zip(contents.spans, is_hidden, strict=True) if is_one)
        is_closed = bool(hidden[:rows, columns:].all())
        return Outside(kind, row, column, support, level, is_closed)

    def _where(
        self, contents: Contents, chosen: tuple[bool, ...], size: tuple[int, int], row: int, column: int
    ) -> Array:
        """Return where the interval is among the chosen ones, by row and column; layers of a model share the array."""
        which = contents.which
        key = (which.ctypes.data, which.shape, which.strides, chosen, size, row, column)
        if key not in self._hidden:
            self._hidden[key] = contents, _square(contents.where(chosen), size, row, column)
        return self._hidden[key][1]

    def blind_row(self, value: ir.Value, row: int, column: int, *, is_guarded: bool) -> int | None:
        """Return the first row in which a softmax may find hidden scores alone; None where there is none.

        A row must see a frame up to its own, as a sequence may end with it.

        Args:
            value: scores.
            row: axis of its rows.
            column: axis over which the softmax goes.
            is_guarded: whether NaN behind the softmax becomes zero.

        Returns:
            The frame; -1 for the prefix in front of the frames.
        """
        contents, along = self.of(value), self.judging.of(value).along
        fronts = {axis: int(along[axis].before != 0) for axis in (row, column)}
        rows, columns = (self.longest + fronts[axis] for axis in (row, column))
        best, worst = np.full(rows, -np.inf), np.full(rows, -np.inf)
        is_any = np.zeros(rows, np.bool_)
        for number, span in enumerate(contents.spans):
            alone = tuple(number == other for other in range(len(contents.spans)))
            there = self._where(contents, alone, (rows, columns), row, column)
            if span.hides:
                is_there = there.any(axis=1)
                worst = np.where(is_there, np.maximum(worst, span.high), worst)
                is_any |= is_there
            else:
                is_there = np.tril(there, fronts[column] - fronts[row]).any(axis=1)
                best = np.where(is_there, np.maximum(best, span.low), best)
        is_number = best > -np.inf
        shares = np.subtract(worst, best, out=np.zeros(rows), where=is_number) > LOW
        blind = is_any & np.where(is_number, shares, (worst > -np.inf) | (not is_guarded))
        return int(np.argmax(blind)) - fronts[row] if blind.any() else None


def _square(array: Array, size: tuple[int, int], row: int, column: int) -> Array:
    """Return an array over two of its axes, where every other axis has size 1."""
    order = [row, column, *(axis for axis in range(array.ndim) if axis not in (row, column))]
    transposed = array.transpose(order)
    return np.broadcast_to(transposed.reshape(transposed.shape[:2]), size)


def _span_of(array: Array) -> Span:
    """Return the interval of a constant's entries."""
    if array.size == 0 or array.dtype.kind not in "fiub":
        return UNKNOWN
    low, high = float(array.min()), float(array.max())
    return UNKNOWN if math.isnan(low) or math.isnan(high) else Span(low, high)
