"""Replaces the pad-and-reshape shift of relative position scores by a lookup of each score by its distance.

    scores [batch, heads, T, 2T-1] = queries x R [2T-1, width]                      R by distance, from T-1 to 1-T
    out [.., T, T]: pad a column, [.., 2T, T], drop a row, [.., T, 2T-1], cut:      out[i, j] = scores[i, j - i + T-1]

The axis of distances is no axis of frames: it grows at both ends, and no call has a part of it. But its entries are the
middle of the longest sequence's, so that a row's scores by every distance of the longest sequence contain those of all
shorter ones, and the entry of a pair of frames is found by their distance:

    wide [batch, heads, T, 2L-1] = queries x R of L;   out[i, j] = wide[i, j - i + L-1]

No syntax is matched. Where entries come from is derived in symbols for every T (`compiler.proof.facts.index_map`). That
what lies on the axis is the middle of the longest is evaluated for every T where it is counted or cut from a table,
and follows through operators of which one entry is computed of one. As in Transformer-XL, scores may be moved so that
pairs of some distances get what belongs to other rows: those must be masked (`require_masked`).

Source: Dai et al., Transformer-XL (2019), appendix B, for the movements.
"""

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import sympy

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import AxisMap, NotMapped, axis_map_of, dims
from compiler.graph.model import Dim
from compiler.graph.operators.traits import BASIC_ARITHMETIC, CASTS, COMPARISONS, ENTRYWISE, MAKING, MOVING, VIEWS
from compiler.proof.derivation.dependence import KINDS, Outside
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.placed import Array
from compiler.proof.derivation.regrouping import regrouped
from compiler.proof.derivation.written_sizes import STAMP
from compiler.proof.facts.executed_index_map import STEPS, uniform
from compiler.proof.facts.index_map import FRAMES, ROWS, derive, never_negative
from compiler.proof.facts.shape_only import ShapeOnly
from compiler.proof.rules.relative_shift import followers

EXACT = MOVING | MAKING | COMPARISONS | BASIC_ARITHMETIC | CASTS | {"Neg", "Where"}
"""A list of its own: operators that give the same bits wherever in a tensor an entry lies."""


class NotShifted(Exception):
    """Movements are no lookup by distance."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lookup:
    """Movements of scores, and a lookup with the same result.

    Attributes:
        moved: the result of the movements, [.., frames, frames].
        looked_up: the result of the lookup by distance.
        made: the nodes written for it.
        support: bool [longest, longest], by row and column: the entries where both are equal.
    """

    moved: ir.Value
    looked_up: ir.Value
    made: tuple[ir.Value, ...]
    support: npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class _Shift:
    """Of which score an entry is: `out[i, j] = scores[i, j - i + first]`, where that is a place of the scores.

    Attributes:
        scores: [.., frames, entries].
        moved: [.., frames, frames].
        first: in terms of the number of frames.
    """

    scores: ir.Value
    moved: ir.Value
    first: Dim


def look_up(model: ir.Model, frames: sympy.Symbol, longest: int) -> list[Lookup]:
    """Replace scores moved by relative distance with lookups; the movements stay in the graph, unread.

    Args:
        model: a stateless graph with inferred shapes.
        frames: the number of frames.
        longest: frames of the longest sequence.
    """
    lookups: list[Lookup] = []
    for node in list(model.graph):
        shift = _shift_at(node, frames)
        if shift is None or any(lookup.moved is shift.moved for lookup in lookups):
            continue
        try:
            lookups.append(_Widening(model, shift, frames, longest).lookup())
        except (NotShifted, NotMapped):
            continue
    return lookups


def in_terms_of_movements(
    values: Sequence[Mapping[str, Any]], lookups: Sequence[Lookup], unmasked: Collection[ir.Value]
) -> list[Mapping[str, Any]]:
    """Return the claims of a certificate in terms of the original movements in place of lookups.

    Args:
        values: claims about the graph with lookups, each with its value's name under `value`.
        lookups: the lookups of that graph.
        unmasked: values computed from pairs that lookups leave out.
    """
    moved = {str(lookup.looked_up.name): str(lookup.moved.name) for lookup in lookups}
    gone = {str(made_value.name) for lookup in lookups for made_value in lookup.made} - set(moved)
    gone |= {str(value.name) for value in unmasked}
    remaining = (claim for claim in values if claim["value"] not in gone)
    return [{**claim, "value": moved.get(claim["value"], claim["value"])} for claim in remaining]


def restore(model: ir.Model, lookups: Sequence[Lookup]) -> None:
    """Make the graph read the original movements again, and remove the lookups."""
    for each in lookups:
        graphs.take_over(model, each.looked_up, each.moved)
        model.graph.remove({node for value in each.made if (node := value.producer()) is not None}, safe=True)


def require_not_carried(carried: Iterable[ir.Value], lookups: Sequence[Lookup]) -> None:
    """Require that no value that a new node computes is handed between calls, since the checker cannot follow it.

    Args:
        carried: values whose frames later calls read.
        lookups: the lookups of that graph.

    Raises:
        Refused: later rows read scores by distance of earlier ones, as turned attention does; names the movement.
    """
    of = {value: lookup for lookup in lookups for value in lookup.made}
    for value in carried:
        if value in of:
            maker = of[value].moved.producer()
            assert maker is not None
            raise Refused(
                "no steps can be derived: later rows read scores of earlier rows that were moved by distance, and "
                "those are not cached",
                cure="let every row read its own scores alone, or look scores up by distance",
                place=Location(node=str(maker.name), op=maker.op_type, source=graphs.source_of(maker)),
            )


def require_masked(judging: Judging, lookups: Sequence[Lookup]) -> set[ir.Value]:
    """Require that masks hide the pairs that lookups leave out: those whose movements give scores of other rows.

    Args:
        judging: of the graph with lookups.
        lookups: the lookups of that graph.

    Returns:
        The values between lookups and masks that are computed from such pairs.

    Raises:
        Refused: another node reads such pairs; the message names it.
    """
    reached: set[ir.Value] = set()
    for lookup in lookups:
        waiting = [] if lookup.support.all() else [lookup.looked_up]
        while waiting:
            value = waiting.pop()
            reached.add(value)
            for node in graphs.consumers_of(value):
                result = node.outputs[0]
                outsides = (judging.masks.outside(result, kind) for kind in KINDS)
                if any(_hides(outside, len(dims(result)), lookup) for outside in outsides):
                    continue
                if result.is_graph_output() or not _stays(node, value):
                    raise _unmasked(node, f"{node.op_type} reads those unmasked")
                if result not in reached:
                    waiting.append(result)
        maker = lookup.looked_up.producer()
        if lookup.looked_up in reached and lookup.looked_up.is_graph_output() and maker is not None:
            raise _unmasked(maker, "those are answered")
    return reached


def _hides(outside: Outside | None, rank: int, lookup: Lookup) -> bool:
    """Whether a mask hides every pair that a lookup leaves out."""
    if outside is None or (outside.row, outside.column) != (rank - 2, rank - 1):
        return False
    return not (outside.support & ~lookup.support).any()


def _stays(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node computes every pair of its result from that pair alone."""
    made = node.outputs[0]
    if node.op_type in VIEWS:
        return dims(value) == dims(made)
    return node.op_type in ENTRYWISE and len(dims(value)) == len(dims(made))


def _unmasked(node: ir.Node, why: str) -> Refused:
    return Refused(
        f"no steps can be derived: scores that were moved by distance have entries of other rows, and {why}",
        cure="mask what comes later behind the movements, or look scores up by distance",
        place=Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node)),
    )


def _shift_at(node: ir.Node, frames: sympy.Symbol) -> _Shift | None:
    """Return the relative shift of scores that begins at a node; None where there is none."""
    scores = _moved_operand(node)
    if scores is None:
        return None
    try:
        shape = dims(scores)
        if len(shape) < 2 or shape[-2] != frames or not graphs.mentions(shape[-1], str(frames)):
            return None
        shift: _Shift | None = None
        nodes = list(followers(node))
        for count, later_node in enumerate(nodes[1:], 2):
            if dims(later_node.outputs[0]) == (*shape[:-1], frames):
                first = _first(nodes[:count], shape, frames)
                shift = shift if first is None else _Shift(scores, later_node.outputs[0], first)
    except NotMapped:
        return None
    return shift


def _moved_operand(node: ir.Node) -> ir.Value | None:
    if not graphs.is_op(node, *STEPS):
        return None
    given = [each for each in (node.inputs if node.op_type == "Concat" else node.inputs[:1]) if each is not None]
    moving = [each for each in given if uniform(each) is None]
    return moving[0] if len(moving) == 1 else None


def _first(nodes: Sequence[ir.Node], shape: Sequence[Dim], frames: sympy.Symbol) -> Dim | None:
    """Return the column of the score that the pair (0, 0) reads; None where not every pair reads by distance."""
    names = {name for size in shape if not isinstance(size, int) for name in size.free_symbols} - {frames}
    if len(names) > 1:
        return None
    known = {frames: FRAMES, **dict.fromkeys(names, ROWS)}
    try:
        index_map = derive(nodes, shape, known)
    except ValueError:
        return None
    indices = [index for index, _ in index_map.box]
    row, column = indices[-2:]
    size = sympy.expand(sympy.sympify(shape[-1]).subs(known))
    first: sympy.Expr | None = None
    for source in index_map.sources:
        if source.index is not None and list(source.index[:-1]) == indices[:-1]:
            start = sympy.expand(source.index[-1] - column + row)
            if not start.free_symbols - {FRAMES}:
                first = start
    if first is None:
        return None
    place = column - row + first
    for source in index_map.sources:
        is_by_distance = source.index is not None and list(source.index) == [*indices[:-1], sympy.expand(place)]
        beyond = (sympy.expand(place - size), sympy.expand(-1 - place))
        if not is_by_distance and not any(never_negative(bound, source.guards, index_map.box) for bound in beyond):
            return None
    return graphs.normal_form(first.subs({FRAMES: frames}))


class _Widening:
    """Writes scores by every distance of the longest sequence, and proves that they hold those of shorter ones.

    Args:
        model: the graph, which grows.
        shift: how scores are moved.
        frames: the number of frames.
        longest: frames of the longest sequence.

    Raises:
        NotShifted: distances that both have are others on a shorter sequence.
    """

    def __init__(self, model: ir.Model, shift: _Shift, frames: sympy.Symbol, longest: int) -> None:
        self.model, self.shift, self.frames, self.longest = model, shift, frames, longest
        maker = shift.moved.producer()
        assert maker is not None
        self.insert = graphs.Inserter(model, STAMP, before=maker)
        self.before = set(model.graph)
        self.size = dims(shift.scores)[-1]
        self.entries = self._at(self.size, longest)
        self.first = self._at(shift.first, longest)
        self.known: dict[tuple[ir.Value, int], ir.Value] = {}
        for length in range(1, longest):
            first, entries = self._at(shift.first, length), self._at(self.size, length)
            least, most = max(1 - length, -self.first), min(length - 1, self.entries - 1 - self.first)
            if least + first < 0 or most + first >= entries:
                raise NotShifted("distances are told apart otherwise on shorter sequences")

    def _at(self, size: Dim, length: int) -> int:
        return size if isinstance(size, int) else int(size.subs({self.frames: length}))

    def lookup(self) -> Lookup:
        """Write the lookup that replaces the movements, and return it."""
        scores, moved = self.shift.scores, self.shift.moved
        rank = len(dims(scores))
        wide = self._wide(scores, rank - 1)
        op, int64s = self.insert.op, self.insert.int64s
        shape = [self._written(size) for size in dims(moved)]
        kind, frames = ir.DataType.INT64, shape[-1]
        lead = op("Shape", [wide], {"start": 0, "end": rank - 1}, name="rows_of_scores", shape=[rank - 1], dtype=kind)
        one = op("Shape", [wide], {"start": rank - 2, "end": rank - 1}, name="frames", shape=[1], dtype=kind)
        count = op("Squeeze", [one, int64s(0)], name="frames", shape=[], dtype=kind)
        zero, step = (self.insert.constant(np.array(number, np.int64), "number") for number in (0, 1))
        places = op("Range", [zero, count, step], name="places", shape=[frames], dtype=kind)
        rows = op("Unsqueeze", [places, int64s(1)], name="rows", shape=[frames, 1])
        apart = op("Sub", [places, rows], name="distances", shape=[frames, frames])
        positions = op("Add", [apart, int64s(self.first)], name="places_of_scores", shape=[frames, frames])
        positions = op("Max", [positions, int64s(0)], name="places_of_scores", shape=[frames, frames])
        positions = op("Min", [positions, int64s(self.entries - 1)], name="places_of_scores", shape=[frames, frames])
        target = op("Concat", [lead, one], {"axis": 0}, name="shape_of_scores", shape=[rank], dtype=kind)
        positions = op("Expand", [positions, target], name="places_of_scores", shape=shape, dtype=kind)
        looked = op("GatherElements", [wide, positions], {"axis": rank - 1}, name=f"{moved.name}_by_distance",
                    shape=shape, dtype=moved.dtype)  # fmt: skip
        lookup_node = looked.producer()
        assert lookup_node is not None
        graphs.take_over(self.model, moved, looked, except_in=[lookup_node])
        written = [value for node in self.model.graph if node not in self.before for value in node.outputs]
        ends = np.arange(self.longest)
        by_pair = ends[None, :] - ends[:, None] + self.first
        return Lookup(moved, looked, tuple(written), (by_pair >= 0) & (by_pair < self.entries))

    @staticmethod
    def _written(size: Dim) -> int | str:
        return size if isinstance(size, int) else graphs.written(size)

    def _wide(self, value: ir.Value, axis: int) -> ir.Value:
        """Return a value computed for every distance of the longest sequence along an axis."""
        if (value, axis) not in self.known:
            self.known[value, axis] = self._widened(value, axis)
        return self.known[value, axis]

    def _widened(self, value: ir.Value, axis: int) -> ir.Value:
        table = self._evaluated(value)
        if table is not None:
            self._require_middle(value, axis)
            return self.insert.constant(table.at(dict.fromkeys(table.names, self.longest))[0], str(value.name))
        node = value.producer()
        if node is None or len(node.outputs) != 1 or node.op_type in VIEWS:
            raise NotShifted("distances are given, or parted")
        along = self._along(axis_map_of(node), axis)
        operands = [
            self._wide(operand, along[number]) if number in along and operand is not None else operand
            for number, operand in enumerate(node.inputs)
        ]
        shape = [self.entries if position == axis else self._written(size) for position, size in enumerate(dims(value))]
        copy = self.insert.op(node.op_type, operands, name=f"{value.name}_wide", shape=shape, dtype=value.dtype)
        copy_node = copy.producer()
        assert copy_node is not None
        for attribute in node.attributes.values():
            copy_node.attributes[attribute.name] = attribute
        return copy

    @staticmethod
    def _along(axis_map: AxisMap, axis: int) -> Mapping[int, int]:
        """Return the operand axes that become an axis of the result without mixing."""
        along = axis_map.axes.get(axis, {})
        if not along or any(group.get(at) == own for group in axis_map.mixed for at, own in along.items()):
            raise NotShifted("distances are mixed")
        return along

    def _evaluated(self, value: ir.Value) -> ShapeOnly | None:
        """Return a value evaluated from the number of frames alone; None where it needs more."""
        try:
            found = ShapeOnly([value])
        except ValueError:
            return None
        return found if set(found.names) <= {self.frames} else None

    def _require_middle(self, value: ir.Value, axis: int) -> None:
        """Require that a shorter sequence's entries along an axis are the middle ones of the longest sequence's.

        Raises:
            NotShifted: they are not, or it cannot be shown.
        """
        node = value.producer()
        table = self._evaluated(value)
        if node is None or table is None:
            raise NotShifted("what lies along distances is not computed of their number")
        if all(table_node.op_type in EXACT for table_node in table.nodes):
            return self._require_part(table, axis)
        for operand, operand_axis in self._middles(node, value, axis):
            self._require_middle(operand, operand_axis)
        return None

    def _middles(self, node: ir.Node, value: ir.Value, axis: int) -> Iterator[tuple[ir.Value, int]]:
        """Yield the operands that a value is computed from along an axis, with their axis; others are constant."""
        if node.op_type in VIEWS and node.inputs[0] is not None:
            before = [(dim,) for dim in dims(node.inputs[0])]
            places = {new: old for old, (new, _) in regrouped(before, dims(value), self.frames).items()}
            if axis not in places:
                raise NotShifted("distances are parted")
            yield node.inputs[0], places[axis]
            return
        along = self._along(axis_map_of(node), axis)
        for number, operand in enumerate(node.inputs):
            if operand is None or graphs.array_of(operand) is not None:
                continue
            if number not in along:
                raise NotShifted("what lies along distances changes with the length")
            yield operand, along[number]

    def _require_part(self, table: ShapeOnly, axis: int) -> None:
        def table_at(length: int) -> Array:
            try:
                return table.at(dict.fromkeys(table.names, length))[0]
            except ValueError as error:
                raise NotShifted(str(error)) from None

        whole = table_at(self.longest)
        for length in range(1, self.longest):
            start, shorter = self.first - self._at(self.shift.first, length), table_at(length)
            part = whole[(slice(None),) * axis + (slice(start, start + self._at(self.size, length)),)]
            if part.shape != shorter.shape or not np.array_equal(part, shorter):
                raise NotShifted("what lies along distances is not the middle of the longest")
