"""Derives which frames every value of a stateless graph reads, and collects the nodes that read later frames."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.axis_map import AxisMap, NotMapped, axis_map_of, dims
from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.operators.traits import RANDOM, VIEWS
from compiler.proof.derivation.dependence import (
    CONSTANT,
    EVERYWHERE,
    HERE,
    NOWHERE,
    Along,
    Dependence,
    Kind,
    Outside,
    Reach,
    at_rate,
    frames_kept,
    hull,
    joined_factors,
    reach_of,
)
from compiler.proof.derivation.masks import Masks
from compiler.proof.derivation.placed import NotPlaced, Placed, placed
from compiler.proof.derivation.prefixes import before_frames, joined_along, kept_along
from compiler.proof.derivation.reading import READING, Read, read_along, require_kept
from compiler.proof.derivation.regrouping import RULE_CURE, regrouped

SIZES_BEHIND = {
    "Expand": 1,
    "Tile": 1,
    "Slice": 1,
    "Pad": 1,
    "Split": 1,
    "CumSum": 1,
    "GatherND": 1,
    "Trilu": 1,
    "Clip": 3,
}
"""Operands from here on are sizes, bounds and axes, and no data."""

SIZED = frozenset({"ConstantOfShape", "Expand", "Range"})
"""A list of its own: operators whose sizes may follow from the length, for they are written anew."""

FILLING = frozenset({"ConstantOfShape", "Expand"})
"""A list of its own: operators that repeat what they are given, as often as sizes say."""

WITHOUT_RULE = frozenset(
    {"Concat", "GatherElements", "GatherND", "Split", "Slice", "Pad", "Tile", "Hardmax", "ArgMax", "ArgMin"}
)
"""A list of its own: operators that no rule follows where they act along time."""

BLIND_CURE = "let the mask show every frame itself: mask & ~torch.eye(...) where it is true at what is hidden"

CURE = "a stream is answered frame by frame: mask what comes later, or drop derive_steps and build whole utterances"


@dataclasses.dataclass(frozen=True)
class Offence:
    """A node that lets a frame read later ones, or all.

    Attributes:
        node: the node.
        reach: the frames that its result reads, relative to its place.
        why: in a phrase.
    """

    node: ir.Node
    reach: Reach
    why: str

    def __str__(self) -> str:
        place = graphs.source_of(self.node)
        return f"{self.node.name} ({self.node.op_type}) {self.why}" + (f" at {place}" if place else "")


class Judging:
    """The dependence of every value.

    Args:
        model: a simplified graph with inferred shapes.
        time: name of the time axis.
        longest: frames of the longest sequence that is asked about.
        most: the largest sizes of axes that count entries of prefixes, by name.
        chunk: frames of a chunk, which may read each other: calls are of whole ones.
        marks: values that are followed in addition to the results and their inputs.

    Attributes:
        known: by value; numbers computed of sizes are not in it.
        offences: nodes that read too much, in graph order.
        tables: what values of places hold that no rule follows, where data is computed of them.
        shifted: the axis of frames on which a Concat joins a prefix to them, or a Slice cuts it off, by node.
        kept: of what reads earlier frames by itself, the axis of frames of its operand, and how many entries in front
            of a call are read, by node; 0 of a recurrence. A running sum reads the last entry of its own result.
        resized: nodes whose result has another number of entries per frame, computed of the frame itself.
        rows: where entries mix under a mask, the axis of the result that has its rows, by node, operand and its axis.
        supports: of the masks under which entries mix.
        recent: where entries mix under a mask, how many frames in front of a call its rows read, and what the mask has
            left of which operand, by node, operand and its axis.

    Raises:
        Refused: no rule covers the computation of a node along time.
    """

    def __init__(
        self,
        model: ir.Model,
        time: str,
        longest: int,
        most: Mapping[str, int] | None = None,
        chunk: int = 1,
        marks: ir.Value | None = None,
    ) -> None:
        self.model, self.frames, self.longest, self.chunk = model, graphs.symbol(time), longest, chunk
        self.masks = Masks(self, self.frames, longest, most or {})
        self.offences: list[Offence] = []
        self.known: dict[ir.Value, Dependence] = {}
        self.tables: dict[ir.Value, Placed] = {}
        self.shifted: dict[ir.Node, int] = {}
        self.kept: dict[ir.Node, tuple[int, int]] = {}
        self.resized: set[ir.Node] = set()
        self.rows: dict[tuple[ir.Node, int, int], int] = {}
        self.supports: list[npt.NDArray[np.bool_]] = []
        self.recent: dict[tuple[ir.Node, int, int], tuple[int, int, Outside]] = {}
        self._unfollowed: dict[ir.Value, Offence | Refused] = {}
        for value in model.graph.inputs:
            along = {axis: Along((dim,), HERE) for axis, dim in enumerate(dims(value)) if dim == self.frames}
            self.known[value] = Dependence(along, is_data=True)
            self._require_single(value)
        try:
            for node in _read(model, marks):
                self._judge(node)
            for value in model.graph.outputs:
                self._place(value)
        except Refused:  # behind an offence little is known, and nothing is to be refused for it
            if not self.offences:
                raise

    def of(self, value: ir.Value | None) -> Dependence:
        """Return the dependence of a value on frames; constants and sizes read none."""
        return CONSTANT if value is None else self.known.get(value, CONSTANT)

    def is_number(self, value: ir.Value | None) -> bool:
        """Whether a value is computed from sizes alone, with entries that shape inference knows."""
        if value is None or value in self.known or graphs.array_of(value) is not None:
            return False
        return symbolic_values_of(value) is not None

    def is_length(self, value: ir.Value | None) -> bool:
        """Whether a value is a number that changes with the length of the sequence."""
        if value is None or not self.is_number(value):
            return False
        return any(not isinstance(each, int) and each.has(self.frames) for each in symbolic_values_of(value) or ())

    def _require_single(self, value: ir.Value) -> None:
        mixed = [dim for dim in dims(value) if dim != self.frames and graphs.mentions(dim, str(self.frames))]
        if mixed or len(self.known[value].along) > 1:
            raise Refused(
                f"input {value.name!r} has a shape {list(dims(value))}, with {self.frames} elsewhere than on one axis",
                cure="let the graph take one axis of frames, and compute masks of two inside",
                place=Location(tensor=str(value.name), axis=str(self.frames)),
            )

    def _judge(self, node: ir.Node) -> None:
        outputs = [value for value in node.outputs if value.name]
        if all(graphs.array_of(value) is not None for value in outputs):
            return
        if node.op_type in ("Shape", "Size") or all(self._is_shape(value) for value in outputs):
            return
        if node.op_type in RANDOM or graphs.has_body(node):
            raise self._refusal(node, f"no rule says what {node.op_type} does along time")
        is_data = any(self.of(value).is_data for value in node.inputs)
        if not is_data and (reason := self._why_unfollowed(node)) is not None:
            for value in outputs:
                self.known[value], self._unfollowed[value] = CONSTANT, reason
            return
        for operand in node.inputs if is_data else ():
            self._place(operand)
        followed = self._followed(node)
        for value in outputs:
            self.known[value] = followed
        if is_data:
            self.masks.note(node)

    def _followed(self, node: ir.Node) -> Dependence:
        try:
            if node.op_type in READING and (own := self._reads_around(node)):
                return self._reading(node, own)
            return self._regrouped(node) if node.op_type in VIEWS - {"Identity"} else self._linked(node)
        except NotMapped as unknown:
            if self._is_touched(node):
                raise self._refusal(node, str(unknown)) from None
            return Dependence(is_data=any(self.of(value).is_data for value in node.inputs))

    def _why_unfollowed(self, node: ir.Node) -> "Offence | Refused | None":
        """Return why no rule handles a node that computes with positions; None where one does."""
        for value in node.inputs:
            if value in self._unfollowed:
                return self._unfollowed[value]
        before = len(self.offences)
        try:
            self._followed(node)
        except Refused as refused:
            return refused
        new_offences = self.offences[before:]
        del self.offences[before:]
        return new_offences[0] if new_offences else None

    def _place(self, value: ir.Value | None) -> None:
        """Evaluate a value of positions that no rule handles into a table, or report why neither works."""
        if value is None or value not in self._unfollowed:
            return
        reason = self._unfollowed.pop(value)
        try:
            table = placed(value, self.frames, self.longest, self.masks.most)
        except NotPlaced as never:
            if isinstance(reason, Refused):
                place = reason.place
                raise Refused(f"{reason.message}, and {never}", cure=RULE_CURE, place=place) from None
            self.offences.append(reason)
            self.known[value] = Dependence(self._made(value), whole=str(reason))
            return
        self.tables[value] = table
        self.masks.tables[value] = table
        self.known[value] = Dependence(
            {axis: along_axis for axis, along_axis in self._made(value).items() if axis in table.along}
        )

    def _made(self, value: ir.Value) -> dict[int, Along]:
        """Return the axes of frames of a value computed from positions."""
        befores = ((at, dim, before_frames(dim, self.frames)) for at, dim in enumerate(dims(value)))
        return {at: Along((dim,), NOWHERE, before) for at, dim, before in befores if before is not None}

    def _is_shape(self, value: ir.Value) -> bool:
        is_whole = value.dtype is not None and value.dtype.is_integer() and value.type is not None
        known = symbolic_values_of(value) if is_whole else None
        return known is not None and len(dims(value)) <= 1 and self.frames not in dims(value)

    def _is_touched(self, node: ir.Node) -> bool:
        """Whether a node depends on frames or on their number."""
        values = [value for value in node.inputs if value is not None]
        facts = [self.of(value) for value in values]
        sized = any(
            graphs.mentions(dim, str(self.frames)) for value in node.outputs for dim in graphs.dims_of(value) or ()
        )
        return sized or any(f.along or f.whole for f in facts) or any(self.is_length(value) for value in values)

    def _regrouped(self, node: ir.Node) -> Dependence:
        fact, shape = self.of(node.inputs[0]), dims(node.inputs[0])
        if self.is_length(node.inputs[0]):
            raise NotMapped("the length of the sequence is used as data")
        if not fact.along:
            if any(graphs.mentions(dim, str(self.frames)) for dim in dims(node.outputs[0])):
                raise NotMapped("an axis as long as the sequence is made of another")
            return fact
        before = [fact.along[at].factors if at in fact.along else (dim,) for at, dim in enumerate(shape)]
        places = regrouped(before, dims(node.outputs[0]), self.frames)
        along = {
            places[at][0]: dataclasses.replace(each, factors=joined_factors(places[at][1]))
            for at, each in fact.along.items()
        }
        return dataclasses.replace(fact, along=along)

    def _reads_around(self, node: ir.Node) -> dict[int, Read]:
        """Return what a node reads around each frame, by time axis of its operand; nothing where it reads the frame."""
        found = {axis: read_along(node, axis, along.rate or 1) for axis, along in self.of(node.inputs[0]).along.items()}
        return {axis: read for axis, read in found.items() if not read.is_here}

    def _reading(self, node: ir.Node, own: Mapping[int, Read]) -> Dependence:
        """Return the dependence of a node that reads other frames: earlier ones are cached, later ones offend.

        The result may have another number of entries per frame.
        """
        fact = self.of(node.inputs[0])
        if graphs.is_op(node, "Pad") and not fact.is_data:
            raise NotMapped("Pad acts along time")  # places that are moved are a table
        ((axis, read),) = own.items() if len(own) == 1 else ((0, Read()),)
        reach = read.reach if len(own) == 1 else EVERYWHERE
        joined = reach if reach == EVERYWHERE else reach.behind(fact.along[axis].reach, self.chunk)
        why = f"reads frames {joined} around its own"
        if reach == EVERYWHERE:
            why = f"reads all frames of the sequence, {joined}"
        whole = self._offend(node, joined, why) if reach.high > 0 else None
        if whole is None and read.back > 0:
            require_kept(node, fact, axis)
            self.kept[node] = axis, 0 if math.isinf(read.back) else int(read.back)
        elif whole is None:
            if fact.along[axis].rate is None:
                raise NotMapped(f"{node.op_type} makes entries of frames that share their axis with others")
            self.resized.add(node)
        along = {
            result_axis: Along(factors, joined)
            for result_axis, dim in enumerate(dims(node.outputs[0]))
            if (factors := at_rate(dim, self.frames)) is not None
        }
        return Dependence(along, fact.is_data, fact.whole or (None if along else whole))

    def _linked(self, node: ir.Node) -> Dependence:
        axis_map = axis_map_of(node)
        operands = [number for number in axis_map.data if number < SIZES_BEHIND.get(node.op_type, len(node.inputs))]
        facts = {number: self.of(node.inputs[number]) for number in operands}
        is_data = any(fact.is_data for fact in facts.values())
        whole = next((fact.whole for fact in facts.values() if fact.whole is not None), None)
        if whole is None and any(self.is_length(node.inputs[number]) for number in operands):
            whole = self._offend(node, EVERYWHERE, "computes with the length of the sequence")
        if whole is None:
            whole = self._starts_late(node)
        if graphs.is_op(node, "Trilu"):
            self._require_square(node, facts[0])
        along = self._shift(node, facts)
        self._require_sizes(node, operands)
        along = self._axes(node, axis_map, facts, along)
        mixed = self._mixed(node, axis_map, facts)
        if mixed:
            along, whole = self._over_frames(node, axis_map, facts, along, mixed, whole)
        return Dependence(along, is_data, whole)

    def _require_sizes(self, node: ir.Node, operands: Sequence[int]) -> None:
        """Require that every operand that is no data is a constant or a size."""
        for at, value in enumerate(node.inputs):
            if at in operands or value is None or graphs.array_of(value) is not None:
                continue
            is_sized = node.op_type in SIZED or node in self.shifted
            if not self.is_number(value) or (self.is_length(value) and not is_sized):
                raise NotMapped(f"input {at} of {node.op_type} is computed")

    def _require_square(self, node: ir.Node, fact: Dependence) -> None:
        """Require that a Trilu's last two axes are both frames, or neither."""
        rank = len(dims(node.inputs[0]))
        frames = [fact.along[at] for at in (rank - 2, rank - 1) if at in fact.along]
        if frames and (len(frames) == 1 or not all(each.is_alone for each in frames)):
            raise NotMapped("Trilu cuts off what its place says of a frame")

    def _starts_late(self, node: ir.Node) -> str | None:
        """Record an offence for a Range or Trilu whose start depends on the length; None where it does not."""
        if node.op_type == "Range":
            numbers = [symbolic_values_of(value) for value in node.inputs]
            known = [each[0] for each in numbers if each]
            if len(known) != 3 or graphs.mentions(known[0], str(self.frames)) or known[2] != 1:
                return self._offend(node, EVERYWHERE, "counts otherwise than upwards from a number")
        if node.op_type == "Trilu" and len(node.inputs) > 1 and graphs.array_of(node.inputs[1]) is None:
            return self._offend(node, EVERYWHERE, "cuts along a diagonal that is computed")
        return None

    def _shift(self, node: ir.Node, facts: Mapping[int, Dependence]) -> dict[int, Along]:
        """Return the axis along which a node joins a prefix to frames or cuts it off; nothing for other nodes."""
        if node.op_type not in ("Concat", "Slice"):
            return {}
        changed = {operand_axis for axis_map in axis_map_of(node).mixed for operand_axis in axis_map.values()}
        axes = [changed_axis for changed_axis in changed if any(changed_axis in fact.along for fact in facts.values())]
        if not axes:
            return {}
        if len(changed) > 1:
            raise NotMapped(f"{node.op_type} acts along time, and along other axes at once")
        (axis,) = axes
        if node.op_type == "Concat":
            shifted: Along | None = joined_along(
                node, [fact.along.get(axis) for fact in facts.values()], axis, self.frames
            )
        else:
            shifted = kept_along(node, facts[0].along[axis], axis, self.frames)
        self.shifted[node] = axis
        return {} if shifted is None else {axis: shifted}

    def _axes(
        self, node: ir.Node, axis_map: AxisMap, facts: Mapping[int, Dependence], shifted: Mapping[int, Along]
    ) -> dict[int, Along]:
        """Return the time axes of the result, from the operand axes that it keeps."""
        along: dict[int, Along] = dict(shifted)
        for axis, dim in enumerate(dims(node.outputs[0])):
            if axis == self.shifted.get(node):
                continue
            meeting = {
                k: facts[k].along[operand_axis]
                for k, operand_axis in axis_map.axes.get(axis, {}).items()
                if operand_axis in facts[k].along
            }
            if meeting:
                factors = {operand_along.factors for operand_along in meeting.values()}
                others = [k for k, operand_axis in axis_map.axes[axis].items() if k in facts and k not in meeting]
                if len(factors) > 1 or others:
                    raise NotMapped("an axis of time meets one of another size or kind")
                before = next(operand_along.before for operand_along in meeting.values())
                along[axis] = Along(
                    factors.pop(), hull(operand_along.reach for operand_along in meeting.values()), before
                )
            elif (own_before := before_frames(dim, self.frames)) is not None:
                if node.op_type == "Slice" or any(k in facts for k in axis_map.axes.get(axis, {})):
                    raise NotMapped("an axis as long as the sequence is made of another")
                along[axis] = Along((dim,), NOWHERE, own_before)
            elif node.op_type in FILLING and (made := at_rate(dim, self.frames)) is not None:
                along[axis] = Along(made, NOWHERE)
            elif graphs.mentions(dim, str(self.frames)):
                raise NotMapped(f"an axis of {dim} entries is made")
        return along

    def _mixed(self, node: ir.Node, axis_map: AxisMap, facts: Mapping[int, Dependence]) -> list[dict[int, int]]:
        """Return the groups of time axes along which a node mixes entries, as axis by operand."""
        mixed = [
            {k: operand_axis for k, operand_axis in mixed_axes.items() if k in facts and operand_axis in facts[k].along}
            for mixed_axes in axis_map.mixed
        ]
        groups = [group for group in mixed if group and node not in self.shifted]
        is_lookup = node.op_type in ("Gather", "GatherElements")
        if is_lookup and facts[1].along and not (facts[0].is_data or facts[1].is_data):
            raise NotMapped("a table is looked up by places")
        if node.op_type == "Gather" and groups:
            places = () if node.inputs[1] is None else self.masks.of(node.inputs[1]).spans
            if facts[0].is_data or facts[1].is_data or any(not span.low >= 0 for span in places):
                raise NotMapped("frames are looked up by a computed place")
            return []
        if groups and node.op_type in WITHOUT_RULE:
            raise NotMapped(f"{node.op_type} acts along time")
        return groups

    def _over_frames(
        self,
        node: ir.Node,
        axis_map: AxisMap,
        facts: Mapping[int, Dependence],
        along: dict[int, Along],
        mixed: Sequence[Mapping[int, int]],
        whole: str | None,
    ) -> tuple[dict[int, Along], str | None]:
        """Return the time axes of a sum, product or softmax over frames, with the reads of whole sequences."""
        if node.op_type == "CumSum":
            return self._running(node, facts, along), whole
        for group in mixed:
            if not all(facts[k].along[operand_axis].is_alone for k, operand_axis in group.items()):
                along = {axis: dataclasses.replace(axis_along, reach=EVERYWHERE) for axis, axis_along in along.items()}
                offence = self._offend(node, EVERYWHERE, f"mixes all entries of the sequence, {EVERYWHERE}")
                whole = whole or (None if along else offence)
                continue
            masked = self._masked(node, facts, group)
            beyond = hull(facts[k].along[operand_axis].reach for k, operand_axis in group.items())
            if masked is None:
                if not any(facts[k].is_data for k in facts):
                    whole = whole or self._offend(node, EVERYWHERE, "computes with all places of the sequence")
                    continue
                along = {axis: dataclasses.replace(axis_along, reach=EVERYWHERE) for axis, axis_along in along.items()}
                offence = self._offend(node, EVERYWHERE, self._why_unmasked())
                whole = whole or (None if along else offence)
                continue
            operand, outside = masked
            row = outside.row
            self.supports.append(outside.support)
            reach = reach_of(outside.support, self.chunk).behind(hull((beyond, HERE)), self.chunk)
            if not any(facts[k].is_data for k in facts) and (not reach.is_causal or reach.first):
                whole = whole or self._offend(node, EVERYWHERE, "computes with later places of the sequence")
                continue
            for axis, axis_along in along.items():
                if axis_map.axes.get(axis, {}).get(operand) == row:
                    joined = hull((axis_along.reach, reach))
                    if joined.beyond > 0 and joined.beyond > axis_along.reach.beyond:
                        self._offend(node, joined, f"reads frames {joined} around its own")
                    elif axis_along.before and not outside.is_closed:
                        self._offend(node, EVERYWHERE, "lets what lies in front of the frames read them")
                    along[axis] = dataclasses.replace(axis_along, reach=joined)
                    self.rows |= {(node, k, operand_axis): axis for k, operand_axis in group.items()}
            if not any(operand_along.before for k in group for operand_along in facts[k].along.values()):
                count = frames_kept(outside.support, self.chunk)
                self.recent |= {(node, k, operand_axis): (count, operand, outside) for k, operand_axis in group.items()}
        return along, whole

    def _masked(
        self, node: ir.Node, facts: Mapping[int, Dependence], group: Mapping[int, int]
    ) -> tuple[int, Outside] | None:
        """Return the operand that is masked along a mixed axis, with the positions outside its mask.

        Raises:
            Refused: a softmax may find a row in which everything is hidden.
        """
        kind: Kind = "low" if node.op_type == "Softmax" else "zero"
        for operand, operand_axis in group.items():
            outside = self.masks.outside(node.inputs[operand], kind)
            if outside is None:
                continue
            if outside.row == operand_axis:
                is_closed = not any(along_axis.before for along_axis in facts[operand].along.values())
                outside = dataclasses.replace(
                    outside, row=outside.column, column=operand_axis, support=outside.support.T, is_closed=is_closed
                )
            if kind == "low" and any(fact.is_data for fact in facts.values()):
                self._require_seeing(node, node.inputs[operand], outside)
            return operand, outside
        return None

    def _require_seeing(self, node: ir.Node, scores: ir.Value | None, outside: Outside) -> None:
        """Require that every row of a softmax sees a score: a row of hidden ones alone would weight them all."""
        assert scores is not None
        row = self.masks.blind_row(scores, outside.row, outside.column, is_guarded=is_guarded(node.outputs[0]))
        if row is None:
            return
        name = "the text in front of the frames" if row < 0 else f"frame {row}"
        is_empty = row >= 0 and not outside.support[row, : row + 1].any()
        why = "its mask shows it no frame up to its own" if is_empty else "data may hide all that its mask shows"
        share = f"gives the hidden ones, at {outside.level:g}, a share"
        outcome = "gives no number" if outside.level == -math.inf else share
        place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node), axis=str(self.frames))
        cure = BLIND_CURE if is_empty else f"{BLIND_CURE}; or drop what hides padding, of which a stream has none"
        raise Refused(
            f"no steps can be derived: {name} may see nothing: {why}, and a softmax over hidden scores alone {outcome}",
            cure=cure,
            place=place,
        )

    def _why_unmasked(self) -> str:
        why = f"reads all frames of the sequence, {EVERYWHERE}"
        if not self.masks.unbounded:
            return why
        value, reason = next(iter(self.masks.unbounded.items()))
        return f"{why}, for nothing is known of its mask {value.name}: {reason}"

    def _running(self, node: ir.Node, facts: Mapping[int, Dependence], along: Mapping[int, Along]) -> dict[int, Along]:
        """Return the axes of a running sum: of data, it goes on from its last entry; of positions, it is a table."""
        ((axis,),) = (tuple(each.values()) for each in axis_map_of(node).mixed)
        is_alone = len(along) == 1 and along[axis].rate is not None and along[axis].factors[0] == self.frames
        if not facts[0].is_data or not is_alone:  # nor is there a prefix to go on from
            raise NotMapped("a running sum along time")
        backwards = graphs.int_attribute(node, "reverse", 0)
        reach = (Reach(0, math.inf) if backwards else Reach(-math.inf, 0)).behind(along[axis].reach, self.chunk)
        if backwards:
            self._offend(node, reach, f"reads frames {reach} around its own")
        elif graphs.int_attribute(node, "exclusive", 0):
            raise NotMapped("a running sum without its own entry")  # `write_delays` writes those of frames otherwise
        else:
            self.kept[node] = axis, 1
        return {**along, axis: dataclasses.replace(along[axis], reach=reach)}

    def _offend(self, node: ir.Node, reach: Reach, why: str) -> str:
        offence = Offence(node, reach, why)
        self.offences.append(offence)
        return str(offence)

    def _refusal(self, node: ir.Node, reason: str) -> Refused:
        place = Location(node=str(node.name), op=node.op_type, source=graphs.source_of(node), axis=str(self.frames))
        return Refused(f"no steps can be derived: {reason}", cure=RULE_CURE, place=place)


def _read(model: ir.Model, besides: ir.Value | None) -> list[ir.Node]:
    """Return the nodes that the outputs and another value are computed from, in graph order."""
    found: set[ir.Node] = set()
    wanted = [*model.graph.outputs, *([] if besides is None else [besides])]
    waiting = [node for value in wanted if (node := value.producer()) is not None]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            given = [*node.inputs, *graphs.read_inside(node)]
            waiting += [made for value in given if value is not None and (made := value.producer()) is not None]
    return [node for node in graphs.nodes_of(model) if node in found]


def is_guarded(weights: ir.Value) -> bool:
    """Whether a Where replaces every NaN of a softmax by zero."""
    asked = {node.outputs[0] for node, _ in weights.uses() if node.op_type == "IsNaN"}
    others = [(node, at) for node, at in weights.uses() if node.op_type != "IsNaN"]
    selected = all(node.op_type == "Where" and at == 2 and node.inputs[0] in asked for node, at in others)
    zeros = (graphs.array_of(node.inputs[1]) for node, _ in others) if selected else ()
    return bool(others) and selected and all(zero is not None and not zero.any() for zero in zeros)


def offenders(offences: Iterable[Offence]) -> str:
    """Return the offending nodes as text for a message."""
    return "; ".join(str(each) for each in offences)
