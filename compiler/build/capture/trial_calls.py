"""Runs the first calls of a stream on the original, to check its states and rows before the much slower export.

A stream begins with empty caches, the first states of the recipe and counts of 0; the second call takes what the first
one gave. Both have several equal rows, so that a model that is written for one row shows itself here.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.build.capture.appended_frames import is_appended
from compiler.build.capture.counts import frames_counted
from compiler.build.capture.held_states import slice_states
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.next_states import lengths_of, moved_on
from compiler.errors import Location, RecipeError, Refused, SlipwayError
from compiler.graph.stages import Array, Feed, RowAxis, State
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Input
from compiler.recipe.user_code.streams import completed
from runtime_lite.format.initial_value import array_of_initial

CALLS = 2

Call = Callable[[Mapping[str, Array], Location, str], Sequence[Array]]
"""Calls a module: inputs by name, where, and which call it is. Raises RecipeError."""


class TrialCalls:
    """A model called as a stream calls it.

    Args:
        graph: its name.
        spec: inputs, outputs and axes.
        later: calls the module of the later calls.
        first: calls that of the first call, if it is another.
    """

    def __init__(self, graph: str, spec: Graph, later: Call, first: Call | None) -> None:
        self.graph, self.spec, self.later, self.first = graph, spec, later, first
        self.states = states_of(spec)

    def run(self, feeds: Sequence[Feed], slots: Mapping[str, int]) -> dict[str, int]:
        """Run the first calls, and return the frames that the first one adds along each window.

        Args:
            feeds: feeds of one row of one stream; none for generated ones.
            slots: by window, the number of frames to keep.

        Raises:
            RecipeError: the model rejects a call, or its results contradict the recipe.
            Refused: a state changes its shape or type, or a result has no axis of rows.
        """
        rows = 1 if self.spec.is_for_one_row or self.spec.batch is None else _unusual(self.spec)
        calls = [feeds[min(call, len(feeds) - 1)] if feeds else example_feed(self.spec) for call in range(CALLS)]
        try:
            return self._run(calls, rows, slots)
        except RecipeError as error:
            if not feeds:
                error.cure += "; no data were drawn: write at an input which number to try, as in example: 3"
            if rows > 1 and self._runs_alone(calls, slots):
                raise Refused(
                    f"the model takes one row and not {rows}: {error.message}",
                    cure="let forward take any number of rows, or write for every input the shape that it takes as "
                    "original",
                    place=error.place,
                ) from error
            raise

    def _runs_alone(self, feeds: Sequence[Feed], slots: Mapping[str, int]) -> bool:
        try:
            self._run(feeds, 1, slots)
        except SlipwayError:
            return False
        return True

    def _run(self, feeds: Sequence[Feed], rows: int, slots: Mapping[str, int]) -> dict[str, int]:
        empty = empty_states(self.spec, self.states, rows)
        states = None if self.first is not None else empty
        frames: dict[str, int] = {}
        for call, feed in enumerate(feeds if self.states else feeds[:1]):
            when = f" at call {call + 1} of a stream" if self.states else ""
            fed_states = slice_states(self.spec, feed, states or empty)
            fed, later_on = None if states is None else fed_states, call > 0 and self.first is None
            outputs = self._call(feed, fed, rows, when, later_on=later_on)
            self._check_rows(outputs, rows)
            self._check_states(outputs, fed_states)
            if frames and lengths_of(self.spec, feed) == lengths_of(self.spec, feeds[0]):
                self._check_growth(outputs, states or {}, frames, slots)
            frames = frames or self._frames(outputs)
            states = self._next(feed, outputs, states or empty, frames)
        return frames

    def _call(
        self, feed: Feed, states: Mapping[str, Array] | None, rows: int, when: str, *, later_on: bool
    ) -> dict[str, Array]:
        whole = completed(feed, self.spec)
        arguments = {name: np.repeat(array, rows, axis=0) if _has_rows(self.spec, name) else array
                 for name, array in whole.items()}  # fmt: skip
        call = self.later if states is not None or self.first is None else self.first
        arguments |= dict(states or {})
        ordered = {
            name: _to_graph(spec, name, arguments[name]) for name, spec in self.spec.inputs.items() if name in arguments
        }
        try:
            results = call(ordered, Location(stage="capture", graph=self.graph), when)
        except RecipeError as error:
            if later_on:
                error.cure = (
                    "the first call was answered: mend what the model does with states and counts of a later one"
                )
            raise
        return dict(zip(self.spec.outputs, results, strict=True))

    def _check_rows(self, outputs: Mapping[str, Array], rows: int) -> None:
        if rows == 1:
            return
        for name, array in outputs.items():
            if rows not in array.shape:
                raise Refused(
                    f"expected {self.spec.batch!r}, the axis with buckets, in {name}, got {list(array.shape)} for "
                    f"{rows} rows",
                    cure="let each result have as many rows as the inputs, or fix the axis",
                    place=Location(stage="capture", graph=self.graph, tensor=name, axis=self.spec.batch or ""),
                )

    def _check_states(self, outputs: Mapping[str, Array], states: Mapping[str, Array]) -> None:
        """Require that every state is returned in the type and size in which it is taken; a frames axis may grow."""
        for state in self.states:
            if state.output not in outputs:
                continue
            fed, back = (
                _to_graph(self.spec.inputs[state.input], state.input, states[state.input]),
                outputs[state.output],
            )
            place = Location(stage="capture", graph=self.graph, tensor=state.input)
            if fed.dtype != back.dtype:
                raise Refused(
                    f"state {state.input!r} goes in as {fed.dtype} and comes back from {state.output!r} as "
                    f"{back.dtype}",
                    cure=f"write dtype: {back.dtype} where the model takes that, else cast it to {fed.dtype} before "
                    "the model returns it",
                    place=place,
                )
            along = self._frames_axis(state)
            if not _fits(fed, back, along):
                fits = [
                    name for name, array in outputs.items()
                    if name != state.output and array.dtype == fed.dtype and _fits(fed, array, along)
                ]  # fmt: skip
                told = f", and {fits[0]!r} as {list(outputs[fits[0]].shape)}" if len(fits) == 1 else ""
                either = f"write state: {fits[0]} where that is meant, " if told else ""
                raise Refused(
                    f"state {state.input!r} goes in as {list(fed.shape)} and comes back from {state.output!r} as "
                    f"{list(back.shape)}{told}",
                    cure=f"{either}list outputs in the order of the model's results, feed back a state of one size, or "
                    "declare the growing axis with a window",
                    place=place,
                )

    def _check_growth(
        self,
        outputs: Mapping[str, Array],
        states: Mapping[str, Array],
        frames: Mapping[str, int],
        slots: Mapping[str, int],
    ) -> None:
        """Require that a later call returns the whole cache, or only its new frames, as the recipe declares."""
        for state in self.states:
            axis = self._frames_axis(state)
            if axis is None or state.frames_axis is None or state.cache is None or state.output not in outputs:
                continue
            before, back = states[state.input].shape[state.frames_axis], outputs[state.output].shape[axis]
            added, most = frames[state.cache], slots[state.cache]
            place = Location(stage="capture", graph=self.graph, tensor=state.input, axis=state.cache)
            if is_appended(self.spec, state) and back != added:
                raise Refused(
                    f"expected {added} new frames from {state.output!r} at call 2 of a stream, as update: append says "
                    f"and as call 1 gave, got {back} after {before} cached ones",
                    cure="delete update: append, the model gives the whole cache",
                    place=place,
                )
            if not is_appended(self.spec, state) and back < min(before + added, most):
                raise Refused(
                    f"expected the whole cache from {state.output!r} at call 2 of a stream, {before} cached frames and "
                    f"{added} new ones, got {back}",
                    cure=f"write update: append for {state.cache!r} where the model gives its new frames alone, or "
                    f"window: {back} where it keeps no more",
                    place=place,
                )

    def _frames_axis(self, state: State) -> int | None:
        given = self.spec.inputs[state.input]
        if given.original is None or state.frames_axis is None:
            return state.frames_axis
        return RowAxis(state.input, given.row_axis).axis_of(state.frames_axis)

    def _frames(self, outputs: Mapping[str, Array]) -> dict[str, int]:
        found: dict[str, int] = {}
        for state in self.states:
            axis = self._frames_axis(state)
            if axis is not None and state.cache is not None:
                found.setdefault(state.cache, outputs[state.output].shape[axis])
        return found

    def _next(
        self, feed: Feed, outputs: Mapping[str, Array], states: Mapping[str, Array], frames: Mapping[str, int]
    ) -> dict[str, Array]:
        given = {
            state.output: _to_caller(self.spec.inputs[state.input], state.input, outputs[state.output])
            for state in self.states
            if state.output in outputs
        }
        after = moved_on(self.spec, self.states, frames_counted(self.spec, frames), feed, states, given)
        return {state.input: after[state.output] for state in self.states}


def _fits(fed: Array, back: Array, along: int | None) -> bool:
    """Whether a result may be fed back: all sizes but the number of frames are equal."""
    return fed.ndim == back.ndim and all(
        axis == along or a == b for axis, (a, b) in enumerate(zip(fed.shape, back.shape, strict=True))
    )


def empty_states(spec: Graph, states: Sequence[State], batch: int) -> dict[str, Array]:
    """Return empty caches and the initial values of other states, in all their slots."""
    sizes = {axis: each.fixed or batch for axis, each in spec.axes.items()}
    sizes |= dict.fromkeys(spec.caches, 0) | {axis: spec.slots(axis) for axis in spec.held}
    found: dict[str, Array] = {}
    for state in states:
        shape = [dim if isinstance(dim, int) else sizes[dim] for dim in spec.inputs[state.input].shape]
        dtype = spec.inputs[state.input].dtype
        found[state.input] = np.full(shape, array_of_initial(state.initial, dtype))
    return found


def example_feed(spec: Graph) -> Feed:
    """Return a generated feed: the recipe's examples, else numbers of the declared range, normal ones, or 1."""
    random = np.random.default_rng(0)
    return {
        name: _example(given, [_example_size(spec, dim) for dim in given.shape], random)
        for name, given in spec.inputs.items()
        if given.is_data
    }


def _example(given: Input, shape: Sequence[int], random: np.random.Generator) -> Array:
    if given.example is not None:
        return np.full(shape, given.example).astype(given.dtype)
    if not given.dtype.startswith(("float", "bfloat")):
        return np.full(shape, 1 if given.range is None else sum(given.range) // 2).astype(given.dtype)
    if given.range is None:
        return random.standard_normal(shape).astype(given.dtype)
    low, high = given.range
    return random.uniform(low, high, shape).astype(given.dtype)


def _example_size(spec: Graph, dim: int | str) -> int:
    """Return the size of an axis in one row's feed."""
    if isinstance(dim, int):
        return dim
    axis = spec.axes[dim]
    return axis.fixed or (axis.buckets[-1] if dim in spec.padded and axis.buckets else 1)


def _to_graph(given: Input, name: str, array: Array) -> Array:
    return array if given.original is None else RowAxis(name, given.row_axis).to_graph(array)


def _to_caller(given: Input, name: str, array: Array) -> Array:
    return array if given.original is None else RowAxis(name, given.row_axis).to_caller(array)


def _has_rows(spec: Graph, name: str) -> bool:
    shape = spec.inputs[name].shape
    return bool(shape) and shape[0] == spec.batch


def _unusual(spec: Graph) -> int:
    """Return a number of rows that is no size in the recipe, so that no other axis is mistaken for the batch."""
    sizes = {dim for given in spec.inputs.values() for dim in given.shape if isinstance(dim, int)}
    sizes |= {axis.fixed for axis in spec.axes.values() if axis.fixed is not None}
    return next(rows for rows in range(2, len(sizes) + 3) if rows not in sizes)
