"""Decides whether masks restrict every call to its own chunk and the newest frames before it, at any sequence length.

Masks are evaluated up to the longest requested sequence. Beyond it, the content of a mask is bounded: positions are
sums of counts of calls, frames and distances, and comparisons of them are decided where their bounds allow.

    row     period * calls + start + within            0 <= within < chunk
    far     period * calls + start - kept - 1 - apart  hidden: no later call reads it
    ahead   period * calls + start + chunk + apart     hidden: a later chunk
    own     period * calls + start + within            seen, so that a softmax has a score

Every divisor of a position divides the period, and all starts of chunks within the period are checked.

The proof holds for every number of calls and every distance, and so for sequences of any length.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import NotMapped, axis_map_of, dims
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.traits import ENTRYWISE, VIEWS
from compiler.proof.derivation.dependence import Kind, Outside
from compiler.proof.derivation.judging import Judging, is_guarded
from compiler.proof.derivation.masks import MIXING
from compiler.proof.derivation.spans import (
    LOW,
    RULES,
    TRUTH,
    UNKNOWN,
    ZERO,
    Span,
    cast,
    hull,
    of_data,
    rule_of,
    weighted,
)

COMPARISONS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
"""A list of its own: comparisons of whole numbers, decided by their difference."""

MOST_PERIOD = 64
"""Frames after which masks may begin anew, as those of chunks do."""

EXACT = (ir.DataType.INT32, ir.DataType.INT64)
"""Types in which places may be counted without end."""


@dataclasses.dataclass(frozen=True)
class Places:
    """Whole numbers: calls * c + within * w + apart * a + one of low .. high, for all calls, apart >= 0.

    Attributes:
        calls: how often the number of calls is added.
        within: how often the place within a chunk is added, which is at most `last`.
        apart: how often the distance is added.
        low: the least of the rest.
        high: the largest of the rest.
        last: the last place within a chunk.
        least: a bound from below that is known besides.
    """

    calls: int = 0
    within: int = 0
    apart: int = 0
    low: float = 0.0
    high: float = 0.0
    last: int = 0
    least: float = -math.inf

    @property
    def span(self) -> Span:
        """Return the interval that contains every value of these bounds."""
        low, high = self.low + min(0, self.within) * self.last, self.high + max(0, self.within) * self.last
        grows = [each for each in (self.calls, self.apart) if each]
        low = -math.inf if any(each < 0 for each in grows) else low
        high = math.inf if any(each > 0 for each in grows) else high
        return Span(max(low, self.least), high)

    def plus(self, other: "Places", sign: int = 1) -> "Places":
        """Return bounds of the sum of two values; of their difference where sign is -1."""
        low, high = (other.low, other.high) if sign > 0 else (-other.high, -other.low)
        far = other.span
        least = self.span.low + (far.low if sign > 0 else -far.high)
        factors = (self.calls + sign * other.calls, self.within + sign * other.within, self.apart + sign * other.apart)
        least = -math.inf if math.isnan(least) else least
        return Places(*factors, self.low + low, self.high + high, max(self.last, other.last), least)

    def times(self, factor: int) -> "Places":
        """Return bounds of the product with a constant factor."""
        ends = sorted((self.low * factor, self.high * factor)) if factor else [0.0, 0.0]
        least = self.least * factor if factor > 0 else -math.inf
        factors = (self.calls * factor, self.within * factor, self.apart * factor)
        return Places(*factors, ends[0], ends[1], self.last, least)

    def over(self, divisor: int) -> "Places":
        """Return bounds of the integer quotient; values must not be negative, so that every way of rounding agrees."""
        calls, within, apart = (each if each % divisor else 0 for each in (self.calls, self.within, self.apart))
        rest = Places(calls, within, apart, self.low, self.high, self.last).span
        low, high, least = (
            each if math.isinf(each) else math.floor(each / divisor) for each in (rest.low, rest.high, self.span.low)
        )
        whole = [0 if each % divisor else each // divisor for each in (self.calls, self.within, self.apart)]
        return Places(whole[0], whole[1], whole[2], low, high, self.last, least)


Bounds: TypeAlias = Places | Span
Axes: TypeAlias = Mapping[int, Places]
"""By time axis of a value, the places that are asked about."""


def span_of(bounds: Bounds) -> Span:
    """Return the span from the lower to the upper bound."""
    return bounds if isinstance(bounds, Span) else bounds.span


class AnyLength:
    """Bounds of what values hold at places of sequences of any length.

    Args:
        judging: of the whole graph.
        kept: frames that are kept in front of a call.
    """

    def __init__(self, judging: Judging, kept: int) -> None:
        self.judging, self.kept, self.chunk = judging, kept, judging.chunk
        self.period = self._period()
        self._known: dict[tuple[ir.Value, tuple[tuple[int, Places], ...]], Bounds] = {}

    def why_not(self) -> str:
        """Return why sequences longer than the evaluated ones may read more frames; an empty string where none do."""
        masked = {(node, operand): outside for (node, *_), (_, operand, outside) in self.judging.recent.items()}
        for (node, operand), outside in masked.items():
            kind: Kind = "low" if graphs.is_op(node, "Softmax") else "zero"
            scores = node.inputs[operand]
            assert scores is not None
            if not self._hides(node, scores, outside, kind):
                return f"what {node.name} is masked by is not known of sequences longer than {self.judging.longest}"
        longest = self.judging.longest
        most = self.judging.masks.most.get(str(self.judging.frames), longest - self.kept)
        for value, table in self.judging.tables.items():
            if self.kept + most > longest:
                return f"{value.name} is told by a table, and calls of {most} frames read further than {longest}"
            places = {axis: Places(calls=1, apart=distance) for distance, axis in enumerate(table.along)}
            if len(table.along) > 2 or not self._is_by_distance(value, places):
                return f"{value.name} is told by a table of the places up to {longest}"
        return ""

    def _period(self) -> int:
        """Return the period of positions in frames: the least common multiple of chunk and constant divisors."""
        found = self.chunk
        for node in self.judging.model.graph:
            if node.op_type in ("Div", "Mod") and not self.judging.of(node.outputs[0]).is_data:
                by = graphs.integers_of(node.inputs[1]) or ()
                found = math.lcm(found, *(each for each in by if isinstance(each, int) and each > 0))
        return found if found <= MOST_PERIOD else self.chunk

    def _at(self, start: int, *, within: int = 0, apart: int = 0) -> Places:
        """Return bounds of positions in every period that begin at a start."""
        return Places(self.period, within, apart, start, start, self.chunk - 1, least=0)

    def _hides(self, node: ir.Node, scores: ir.Value, outside: Outside, kind: Kind) -> bool:
        """Whether a mask hides far earlier frames and later chunks from every row, at every start of a call."""
        hidden: list[Span] = []
        own_spans: list[Span] = []
        for start in range(0, self.period, self.chunk):
            row = self._at(start, within=1)
            far, ahead = self._at(start - self.kept - 1, apart=-1), self._at(start + self.chunk, apart=1)
            for column, spans in ((far, hidden), (ahead, hidden), (row, own_spans)):
                spans.append(span_of(self.of(scores, {outside.row: row, outside.column: column})))
        if kind == "zero":
            return all(span == ZERO for span in hidden)
        level, seen = max(span.high for span in hidden), min(span.low for span in own_spans)
        if level > LOW:
            return False
        if level == -math.inf and is_guarded(node.outputs[0]):
            return True
        return bool(seen > -math.inf and level - seen <= LOW)

    # Values

    def of(self, value: ir.Value, axes: Axes) -> Bounds:
        """Return bounds of the entries of a value at some positions.

        Args:
            value: a value of the graph over whole sequences.
            axes: the bounds of positions along its time axes.
        """
        key = value, tuple(sorted(axes.items(), key=lambda pair: pair[0]))
        if key not in self._known:
            self._known[key] = self._of(value, axes)
        return self._known[key]

    def _of(self, value: ir.Value, axes: Axes) -> Bounds:
        array = graphs.array_of(value)
        if array is not None:
            return _of_constant(array)
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx") or node.op_type in MIXING:
            return self._of_data(value, [])
        if self.judging.is_number(value) or any(
            along_axis.before != 0 for along_axis in self.judging.of(value).along.values()
        ):
            return UNKNOWN
        operands = self._operands(node, axes)
        if operands is None:
            return UNKNOWN if not self.judging.of(value).is_data else self._of_data(value, [])
        return self._computed(node, value, axes, operands)

    def _of_data(self, value: ir.Value, operands: list[Bounds]) -> Bounds:
        if not self.judging.of(value).is_data:
            return UNKNOWN
        return of_data(map(span_of, operands), is_truth=value.dtype == ir.DataType.BOOL)

    def _operands(self, node: ir.Node, axes: Axes) -> list[Bounds] | None:
        """Return bounds of a node's operands at the positions of its result; None where no rule relates them."""
        if node.op_type in VIEWS or node.op_type in ("Transpose", "Expand"):
            moved = self.judging.masks.places_before(node, len(dims(node.outputs[0])))
            moved_operand = node.inputs[0]
            if moved is None or moved_operand is None:
                return None
            return [
                self.of(
                    moved_operand, {moved[axis]: place_of_axis for axis, place_of_axis in axes.items() if axis in moved}
                )
            ]
        try:
            axis_map = axis_map_of(node)
        except NotMapped:
            return None
        bounds = []
        for operand_number, operand in enumerate(node.inputs):
            operand_axes = {
                pairs[operand_number]: axes[axis]
                for axis, pairs in axis_map.axes.items()
                if operand_number in pairs and axis in axes
            }
            bounds.append(UNKNOWN if operand is None else self.of(operand, operand_axes))
        return bounds

    def _computed(self, node: ir.Node, value: ir.Value, axes: Axes, operands: list[Bounds]) -> Bounds:
        op = node.op_type
        if op in VIEWS or op in ("Transpose", "Expand"):
            return operands[0]
        if op == "Range":
            return self._counted(node, value, axes, operands)
        if op == "Trilu":
            return self._triangle(node, axes, operands)
        if op == "Softmax":
            over = axis_of(node, len(dims(value)))
            return weighted(span_of(operands[0])) if over in axes else TRUTH
        if op == "Gather":
            return (
                span_of(operands[0]) if graphs.array_of(node.inputs[0]) is not None else self._of_data(value, operands)
            )
        if op in ("Cast", "CastLike"):
            return self._cast(value, operands[0])
        if op == "Where":
            condition = span_of(operands[0])
            chosen = operands[1] if condition.is_true else operands[2] if condition == ZERO else None
            return hull(map(span_of, operands[1:])) if chosen is None else chosen
        if op == "Clip":
            ends = {1: Span(-math.inf, -math.inf), 2: Span(math.inf, math.inf)}
            spans = {
                number: span_of(operand) for number, operand in enumerate(operands) if node.inputs[number] is not None
            }
            return RULES["Clip"](*({**ends, **spans}[number] for number in range(3)))
        if (whole := self._of_whole_numbers(node, value, operands)) is not None:
            return whole
        rule = rule_of(op, is_whole=value.dtype is not None and value.dtype.is_integer())
        if rule is not None:
            return rule(*map(span_of, operands))
        return self._of_data(value, operands)

    def _of_whole_numbers(self, node: ir.Node, value: ir.Value, operands: list[Bounds]) -> Bounds | None:
        """Return bounds of a sum, product, quotient or comparison of positions; None for any other node."""
        op, first, second = node.op_type, operands[0], operands[1] if len(operands) == 2 else None
        if not isinstance(first, Places):
            return None
        if op == "Neg":
            return first.times(-1)
        if op == "Abs":
            return first if first.span.low >= 0 else first.times(-1) if first.span.high <= 0 else None
        if not isinstance(second, Places):
            return None
        if op in COMPARISONS:
            return RULES[op](first.plus(second, -1).span, ZERO)
        if op in ("Add", "Sub"):
            return first.plus(second, 1 if op == "Add" else -1)
        number = _only(second)
        if op == "Mul":
            other, number = (second, _only(first)) if number is None else (first, number)
            return None if number is None else other.times(number)
        if number is None or number <= 0 or first.span.low < 0:
            return None
        if op == "Div":
            return first.over(number)
        return Span(0.0, number - 1.0) if op == "Mod" else None

    def _counted(self, node: ir.Node, value: ir.Value, axes: Axes, operands: list[Bounds]) -> Bounds:
        start = operands[0]
        if value.dtype not in EXACT or not isinstance(start, Places) or 0 not in axes:
            return UNKNOWN
        return axes[0].plus(start)

    def _triangle(self, node: ir.Node, axes: Axes, operands: list[Bounds]) -> Bounds:
        rank = len(dims(node.outputs[0]))
        diagonal = graphs.integers_of(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else (0,)
        if diagonal is None or not {rank - 2, rank - 1} <= set(axes):
            return UNKNOWN
        ahead = axes[rank - 1].plus(axes[rank - 2], -1).span
        rule = RULES["GreaterOrEqual" if graphs.int_attribute(node, "upper", 1) else "LessOrEqual"]
        is_kept = rule(ahead, Span(float(diagonal[0]), float(diagonal[0])))
        if is_kept in (ZERO, TRUTH):
            return ZERO if is_kept == ZERO else hull((ZERO, span_of(operands[0])))
        return operands[0]

    @staticmethod
    def _cast(value: ir.Value, given: Bounds) -> Bounds:
        """Return bounds after a Cast: positions stay exact in exact integer types, and become an interval in others."""
        kind = value.dtype or ir.DataType.UNDEFINED
        if isinstance(given, Places) and kind in EXACT:
            return given
        return cast(span_of(given), to_truth=kind == ir.DataType.BOOL, to_whole=kind.is_integer())

    def _is_by_distance(self, value: ir.Value, axes: Axes) -> bool:
        """Whether a value depends only on the distance between two positions, whatever computes it from them."""
        if graphs.array_of(value) is not None:
            return True
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx"):
            return False
        bounds = self.of(value, axes)
        if isinstance(bounds, Places) and not bounds.calls and not bounds.within and bounds.low == bounds.high:
            return True
        is_pointwise = node.op_type in ENTRYWISE or node.op_type in VIEWS or node.op_type in ("Transpose", "Expand")
        if not is_pointwise and not (graphs.is_op(node, "Gather") and graphs.array_of(node.inputs[0]) is not None):
            return False
        return self._are_by_distance(node, axes)

    def _are_by_distance(self, node: ir.Node, axes: Axes) -> bool:
        if node.op_type in VIEWS or node.op_type in ("Transpose", "Expand"):
            moved, given = self.judging.masks.places_before(node, len(dims(node.outputs[0]))), node.inputs[0]
            own = {} if moved is None else {moved[at]: each for at, each in axes.items() if at in moved}
            return moved is not None and given is not None and self._is_by_distance(given, own)
        axis_map = axis_map_of(node)
        for at, operand in enumerate(node.inputs):
            own = {pairs[at]: axes[axis] for axis, pairs in axis_map.axes.items() if at in pairs and axis in axes}
            if operand is not None and not self._is_by_distance(operand, own):
                return False
        return True


def _only(places: Places) -> int | None:
    """Return the only value that the bounds allow; None where they allow several."""
    is_one = not (places.calls or places.within or places.apart) and places.low == places.high
    return int(places.low) if is_one and math.isfinite(places.low) else None


def _of_constant(array: np.ndarray) -> Bounds:
    if array.size == 0 or array.dtype.kind not in "fiub":
        return UNKNOWN
    low, high = float(array.min()), float(array.max())
    if math.isnan(low) or math.isnan(high):
        return UNKNOWN
    return Places(low=low, high=high) if array.dtype.kind in "iu" else Span(low, high)
