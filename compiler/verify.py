"""Compares a graph with the original model over chained calls, and finds the first value that differs.

The reference is the original in its own framework, its caches cut to the window before each call. What is compared:
every output and every state, as the passes so far have reshaped it, in every step.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from compiler import ir as house
from compiler.ahead import ahead
from compiler.errors import DataError, GateFailed, Place
from compiler.evaluate import Session, session_of
from compiler.gate_rows import GateRow
from compiler.one_row import caller_dims, for_callers
from compiler.recipe import Limits
from compiler.rows import RowsRunner
from compiler.sizes import Dim
from compiler.stages import Array, Feed, Lowered, StateMap, newest


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of the original.

    Attributes:
        feed: what the caller gives.
        outputs: every output by name, states among them as the original returns them.
        states: what the next call takes, caches cut to the window.
    """

    feed: Feed
    outputs: Mapping[str, Array]
    states: Mapping[str, Array]
    _last: list[tuple[Sequence[StateMap], Mapping[str, Array]]] = dataclasses.field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def states_after(self, maps: Sequence[StateMap]) -> Mapping[str, Array]:
        """The states as passes have reshaped them.

        The last answer is kept: a graph is compared after every pass, and few passes reshape states once more.
        """
        done, states = self._last[0] if self._last else ((), self.states)
        if done != maps[: len(done)]:
            done, states = (), self.states
        self._last[:] = [(maps, mapped(maps[len(done) :], states))]
        return self._last[0][1]

    def repeated(self, rows: int) -> "Step":
        """The same call with so many equal rows."""
        parts = (self.feed, self.outputs, self.states)
        return Step(*({name: np.repeat(array, rows, axis=0) for name, array in part.items()} for part in parts))


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of one tensor over all steps.

    Attributes:
        tensor: output or state name.
        steps: compared steps.
        max_abs: largest absolute difference; NaN or infinity where one side has them alone.
        reference_max: largest absolute value of the reference.
        worst_step: step of the largest difference.
        early: largest difference in the first half of the steps, to show growth.
        late: largest difference in the second half.
        sqnr_db: signal to quantisation noise over all steps, 10 log10(sum of squares / sum of squared differences);
            None without a difference, or without a signal.
    """

    tensor: str
    steps: int
    max_abs: float
    reference_max: float
    worst_step: int
    early: float
    late: float
    sqnr_db: float | None = None

    def limit(self, limits: Limits) -> float:
        """The accepted difference, relative to values above 1."""
        return limits.max_abs * max(1.0, self.reference_max)

    def holds(self, limits: Limits) -> bool:
        """Whether the difference is within the limits; NaN never is."""
        return self.used(limits) <= 1.0

    def used(self, limits: Limits) -> float:
        """The share of the limits that is used up; above 1 it does not hold, infinity stands for NaN."""
        share = self.max_abs / self.limit(limits)
        if math.isnan(share) or limits.sqnr_db is None or self.sqnr_db is None:
            return math.inf if math.isnan(share) else share
        return max(share, math.pow(10.0, (limits.sqnr_db - self.sqnr_db) / 20.0))

    def exceeded(self, limits: Limits) -> str:
        """What is expected and what came, for messages."""
        if self.max_abs <= self.limit(limits):
            return f"at least {limits.sqnr_db:g} dB above its rounding noise, got {self.sqnr_db:.1f} dB"
        return (
            f"within {self.limit(limits):.3g} of the original, got a difference of {self.max_abs:.3g} at chained step "
            f"{self.worst_step}"
        )


class Stepper(Protocol):
    """What runs a graph call after call: `Runner`, or `RowsRunner` where rows have lengths of their own."""

    states: dict[str, Array]

    def step(self, feed: Feed) -> dict[str, Array]:
        """Run one call and keep its states; all outputs by name."""
        ...


class Runner:
    """Runs a lowered graph call after call, feeding lengths, masks and states as its record says.

    Args:
        lowered: the graph's record; its model gives names and shapes.
        session: runs the model.
        batch: rows of every call.
        first: runs the first call while it is a graph of its own.
    """

    def __init__(self, lowered: Lowered, session: Session, batch: int = 1, first: Session | None = None) -> None:
        self.lowered, self.session, self.batch = lowered, for_callers(session, lowered), batch
        self.first = None if first is None else for_callers(first, lowered)
        self.inputs = house.inputs_named(lowered.model)
        self.outputs = list(house.outputs_named(lowered.model))
        self.length = np.zeros(batch, np.int64)
        dims = caller_dims(lowered)
        self.states = {state.input: self._initial(state.input, dims[state.input]) for state in lowered.states}
        self.started = False

    def _initial(self, name: str, dims: Sequence[Dim]) -> Array:
        """Zeros; a dynamic cache starts with no frames."""
        value = self.inputs[name]
        window = self.lowered.window
        axis = window.axis if window is not None else None
        shape = [
            dim if isinstance(dim, int) else 0 if axis is not None and str(dim) == axis else self.batch for dim in dims
        ]
        return np.zeros(shape, value.dtype.numpy() if value.dtype else np.float32)

    def full_feed(self, feed: Feed) -> dict[str, Array]:
        """The caller's feed with states, length and mask."""
        full = {**feed, **self.states}
        window = self.lowered.window
        if window is not None and window.length_input in self.inputs:
            full[window.length_input] = self.length
        if window is not None and window.mask_input is not None and window.mask_input in self.inputs:
            full[window.mask_input] = mask_of(self.length, window.frames, window.step_frames)
        return {name: array for name, array in full.items() if name in self.inputs}

    def step(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        """Run one call and keep its states; all outputs by name.

        Args:
            feed: what the caller gives.
            more: inputs that a copy of the graph has besides; the first call takes those that its own copy has.
        """
        if self.first is not None and not self.started:
            names = {value.name for value in (self.lowered.first_call or self.lowered.model).graph.inputs}
            given = {**feed, **(more or {})}
            results = self.first.run(None, {name: array for name, array in given.items() if name in names})
            outputs = dict(zip(self.outputs, results, strict=True))
        else:
            full = {**self.full_feed(feed), **(more or {})}
            outputs = dict(zip(self.outputs, self.session.run(self.outputs, full), strict=True))
        self.started = True
        window = self.lowered.window
        for state in self.lowered.states:
            array = outputs[state.output]
            cut = (
                array
                if state.frames_axis is None or window is None
                else newest(array, state.frames_axis, window.frames)
            )
            self.states[state.input] = cut
        if window is not None:
            self.length = np.minimum(self.length + window.step_frames, window.frames)
        return outputs


def mask_of(length: Array, frames: int, step_frames: int) -> Array:
    """The 0/1 float32 mask [rows, frames + step_frames] of right-aligned caches with these true lengths."""
    slots = np.arange(frames + step_frames)
    return (slots[None] >= frames - length[:, None]).astype(np.float32)


def runner_of(lowered: Lowered, batch: int = 1) -> Stepper:
    """A runner of an intermediate graph, with optimisation off so that only our rewrites are measured."""
    return runners_of(lowered, batch)()


def runners_of(lowered: Lowered, batch: int = 1) -> Callable[[], Stepper]:
    """Makes runners as `runner_of` does, one per stream; all share one session."""
    session = session_of(lowered.model)
    if lowered.padded_axes:
        return lambda: RowsRunner(lowered, session)
    first = None if lowered.first_call is None else session_of(lowered.first_call)
    return lambda: Runner(lowered, session, batch, first)


def expected_states(lowered: Lowered, states: Mapping[str, Array]) -> dict[str, Array]:
    """The original's states as the passes have reshaped them."""
    return mapped(lowered.state_maps, states)


def mapped(maps: Sequence[StateMap], states: Mapping[str, Array]) -> dict[str, Array]:
    """States as passes with these maps have reshaped them."""
    found = dict(states)
    for state_map in maps:
        found = state_map.apply(found)
    return found


def expected_of(lowered: Lowered, step: Step) -> dict[str, Array]:
    """What a call must give: outputs by name, and states, as the passes have reshaped them, by the input they feed."""
    fed_back = {state.output for state in lowered.states}
    outputs = {name: array for name, array in step.outputs.items() if name not in fed_back}
    return {**outputs, **step.states_after(lowered.state_maps)}


class Tally:
    """Largest difference of one tensor, step by step."""

    def __init__(self, tensor: str) -> None:
        self.tensor = tensor
        self.errors: list[float] = []
        self.reference_max = 0.0
        self.signal, self.noise = 0.0, 0.0

    def add(self, got: Array, expected: Array) -> None:
        self.errors.append(max_abs_difference(got, expected))
        if expected.size:
            exact = expected.astype(np.float64).reshape(-1)
            finite = np.isfinite(exact)  # what the original answers otherwise has no size; it must be the same
            kept = slice(None) if np.all(finite) else finite
            self.reference_max = max(self.reference_max, float(np.max(np.abs(exact[kept]), initial=0.0)))
            self.signal += float(np.sum(exact[kept] ** 2))
            same_shape = got.shape == expected.shape
            with np.errstate(invalid="ignore", over="ignore"):
                error = got.astype(np.float64).reshape(-1)[kept] - exact[kept] if same_shape else np.array(math.inf)
                self.noise += float(np.sum(error**2))

    def difference(self) -> Difference:
        worst = int(np.argmax(np.nan_to_num(np.array(self.errors), nan=np.inf)))
        half = max(len(self.errors) // 2, 1)
        late = self.errors[half:] or self.errors
        return Difference(
            self.tensor,
            len(self.errors),
            self.errors[worst],
            self.reference_max,
            worst,
            max(self.errors[:half]),
            max(late),
            sqnr_db(self.signal, self.noise),
        )


def sqnr_db(signal: float, noise: float) -> float | None:
    """10 log10(signal / noise) of two sums of squares; None without noise or without signal."""
    if noise == 0.0 or signal == 0.0:
        return None
    return 10.0 * math.log10(signal / noise) if math.isfinite(noise) else -math.inf


def max_abs_difference(got: Array, expected: Array) -> float:
    """Largest absolute difference; infinite for different shapes or when only one side is NaN or infinite."""
    if got.shape != expected.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if np.isfinite(worst := float(np.max(difference))):
        return worst
    same = (got == expected) | (np.isnan(got) & np.isnan(expected) if got.dtype.kind == "f" else False)
    worst = float(np.max(np.where(same, 0.0, difference)))
    return float("inf") if np.isnan(worst) else worst


def compare(
    lowered: Lowered, runner: Stepper, steps: Iterable[Step], advance: Callable[[int], None] = lambda _: None
) -> list[Difference]:
    """Run the graph beside the recorded steps and tally every output and state.

    Args:
        lowered: what the graph is now.
        runner: runs it; must be fresh.
        steps: the original's calls, in order.
        advance: called with the number of compared steps.
    """
    tallies: dict[str, Tally] = {}
    answers = ((expected_of(lowered, step), {**runner.step(step.feed), **runner.states}) for step in steps)
    for count, (right, got) in enumerate(ahead(answers), start=1):
        for name, expected in right.items():
            if name in got:
                tallies.setdefault(name, Tally(name)).add(got[name], expected)
        advance(count)
    return [tally.difference() for tally in tallies.values()]


def worst_of(differences: Sequence[Difference], limits: Limits) -> Difference:
    """The difference that uses most of its limits."""
    return max(differences, key=lambda difference: difference.used(limits))


def chained_steps(run: Callable[[Iterable[Feed]], Iterator[Any]], stream: Sequence[Feed], count: int) -> list[Step]:
    """The original's first `count` calls on one stream."""
    feeds = list(stream[:count])
    steps: list[Step] = []
    for feed, (outputs, states) in zip(feeds, run(feeds), strict=True):
        for name, array in outputs.items():
            if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
                raise DataError(
                    f"expected the original to answer with finite numbers, got NaN or infinity in {name} at chained "
                    f"step {len(steps)}",
                    cure="yield feeds that the model can answer, or repair the model",
                    place=Place(stage="data", tensor=name),
                )
        steps.append(Step(feed, outputs, states))
    return steps


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


POISONS = {"NaN": np.nan, "Inf": np.inf, "-Inf": -np.inf, "1e30": 1e30, "-1e30": -1e30}


def check_invariance(lowered: Lowered, session: Session, batch: int, feeds: Sequence[Feed]) -> Invariance:
    """Fill padded cache slots and free batch rows with every poison; outputs must not change by a bit.

    Args:
        lowered: the graph's record.
        session: runs the artefact that ships.
        batch: its rows; row r is r calls late, so that the rows have different true lengths.
        feeds: calls of one stream, at least enough to fill the window.

    Raises:
        GateFailed: names the output, the poison and the step.
    """
    runner = Runner(lowered, session, batch)
    calls = 0
    for position in range(len(feeds)):
        rows = [feeds[position - row] if position >= row else None for row in range(batch)]
        shapes = {name: array.shape for name, array in feeds[0].items()}
        feed = {
            name: np.concatenate([np.zeros(shapes[name], array.dtype) if row is None else row[name] for row in rows])
            for name, array in feeds[0].items()
        }
        active = np.array([row is not None for row in rows])
        full = runner.full_feed(feed)
        clean = runner.step(feed)
        for mix in _mixes(batch, position):
            changed = _changed(runner, full, clean, active, mix)
            if changed is not None:
                raise GateFailed(
                    f"expected {changed} unchanged by {_seen(runner, full, clean, active)} in padded places, "
                    f"got other values at call {position}",
                    cure="if the model mixes rows of a batch, build buckets: [1]; otherwise report it",
                    place=Place(stage="invariance", graph=lowered.graph, tensor=changed),
                    rows=[GateRow("invariance", lowered.graph, changed, holds=False)],
                )
            calls += 1
        runner.length = np.where(active, runner.length, 0)
        runner.states = {name: _reset(array, ~active) for name, array in runner.states.items()}
    return Invariance(batch, calls, tuple(POISONS))


def _mixes(batch: int, position: int) -> list[list[str]]:
    """Contents by row for the runs of one call: each row takes every content in turn.

    With more rows than contents one run a call is enough: free rows hold all of them side by side, and by the next
    call they have moved on by a row.
    """
    labels = list(POISONS)
    turns = range(position, position + (1 if batch > len(labels) else len(labels)))
    return [[labels[(turn + row) % len(labels)] for row in range(batch)] for turn in turns]


def _changed(runner: Runner, full: Feed, clean: Mapping[str, Array], active: Array, mix: Sequence[str]) -> str | None:
    """The first output with another bit where each row's padded places hold its content of `mix`."""
    spoiled = poisoned(runner.lowered, full, active, [POISONS[label] for label in mix])
    for name, array in zip(clean, runner.session.run(list(clean), spoiled), strict=True):
        got, kept = (_rows(runner.lowered, each, active).tobytes() for each in (array, clean[name]))
        if got != kept:
            return name
    return None


def _seen(runner: Runner, full: Feed, clean: Mapping[str, Array], active: Array) -> str:
    """The content that is seen in all rows at once; a mix of contents where none of them is."""
    alone = (label for label in POISONS if _changed(runner, full, clean, active, [label] * len(active)))
    return next(alone, "a mix of contents")


def _rows(lowered: Lowered, array: Array, active: Array) -> Array:
    return array if lowered.batch_axis is None else array[active]


def _reset(array: Array, rows: Array) -> Array:
    array = array.copy()
    array[rows] = 0
    return array


def poisoned(lowered: Lowered, full: Mapping[str, Array], active: Array, poisons: Sequence[float]) -> dict[str, Array]:
    """Copies of a feed with a row's poison in the padded slots of every cache, and in everything of a free row."""
    found: dict[str, Array] = {}
    axes = {state.input: state.frames_axis for state in lowered.states}
    window = lowered.window
    for name, array in full.items():
        if array.dtype.kind != "f" or (window is not None and name == window.mask_input):
            found[name] = array
            continue
        array = array.copy()
        with np.errstate(over="ignore"):  # a huge value is infinite in half precision
            fills = np.array(poisons).astype(array.dtype)
        for row in np.flatnonzero(~active):
            array[row] = fills[row]
        axis = axes.get(name)
        if axis is not None and window is not None:
            length = full[window.length_input]
            for row in np.flatnonzero(active):
                index: list[Any] = [slice(None)] * array.ndim
                index[0], index[axis] = row, slice(0, window.frames - int(length[row]))
                array[tuple(index)] = fills[row]
        found[name] = array
    return found


def check_streams(streams: Sequence[Sequence[Feed]], needed: int, graph: str) -> None:
    """Refuse verification data that cannot show what the gate promises.

    Raises:
        DataError: no stream, an empty stream, or none with `needed` chunks.
    """
    place = Place(stage="data", graph=graph)
    if not streams:
        raise DataError("expected streams from the verification generator, got none", cure="yield streams", place=place)
    for index, stream in enumerate(streams):
        if not stream:
            raise DataError(f"expected feeds in stream {index}, got none", cure="yield no empty stream", place=place)
    longest = max(len(stream) for stream in streams)
    if longest < needed:
        raise DataError(
            f"expected a stream of at least {needed} chunks for the parity gate, got {longest} at most",
            cure="yield a longer stream, or lower chained_steps",
            place=place,
        )
