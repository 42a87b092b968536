"""Pad axes so that the graph is static along them and nothing of the padding can be seen in the result.

Before:
    x [batch, time, 80], cache [batch, cache, W]
    p = Softmax(scores [batch, H, time, time]); m = ReduceMean(y, axis of time)
After:
    x [batch, time, 80], cache [batch, 128, W], time_length int64 [batch], real_length int64 [batch]
    p = Softmax(Where(valid, scores, lowest)); m = ReduceSum(Where(valid, y, 0)) / time_length
    # the name `time` now stands for the number of slots; one graph serves every bucket and every length in it

Requires: symbolic shapes.
Ensures: for every row of the batch, outputs at valid places equal those of the original graph run on that row alone at
    its true lengths; so rows are independent. No dimension mentions a cache axis any more.
Keeps: everything that neither padding nor the batch can change: fills and masks go only where a rule needs one.
Numerics: exact at valid places up to the order of summation; padded keys have probability exactly 0.
Source: interval contents per region of padding, segments, and one rule per operator: compiler/analysis.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir
import sympy

from compiler import ir as house
from compiler.analysis.certificate import certificate, records
from compiler.analysis.facts import VALID, Clamp, Fact, Fill, Rewrite, refuse
from compiler.analysis.garbage_collection import paused
from compiler.analysis.interval import Interval
from compiler.analysis.layout import Frames, Rows, Side
from compiler.analysis.length_data import fact_at
from compiler.analysis.lengths import infer_settled, keeps_all_counted, least_lengths, longest_lengths
from compiler.analysis.propagate import Axes, Derivation, Judged, input_facts, propagate
from compiler.errors import Place, Refused
from compiler.ir import OLDEST_OPSET, Dim
from compiler.padding.forms import FORMS
from compiler.padding.forms.site import Site
from compiler.padding.valid_slots import Length, ValidSlots, is_removed
from compiler.stages import Array, Lowered, Outcome, State, StateMap, require_lowered, right_aligned
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class PadAxes:
    """Prove padding and batching, and insert what they need."""

    name: ClassVar[str] = "pad_axes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call", "select_states")
    expensive: ClassVar[bool] = False

    @paused()
    def apply(self, lowered: Lowered) -> Outcome:
        """See the module docstring.

        Raises:
            Refused: some op has no rule, or its rule does not hold; with node, axis, source line and cure.
        """
        if lowered.is_padded or not (lowered.caches or lowered.padded_axes or lowered.batch_axis is not None):
            return Outcome(lowered)
        _check_opset(lowered.model)
        axes = _axes(lowered)
        limits = infer_settled(lowered.model, axes.behind)
        _check_axes(lowered.model, axes)
        before = sum(1 for _ in lowered.model.graph)
        work = _Padding(lowered, axes)
        derivation = work.derive()
        _check_outputs(derivation, lowered)
        work.write(derivation)
        least = least_lengths(derivation, {axis: int(side is Side.LEFT) for axis, side in axes.sides.items()}, limits)
        most = longest_lengths(limits, axes.sides)
        for cache in lowered.caches:
            _check_empty(least[cache.axis], cache)
        if lowered.caches:
            _freeze(lowered.model, lowered.caches)
        house.prune(lowered.model)
        house.infer_shapes(lowered.model)
        after = sum(1 for _ in lowered.model.graph)
        maps = lowered.state_maps
        if lowered.caches:
            maps = (*maps, RightAligned(tuple(_places_of_frames(lowered))))
        done = dataclasses.replace(
            lowered,
            padded_axes=tuple(
                dataclasses.replace(each, minimum=least[each.axis], maximum=most.get(each.axis))
                for each in lowered.padded_axes
            ),
            is_padded=True,
            rows_independent=lowered.batch_axis is not None,
            state_maps=maps,
        )
        inputs = {length.axis: str(length.value.name) for length in work.valid_slots.lengths.values()}
        masks = {
            str(length.mask.name): (str(length.mask_size), axes.sides[length.axis].value)
            for length in work.valid_slots.lengths.values()
            if length.mask is not None
        }
        proof = certificate(axes, work.steps, inputs, masks, least, work.becomes)
        return Outcome(done, matched=len(derivation.judged), rewritten=max(after - before, 0), records=(proof,))


def derive_tolerantly(lowered: Lowered) -> tuple[Derivation, tuple[dict[str, Any], ...]]:
    """How far a graph that is refused can be derived, for people to read; the graph is left half written.

    Returns:
        The derivation, refusals in it, and the records of all nodes that were judged.

    Raises:
        Refused: what is asked for does not fit the graph's inputs, so that nothing can be derived.
    """
    axes = _axes(lowered)
    infer_settled(lowered.model, axes.behind)
    _check_axes(lowered.model, axes)
    work = _Padding(lowered, axes)
    try:
        derivation = work.derive(tolerant=True)
    except Refused as refused:  # while something was written
        derivation = propagate(lowered.model, axes, work.known, written_by=PadAxes.name, tolerant=True)
        derivation = dataclasses.replace(derivation, refusals=(*derivation.refusals, refused))
        return derivation, (*work.steps, *records(derivation))
    return derivation, tuple(work.steps)


@dataclasses.dataclass(frozen=True)
class RightAligned(StateMap):
    """State map: the named states move to the end of their slots, zeros in front.

    Attributes:
        frames: per state its frames axis, and how many slots that axis gets.
    """

    frames: tuple[tuple[str, int, int], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name."""
        moved = {name: right_aligned(states[name], axis, slots) for name, axis, slots in self.frames}
        return {**states, **moved}


def _places_of_frames(lowered: Lowered) -> Iterator[tuple[str, int, int]]:
    for state in lowered.states:
        cache = lowered.cache_of(state)
        if cache is not None and state.frames_axis is not None:
            yield state.input, state.frames_axis, cache.slots


def _axes(lowered: Lowered) -> Axes:
    """What is tracked. Caches are cleaned at the input: their padding is zero in the states that leave, too.

    Raises:
        Refused: a cache is of a kind that this pass cannot lower.
    """
    sides = {each.axis: Side.LEFT for each in lowered.padded_axes}
    clean: set[str] = set()
    for cache in lowered.caches:
        require_lowered(cache)
        sides[cache.axis] = Side(cache.side)
        clean |= {
            str(value.name)
            for value in lowered.model.graph.inputs
            if any(house.mentions(dim, cache.axis) for dim in house.dims_of(value) or ())
        }
    masks = frozenset(name for each in lowered.padded_axes for name in each.mask_inputs)
    return Axes(lowered.batch_axis, sides, masks, frozenset(clean))


def _check_opset(model: ir.Model) -> None:
    """What padding writes needs operators that older sets do not have."""
    opset = model.graph.opset_imports.get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET:
        raise Refused(f"the graph is of operator set {opset}", cure=f"export it with opset {OLDEST_OPSET} or newer")


def _check_axes(model: ir.Model, axes: Axes) -> None:
    """Every tracked axis is a dimension of an input by itself, so that its size can be read."""
    single = {str(dim) for value in model.graph.inputs for dim in house.dims_of(value) or ()}
    for axis in axes.sides:
        if axis not in single:
            raise Refused(
                f"no input has an axis {axis!r}",
                cure="name the growing axis in the shapes of the recipe's inputs, or drop it from axes",
                place=Place(axis=axis),
            )


class _Padding:
    """One graph while it is being padded.

    Args:
        lowered: the graph.
        axes: the tracked axes.
    """

    def __init__(self, lowered: Lowered, axes: Axes) -> None:
        self.lowered, self.model, self.axes = lowered, lowered.model, axes
        self.known = input_facts(self.model, axes)
        self.valid_slots = _valid_slots(lowered, self.known)
        self.filled: dict[tuple[ir.Value, int, float], ir.Value] = {}
        self.steps: list[dict[str, Any]] = []
        self.becomes: dict[str, str] = {}
        self.order = {str(node.name): at for at, node in enumerate(house.nodes_of(self.model))}

    def derive(self, *, tolerant: bool = False) -> Derivation:
        """The facts of every value, after everything that gives shared values a batch axis has been written.

        Positions that all rows shared become rows of their own (each row has its own length), which changes shapes
        downstream; so such nodes are written first, and the derivation starts again on the new shapes.

        Args:
            tolerant: keep refusals in the derivation instead of raising the first.
        """
        for name in sorted(self.axes.clean):
            self._clean(house.inputs_named(self.model)[name])
        while True:
            refused = None
            try:
                derivation = propagate(self.model, self.axes, self.known, written_by=PadAxes.name)
            except Refused as error:
                refused = error
                derivation = propagate(self.model, self.axes, self.known, written_by=PadAxes.name, tolerant=True)
            first = [each for each in derivation.judged if self._gives_rows(each)]
            if not first:
                if refused is not None and not tolerant:
                    raise refused
                self.steps += records(derivation)
                self.steps.sort(key=lambda step: self.order[step["node"]])  # facts come before their readers
                return derivation
            gone = [each for each in first if any(isinstance(need, Rewrite) for need in each.verdict.needs)]
            self.steps += records(dataclasses.replace(derivation, judged=gone))  # the others are judged again
            for each in first:
                self._write_node(each)
            house.prune(self.model)
            house.forget_shapes(self.model)
            infer_settled(self.model, self.axes.behind)
            self.valid_slots.settle()
            self.filled = {key: value for key, value in self.filled.items() if not is_removed(value)}

    def _gives_rows(self, judged: Judged) -> bool:
        if self.axes.batch is None:
            return any(need.kind in SHARED_FORMS for need in judged.verdict.needs if isinstance(need, Rewrite))
        for output, fact in zip(judged.node.outputs, judged.verdict.outputs, strict=True):
            if fact.rows_axis is not None and (house.dims_of(output) or ())[fact.rows_axis] == 1:
                return True
        return any(
            isinstance(need, Fill)
            and (given := judged.given[need.operand]) is not None
            and given.rows_axis is None
            and not given.is_number
            for need in judged.verdict.needs
        )

    def write(self, derivation: Derivation) -> None:
        """Carry out every need."""
        for each in derivation.judged:
            if each.verdict.needs:
                self._write_node(each)

    def _write_node(self, judged: Judged) -> None:
        node = judged.node
        insert = house.Inserter(self.model, PadAxes.name, before=node)
        facts = list(judged.given)
        try:
            for need in judged.verdict.needs:
                if isinstance(need, Fill):
                    given = facts[need.operand]
                    assert given is not None
                    facts[need.operand] = self._fill(insert, node, need, given)
                elif isinstance(need, Clamp):
                    given = facts[need.operand]
                    assert given is not None
                    facts[need.operand] = self._clamp(insert, node, need, given)
                else:
                    site = Site(self.model, node, need.details, facts, judged.verdict.outputs, self.valid_slots, insert)
                    names = [str(output.name) for output in node.outputs]
                    number = self._number(node, need)
                    FORMS[need.kind](site)
                    if number is not None:
                        facts[need.details[0]] = number
                    for new, fact in zip(site.replaced, judged.verdict.outputs, strict=False):
                        if new is not None:
                            self.known[new] = fact
                    self.becomes |= {
                        old: str(new.name) for old, new in zip(names, site.replaced, strict=False) if new is not None
                    }
        except Refused as refused:
            raise refused.at(node=str(node.name), op=node.op_type, source=house.source_of(node)) from None

    def _number(self, node: ir.Node, need: Rewrite) -> Fact | None:
        """The fact of an operand that the form "number" is about to write."""
        if need.kind != "number":
            return None
        operand, place = need.details
        value = node.inputs[operand]
        assert value is not None and value.dtype is not None
        return fact_at(value.dtype, value, place)

    def _fill(self, insert: house.Inserter, node: ir.Node, need: Fill, given: Fact) -> Fact:
        """Overwrite the padding of one operand by selection: whatever was there, NaN included, is gone."""
        value = node.inputs[need.operand]
        assert value is not None
        after = _with_rows(given, self.axes.batch).filled(need.axis, need.value)
        key = (value, need.axis, need.value)
        if key not in self.filled:
            self.filled[key] = self._select(_after(self.model, value, insert), value, after, need.axis, need.value)
            self.known[self.filled[key]] = after
        node.replace_input_with(need.operand, self.filled[key])
        return after

    def _clamp(self, insert: house.Inserter, node: ir.Node, need: Clamp, given: Fact) -> Fact:
        """Legal indices choose the entry that they chose, all others become legal.

        The remainder, and not Clip, which compares int64 wrongly (see `compiler.analysis.transfer.ordered`).
        """
        value = node.inputs[need.operand]
        assert value is not None and value.dtype is not None
        key = (value, -1, float(need.high))
        if key not in self.filled:
            count = insert.constant(np.array(need.high + 1, value.dtype.numpy()), "legal_index")
            self.filled[key] = _after(self.model, value, insert).op(
                "Mod", [value, count], name=f"{value.name}_legal", shape=value.shape, dtype=value.dtype
            )
        after = dataclasses.replace(
            given, contents=tuple((region, Interval(0.0, need.high)) for region in given.regions), index=None
        )
        self.known[self.filled[key]] = after
        node.replace_input_with(need.operand, self.filled[key])
        return after

    def _select(self, insert: house.Inserter, value: ir.Value, fact: Fact, axis: int, fill: float) -> ir.Value:
        dims = house.dims_of(value)
        assert dims is not None and value.dtype is not None
        condition = self.valid_slots.mask(fact, axis, dims)
        constant = insert.constant(np.array(fill, value.dtype.numpy()), "padding")
        shape = list(value.shape or ())
        if self.axes.batch is not None and fact.rows_axis is not None and shape[fact.rows_axis] == 1:
            shape[fact.rows_axis] = ir.SymbolicDim(self.axes.batch)
        return insert.op(
            "Where", [condition, value, constant], name=f"{value.name}_filled", shape=shape, dtype=value.dtype
        )

    def _clean(self, value: ir.Value) -> None:
        """Zero in the padding of an input, for everything that reads it."""
        fact = self.known[value]
        uses = list(value.uses())
        for axis in fact.padded:
            clean = self._select(self.valid_slots.insert, value, fact, axis, 0.0)
            for use in uses:
                if not house.is_op(use.node, "Shape"):
                    use.node.replace_input_with(use.idx, clean)
            self.known[clean] = fact
        self.known[value] = dataclasses.replace(fact, contents=((VALID, fact.valid),))  # for those that read its shape


SHARED_FORMS = frozenset({"look_up_positions"})
"""Forms whose result has rows of its own although the operand is shared."""


def _with_rows(fact: Fact, batch: str | None) -> Fact:
    """A shared value of leading size 1 gets the batch there when it is masked per row."""
    if batch is None or fact.rows_axis is not None:
        return fact
    rows = (0, (Rows(house.symbol(batch)),))
    return dataclasses.replace(fact, axes=(rows, *fact.axes))


def _after(model: ir.Model, value: ir.Value, otherwise: house.Inserter) -> house.Inserter:
    """Behind the producer of a value, so that later readers may share what is inserted."""
    producer = value.producer()
    if producer is None:
        return otherwise
    return house.Inserter(model, PadAxes.name, after=producer)


def _valid_slots(lowered: Lowered, known: dict[ir.Value, Fact]) -> ValidSlots:
    """The length inputs, added to the graph."""
    batch: str | int = lowered.batch_axis if lowered.batch_axis is not None else _fixed_rows(lowered.model, known)
    lengths = []
    for each in lowered.padded_axes:
        lengths.append(Length(each.axis, _input(lowered.model, each.length_input, ir.DataType.INT64, [batch])))
    for cache in lowered.caches:
        size = house.symbol(cache.axis) + _frames_of_call(cache)
        value = _input(lowered.model, cache.length_input, ir.DataType.INT64, [batch])
        mask = None
        if cache.mask_input is not None:
            shape: list[int | str] = [batch, str(size)]
            mask = _input(lowered.model, cache.mask_input, ir.DataType.FLOAT, shape)
        lengths.append(Length(cache.axis, value, cache.slots, mask, size))
    return ValidSlots(lowered.model, lengths, batch, PadAxes.name)


def _fixed_rows(model: ir.Model, known: dict[ir.Value, Fact]) -> int:
    """The rows of a graph without a batch axis: the leading size of its padded inputs, or one that they are all of."""
    first = [(str(dims[0]), fact) for value, fact in known.items() if fact.padded and (dims := house.dims_of(value))]
    sizes = {size for size, _ in first}
    is_named = any(not size.isdigit() and 0 not in dict(fact.axes) for size, fact in first)  # rows that nobody declared
    if not is_named and not any(size.isdigit() and size != "1" for size in sizes):
        return 1
    if len(sizes) == 1 and not is_named:
        return int(sizes.pop())
    raise refuse(
        f"the padded inputs have first axes {sorted(sizes)}",
        "make the batch their first axis and declare it with buckets",
    )


def _input(model: ir.Model, name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    values = (
        *model.graph.inputs,
        *model.graph.initializers.values(),
        *(v for node in model.graph for v in node.outputs),
    )
    if name in {value.name for value in values}:
        raise refuse(f"the graph has a value {name!r} already", "choose another length_input or mask_input")
    value = ir.Value(name=name, shape=ir.Shape(shape))
    value.dtype = dtype
    model.graph.inputs.append(value)
    house.names_taken(model.graph).add(name)
    return value


def _check_outputs(derivation: Derivation, lowered: Lowered) -> None:
    """Callers can cut suffix padding away; states hold [cached ++ new], perhaps cut to the newest."""
    states = {state.output: state for state in lowered.states}
    for name, value in house.outputs_named(lowered.model).items():
        fact = derivation.fact(value)
        node = value.producer()
        place = {"tensor": name, "node": str(node.name) if node else "", "op": node.op_type if node else ""}
        place["source"] = house.source_of(node)
        _check_rows(fact, lowered.batch_axis, place)
        if fact.is_number:
            raise refuse(
                "the output is an axis length that all rows share",
                "return one per row (expand it to the batch in front), or leave it out: callers know their lengths",
                **place,
            )
        cache = lowered.cache_of(states[name]) if name in states else None
        if cache is not None:
            _check_state(fact, states[name], value, cache, place)
            continue
        for axis, layout in fact.axes:
            frames = fact.frames(axis)
            if any(isinstance(each, Frames) for each in layout) and (frames is None or not frames.is_suffix_padded):
                raise refuse(
                    f"axis {axis} of the output is {' * '.join(map(str, layout))}",
                    "return the new frames only, declare the output as a state, or keep its axes apart",
                    **place,
                )


def _check_rows(fact: Fact, batch: str | None, place: Mapping[str, str]) -> None:
    axis = fact.rows_axis
    if axis is None or (axis == 0 and len(fact.tracked[0]) == 1):
        return
    raise refuse(f"the batch {batch!r} is not the first axis of the output", "transpose the output", **place)


def _check_state(fact: Fact, state: State, value: ir.Value, cache: CacheAxis, place: Mapping[str, str]) -> None:
    """The newest frames of a state are the newest slots, as many as are counted, zero where there are none."""
    axis = state.frames_axis
    assert axis is not None
    frames = fact.frames(axis)
    fixed = None if value.shape is None else value.shape[axis]
    counted = house.symbol(cache.axis) + _frames_of_call(cache)
    if frames is None:
        if isinstance(fixed, int) and keeps_all_counted(fixed, counted, cache.axis, cache.slots):
            return
    elif (
        frames.is_prefix_padded
        and len(fact.padded) == 1
        and fact.padding(axis).is_zero
        and keeps_all_counted(frames.size, counted, cache.axis, cache.slots)
    ):
        return
    raise refuse(
        f"the state holds {fact}, not the cached frames and then {_frames_of_call(cache)} new ones",
        "join the cache with the new frames, cache first, and feed the whole back",
        axis=cache.axis,
        **place,
    )


def _frames_of_call(cache: CacheAxis) -> Dim:
    """Frames that a call adds."""
    return cache.step if cache.added is None else house.expression(cache.added)


def _check_empty(least: int, cache: CacheAxis) -> None:
    """A stream starts with an empty cache."""
    if least > 0:
        raise refuse(
            f"something needs at least {least} cached frames, and a stream starts with none",
            "join at least one new frame to the cache before softmax or a reduction",
            axis=cache.axis,
        )


def _freeze(model: ir.Model, caches: Sequence[CacheAxis]) -> None:
    """Write the slots into the input shapes and let all other shapes follow."""
    slots = {house.symbol(cache.axis): cache.slots for cache in caches}
    for value in model.graph.inputs:
        dims = house.dims_of(value) or ()
        value.shape = ir.Shape([dim if isinstance(dim, int) else _number_or_text(dim.subs(slots)) for dim in dims])
    house.prune(model)
    house.forget_shapes(model)
    house.infer_shapes(model)
    house.fold_sizes(model)


def _number_or_text(size: sympy.Expr) -> int | str:
    return int(size) if size.is_Integer else str(size)
