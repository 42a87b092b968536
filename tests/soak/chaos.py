"""Row 34: calls of every kind by threads at once, in any order, each answer held against what its caller knows.

Chunks carry powers of two, so that the sum in an answer says which chunks of its stream count. A chunk that was lost
may count or not, as its run had begun or not; but one that was submitted before its caller learned of the loss is
never answered as if that chunk had not been there.
"""

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtime_lite import BULK, Cancelled, Dropped, InternalError, Model, Overloaded, Runtime, Stream
from runtime_lite.errors import BadInput
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle
from runtime_lite.scheduling.task import UTTERANCE
from tests.soak.adder import fed, is_sum
from tests.soak.items import MARK
from tests.soak.lives import LIMIT_S, together
from tests.soak.observed_requests import ObservedRequests
from tests.soak.puppet import adder
from tests.soak.row import Figures

CALLERS, FACTORS, POWERS = 6, (1, 2), 10

LIFE = 12_000
"""Acts of one runtime."""

LOST = (Dropped, Cancelled, InternalError)
BEHIND = "a chunk before it was lost"


class Jittery:
    """An executor whose runs take from nothing to two milliseconds, and fail when a row is marked."""

    def __init__(self, inner: Executor) -> None:
        self._inner, self._draw = inner, random.Random(34)

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        time.sleep(self._draw.choice((0, 0, 0, 1e-4, 2e-3)))
        if (inputs["x"] == MARK).any():
            raise InternalError("a marked row")
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


def jittery(bundle: Bundle, name: str, threads: int) -> Executor:
    return Jittery(make_executor(bundle, name, threads))


class Chunk:
    """One chunk as its caller sees it.

    Attributes:
        ticket: of it.
        value: what it adds.
        before: chunks that were submitted before it, and of whose end its caller did not know then.
        is_known: whether its caller knows that it is lost, without having read it in its turn.
    """

    def __init__(self, ticket: Any, value: int, before: "list[Chunk]") -> None:
        self.ticket, self.value, self.before, self.is_known = ticket, value, before, False


class Line:
    """A stream, and what its only caller knows of it.

    Args:
        stream: at rest.
        total: sum of the chunks that count.
        count: how many they are.
        factor: of the version that it is pinned to.
        wrong: where to note what is wrong, by its name.
    """

    def __init__(self, stream: Stream, total: int, count: int, factor: int, wrong: Counter[str]) -> None:
        self.stream, self.total, self.count, self.factor, self.wrong = stream, total, count, factor, wrong
        self.pending: list[Chunk] = []
        self.unsure: list[Chunk] = []
        self.failed: list[Chunk] = []
        self._values = itertools.cycle(2**power for power in range(POWERS))

    def submit(self, draw: random.Random, with_sequence: bool) -> None:
        """Queue a chunk, perhaps with a deadline that is near, or one that fails."""
        if len(self.pending) + len(self.unsure) >= POWERS - 1:
            self.look()
        if with_sequence and self.unsure:
            self.look()
        sequence = self.count + len(self.pending) if with_sequence else None
        value, deadline = next(self._values), draw.choice((None, None, 0.3, 2.0, 50.0))
        feed = fed(MARK if draw.random() < 0.05 else value)
        try:
            ticket = self.stream.submit(feed, deadline, sequence)
        except Overloaded:
            return  # nothing was queued
        except BadInput:
            self.wrong["refused without a cause"] += not self.settle_all() and not self.stream.ended
            return
        feed["x"][:] = 555  # it is the caller's again
        self.pending.append(Chunk(ticket, value, [each for each in self.pending if not each.is_known]))

    def out_of_order(self, draw: random.Random) -> None:
        """A chunk with a number that is not the next one's is refused."""
        try:
            self.stream.submit(fed(1), sequence=self.count + len(self.pending) + len(self.unsure) + 2)
        except (BadInput, Overloaded):
            return
        self.wrong["chunks out of order"] += 1

    def push(self) -> None:
        """Push a chunk, when the others are answered."""
        self.settle_all()
        value = next(self._values)
        self._take(Chunk(None, value, []), self.stream.push(fed(value)))

    def cancel(self, draw: random.Random) -> None:
        """Take a chunk back; with none alive behind it its caller knows where the stream stands."""
        if self.pending:
            at = draw.randrange(len(self.pending))
            if self.pending[at].ticket.cancel() and all(each.ticket.done() for each in self.pending[at:]):
                self._learn(self.pending[at:])

    def peek(self, draw: random.Random) -> None:
        """Learn how a chunk ends, before those in front of it."""
        if self.pending:
            at = draw.randrange(len(self.pending))
            try:
                self.pending[at].ticket.result(LIMIT_S)
            except LOST as error:
                self._learn(self.pending[0 if getattr(error, "reason", "") == BEHIND else at :])

    def settle(self) -> bool:
        """Read the end of the oldest chunk; whether it was lost."""
        chunk, *behind = self.pending
        self.pending = behind
        try:
            self._take(chunk, chunk.ticket.result(LIMIT_S))
        except LOST as error:
            self._learn(behind)
            (self.failed if isinstance(error, InternalError) else self.unsure).append(chunk)
            return True
        return False

    def _learn(self, chunks: list[Chunk]) -> None:
        """Its caller knows that a chunk was lost, and so that those were that were queued behind it."""
        for chunk in chunks:
            chunk.is_known |= chunk.ticket.outcome not in (None, "done")

    def settle_all(self) -> bool:
        """Read the ends of all chunks; whether one was lost."""
        return sum(self.settle() for _ in list(self.pending)) > 0

    def _take(self, chunk: Chunk, outputs: Mapping[str, Array]) -> None:
        """An answer: which chunks are in its sum."""
        if not is_sum({"y": outputs["y"] / self.factor}, round(float(outputs["y"][0, 0]) / self.factor)):
            self.wrong["mixed up answers"] += 1
            return
        rest = round(float(outputs["y"][0, 0]) / self.factor) - self.total - chunk.value
        absent = self._decide(rest)
        self.wrong["chunks in the place of lost ones"] += any(each in absent for each in chunk.before)
        self.total, self.count = self.total + chunk.value, self.count + 1

    def _decide(self, rest: int) -> list[Chunk]:
        """Of the chunks that were lost, those that do not count; what the others add is known."""
        counted = [each for each in self.unsure if rest >= 0 and rest & each.value]
        absent = [each for each in [*self.unsure, *self.failed] if each not in counted]
        self.wrong["wrong sums"] += sum(each.value for each in counted) != rest
        self.total, self.count = self.total + rest, self.count + len(counted)
        self.unsure, self.failed = [], []
        return absent

    def look(self) -> Any:
        """A snapshot, once the last run has come back: it says which lost chunks count."""
        self.settle_all()
        until = time.monotonic() + LIMIT_S
        while True:
            try:
                snapshot = self.stream.snapshot()
                break
            except BadInput:
                if self.stream.ended or time.monotonic() > until:
                    raise
                time.sleep(1e-3)
        self._decide(round(float(snapshot.state.values["past"][0, 0]) / self.factor) - self.total)
        self.wrong["wrong numbers of chunks"] += snapshot.sequence != self.count
        return snapshot

    def go_back(self, draw: random.Random) -> None:
        """Restore, fork or reset a stream at rest."""
        snapshot, total, count = self.look(), self.total, self.count
        if draw.random() < 0.5:
            with contextlib.suppress(Overloaded), self.stream.fork() as twin:
                Line(twin, total, count, self.factor, self.wrong).push()
        self.push()
        if draw.random() < 0.5:
            self.stream.restore(snapshot)
            self.total, self.count = total, count
        else:
            self.stream.reset()
            self.total = self.count = 0

    def many(self, draw: random.Random) -> None:
        """Chunks as one request, read to the end, or taken back in the middle."""
        self.look()
        chunks = [Chunk(None, 2**power, []) for power in range(draw.randint(0, POWERS - 1))]
        feeds = [fed(chunk.value) for chunk in chunks]
        responses = self.stream.submit_all(feeds, draw.choice((None, 5.0)), room=draw.randint(1, 4))
        leave_at = draw.choice((None, 0, 2))
        read = 0
        try:
            for outputs in responses:
                self._take(chunks[read], outputs)
                read += 1
                if read == leave_at:
                    responses.cancel()
            self.wrong["lost responses"] += read != len(chunks)
        except LOST:
            self.unsure += chunks[read:]
            self.look()


def _is_answer(outputs: Mapping[str, Array], number: int, rows: int) -> bool:
    return any(np.array_equal(outputs["y"], factor * fed(number, rows)["x"]) for factor in FACTORS)


class Caller:
    """One caller with a stream and requests.

    Args:
        model: of an adder.
        seed: of all that it does.
        wrong: where to note what is wrong, by its name.
    """

    def __init__(self, model: Model, seed: int, wrong: Counter[str]) -> None:
        self._model, self._seed, self._wrong = model, seed, wrong
        self._draw = random.Random(seed)
        self._queued: list[tuple[Any, int, int, bool]] = []
        self._line = self._open()
        self._acts = 0

    def act(self) -> None:
        """Do something."""
        draw, line = self._draw, self._line
        self._acts += 1
        acts: list[Callable[[], object]] = [
            self._request,
            self.read,
            lambda: line.submit(draw, False),
            lambda: line.submit(draw, False),
            lambda: line.submit(draw, True),
            lambda: line.out_of_order(draw),
            lambda: line.pending and line.settle(),
            line.settle_all,
            lambda: line.cancel(draw),
            lambda: line.peek(draw),
            line.push,
            lambda: line.go_back(draw),
            lambda: line.many(draw),
            line.stream.close,
        ]
        shares = [1.0] * (len(acts) - 3) + [0.3, 0.3, 0.1]
        with contextlib.suppress(Overloaded, *LOST):
            try:
                draw.choices(acts, shares)[0]()
            except BadInput:
                self._wrong["refused without a cause"] += not line.stream.ended
        if line.stream.ended or draw.random() < 0.005:  # one that is left with chunks on their way closes by itself
            self._line = self._open()

    def _open(self) -> Line:
        while True:
            stream = self._model.open_stream(idle_s=self._draw.choice((None, 0.05, 60.0)), credits=16)
            with contextlib.suppress(BadInput):  # it idled already, where others had the processor
                factor = round(float(stream.push(fed(1))["y"][0, 0]))
                break
        self._wrong["mixed up answers"] += factor not in FACTORS
        return Line(stream, 1, 1, factor, self._wrong)

    def _request(self) -> None:
        """A request: run, queued, taken back, late, or marked."""
        draw, kind = self._draw, self._draw.randrange(6)
        number, rows = 1000 * (self._seed % 1000 + 1) + self._acts % 700, draw.choice((1, 1, 3, 70))
        feed = fed(number, rows)
        if kind == 0:
            self._wrong["mixed up answers"] += not _is_answer(self._model.run(feed), number, rows)
            return
        if kind == 1:
            feed["x"][-1] = MARK
        service, deadline = draw.choice((BULK, UTTERANCE)), draw.choice((None, None, 0.3, 3.0, 1e5))
        ticket = self._model.submit(feed, service=service, deadline_ms=deadline)
        feed["x"][:] = 555
        if kind == 2:
            ticket.cancel()
        self._queued.append((ticket, number, rows, kind == 1))

    def read(self) -> None:
        """Read the answers of what was queued."""
        while self._queued:
            ticket, number, rows, is_marked = self._queued.pop()
            try:
                outputs = ticket.result(LIMIT_S)
            except InternalError:
                self._wrong["failed neighbours"] += not is_marked
            except (Dropped, Cancelled):
                pass
            else:
                self._wrong["mixed up answers"] += is_marked or not _is_answer(outputs, number, rows)

    def end(self) -> None:
        """Read all that is left."""
        self.read()
        self._line.settle_all()


def _call(model: Model, seed: int, size: int, wrong: Counter[str]) -> None:
    """One caller, for `size` acts."""
    caller = Caller(model, seed, wrong)
    for _ in range(size):
        caller.act()
    caller.end()


def chaos(size: int, timed: bool) -> Figures:
    """Row 34: `size` acts of six callers, while bundles are swapped and lanes come and go."""
    wrong = Counter[str]()
    requests = sum(_life(seed, min(LIFE, size - seed * LIFE), wrong) for seed in range(-(-size // LIFE)))
    found = {name: value for name, value in sorted(wrong.items()) if value}
    return {"wrong": sum(found.values()), "requests": requests} | found


def _life(seed: int, size: int, wrong: Counter[str]) -> int:
    """One runtime for `size` acts; how many requests there were."""
    observed, stop = ObservedRequests(), threading.Event()
    with Runtime(workers=2, observers=[observed]) as runtime:
        model = runtime.load(adder(1), executors=jittery)

        def change(_: int) -> None:
            for at in itertools.count():
                if stop.wait(0.02):
                    return
                if at % 50 == 7:
                    runtime.swap(model, adder(FACTORS[at // 50 % 2]), executors=jittery)
                runtime.resize(1 + at % 3)
                wrong["unbalanced"] += not runtime.request_counts.balanced

        changes = threading.Thread(target=lambda: wrong.update({"fallen": together(1, change)}))
        changes.start()
        wrong["fallen"] += together(CALLERS, lambda at: _call(model, seed * CALLERS + at, size // CALLERS, wrong))
        stop.set()
        changes.join(LIMIT_S)
        runtime.drain(LIMIT_S)
        wrong["unbalanced"] += not observed.agree(runtime.request_counts) or runtime.request_counts.live > 0
    return runtime.request_counts.submitted
