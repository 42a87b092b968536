"""Pads axes to static sizes, proves that no valid result depends on padding, and inserts the masks which that needs.

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
Numerics: exact at valid places up to the order of summation, and to the sign of zero in sums that begin in padding and
    in operands whose padding is overwritten, as the Where of ONNX Runtime makes 0.0 of -0.0; padded keys have
    probability exactly 0.
Source: interval contents per region of padding, segments, and one rule per operator: compiler/proof.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import onnx_ir as ir
import sympy

from compiler.base.garbage_collection import paused
from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import is_placeholder
from compiler.graph.model import OLDEST_OPSET
from compiler.graph.stages import Array, Lowered, Outcome, PaddedAxis, StateMap, require_lowered, right_aligned
from compiler.proof.facts.layout import Side, size_of
from compiler.proof.facts.lengths import (
    Limit,
    Longest,
    infer_settled,
    least_lengths,
    longest_lengths,
    require_one_length,
    with_slots,
)
from compiler.proof.facts.meaning import MOST, Known, needs_of_graph
from compiler.proof.padding.outputs import check_empty, check_outputs
from compiler.proof.padding.padded_graph import PaddedGraph
from compiler.proof.propagation.certificate import certificate, records
from compiler.proof.propagation.propagate import Axes, Derivation, propagate
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class PadAxes:
    """Prove padding and batching, and insert the masks, fills and forms that they need."""

    name: ClassVar[str] = "pad_axes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("add_batch_axis", "merge_first_call", "carry_contexts", "select_states")
    expensive: ClassVar[bool] = False

    @paused()
    def apply(self, lowered: Lowered) -> Outcome:
        """Prove and rewrite a graph for padded axes; see the module docstring.

        Raises:
            Refused: an operator has no rule, or its rule does not hold; the message has node, axis, source line and
                cure.
        """
        if lowered.is_padded or not (lowered.caches or lowered.padded_axes or lowered.batch_axis is not None):
            return Outcome(lowered)
        _check_opset(lowered.model)
        axes = _axes(lowered)
        limits = with_slots(
            infer_settled(lowered.model, axes.behind), {cache.axis: cache.slots for cache in lowered.caches}
        )
        _check_axes(lowered.model, axes)
        original = graphs.clone(lowered.model)
        before = sum(1 for _ in lowered.model.graph)
        work = PaddedGraph(lowered, axes, PadAxes.name)
        derivation = work.derive()
        check_outputs(derivation, lowered)
        work.write(derivation)
        least = _least_lengths(original, axes, work.at_least_one, limits, _sizes(original, derivation))
        require_one_length(limits, axes.sides)
        most = longest_lengths(limits, axes.sides)
        _require_lengths(least, most)
        _check_slots(lowered.caches, most)
        for cache in lowered.caches:
            check_empty(least[cache.axis], cache)
        if lowered.caches:
            _freeze(lowered.model, lowered.caches)
        graphs.prune(lowered.model)
        graphs.infer_shapes(lowered.model)
        after = sum(1 for _ in lowered.model.graph)
        maps = lowered.state_maps
        if lowered.caches:
            maps = (*maps, RightAligned(tuple(_places_of_frames(lowered))))
        done = dataclasses.replace(
            lowered,
            padded_axes=tuple(
                _limited(dataclasses.replace(padded_axis, minimum=least[padded_axis.axis]), most)
                for padded_axis in lowered.padded_axes
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
        carried = tuple(_carried(lowered)), tuple(_replaced(lowered))
        limited = {
            padded_axis.axis: padded_axis.maximum for padded_axis in done.padded_axes if padded_axis.maximum is not None
        }
        proof = certificate(
            axes, work.steps, inputs, masks, least, work.becomes, *carried, dict(lowered.ranges), maximum=limited
        )
        return Outcome(done, matched=len(derivation.judged), rewritten=max(after - before, 0), records=(proof,))


def _least_lengths(
    original: ir.Model,
    axes: Axes,
    at_least_one: dict[graphs.Dim, None],
    limits: Collection[Limit],
    named: Mapping[sympy.Symbol, graphs.Dim],
) -> dict[str, int]:
    """Return the smallest length per padded axis from which on the original is valid and the proof holds.

    Raises:
        Refused: there is no such length.
    """
    start = {axis: int(side is Side.LEFT) for axis, side in axes.sides.items()}
    least = dict(start)
    for _ in range(MOST):
        meant = needs_of_graph(original, axes.batch, axes.sides, Known(least, named))
        longer = least_lengths(at_least_one | meant, start, limits)
        if longer == least:
            return least
        least = longer
    raise Refused(
        "what follows from axis lengths means something in each node at some lengths, and in all of them at none",
        cure="keep divisors above 0 for all long inputs, as by Max",
        place=Location(axis=", ".join(sorted(least))),
    )


def _sizes(original: ir.Model, derivation: Derivation) -> dict[sympy.Symbol, graphs.Dim]:
    """Return the sizes, over lengths, of names that shape inference invented, as far as padding determined them."""
    facts = {value.name: fact for value, fact in derivation.facts.items()}
    found: dict[sympy.Symbol, graphs.Dim] = {}
    for value in (output for node in original.graph for output in node.outputs if output.name in facts):
        for at, axis in facts[value.name].axes:
            dim = (graphs.dims_of(value) or ())[at]
            if isinstance(dim, sympy.Symbol) and is_placeholder(dim):
                found.setdefault(dim, size_of(axis))
    return found


def _limited(axis: PaddedAxis, most: Mapping[str, Longest]) -> PaddedAxis:
    """Return an axis with its largest number of slots, and what limits it."""
    longest = most.get(axis.axis)
    is_narrower = longest is None or (axis.maximum is not None and axis.maximum <= longest.slots)
    return (
        axis
        if is_narrower or longest is None
        else dataclasses.replace(axis, maximum=longest.slots, limited_by=str(longest))
    )


def _require_lengths(least: Mapping[str, int], most: Mapping[str, Longest]) -> None:
    """Require that every axis has a length that is long enough and short enough; of none a proof would say nothing.

    Raises:
        Refused: an axis has none.
    """
    for axis, longest in most.items():
        if longest.slots < least[axis]:
            node = longest.node
            raise Refused(
                f"expected a length of {axis} for which everything is proved, got none: at least {least[axis]} are "
                f"needed, and at most {longest.slots} are allowed: {longest}",
                cure="slice by numbers that follow from one length in one way, or give the table more entries",
                place=Location(axis=axis, node=str(node.name), op=node.op_type, source=graphs.source_of(node)),
            )


def _check_slots(caches: Sequence[CacheAxis], most: Mapping[str, Longest]) -> None:
    """Require that the slots of caches fit the tables and types of the graph.

    Raises:
        Refused: a cache has more slots.
    """
    for cache in caches:
        longest = most.get(cache.axis)
        if longest is not None and longest.slots < cache.slots:
            raise Refused(
                f"expected at most {longest.slots} slots, got {cache.slots}: {longest}",
                cure="choose a smaller window, or give the model a larger table or type",
                place=Location(axis=cache.axis),
            )


def derive_tolerantly(lowered: Lowered) -> tuple[Derivation, tuple[dict[str, Any], ...]]:
    """Derive facts of a refused graph as far as possible, for explanations; the graph is left half rewritten.

    Returns:
        The derivation, refusals in it, and the records of all nodes that were judged.

    Raises:
        Refused: the axes do not fit the graph's inputs, so that nothing can be derived.
    """
    axes = _axes(lowered)
    infer_settled(lowered.model, axes.behind)
    _check_axes(lowered.model, axes)
    meaningless = _meaningless(lowered.model, axes)
    work = PaddedGraph(lowered, axes, PadAxes.name)
    try:
        derivation = work.derive(tolerant=True)
    except Refused as refused:  # while something was written
        derivation = propagate(lowered.model, axes, work.known, written_by=PadAxes.name, tolerant=True)
        derivation = dataclasses.replace(derivation, refusals=(*meaningless, *derivation.refusals, refused))
        return derivation, (*work.steps, *records(derivation))
    return dataclasses.replace(derivation, refusals=(*meaningless, *derivation.refusals)), tuple(work.steps)


def _meaningless(model: ir.Model, axes: Axes) -> list[Refused]:
    """Return the refusal of a graph that is valid at no length; empty for other graphs."""
    try:
        needs_of_graph(model, axes.batch, axes.sides)
    except Refused as refused:
        return [refused]
    return []


@dataclasses.dataclass(frozen=True)
class RightAligned(StateMap):
    """State map: the named states move to the end of their slots, zeros in front.

    Attributes:
        frames: per state its frames axis, and how many slots that axis gets.
    """

    frames: tuple[tuple[str, int, int], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Return state values by input name, right-aligned in their slots."""
        moved = {name: right_aligned(states[name], axis, slots) for name, axis, slots in self.frames}
        return {**states, **moved}


def _places_of_frames(lowered: Lowered) -> Iterator[tuple[str, int, int]]:
    for state in lowered.states:
        cache = lowered.cache_of(state)
        if cache is not None and state.frames_axis is not None:
            yield state.input, state.frames_axis, cache.slots


def _carried(lowered: Lowered) -> Iterator[dict[str, Any]]:
    """Yield the states along caches for the certificate: names, axis, slots and added frames."""
    for state in lowered.states:
        cache = lowered.cache_of(state)
        if cache is not None:
            adds = str(cache.step) if cache.added is None else cache.added
            ends = {"input": state.input, "output": state.output, "axis": state.frames_axis}
            yield {**ends, "cache": cache.axis, "slots": cache.slots, "adds": adds}


def _replaced(lowered: Lowered) -> Iterator[dict[str, str]]:
    """Yield input and output of every state that lies along no cache axis, for the certificate."""
    for state in lowered.states:
        if lowered.cache_of(state) is None:
            yield {"input": state.input, "output": state.output}


def _axes(lowered: Lowered) -> Axes:
    """Return the tracked axes; caches are cleaned at the input, so that returned states have zero padding.

    Raises:
        Refused: a cache is of a kind that this pass cannot lower.
    """
    sides = {padded_axis.axis: Side.LEFT for padded_axis in lowered.padded_axes}
    clean: set[str] = set()
    for cache in lowered.caches:
        require_lowered(cache)
        sides[cache.axis] = Side(cache.side)
        clean |= {
            str(value.name)
            for value in lowered.model.graph.inputs
            if any(graphs.mentions(dim, cache.axis) for dim in graphs.dims_of(value) or ())
        }
    masks = frozenset(name for padded_axis in lowered.padded_axes for name in padded_axis.mask_inputs)
    return Axes(lowered.batch_axis, sides, masks, frozenset(clean))


def _check_opset(model: ir.Model) -> None:
    """Require an operator set that has the operators that padding writes."""
    opset = model.graph.opset_imports.get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET:
        raise Refused(f"the graph is of operator set {opset}", cure=f"export it with opset {OLDEST_OPSET} or newer")


def _check_axes(model: ir.Model, axes: Axes) -> None:
    """Require that every tracked axis is a dimension of an input by itself, so that its size can be read."""
    single = {str(dim) for value in model.graph.inputs for dim in graphs.dims_of(value) or ()}
    for axis in axes.sides:
        if axis not in single:
            raise Refused(
                f"no input has an axis {axis!r}",
                cure="name the growing axis in the shapes of the recipe's inputs, or drop it from axes",
                place=Location(axis=axis),
            )


def _freeze(model: ir.Model, caches: Sequence[CacheAxis]) -> None:
    """Write the number of slots into the input shapes, and infer all other shapes."""
    slots = {graphs.symbol(cache.axis): cache.slots for cache in caches}
    for value in model.graph.inputs:
        dims = graphs.dims_of(value) or ()
        value.shape = ir.Shape([dim if isinstance(dim, int) else _number_or_text(dim.subs(slots)) for dim in dims])
    graphs.prune(model)
    graphs.forget_shapes(model)
    graphs.infer_shapes(model)
    graphs.fold_sizes(model)


def _number_or_text(size: sympy.Expr) -> int | str:
    return int(size) if size.is_Integer else str(size)
