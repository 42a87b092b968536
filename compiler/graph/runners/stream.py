"""Runs a graph call after call with its states fed back, and records the original's results for the same calls."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from compiler.errors import DataError, Location
from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import caller_dims, for_callers
from compiler.graph.runners.padded_chunks import PaddedChunks
from compiler.graph.runners.session import Session
from compiler.graph.stages import Array, Feed, Lowered, State, StateMap, newest
from runtime_lite.format.initial_value import array_of_initial


@dataclasses.dataclass(frozen=True)
class OriginalCall:
    """One call of the original.

    Attributes:
        feed: the caller's inputs.
        outputs: every output by name, states among them as the original returns them.
        states: the states for the next call, caches cut to their slots.
    """

    feed: Feed
    outputs: Mapping[str, Array]
    states: Mapping[str, Array]
    _last: list[tuple[Sequence[StateMap], Mapping[str, Array]]] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def states_after(self, maps: Sequence[StateMap]) -> Mapping[str, Array]:
        """Return the states as passes have reshaped them.

        The last result is kept: a graph is compared after every pass, and few passes reshape states again.
        """
        done, states = self._last[0] if self._last else ((), self.states)
        if done != maps[: len(done)]:
            done, states = (), self.states
        self._last[:] = [(maps, mapped(maps[len(done) :], states))]
        return self._last[0][1]

    def repeated(self, rows: int) -> "OriginalCall":
        """Return the same call with `rows` equal rows."""
        parts = (self.feed, self.outputs, self.states)
        return OriginalCall(*({name: np.repeat(array, rows, axis=0) for name, array in part.items()} for part in parts))


Run = Callable[[Iterable[Feed]], Iterator[tuple[dict[str, Array], dict[str, Array]]]]
"""Runs the original: per feed all outputs by name, and the states that the next call takes."""

Advance = Callable[[int, int], None]
"""Called with the number of runs that are done, and of all."""


class Stepper(Protocol):
    """What answers call after call.

    Attributes:
        states: the states for the next call, by input name.
    """

    states: dict[str, Array]

    def step(self, feed: Feed) -> dict[str, Array]:
        """Run one call, keep its states, and return all outputs by name."""
        ...


class CallRunner(Stepper, Protocol):
    """What runs a graph call by call: `Runner`, or `RowsRunner` where rows have lengths of their own."""

    @property
    def lengths(self) -> Mapping[str, Array]:
        """Return lengths of caches per row as their kinds count them, int64 [batch], by cache axis."""
        ...

    def full_feed(self, feed: Feed) -> dict[str, Array]:
        """Return every input of the next call: the caller's inputs, states, lengths and masks."""
        ...

    def step(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Run one call, keep its states, and return all outputs by name, without padding.

        Args:
            feed: the caller's inputs.
            more: further inputs of a copy of the graph; a first call uses those of its own copy.
        """
        ...

    def call(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Run one call, keep its states, and return all outputs by name, with padding."""
        ...

    def valid(self, name: str, array: Array, feed: Feed) -> tuple[slice, ...]:
        """Return the index of the part of an output of `call` that is no padding."""
        ...

    def reset(self, states: Mapping[str, Array] | None = None, lengths: Mapping[str, Array] | None = None) -> None:
        """Make the next call the first, or a later one with these states and true lengths of caches."""
        ...


class Runner:
    """Runs a lowered graph call after call, and feeds lengths, masks and states according to its record.

    Args:
        lowered: the graph's record; its model gives names and shapes.
        session: runs the model.
        batch: rows of every call.
        first: runs the first call while it is a graph of its own.
        buckets: slots of chunks that there are graphs for, ascending; none while they are dynamic, or all of one size.
        fill: what lies behind the entries of chunks that are shorter than their slots.
    """

    def __init__(
        self,
        lowered: Lowered,
        session: Session,
        batch: int = 1,
        first: Session | None = None,
        *,
        buckets: Sequence[Mapping[str, int]] = (),
        fill: float = 0.0,
    ) -> None:
        self.lowered, self.session, self.batch = lowered, for_callers(session, lowered), batch
        self.first = None if first is None else for_callers(first, lowered)
        self.inputs = graphs.inputs_named(lowered.model)
        self.outputs = list(graphs.outputs_named(lowered.model))
        self.dims = caller_dims(lowered)
        self.chunks = PaddedChunks(lowered, self.dims, batch, buckets, fill)
        self.reset()

    def reset(self, states: Mapping[str, Array] | None = None, lengths: Mapping[str, Array] | None = None) -> None:
        """Make the next call the first, or a later one with these states and true lengths of caches."""
        none = {cache.axis: np.zeros(self.batch, np.int64) for cache in self.lowered.caches}
        self.lengths: dict[str, Array] = none if lengths is None else dict(lengths)
        empty = {state.input: self.initial(state) for state in self.lowered.states}
        self.states: dict[str, Array] = {**empty, **(states or {})}  # what no original carries is found anew
        self.started = states is not None

    def initial(self, state: State) -> Array:
        """Return a state's initial value; a dynamic cache starts with no frames."""
        value, dims = self.inputs[state.input], self.dims[state.input]
        shape = [dim if isinstance(dim, int) else 0 if str(dim) in self.lengths else self.batch for dim in dims]
        dtype = value.dtype.numpy() if value.dtype else np.dtype(np.float32)
        return np.full(shape, array_of_initial(state.initial, dtype.name))

    def full_feed(self, feed: Feed) -> dict[str, Array]:
        """Return the caller's feed, padded, with states, lengths and masks."""
        full = {**self.chunks.padded(feed), **{each.input: self._in_slots(each) for each in self.lowered.states}}
        for cache in self.lowered.caches:
            length = cache.valid(self.lengths[cache.axis])
            full[cache.length_input] = length
            if cache.mask_input is not None:
                full[cache.mask_input] = cache.mask(length).astype(np.float32)
        return {name: array for name, array in full.items() if name in self.inputs}

    def _in_slots(self, state: State) -> Array:
        """Return a state rolled as its kind stores it: the oldest frame where the kind begins."""
        array, cache = self.states[state.input], self.lowered.cache_of(state)
        if cache is None or cache.kind.is_given_whole or state.frames_axis is None:
            return array
        begins = [cache.kind.oldest(cache.slots, length) for length in self.lengths[cache.axis].tolist()]
        if not any(begins):
            return array
        return rolled_rows(self.lowered, array, state.frames_axis, begins)

    def valid(self, name: str, array: Array, feed: Feed) -> tuple[slice, ...]:
        """Return the index of the part of an output of `call` without padding behind the longest row."""
        return self.chunks.valid(name, array, self.chunks.longest(feed))

    def step(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Run one call, keep its states, and return all outputs by name, without padding behind the longest row.

        Args:
            feed: the caller's inputs, with the length input where rows have chunks of different lengths.
            more: further inputs of a copy of the graph; a first call uses those of its own copy.
        """
        return self.chunks.without_padding(self.call(feed, more), feed)

    def call(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Run one call, keep its states, and return all outputs by name, with padding."""
        if self.first is not None and not self.started:
            names = {value.name for value in (self.lowered.first_call or self.lowered.model).graph.inputs}
            padded_feed = {**self.chunks.padded(feed), **(more or {})}
            results = self.first.run(None, {name: array for name, array in padded_feed.items() if name in names})
            outputs = dict(zip(self.outputs, results, strict=True))
        else:
            full = {**self.full_feed(feed), **(more or {})}
            outputs = dict(zip(self.outputs, self.session.run(self.outputs, full), strict=True))
        self.started = True
        added = self.chunks.added(feed)
        after = {
            cache.axis: cache.after_call(self.lengths[cache.axis], added[cache.axis]) for cache in self.lowered.caches
        }
        for state in self.lowered.states:
            new = outputs[state.output]
            if self.lowered.kind_of(state).is_given_whole:
                self.states[state.input] = newest_in_slots(self.lowered, state, new)
            else:
                counts = self.lengths[str(state.cache)], added[str(state.cache)]
                self.states[state.input] = with_frames(self.lowered, state, self.states[state.input], new, *counts)
        self.lengths |= after
        return outputs


def rolled_rows(lowered: Lowered, array: Array, axis: int, places: Sequence[int]) -> Array:
    """Return an array with the entries of each row rolled along an axis.

    Args:
        lowered: the graph; without a batch axis all of the array is one row.
        array: the array, with rows as first axis.
        axis: the axis to roll along.
        places: number of entries by which each row is rolled.
    """
    rows = [array] if lowered.batch_axis is None else np.split(array, len(array))
    return np.concatenate([np.roll(row, count, axis) for row, count in zip(rows, places, strict=True)])


def with_frames(lowered: Lowered, state: State, frames: Array, new: Array, lengths: Array, added: Array | int) -> Array:
    """Return a state with new frames after the others, the oldest in the first slot.

    Args:
        lowered: the graph.
        state: a state of which a call returns new frames alone.
        frames: the state before the call.
        new: the call's new frames, valid ones first.
        lengths: length of every row before the call, int64 [rows].
        added: number of new frames, per row or for all rows.
    """
    cache, axis = lowered.cache_of(state), state.frames_axis
    assert cache is not None and axis is not None
    next_state = frames.copy()
    pairs = zip(cache.valid(lengths).tolist(), np.broadcast_to(added, lengths.shape).tolist(), strict=True)
    for row, (valid, count) in enumerate(pairs):
        place = _row_index(lowered, row, frames.ndim)
        parts = []
        for array, size in ((frames, valid), (new, count)):
            place[axis] = slice(size)
            parts.append(array[tuple(place)])
        frames_axis = axis - (lowered.batch_axis is not None)
        newest_frames = newest(np.concatenate(parts, frames_axis), frames_axis, cache.slots)
        place[axis] = slice(newest_frames.shape[frames_axis])
        next_state[tuple(place)] = newest_frames
    return next_state


def newest_in_slots(lowered: Lowered, state: State, array: Array) -> Array:
    """Return the newest frames of a state that fit its slots; the whole of a state without frames."""
    cache = lowered.cache_of(state)
    return array if cache is None or state.frames_axis is None else newest(array, state.frames_axis, cache.slots)


def expected_states(lowered: Lowered, states: Mapping[str, Array]) -> dict[str, Array]:
    """Return the original's states as the passes have reshaped them."""
    return mapped(lowered.state_maps, states)


def mapped(maps: Sequence[StateMap], states: Mapping[str, Array]) -> dict[str, Array]:
    """Return states reshaped by the maps of several passes, in order."""
    found = dict(states)
    for state_map in maps:
        found = state_map.apply(found)
    return found


def expected_of(lowered: Lowered, step: OriginalCall) -> dict[str, Array]:
    """Return what a call must return: outputs by name, and reshaped states by the input that they feed."""
    fed_back = {state.output for state in lowered.states}
    outputs = {name: array for name, array in step.outputs.items() if name not in fed_back}
    return {**outputs, **step.states_after(lowered.state_maps)}


def chained_steps(run: Run, stream: Sequence[Feed], count: int) -> list[OriginalCall]:
    """Return the original's first `count` calls on one stream."""
    feeds = list(stream[:count])
    steps: list[OriginalCall] = []
    for feed, (outputs, states) in zip(feeds, run(feeds), strict=True):
        for name, array in outputs.items():
            if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
                raise DataError(
                    f"expected the original to answer with finite numbers, got NaN or infinity in {name} at chained "
                    f"step {len(steps)}",
                    cure="yield feeds that the model can answer, or repair the model",
                    place=Location(stage="data", tensor=name),
                )
        steps.append(OriginalCall(feed, outputs, states))
    return steps


def poisoned(lowered: Lowered, full: Mapping[str, Array], active: Array, poisons: Sequence[float]) -> dict[str, Array]:
    """Return a feed with each row's poison in padded slots of caches, behind its chunk, and in all of a free row.

    Args:
        lowered: the graph, with axes by name where chunks may be shorter than their slots.
        full: every input of a call.
        active: which rows are in use, bool [rows].
        poisons: one per row.
    """
    arrays: dict[str, Array] = {}
    states = {state.input: state for state in lowered.states}
    masks = {cache.mask_input for cache in lowered.caches}
    for name, array in full.items():
        is_coded = array.dtype in (np.int8, np.uint8) and name in states
        if (array.dtype.kind != "f" and not is_coded) or name in masks:
            arrays[name] = array
            continue
        array = array.copy()
        fills = np.array(poisons)
        if is_coded:
            ends = np.iinfo(array.dtype)
            fills = np.nan_to_num(fills, nan=ends.min).clip(ends.min, ends.max)
        with np.errstate(over="ignore"):  # a huge value is infinite in half precision
            fills = fills.astype(array.dtype)
        for row in np.flatnonzero(~active):
            array[row] = fills[row]
        axis = states[name].frames_axis if name in states else None
        cache = lowered.cache_of(states[name]) if name in states else None
        if axis is not None and cache is not None:
            length = full[cache.length_input]
            for used in map(int, np.flatnonzero(active)):
                index = _row_index(lowered, used, array.ndim)
                index[axis] = cache.kind.unseen(cache.slots, int(length[used]))
                array[tuple(index)] = fills[used]
        for used, place in _behind_chunks(lowered, name, full, active):
            array[place] = fills[used]
        arrays[name] = array
    return arrays


def _row_index(lowered: Lowered, row: int, rank: int) -> list[Any]:
    """Return the index of a row in an array of `rank` axes; without a batch axis the array is one row."""
    return [slice(None) if lowered.batch_axis is None else row, *[slice(None)] * (rank - 1)]


def _behind_chunks(
    lowered: Lowered, name: str, full: Mapping[str, Array], active: Array
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows in use, with the slots of an input behind each row's true length."""
    dims = caller_dims(lowered).get(name, ())
    for each in lowered.padded_axes:
        for at in [at for at, dim in enumerate(dims) if dim == graphs.symbol(each.axis)]:
            for row in np.flatnonzero(active):
                place = _row_index(lowered, int(row), len(dims))
                place[at] = slice(int(full[each.length_input][row]), None)
                yield int(row), tuple(place)
