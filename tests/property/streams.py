"""Random step graphs through the whole path: whatever is accepted answers as its author's own loop, call after call.

`python -m tests.property.streams --graphs 20000 --seed 0` draws many; the tests draw a few. Each graph goes through the
standard passes, and its certificate through the checker. Rows that begin at different calls, with chunks of lengths of
their own, then run side by side, and each is compared with a plain loop over the graph as it was drawn; at last every
padded place is filled with poison.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import signal
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias
from unittest import mock

import numpy as np
import onnx_ir as ir
import pydantic

from compiler.build.capture.initial_graph import initial_graph
from compiler.build.lowering.certificates import replay_certificates
from compiler.build.verify.invariance_check import check_invariance
from compiler.errors import GateFailed, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.padded_chunks import side_by_side
from compiler.graph.runners.session import Session, open_model, session_of
from compiler.graph.runners.stream import Runner, expected_states
from compiler.graph.stages import Array, Feed, Lowered
from compiler.graph.stages import Outcome as Done
from compiler.passes import make_pass
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.property.double_precision import InDouble
from tests.property.respelling import Respelling
from tests.property.stream_encoders import grow_encoder
from tests.property.stream_first_calls import grow_with_first
from tests.property.stream_graphs import feeds_of, grow
from tests.property.stream_grower import WIDTH, Grown
from tests.property.stream_served import FLUSHED, can_flush, served

ROWS = 3
SERVED = 4
"""One graph in this many is also served."""
STARTED = 10
"""One graph in this many has a first call that is a graph of its own, and as many are encoders."""
LIMIT_S = 240.0
"""Seconds of this process's own time that a graph may take: one that takes longer hangs."""

FINE = ("accepted", "refused", "ill-conditioned", "undefined")
TOLERANCE = 1e-4
PROVES = "pad_axes"
"""The standard pass that gives certificates."""


class Unsound(AssertionError):
    """A graph that was accepted answers otherwise than its author's loop."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one graph.

    Attributes:
        kind: `accepted`, `refused`, `unsound`, `disagreement`, where the checker does not follow the prover, or
            `undefined`, where the author's own loop answers with no numbers, or `ill-conditioned`, where what differs
            is rounding: in double precision nothing does.
        told: why it was refused, or what differs.
        layers: of the graph.
    """

    kind: str
    told: str = ""
    layers: tuple[str, ...] = ()


class Disagreement(AssertionError):
    """The checker does not follow the prover."""


class Undefined(Exception):
    """The author's own loop answers with no numbers, or not at all."""


class AuthorsLoop:
    """The graph as it was drawn, call after call, in the way of its author; caches keep their newest frames.

    Args:
        grown: the graph.
        sessions: run it, and its first call where that is a graph of its own.
    """

    def __init__(self, grown: Grown, sessions: Sequence[Session]) -> None:
        self.grown, self.session, self.first = grown, sessions[0], sessions[-1]
        self.inputs = grown.spec.inputs
        self.slots = {name: axis.window for name, axis in grown.spec.axes.items() if axis.window is not None}
        self.own = {
            name: given.original if given.original is not None else given.shape for name, given in self.inputs.items()
        }
        self.carried = {name: self._begun(name) for name, given in self.inputs.items() if given.is_carried}

    def _begun(self, name: str) -> Array:
        given, sizes = self.inputs[name], [self._beginning(size) for size in self.own[name]]
        return np.broadcast_to(np.asarray(0 if given.initial is None else given.initial), sizes).astype(given.dtype)

    def _beginning(self, size: int | str) -> int:
        spec = self.grown.spec
        if isinstance(size, int):
            return size
        return 0 if size in self.slots else spec.slots(size) if size in spec.held else spec.axes[size].fixed or 1

    @property
    def states(self) -> dict[str, Array]:
        """What the next call takes, the batch in front."""
        return {name: self._in_front(self._filled(name), self._row_axis(name)) for name in self.carried}

    def _filled(self, name: str) -> Array:
        """A state in all places of the axes that it is held along, zeros behind those that there are."""
        array, held = self.carried[name], self.grown.spec.held
        free = [self._beginning(size) - there if size in held else 0
                for size, there in zip(self.own[name], array.shape, strict=True)]  # fmt: skip
        return np.pad(array, [(0, each) for each in free]) if free else array

    def _of_call(self, name: str, length: int) -> Array:
        """A state as long as a call along the axes that it is held along."""
        held = self.grown.spec.held
        return np.asarray(self.carried[name][tuple(slice(length if size in held else None) for size in self.own[name])])

    def _row_axis(self, name: str) -> int | None:
        return 0 if self.inputs[name].original is None else self.inputs[name].row_axis

    def _as_authored(self, name: str, array: Array) -> Array:
        place = self._row_axis(name)
        if place is None:
            return np.asarray(array[0])
        return np.moveaxis(array, 0, place) if place else array

    def _in_front(self, array: Array, place: int | None) -> Array:
        if place is None:
            return array[np.newaxis]
        return np.moveaxis(array, place, 0) if place else array

    def push(self, feed: Feed) -> Array:
        """The scores of a chunk, the batch in front.

        Raises:
            Undefined: there are none.
        """
        given = {name: self._as_authored(name, array) for name, array in feed.items()}
        if self.first is self.session:
            given |= {name: self._of_call(name, self.grown.length_of(feed)) for name in self.carried}
        names, session = [str(value.name) for value in self.grown.model.graph.outputs], self.first
        self.first = self.session
        try:
            results = dict(zip(names, session.run(None, given), strict=True))
        except Exception as error:
            raise Undefined(str(error)) from error
        if not all(np.isfinite(array).all() for array in results.values()):
            raise Undefined("not a number")
        for name in self.carried:
            self.carried[name] = self._next(name, results, feed)
        return self._in_front(np.asarray(results["scores"]), self.grown.rows)

    def _next(self, name: str, results: Mapping[str, Array], feed: Feed) -> Array:
        given = self.inputs[name]
        if given.state is None:
            return np.asarray(self.carried[name] + self.grown.counts[name][self.grown.length_of(feed) - 1])
        array = np.asarray(results[given.state])
        for at, size in enumerate(self.own[name]):
            if size in self.slots:
                array = np.take(array, range(max(array.shape[at] - self.slots[str(size)], 0), array.shape[at]), at)
        return array


def drawn(seed: int) -> Grown:
    """The graph of a seed: some have a first call of their own, look-ahead, two rates, or other spellings of nodes.

    Raises:
        pydantic.ValidationError: the recipe is refused.
    """
    if seed % STARTED == STARTED - 2:
        return grow_encoder(seed)
    if seed % STARTED == STARTED - 3:
        return respelled(grow(seed), seed)
    return grow_with_first(seed) if seed % STARTED == STARTED - 1 else grow(seed)


def respelled(grown: Grown, seed: int) -> Grown:
    """The same graph, its nodes in other legal spellings."""
    model = graphs.clone(grown.model)
    graphs.infer_shapes(model)
    Respelling(model, np.random.default_rng(seed)).apply()
    graphs.recount_names(model.graph)
    return dataclasses.replace(grown, model=model)


def lowered_of(grown: Grown) -> Lowered:
    """The graph after the standard passes.

    Raises:
        Refused: a pass does not take it.
        Disagreement: the checker does not follow the certificate of a pass.
    """
    for name, before, outcome in followed(grown):
        try:
            replay_certificates(before, outcome)
        except GateFailed as failed:
            raise Disagreement(f"{name}: {failed}") from None
    return outcome.lowered


def followed(grown: Grown) -> Iterator[tuple[str, Lowered, Done]]:
    """The graph through the standard passes: the name of each, what it is given and what it makes.

    Raises:
        Refused: a pass does not take it.
    """
    lowered = begun(grown)
    for name in STANDARD_PASSES:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model)) if name == PROVES else lowered
        outcome = make_pass(name, {}).apply(lowered)
        assert name == PROVES or not outcome.records, f"{name} changes the graph that its certificate is about"
        yield name, before, outcome
        lowered = outcome.lowered


def begun(grown: Grown) -> Lowered:
    """The graph before the first pass."""
    first = None if grown.first is None else graphs.clone(grown.first)
    models, longest = (graphs.clone(grown.model), first), {"chunk": grown.chunk}
    return initial_graph(mock.Mock(), "net", grown.spec, models, 10_000, longest)


Open: TypeAlias = Callable[[ir.Model], Session]
"""Opens a model: in ONNX Runtime, or in double precision."""


def sessions_of(grown: Grown, opened: Open = open_model) -> list[Session]:
    """What runs the graph as it was drawn, and its first call where that is a graph of its own.

    Raises:
        Undefined: nothing does.
    """
    try:
        return [opened(each) for each in (grown.model, grown.first) if each is not None]
    except Exception as error:
        raise Undefined(str(error)) from error


def try_graph(seed: int) -> Outcome:
    """What becomes of the graph of a seed."""
    try:
        grown = drawn(seed)
    except pydantic.ValidationError as refused:
        return Outcome("refused", refused.errors()[0]["msg"])
    try:
        lowered = lowered_of(grown)
        compare(grown, lowered, np.random.default_rng(seed + 1), is_served=seed % SERVED == 0)
    except (Refused, RecipeError) as refused:
        return Outcome("refused", refused.message, grown.layers)
    except Disagreement as failed:
        kind = "disagreement" if _has_answers(grown, seed) else "undefined"
        return Outcome(kind, str(failed), grown.layers)
    except (Unsound, GateFailed) as failed:
        kind = "ill-conditioned" if _holds_in_double(grown, lowered, seed) else "unsound"
        return Outcome(kind, str(failed), grown.layers)
    except Undefined as failed:
        return Outcome("undefined", str(failed), grown.layers)
    return Outcome("accepted", layers=grown.layers)


def _holds_in_double(grown: Grown, lowered: Lowered, seed: int) -> bool:
    """Whether nothing differs in double precision; false where that cannot be told."""
    try:
        compare(grown, lowered, np.random.default_rng(seed + 1), is_served=False, opened=InDouble)
    except Exception:  # noqa: BLE001 - whatever it is, nothing was shown
        return False
    return True


def _has_answers(grown: Grown, seed: int) -> bool:
    """Whether the author's loop runs at all; of a graph with a recipe that is wrong it may not."""
    try:
        loop = AuthorsLoop(grown, sessions_of(grown))
        loop.push(feeds_of(grown, np.random.default_rng(seed), 1)[0])
    except Undefined:
        return False
    return True


def compare(
    grown: Grown, lowered: Lowered, rng: np.random.Generator, *, is_served: bool, opened: Open | None = None
) -> None:
    """Rows of different ages beside each other against the author's loop, and poison in all padding.

    Args:
        grown: the graph.
        lowered: what became of it.
        rng: draws chunks, and what lies behind them.
        is_served: whether the runtime serves the graph as well.
        opened: opens both graphs; None for ONNX Runtime, as bundles are run.

    Raises:
        Unsound: an answer or a state differs.
        GateFailed: poison is seen.
        Undefined: the author's loop has no answer.
    """
    minimum = max((each.minimum for each in lowered.padded_axes), default=1)
    if minimum > grown.chunk:
        raise Refused(f"no chunk is as long as {minimum}")
    grown = dataclasses.replace(grown, shortest=max(minimum, grown.shortest))
    count = ROWS if grown.whole is None else 1
    rows = [feeds_of(grown, rng, int(rng.integers(4, 9))) for _ in range(count)]
    starts = [0, *(int(each) for each in rng.integers(0, 3, count - 1))]
    session = (opened or session_of)(lowered.model)
    own = sessions_of(grown, opened or open_model)
    runner = Runner(lowered, session, count, fill=float(rng.choice([0.0, 1e30, np.nan])))
    loops = [AuthorsLoop(grown, own) for _ in range(count)]
    idle = {name: np.zeros_like(array) for name, array in rows[0][0].items()}
    for call in range(min(start + len(chunks) for start, chunks in zip(starts, rows, strict=True))):
        for row in [row for row, start in enumerate(starts) if start == call]:
            _restart(runner, row)
        feeds = [rows[row][call - start] if call >= start else idle for row, start in enumerate(starts)]
        truth = {row: loops[row].push(feeds[row]) for row, start in enumerate(starts) if call >= start}
        outputs = runner.step(side_by_side(lowered, feeds))
        for row, expected in truth.items():
            got = outputs["scores"]
            if grown.whole is None:
                got = got[row : row + 1, : expected.shape[1]]
            _require_close(got, expected, f"scores of row {row} at call {call}")
            for name, state in expected_states(lowered, loops[row].states).items():
                got = runner.states[name] if grown.whole is not None else runner.states[name][row : row + 1]
                _require_close(got, state, f"{name} of row {row} at call {call}")
    check_invariance(Runner(lowered, session, count), rows[0][:5])
    if is_served:  # up to the first chunk that a bundle refuses, as a longer one at its place would leave a table
        within = [list(itertools.takewhile(lambda feed: _is_in_range(lowered, feed), feeds)) for feeds in rows]
        _compare_served(grown, lowered, within, starts, own)


def _is_in_range(lowered: Lowered, feed: Feed) -> bool:
    """Whether a bundle of the graph takes the numbers of a feed."""
    return all(low <= feed[name].min() and feed[name].max() <= high for name, (low, high) in lowered.ranges.items())


def _compare_served(
    grown: Grown,
    lowered: Lowered,
    rows: Sequence[Sequence[Feed]],
    starts: Sequence[int],
    own: Sequence[Session],
) -> None:
    chunk = grown.fed({"features": np.zeros((1, FLUSHED, WIDTH), np.float32)})
    silence = {name: np.zeros_like(array) for name, array in chunk.items()}
    loops = [AuthorsLoop(grown, own) for _ in rows]
    truth = [[loop.push(feed) for feed in feeds] for loop, feeds in zip(loops, rows, strict=True)]
    if can_flush(grown):
        truth = [[*pushed, loop.push(silence)] for loop, pushed in zip(loops, truth, strict=True)]
    for row, answers in enumerate(served(grown, lowered, rows, starts)):
        for call, (answer, expected) in enumerate(zip(answers, truth[row], strict=True)):
            _require_close(answer["scores"], expected, f"served scores of row {row} at call {call}")


def _restart(runner: Runner, row: int) -> None:
    """Let a row begin a new stream, whatever it has carried; a call that is given whole is one that has just begun."""
    for state in runner.lowered.states if runner.lowered.batch_axis is not None else ():
        runner.states[state.input][row] = runner.initial(state)[row]
    for lengths in runner.lengths.values():
        lengths[row] = 0


def _require_close(got: Array, expected: Array, what: str) -> None:
    scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
    if got.shape != expected.shape or not np.max(np.abs(got - expected), initial=0.0) <= TOLERANCE * scale:
        raise Unsound(f"expected {what} {expected.ravel()[:4]} of shape {expected.shape}, got {got.ravel()[:4]}")


def outcomes(seeds: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    """What becomes of the graphs of some seeds."""
    for seed in seeds:
        try:
            with _limited(LIMIT_S):
                outcome = try_graph(seed)
            yield seed, outcome
        except TimeoutError as late:
            yield seed, Outcome("hang", str(late))
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed is what a person needs
            yield seed, Outcome("error", f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise where what is inside takes more of this process's own time, as a loop without an end does.

    Raises:
        TimeoutError: it does; says where it was.
    """

    def stop(number: int, frame: types.FrameType | None) -> None:
        at = "" if frame is None else f", in {frame.f_code.co_name} of {frame.f_code.co_filename}:{frame.f_lineno}"
        raise TimeoutError(f"more than {seconds:g} s{at}")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def counted(found: Mapping[int, Outcome]) -> dict[str, int]:
    """How many graphs came to what."""
    return dict(collections.Counter(outcome.kind for outcome in found.values()))


def by_layer(found: Mapping[int, Outcome]) -> str:
    """For each layer, the graphs with it that were accepted, of those that were drawn."""
    drawn = collections.Counter(layer for each in found.values() for layer in set(each.layers))
    taken = collections.Counter(
        layer for each in found.values() if each.kind == "accepted" for layer in set(each.layers)
    )
    return "accepted by layer: " + ", ".join(f"{name} {taken[name]}/{count}" for name, count in sorted(drawn.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw graphs, and say what became of them; 1 if any was unsound, or the checker did not follow."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.streams", description=__doc__)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found, began = {}, time.monotonic()
    for seed, outcome in outcomes(range(given.seed, given.seed + given.graphs)):
        found[seed] = outcome
        if outcome.kind not in FINE:
            print(f"seed {seed}: {outcome.kind}: {outcome.told}", flush=True)
        if len(found) % 200 == 0:
            print(f"{len(found)} graphs, {time.monotonic() - began:.0f} s: {counted(found)}", flush=True)
    reasons = collections.Counter(outcome.told[:90] for outcome in found.values() if outcome.kind == "refused")
    for reason, count in reasons.most_common(25):
        print(f"  refused {count}: {reason}")
    print(by_layer(found))
    print(f"{len(found)} graphs from seed {given.seed}: {counted(found)}")
    return int(any(outcome.kind not in FINE for outcome in found.values()))


if __name__ == "__main__":
    sys.exit(main())
