"""Computes the arrival times of requests: a pure function of the traffic and a seed.

The loop is open: nobody waits for an answer before the next request comes, so that a server that falls behind is seen
to fall behind. Latency counts from here, not from when the generator got round to it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

NS_PER_S = 1_000_000_000

Kind = Literal["stream", "utterance", "burst"]
"""A chunk of a live stream; a recording as it comes; recordings that come at once."""


@dataclass(frozen=True)
class Traffic:
    """What comes, for how long.

    Attributes:
        seconds: for how long requests come.
        streams: live streams at once; one that has ended is followed by another.
        chunks: chunks of a stream.
        period_s: from chunk to chunk of a stream.
        utterances_per_s: recordings on the average, each on its own (Poisson).
        burst: recordings that come at once.
        burst_every_s: from burst to burst; the first comes after half of it.
    """

    seconds: float
    streams: int = 0
    chunks: int = 100
    period_s: float = 0.16
    utterances_per_s: float = 0.0
    burst: int = 0
    burst_every_s: float = 1.0


class Arrival(NamedTuple):
    """One request that is meant to come.

    Attributes:
        at: nanoseconds after the start.
        kind: of what it is part.
        source: number of its stream, counted from 0; of its burst, or of the recording.
        item: which chunk of the stream, or which one of the burst, from 0.
        last: whether its stream ends with it.
    """

    at: int
    kind: Kind
    source: int
    item: int
    last: bool


def arrivals_of(traffic: Traffic, seed: int) -> list[Arrival]:
    """All arrivals in the order of time; equal seeds give equal ones."""
    end = round(traffic.seconds * NS_PER_S)
    found = [*_stream_arrivals(traffic, end, random.Random(f"{seed} streams"))]
    found += _utterance_arrivals(traffic, end, random.Random(f"{seed} utterances"))
    found += _burst_arrivals(traffic, end)
    return sorted(found)


def _stream_arrivals(traffic: Traffic, end: int, phases: random.Random) -> Iterator[Arrival]:
    """Streams begin anywhere in a period, and the first ones anywhere in a recording, so that their ends spread."""
    period = round(traffic.period_s * NS_PER_S)
    number = 0
    for _ in range(traffic.streams):
        at = phases.randrange(max(period, 1))
        left = phases.randint(1, traffic.chunks)
        while at < end:
            due = [time for time in range(at, at + left * period, period) if time < end]
            for item, time in enumerate(due):
                yield Arrival(time, "stream", number, item, item == len(due) - 1)
            number += 1
            at, left = at + left * period, traffic.chunks


def _utterance_arrivals(traffic: Traffic, end: int, gaps: random.Random) -> Iterator[Arrival]:
    at, number = 0.0, 0
    while traffic.utterances_per_s > 0.0 and (at := at + gaps.expovariate(traffic.utterances_per_s) * NS_PER_S) < end:
        yield Arrival(round(at), "utterance", number, 0, True)
        number += 1


def _burst_arrivals(traffic: Traffic, end: int) -> Iterator[Arrival]:
    every = round(traffic.burst_every_s * NS_PER_S)
    for number, at in enumerate(range(every // 2, end, every)):
        yield from (Arrival(at, "burst", number, item, True) for item in range(traffic.burst))
