"""Rows 10, 20 and 21: nothing of another row, of padding, a free slot or another stream's past is in an answer."""

import contextlib
import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.task import Key
from runtime_lite.stream import Snapshot
from tests.runtime_lite.bundles import (
    SHORTEST,
    TIMES,
    WIDTH,
    random_chunks,
    random_row,
    truth_of_ragged,
    truth_of_stream,
    write_ragged_bundle,
    write_streaming_bundle,
)
from tests.soak.adder import fed, is_sum
from tests.soak.puppet import Puppet, adder, puppet
from tests.soak.row import Figures

TOLERANCE = 1e-4
"""Far above the rounding of a few products, far below the difference of two rows."""


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="rows")


@cache
def _streaming() -> Path:
    return write_streaming_bundle(Path(_folder().name, "streaming"))


@cache
def _ragged() -> Path:
    return write_ragged_bundle(Path(_folder().name, "ragged"))


def cross_talk(size: int, timed: bool) -> Figures:
    """Row 10: `size` streams of random lengths that come, go and take turns at random, a third of them full of NaN."""
    draw = random.Random(10)
    mismatches = answers = 0
    with puppet(_streaming(), lanes=2, max_streams=12, finite=False) as place:
        place.hook = lambda _: _make_any(place, draw)
        waiting = [_chunks_of(seed, draw) for seed in range(size)]
        live: list[_Live] = []
        while waiting or live:
            while waiting and len(live) < 12 and draw.random() < 0.5:
                chunks, is_canary = waiting.pop()
                live.append(_Live(place, chunks, is_canary))
            for each in live:
                if draw.random() < 0.6:
                    each.submit(draw.randint(1, 3))
            place.scheduler.held = draw.random() < 0.5
            place.server.tick()
            _make_any(place, draw)
            for each in [each for each in live if each.all_sent and draw.random() < 0.3]:
                place.release()
                if not each.is_canary:
                    mismatches += each.mismatches()
                    answers += len(each.tickets)
                each.stream.close()
                live.remove(each)
    return {"mismatches": mismatches, "answers": answers}


def _chunks_of(seed: int, draw: random.Random) -> tuple[Array, bool]:
    chunks, is_canary = random_chunks(draw.randint(1, 12), seed=seed), seed % 3 == 0
    return (chunks * np.float32("nan") if is_canary else chunks), is_canary


def _make_any(place: Puppet, draw: random.Random) -> None:
    while place.hands.waiting and draw.random() < 0.5:
        place.hands.make(draw.randrange(len(place.hands.waiting)))


class _Live:
    """A stream with the chunks that it will be sent."""

    def __init__(self, place: Puppet, chunks: Array, is_canary: bool) -> None:
        self.stream, self.chunks, self.is_canary = place.model.open_stream(credits=64), chunks, is_canary
        self.tickets: list[Any] = []

    def submit(self, count: int) -> None:
        for chunk in self.chunks[len(self.tickets) : len(self.tickets) + count]:
            self.tickets.append(self.stream.submit({"x": chunk}))

    @property
    def all_sent(self) -> bool:
        return len(self.tickets) == len(self.chunks)

    def mismatches(self) -> int:
        truth = truth_of_stream(self.chunks)
        pairs = zip(self.tickets, truth, strict=True)
        return sum(not np.allclose(t.result(0)["y"], y, rtol=0, atol=TOLERANCE) for t, (y, _) in pairs)


NEIGHBOURS = (0.0, np.nan, np.inf, 3e38)


def padding_sweep(size: int, timed: bool) -> Figures:
    """Row 20: `size` rows of every length, in every batch, beside any content, with any poison behind their length."""
    mismatches, tokens, answers, worst = 0, 0, 0, 0.0
    with puppet(_ragged(), finite=False) as place:
        lengths = range(SHORTEST, TIMES[-1] + 1)
        for seed, length, neighbour, beside in product(range(size), lengths, NEIGHBOURS, range(4)):
            place.scheduler.held = True
            row = random_row(length, seed)
            others = [{**random_row(n, 99), "x": np.full((1, n, WIDTH), neighbour, np.float32)} for n in (8, 3, 4)]
            ticket = place.model.submit(row)
            for other in others[:beside]:
                place.model.submit(other)
            place.release()
            found, truth = ticket.result(0), truth_of_ragged(row["x"], row["tokens"])
            differences = [
                np.abs(found[name] - expected).max() for name, expected in zip(("y", "mean"), truth, strict=True)
            ]
            mismatches += not max(differences) <= TOLERANCE
            is_clear = np.abs(np.diff(truth[0], axis=-1))[..., 0] > TOLERANCE
            tokens += int(((found["y"].argmax(-1) != truth[0].argmax(-1)) & is_clear).sum())
            worst, answers = max(worst, float(max(differences))), answers + 1
    return {"mismatches": mismatches, "other tokens": tokens, "largest difference": worst, "answers": answers}


def prefix_collision(size: int, timed: bool) -> Figures:
    """Row 21: `size` prefixes kept as snapshots and gone on from, in two bundles, where all hashes are equal.

    The runtime keeps no prefixes by itself: a snapshot is one, and its caller says where it goes on.
    """
    wrong = taken = 0
    text = [1, 2, 3]  # the same in every voice
    with _all_keys_collide(), puppet(adder(1)) as one, puppet(adder(2)) as other:
        for number in range(size):
            snapshots: list[tuple[Snapshot, int, Puppet]] = []
            for factor, place in ((1, one), (2, other)):
                for voice in (number, number + 1):
                    with place.model.open_stream() as stream:
                        total = 0
                        for token in (voice, *text):
                            stream.push(fed(token))
                            total += factor * token
                        snapshots.append((stream.snapshot(), total, place))
            for snapshot, total, place in snapshots:
                for factor, at in ((1, one), (2, other)):
                    with at.model.open_stream() as stream:
                        try:
                            stream.restore(snapshot)
                        except BadInput:
                            wrong += at is place
                            continue
                        taken += at is not place
                        wrong += not is_sum(stream.push(fed(5)), total + 5 * factor)
    return {"wrong hits": wrong + taken, "hits": 4 * size} | (_first_packet_ratio(size) if timed else {})


@contextlib.contextmanager
def _all_keys_collide() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Key, "__hash__", lambda self: 0)
        yield


def _first_packet_ratio(size: int) -> dict[str, float]:
    """The first answer behind a prefix of 32 chunks: from a snapshot, and by feeding the prefix again."""
    again, kept = [], []
    with puppet() as place, place.model.open_stream() as prefix:
        for _ in range(32):
            prefix.push(fed(1))
        snapshot = prefix.snapshot()
        for _ in range(size):
            begin = perf_counter_ns()
            with place.model.open_stream() as stream:
                stream.restore(snapshot)
                stream.push(fed(1))
            between = perf_counter_ns()
            with place.model.open_stream() as stream:
                for _ in range(33):
                    stream.push(fed(1))
            kept.append(between - begin)
            again.append(perf_counter_ns() - between)
    return {"first packet, kept / again": float(np.median(kept) / np.median(again))}
