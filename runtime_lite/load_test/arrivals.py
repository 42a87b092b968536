"""Computes the arrival times of requests from a description of the traffic and a seed.

The loop is open: requests do not wait for earlier answers, so that the backlog of a slow server becomes visible.
Latency counts from these times, not from the time at which the generator sent the request.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

NS_PER_S = 1_000_000_000

Kind = Literal["stream", "utterance", "burst"]
"""A chunk of a live stream; a recording; one of several recordings that come at once."""


@dataclass(frozen=True)
class Traffic:
    """The requests that come, and for how long.

    Attributes:
        seconds: time for which requests come.
        streams: number of live streams at one time; one that ends is followed by another.
        chunks: number of chunks of a stream.
        period_s: seconds between two chunks of a stream.
        utterances_per_s: average number of recordings per second, at independent times (Poisson).
        burst: number of recordings that come at once.
        burst_every_s: seconds between two bursts; the first comes after half of it.
    """

    seconds: float
    streams: int = 0
    chunks: int = 100
    period_s: float = 0.16
    utterances_per_s: float = 0.0
    burst: int = 0
    burst_every_s: float = 1.0


class Arrival(NamedTuple):
    """One planned request.

    Attributes:
        at: planned time in nanoseconds after the start.
        kind: kind of request.
        source: number of its stream, its burst or the recording, from 0.
        item: number of the chunk in its stream, or of the recording in its burst, from 0.
        last: whether it is the last one of its stream.
    """

    at: int
    kind: Kind
    source: int
    item: int
    last: bool


def arrivals_of(traffic: Traffic, seed: int) -> list[Arrival]:
    """Return all arrivals in the order of time; equal seeds give equal arrivals."""
    end = round(traffic.seconds * NS_PER_S)
    found = [*_stream_arrivals(traffic, end, random.Random(f"{seed} streams"))]
    found += _utterance_arrivals(traffic, end, random.Random(f"{seed} utterances"))
    found += _burst_arrivals(traffic, end)
    return sorted(found)


def _stream_arrivals(traffic: Traffic, end: int, phases: random.Random) -> Iterator[Arrival]:
    """Yield the chunks of streams, which begin at random times of a period.

    The first streams begin at a random chunk, so that their ends are spread.
    """
    period = round(traffic.period_s * NS_PER_S)
    number = 0
    for _ in range(traffic.streams):
        begin = phases.randrange(max(period, 1))
        left = phases.randint(1, traffic.chunks)
        while begin < end:
            due = [time for time in range(begin, begin + left * period, period) if time < end]
            for item, time in enumerate(due):
                yield Arrival(time, "stream", number, item, item == len(due) - 1)
            number += 1
            begin, left = begin + left * period, traffic.chunks


def _utterance_arrivals(traffic: Traffic, end: int, gaps: random.Random) -> Iterator[Arrival]:
    at, number = 0.0, 0
    while traffic.utterances_per_s > 0.0 and (at := at + gaps.expovariate(traffic.utterances_per_s) * NS_PER_S) < end:
        yield Arrival(round(at), "utterance", number, 0, True)
        number += 1


def _burst_arrivals(traffic: Traffic, end: int) -> Iterator[Arrival]:
    every = round(traffic.burst_every_s * NS_PER_S)
    for number, at in enumerate(range(every // 2, end, every)):
        yield from (Arrival(at, "burst", number, item, True) for item in range(traffic.burst))
