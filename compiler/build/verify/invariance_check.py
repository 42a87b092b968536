"""Checks that outputs stay bit-identical whatever values padded slots hold."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state  # type: ignore[import-untyped, unused-ignore]

from compiler.base.records.findings import Finding
from compiler.errors import GateFailed, Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.padded_chunks import side_by_side
from compiler.graph.runners.stream import Runner, poisoned
from compiler.graph.stages import Array, Feed, Lowered, State
from runtime_lite.format.cache_axis import CacheAxis


@dataclasses.dataclass(frozen=True)
class Invariance:
    """What lies in padded places cannot be seen: outputs bit-identical for every content.

    Attributes:
        batch: rows of the graph.
        calls: compared calls.
        poisons: contents tried.
    """

    batch: int
    calls: int
    poisons: tuple[str, ...]


ENDED = (ort_state.Fail, ort_state.InvalidArgument, ort_state.RuntimeException)
"""What ONNX Runtime raises where a node cannot compute what it is given."""

POISONS = {"NaN": np.nan, "Inf": np.inf, "-Inf": -np.inf, "1e30": 1e30, "-1e30": -1e30}


def check_invariance(runner: Runner, feeds: Sequence[Feed]) -> Invariance:
    """Fill padded cache slots, padding behind short chunks and free batch rows with every poison.

    Valid entries of outputs must not change by a bit.

    Args:
        runner: runner of the shipped artefact; row r is r calls late, so that rows have different true lengths.
        feeds: calls of one stream, at least enough to fill the caches.

    Raises:
        GateFailed: an output changed; the message names the output, the poison and the step.
        Refused: one row's padding makes the engine fail the call of all rows; the message names the node.
    """
    lowered, batch, calls = runner.lowered, runner.batch, 0
    idle = {name: np.zeros_like(array) for name, array in feeds[0].items()}
    for position in range(len(feeds)):
        rows = [feeds[position - row] if position >= row else None for row in range(batch)]
        feed = side_by_side(lowered, [idle if row is None else row for row in rows])
        active = np.array([row is not None for row in rows])
        full = runner.full_feed(feed)
        clean = runner.step(feed)
        for mix in _mixes(batch, position):
            changed = changed_output(runner, full, clean, active, mix)
            if changed is not None:
                raise GateFailed(
                    f"expected {changed} unchanged by {_seen(runner, full, clean, active)} in padded places, "
                    f"got other values at call {position}",
                    cure="if the model mixes rows of a batch, build buckets: [1]; otherwise report it",
                    place=Location(stage="invariance", graph=lowered.graph, tensor=changed),
                    findings=[Finding("invariance", lowered.graph, changed, holds=False)],
                )
            calls += 1
        runner.lengths = {axis: np.where(active, lengths, 0) for axis, lengths in runner.lengths.items()}
        if lowered.batch_axis is not None:  # else one row, which is never free; its states may have anything in front
            runner.states |= {state.input: _reset(runner, state, ~active) for state in lowered.states}
    return Invariance(batch, calls, tuple(POISONS))


def _mixes(batch: int, position: int) -> list[list[str]]:
    """Return the poisons by row for the runs of one call: each row gets every poison in turn.

    With more rows than poisons one run a call is enough: free rows hold all of them side by side, and by the next call
    they have moved on by a row.
    """
    labels = list(POISONS)
    turns = range(position, position + (1 if batch > len(labels) else len(labels)))
    return [[labels[(turn + row) % len(labels)] for row in range(batch)] for turn in turns]


def changed_output(
    runner: Runner, full: Feed, clean: Mapping[str, Array], active: Array, mix: Sequence[str]
) -> str | None:
    """Return the first output that changes by a bit where each row's padding holds its poison; None where none does.

    Args:
        runner: runner of the artefact.
        full: every input of the call.
        clean: its outputs by name.
        active: which rows are in use, bool [rows].
        mix: a name in `POISONS` per row.

    Raises:
        Refused: the call ends where a row's padding holds its poison.
    """
    spoiled = poisoned(runner.lowered, full, active, [POISONS[label] for label in mix])
    try:
        results = runner.session.run(list(clean), spoiled)
    except ENDED as error:
        raise _ended(runner.lowered, str(error)) from error
    for name, array in zip(clean, results, strict=True):
        got, expected = (_valid(runner, name, result, full, active) for result in (array, clean[name]))
        if [valid.tobytes() for valid in got] != [valid.tobytes() for valid in expected]:
            return name
    return None


def _ended(lowered: Lowered, told: str) -> Refused:
    """Return the refusal of a call of all rows that fails for one row's content, with the node the engine names."""
    node = next((each for each in lowered.model.graph if f"'{each.name}'" in told), None)
    place = Location(stage="invariance", graph=lowered.graph)
    if node is not None:
        names = {"node": str(node.name), "op": node.op_type, "source": graphs.source_of(node)}
        place = dataclasses.replace(place, **names)
    return Refused(
        f"a call of all rows ends where one of them holds NaN, infinities or huge numbers: {told}",
        cure="keep computed indices inside their table, as with clamp(0, size - 1), or build buckets: [1]",
        place=place,
    )


def _seen(runner: Runner, full: Feed, clean: Mapping[str, Array], active: Array) -> str:
    """Return the poison that changes outputs when all rows hold it; a mix where none does."""
    alone = (label for label in POISONS if changed_output(runner, full, clean, active, [label] * len(active)))
    return next(alone, "a mix of contents")


def _valid(runner: Runner, name: str, array: Array, full: Feed, active: Array) -> list[Array]:
    """Return the valid entries of an output, row by row where rows have chunks or caches of different lengths.

    Without a batch axis the output is one row.
    """
    has_rows = runner.lowered.batch_axis is not None
    active_rows = array[active] if has_rows else array
    lengths = {padded_axis.axis: full[padded_axis.length_input][active] for padded_axis in runner.lowered.padded_axes}
    window = _window_of(runner.lowered, name)
    if not lengths and window is None:
        return [active_rows[runner.valid(name, active_rows, full)]]
    rows = [
        {axis: int(axis_lengths[row]) for axis, axis_lengths in lengths.items()}
        for row in range(np.count_nonzero(active))
    ]
    parts = [active_rows[row : row + 1] for row in range(len(active_rows))] if has_rows else [active_rows]
    parts = [part[runner.chunks.valid(name, part, row)] for part, row in zip(parts, rows, strict=True)]
    if window is None:
        return parts
    cache, axis = window
    frames = [int(length) for length in full[cache.length_input][active]]
    return [
        _newest(part, axis, before + cache.frames_of(row))
        for part, row, before in zip(parts, rows, frames, strict=True)
    ]


def _window_of(lowered: Lowered, name: str) -> tuple[CacheAxis, int] | None:
    """Return the cache axis and frames axis of a state whose newest frames lie in its last slots; else None."""
    state = next((each for each in lowered.states if each.output == name), None)
    cache = None if state is None else lowered.cache_of(state)
    if state is None or cache is None or state.frames_axis is None:
        return None
    return (cache, state.frames_axis) if cache.kind.is_given_whole else None


def _newest(array: Array, axis: int, count: int) -> Array:
    """Return the last frames; the slots in front of them are free in the next call, too."""
    return array[(slice(None),) * axis + (slice(max(array.shape[axis] - count, 0), None),)]


def _reset(runner: Runner, state: State, rows: Array) -> Array:
    """Return a copy of a state in which some rows have their initial values."""
    array = runner.states[state.input].copy()
    array[rows] = runner.initial(state)[rows]
    return array
