"""Synthetic traffic for `benchmarks.scheduling`: live chunks, autoregressive voices and utterances on one device.

Costs are affine, in ms: a chunk 4 + 0.35 B, a step of a voice 8 + 0.08 B, an utterance 6.2 + 0.25 B x seconds. Every
stream sends a chunk per 640 ms. A voice needs a frame per 80 ms: its next step can begin when the frame before begins
to play, and the voice has a gap when a frame comes more than 100 ms after that. An answer to an utterance is worth
nothing after 2 s.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge

import numpy as np

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.cost_table import CostTable, Spread
from runtime_lite.scheduling.task import CHUNK, FIRST_PACKET, STEP, UTTERANCE, Key, Task, task_at

MS = NS_PER_MS
S = 1000 * MS
ROWS = (1, 2, 4, 8, 16, 32, 64)
LENGTHS_S = (2, 3, 4, 5, 6, 8, 10, 12, 15)
CHUNKS, STEPS = Key("recogniser", "encoder"), Key("voice", "decoder")
OFFLINE = {length: Key("offline", "encoder", (("seconds", length),), ("seconds",)) for length in LENGTHS_S}
CHUNK_PERIOD, FRAME, LATE, GAP = 640 * MS, 80 * MS, 300 * MS, 100 * MS
MEAN_UTTERANCE_S, VOICES_PER_S, MEAN_VOICE_FRAMES = 4.4, 3.0, 50


def mixed_costs() -> CostTable:
    """Return the cost table of all three models."""
    costs = CostTable()
    costs.add(CHUNKS, {rows: Spread.always(int((4 + 0.35 * rows) * MS)) for rows in ROWS})
    costs.add(STEPS, {rows: Spread.always(int((8 + 0.08 * rows) * MS)) for rows in ROWS})
    for length, key in OFFLINE.items():
        costs.add(key, {rows: Spread.always(int((6.2 + 0.25 * rows * length) * MS)) for rows in ROWS})
    return costs


@dataclass(frozen=True)
class Load:
    """The load of a simulation.

    Attributes:
        streams: live streams.
        utterances_per_s: one rate, or one rate for each equal part of the time.
        seconds: duration of the load.
        soft_ms: soft target of chunks.
    """

    streams: int
    utterances_per_s: tuple[float, ...]
    seconds: float
    soft_ms: float = 160.0


@dataclass
class Outcome:
    """The results of a simulation; times in ms."""

    chunk_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    voices: int = 0
    broken: set[int] = field(default_factory=set)
    offered: list[tuple[int, float]] = field(default_factory=list)  # arrival, seconds of every utterance
    in_time: list[tuple[int, float]] = field(default_factory=list)  # of those answered in time
    after_deadline: int = 0

    @property
    def late(self) -> float:
        """Part of the chunks that were late."""
        return sum(ms > LATE / MS for ms in self.chunk_ms) / max(len(self.chunk_ms), 1)

    @property
    def gaps(self) -> float:
        """Part of the voices with a gap."""
        return len(self.broken) / max(self.voices, 1)

    def audio_in_time(self, start: float = 0.0, end: float = 1e9) -> float:
        """Return the seconds of audio answered in time that came between two times in s."""
        return sum(seconds for at, seconds in self.in_time if start * S <= at < end * S)

    def share_in_time(self, start: float = 0.0, end: float = 1e9) -> float:
        """Return the part of the utterances answered in time that came between two times in s."""
        offered = sum(start * S <= at < end * S for at, _ in self.offered)
        return sum(start * S <= at < end * S for at, _ in self.in_time) / max(offered, 1)

    def chunk_percentile_ms(self, percent: float) -> float:
        """Return a percentile of the latency of chunks."""
        return float(np.percentile(self.chunk_ms, percent)) if self.chunk_ms else 0.0


class MixedTraffic:
    """The traffic of a load.

    Args:
        load: the load.
        seed: seed of all random numbers.
        retries: number of times that a dropped or refused utterance is sent again, as a new one.
    """

    def __init__(self, load: Load, seed: int, retries: int = 0) -> None:
        """Draw the tasks that do not follow from answers."""
        self.load = load
        self.outcome = Outcome()
        self.chunk = CHUNK._replace(soft_ms=load.soft_ms)
        self._random = random.Random(seed)
        self._retries = retries
        self._tried: dict[Task, int] = {}
        self._frames: dict[int, int] = {}

    def arrivals(self) -> Iterator[Task]:
        """Yield the drawn tasks; later steps of a voice follow from its frames."""
        yield from merge(self._chunks(), self._voices(), self._utterances(), key=lambda task: task.arrival)

    def _chunks(self) -> Iterator[Task]:
        end = int(self.load.seconds * S)
        phases = sorted(self._random.randrange(CHUNK_PERIOD) for _ in range(self.load.streams))
        for period in range(0, end, CHUNK_PERIOD):
            for number, phase in enumerate(phases):
                if period + phase < end:
                    yield task_at(CHUNKS, self.chunk, period + phase, stream=number, worth=0.64)

    def _voices(self) -> Iterator[Task]:
        draw, at = random.Random(self._random.random()), 0.0
        while (at := at + draw.expovariate(VOICES_PER_S)) < self.load.seconds:
            number = 1_000_000 + self.outcome.voices
            self.outcome.voices += 1
            self._frames[number] = max(2, int(draw.expovariate(1 / MEAN_VOICE_FRAMES)))
            yield task_at(STEPS, FIRST_PACKET, int(at * S), stream=number, worth=0.08)

    def _utterances(self) -> Iterator[Task]:
        draw, rates = random.Random(self._random.random()), self.load.utterances_per_s
        at = 0.0
        while True:
            part = min(int(at / self.load.seconds * len(rates)), len(rates) - 1)
            at += draw.expovariate(rates[part])
            if at >= self.load.seconds:
                return
            seconds = min(max(draw.gammavariate(2.5, MEAN_UTTERANCE_S / 2.5), 0.5), 15.0)
            yield self._utterance(int(at * S), seconds)

    def _utterance(self, at: int, seconds: float) -> Task:
        key = OFFLINE[next(length for length in LENGTHS_S if length >= seconds)]
        self.outcome.offered.append((at, seconds))
        return task_at(key, UTTERANCE, at, worth=seconds)

    def done(self, task: Task, now: int) -> Iterable[Task]:
        """Record an answer; a frame of a voice allows its next step when it plays."""
        waited_ms = (now - task.arrival) / MS
        if task.key == CHUNKS:
            self.outcome.chunk_ms.append(waited_ms)
        elif task.key == STEPS:
            assert task.stream is not None
            return self._next_frame(task, task.stream, now)
        elif task.hard is not None and now <= task.hard:
            self.outcome.in_time.append((task.arrival, task.worth))
        else:
            self.outcome.after_deadline += 1
        return ()

    def _next_frame(self, task: Task, voice: int, now: int) -> list[Task]:
        first = task.service == FIRST_PACKET
        if first:
            self.outcome.first_ms.append((now - task.arrival) / MS)
        elif now - task.arrival > GAP:
            self.outcome.broken.add(voice)
        self._frames[voice] -= 1
        if not self._frames[voice]:
            return []
        plays = now if first else max(now, task.arrival + FRAME)
        return [task_at(STEPS, STEP, plays, stream=voice, worth=0.08)]

    def lost(self, task: Task, reason: str, now: int) -> Iterable[Task]:
        """Return the utterance again if its client retries, as a new task."""
        tried = self._tried.pop(task, 0)
        if task.service != UTTERANCE or tried >= self._retries:
            return ()
        again = task_at(task.key, UTTERANCE, now + 50 * MS, worth=task.worth)
        self._tried[again] = tried + 1
        return [again]


def real_costs(costs: CostTable, factor: float = 1.0) -> dict[tuple[Key, int], int]:
    """Return the real duration of every run: that of the table times a factor."""
    keys: Sequence[Key] = (CHUNKS, STEPS, *OFFLINE.values())
    return {(key, rows): int(costs.cost(key, rows) * factor) for key in keys for rows in costs.row_buckets(key)}
