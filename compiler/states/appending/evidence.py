"""Shows, by running subgraphs, that a state's next value is its cached frames followed by the call's new frames.

Shown is that the next state holds the cached frames and behind them those of one value, the new frames, as many as the
call has: then this value is all that a call needs to give. What moves frames reads nothing else but true lengths, which
is looked at, so that numbers that are all different show it for any others.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.part import Part
from compiler.graph.stages import Array, Lowered, PaddedAxis, State, right_aligned
from runtime_lite.format.cache_axis import CacheAxis

ALL_CACHED = 48
"""Slots up to which every number of cached frames is tried; of more, those at both ends."""

CALLS = (1, 2, 5)
"""Places for the frames of a call that are tried, besides the fewest."""

MORE = (0, 2, 7)
"""Places of a call beyond the fewest that are tried beside slots, and `FAR`."""

FAR = 512
"""Places beyond the fewest in the largest call that is tried; a mask that changes in longer calls is not noticed."""

AHEAD = (0, 5)
"""Entries in front of the slots that are tried, besides the fewest."""

ROWS = 8
"""Rows of a run."""

CURE = "leave this pass out: the state is given whole then"


def says_where_frames_lie(
    lowered: Lowered, cache: CacheAxis, condition: ir.Value, axis: int, is_behind: bool = False
) -> bool:
    """Whether a condition is true exactly at the slots of a right-aligned cache that hold frames.

    Args:
        lowered: the graph, with rows as first axis.
        cache: the cache axis.
        condition: the condition of a Where; it may be anything behind the slots, where new frames are.
        axis: the axis of the slots; all other axes but the rows have size 1.
        is_behind: whether entries of other axes, which may be anything, lie in front of the slots; otherwise the
            axis begins with the slots.
    """
    runs = _at_slots(lowered, cache, condition, axis, is_behind, range(cache.slots + 1))
    return runs is not None and all(
        entries.size == len(lengths) * cache.slots
        and entries.shape[0] == len(lengths)
        and np.array_equal(entries.reshape(len(lengths), -1), cache.mask(lengths)[:, : cache.slots])
        for lengths, entries in runs
    )


def is_alike_when_full(lowered: Lowered, cache: CacheAxis, value: ir.Value, axis: int, is_behind: bool = False) -> bool:
    """Whether a value has equal entries for all slots of a full cache, in any order of its frames.

    Args:
        lowered: the graph.
        cache: the cache axis.
        value: a value with an entry per slot; behind the slots it may be anything.
        axis: the axis of the slots.
        is_behind: whether other entries lie in front of the slots, as in `says_where_frames_lie`.
    """
    runs = _at_slots(lowered, cache, value, axis, is_behind, [cache.slots])
    return runs is not None and all(np.array_equal(found, np.roll(found, 1, axis)) for _, found in runs)


def _at_slots(
    lowered: Lowered, cache: CacheAxis, value: ir.Value, axis: int, is_behind: bool, valid: Sequence[int]
) -> list[tuple[Array, Array]] | None:
    """Evaluate a value for several sizes of a call; return valid frames of every row, and entries at the slots.

    None where the value depends on more than true lengths and sizes, or has no entries for the slots.
    """
    part, chunk_axis = Part(lowered.model.graph, [value]), _of_call(lowered, cache)
    counted = [padded_axis for padded_axis in lowered.padded_axes if is_behind or padded_axis is chunk_axis]
    told = {cache.length_input, *(padded_axis.length_input for padded_axis in counted)}
    if graphs.contents_behind([value]) - told:
        return None
    fewest, runs = _fewest(lowered, cache), list[tuple[Array, Array]]()
    ahead = AHEAD if set(counted) - {chunk_axis} else (0,)
    for (places, cached), more in itertools.product(_places_tried(chunk_axis, fewest, valid), ahead):
        sizes = {
            padded_axis.axis: places if padded_axis is chunk_axis else padded_axis.minimum + more
            for padded_axis in counted
        }
        new = sorted({min(fewest - 1 + 2**power, places) for power in range(places.bit_length() + 1)})
        lengths = np.repeat(cached, max(more + 1, len(new)) if len(cached) <= ROWS else more + 1)
        feed = _feed(part, lowered, sizes, len(lengths))
        numbers = {cache.length_input: lengths} | {
            padded_axis.length_input: np.resize(
                new if padded_axis is chunk_axis else padded_axis.minimum + np.arange(more + 1), len(lengths)
            )
            for padded_axis in counted
        }
        feed |= {name: numbers[name].astype(feed[name].dtype) for name in numbers.keys() & feed.keys()}
        (evaluated,) = part.run(feed)
        start = evaluated.shape[axis] - cache.slots - places if is_behind else 0
        if start < 0 or evaluated.shape[axis] < start + cache.slots:
            return None
        runs.append((lengths, evaluated.take(range(start, start + cache.slots), axis)))
    return runs


def _places_tried(own: PaddedAxis | None, fewest: int, valid: Sequence[int]) -> list[tuple[int, Sequence[int]]]:
    """Return numbers of slots of the calls to try, each with cached frames of its rows; large calls get few rows."""
    if own is None:
        return [(fewest, valid)]
    most = fewest + FAR if own.maximum is None else min(fewest + FAR, own.maximum)
    near = sorted({min(fewest + more, most) for more in MORE})
    return [*((places, valid) for places in near), (most, sorted({valid[0], valid[len(valid) // 2], valid[-1]}))]


def require_new_frames(lowered: Lowered, cache: CacheAxis, state: State, new: ir.Value) -> None:
    """Run the computation of the next state, and require that it is the cached frames followed by a value's.

    Args:
        lowered: the graph, with right-aligned caches and rows as first axis.
        cache: the cache axis.
        state: a state along that axis.
        new: the value of the new frames, with the slots of the call along the state's frames axis.

    Raises:
        Refused: the next state differs.
    """
    part = Part(lowered.model.graph, [graphs.outputs_named(lowered.model)[state.output]], [new])
    padded, fewest = _of_call(lowered, cache), _fewest(lowered, cache)
    told = {cache.length_input, *([] if padded is None else [padded.length_input])}
    (next_state,) = part.model.graph.outputs
    if others := graphs.contents_behind([next_state]) - {state.input, str(new.name), *told}:
        raise _refused(state, f"it is made of {min(others)!r}, too")
    run = _Run(part, lowered, cache, state, str(new.name))
    more = () if padded is None else [count for count in CALLS if count > fewest]
    for places in (fewest, *more):
        for calls in _calls(cache, fewest, places):
            if not run.holds(places, calls):
                raise _refused(state, f"it holds others in one of {list(calls)} (cached, new) in {places} places")


def _refused(state: State, why: str) -> Refused:
    return Refused(
        f"expected {state.output!r} to hold the cached frames and the new ones behind them, but {why}",
        cure=CURE,
        place=Location(tensor=state.output),
    )


def _calls(cache: CacheAxis, fewest: int, places: int) -> Iterator[Sequence[tuple[int, int]]]:
    """Yield the numbers of cached and new frames for the rows of each run."""
    slots, most = cache.slots, cache.slots if cache.is_whole else cache.slots + places
    cached: Sequence[int] = range(slots + 1)
    if slots > ALL_CACHED:
        cached = [*range(ALL_CACHED // 2), *range(slots - ALL_CACHED // 2, slots + 1)]
    rows = [(old, new) for old in cached for new in range(fewest, places + 1) if old + new <= most]
    yield from (rows[at : at + ROWS] for at in range(0, len(rows), ROWS))


@dataclasses.dataclass(frozen=True, eq=False)
class _Run:
    """Runs the part of a graph that makes a next state."""

    part: Part
    lowered: Lowered
    cache: CacheAxis
    state: State
    new: str

    def holds(self, places: int, calls: Sequence[tuple[int, int]]) -> bool:
        """Whether every row's next state is its cached frames followed by the new ones, right-aligned."""
        padded = _of_call(self.lowered, self.cache)
        feed = _feed(self.part, self.lowered, {} if padded is None else {padded.axis: places}, len(calls))
        told = {self.cache.length_input: 0} | ({} if padded is None else {padded.length_input: 1})
        for name in told.keys() & feed.keys():
            feed[name] = np.array([call[told[name]] for call in calls]).astype(feed[name].dtype)
        axis = self.state.frames_axis
        assert axis is not None
        rows = [self._row(feed, row, axis - 1, call) for row, call in enumerate(calls)]
        (found,) = self.part.run(feed)
        return np.array_equal(found, np.stack(rows))

    def _row(self, feed: Mapping[str, Array], row: int, axis: int, call: tuple[int, int]) -> Array:
        """Return the expected next state of a row; clears the row's free slots in the feed."""
        old, new = feed[self.state.input][row], feed[self.new][row]
        cached = np.take(old, range(self.cache.slots - call[0], self.cache.slots), axis)
        np.copyto(old, right_aligned(cached, axis, self.cache.slots))
        joined = np.concatenate([cached, np.take(new, range(call[1]), axis)], axis)
        return right_aligned(joined, axis, self.cache.slots)


def _of_call(lowered: Lowered, cache: CacheAxis) -> PaddedAxis | None:
    """Return the axis of a call's frames; None where every call has the same number."""
    return next((each for each in lowered.padded_axes if each.axis == cache.added), None)


def _fewest(lowered: Lowered, cache: CacheAxis) -> int:
    """Return the smallest number of frames of a call."""
    own = _of_call(lowered, cache)
    return cache.step if own is None else own.minimum


def _feed(part: Part, lowered: Lowered, places: Mapping[str, int], rows: int) -> dict[str, Array]:
    """Return arrays for every input of a part, with these numbers of slots and rows and other axes at their minimum."""
    sizes = {each.axis: each.minimum for each in lowered.padded_axes}
    sizes |= {**places, str(lowered.batch_axis): rows}
    return {name: _filled(value, sizes) for name, value in part.inputs.items()}


def _filled(value: ir.Value, sizes: Mapping[str, int]) -> Array:
    """Return distinct nonzero numbers, or a repeated range of small ones for types of fewer than 32 bits."""
    dims = graphs.dims_of(value)
    assert dims is not None and value.dtype is not None
    shape = [
        dim if isinstance(dim, int) else int(dim.subs({graphs.symbol(k): v for k, v in sizes.items()})) for dim in dims
    ]
    numbers = 1 + np.arange(int(np.prod(shape)), dtype=np.int64)
    dtype = value.dtype.numpy()
    return (numbers if dtype.itemsize >= 4 else 1 + numbers % 97).astype(dtype).reshape(shape)
