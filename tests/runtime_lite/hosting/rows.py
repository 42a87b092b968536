"""Rows 1, 5, 9, 10, 13 and 14 of the runtime's tests, told to a host: the same list must pass wherever the runtime is.

A host is this process, the model of Triton's Python backend, or a real server: `hosts.py`. Whatever a row expects is
what a bundle answers when nobody else is there. This module runs in the environment of a real server's client too,
which has numpy and runtime_lite alone.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from runtime_lite import Runtime
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import Place

PATIENCE_S = 300.0

PLAIN, STREAMING = "plain", "streaming"
"""Graphs of the bundles."""

Feeds = Mapping[str, Array]


class RefusedError(Exception):
    """A request did not end with an answer.

    Args:
        kind: name of the runtime's error.
        text: what was said.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Call(Protocol):
    """A request on its way."""

    def result(self) -> Feeds:
        """Wait for the answer.

        Raises:
            RefusedError: there is none.
        """
        ...

    def cancel(self) -> None: ...


class Host(Protocol):
    """Where a bundle of both graphs is served."""

    def submit(self, feeds: Feeds) -> Call:
        """Send a feed to the plain graph."""
        ...

    def push(self, place: Place, feeds: Feeds) -> Call:
        """Send a chunk to the streaming graph; one of a stream at a time."""
        ...

    def swap(self, bundle: Path) -> bool:
        """Serve what starts from now on from another bundle; whether that was accepted."""
        ...

    def drain(self) -> None:
        """Take nothing new and end what was admitted."""
        ...


@dataclass(frozen=True)
class Bundles:
    """What hosts serve: of both graphs.

    Attributes:
        first: served at the beginning.
        second: with other weights.
        broken: not to be trusted.
    """

    first: Path
    second: Path
    broken: Path


class Alone:
    """What a bundle answers when nobody else is there."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle

    def answer(self, feeds: Feeds) -> Array:
        with Runtime() as runtime:
            return runtime.load(self._bundle).run(feeds, PLAIN)["y"]

    def stream(self, chunks: Sequence[Feeds]) -> list[Array]:
        with Runtime() as runtime, runtime.load(self._bundle).open_stream(STREAMING) as stream:
            return [stream.push(chunk)["y"] for chunk in chunks]


def plain_feed(seed: int, frames: int = 2) -> dict[str, Array]:
    drawn = np.random.default_rng(seed)
    return {"x": drawn.standard_normal((1, frames, 2)).astype(np.float32), "shift": drawn.integers(0, 9, 1)}


def chunks_of(seed: int, count: int) -> list[Feeds]:
    drawn = np.random.default_rng(seed)
    return [{"x": drawn.standard_normal((1, 3, 2)).astype(np.float32)} for _ in range(count)]


def assert_same(got: Array, expected: Array) -> None:
    """The same but for the rounding of another bucket."""
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=2e-6)


def refused(call: Call, kind: str) -> None:
    try:
        got = call.result()
    except RefusedError as error:
        if error.kind != kind:
            raise
        return
    raise AssertionError(f"expected {kind}, got an answer: {got}")


def push_all(host: Host, name: int, chunks: Sequence[Feeds], first: int = 0, end: bool = False) -> list[Array]:
    """Push chunks from some number on."""
    last = first + len(chunks) - 1
    return [
        host.push(Place(name, at == 0, end and at == last, at), chunk).result()["y"]
        for at, chunk in enumerate(chunks, first)
    ]


def bad_inputs(host: Host, bundles: Bundles) -> None:
    """Row 1: each bad feed gets its error, its neighbours their answers, and a stream stays as it was."""
    good = [plain_feed(seed) for seed in range(6)]
    before = [host.submit(feed) for feed in good[:3]]
    one = plain_feed(0)
    bad: list[Feeds] = [
        {"x": one["x"].astype(np.float64), "shift": one["shift"]},
        {"x": one["x"][0], "shift": one["shift"]},
        {"x": one["x"]},
        {"x": one["x"], "shift": one["shift"], "z": one["x"]},
        {"x": one["x"][:, :0], "shift": one["shift"]},
        {"x": np.zeros((1, 9, 2), np.float32), "shift": one["shift"]},
        {"x": np.full_like(one["x"], np.nan), "shift": one["shift"]},
        {"x": np.full_like(one["x"], np.inf), "shift": one["shift"]},
        {"x": one["x"], "shift": np.zeros(3, np.int64)},
    ]
    for feed in bad:
        refused(host.submit(feed), "BadInput")
    after = [host.submit(feed) for feed in good[3:]]
    alone = Alone(bundles.first)
    for feed, call in zip(good, before + after, strict=True):
        assert_same(call.result()["y"], alone.answer(feed))
    chunks = chunks_of(1, 4)
    got = push_all(host, 11, chunks[:2])
    for wrong in ({"x": chunks[0]["x"][:, :2]}, {"x": np.full((1, 3, 2), np.nan, np.float32)}, {}):
        refused(host.push(Place(11, number=2), wrong), "BadInput")
    got += push_all(host, 11, chunks[2:], 2, end=True)
    for output, expected in zip(got, alone.stream(chunks), strict=True):
        assert_same(output, expected)


def cancels(host: Host, bundles: Bundles) -> None:
    """Row 5: a request that is taken back ends once; its stream goes on with or without the chunk, as it says."""
    drawn, alone = random.Random(5), Alone(bundles.first)
    calls = [host.submit(plain_feed(seed)) for seed in range(12)]
    for call in calls[::2]:
        call.cancel()
    for seed, call in enumerate(calls):
        with contextlib.suppress(RefusedError) if seed % 2 == 0 else contextlib.nullcontext():
            assert_same(call.result()["y"], alone.answer(plain_feed(seed)))
    chunks = {name: chunks_of(name, 6) for name in range(21, 25)}
    truths = {name: alone.stream(feeds) for name, feeds in chunks.items()}
    push = {name: push_all(host, name, feeds[:1]) for name, feeds in chunks.items()}
    for name, outputs in push.items():
        assert_same(outputs[0], truths[name][0])
    for at in range(1, 5):
        flying = {name: host.push(Place(name, number=at), feeds[at]) for name, feeds in chunks.items()}
        for call in flying.values():
            if drawn.random() < 0.5:
                call.cancel()
        for name, call in flying.items():
            try:
                output = call.result()["y"]
            except RefusedError as error:
                if error.kind != "Cancelled":
                    raise
                _go_on(host, name, chunks[name], at, truths[name])
            else:
                assert_same(output, truths[name][at])
    for name, feeds in chunks.items():
        assert_same(push_all(host, name, feeds[5:], 5, end=True)[0], truths[name][5])


def _go_on(host: Host, name: int, chunks: Sequence[Feeds], at: int, truth: Sequence[Array]) -> None:
    """Push a chunk that was taken back again, unless the stream says that it counts."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(RefusedError):
            assert_same(host.push(Place(name, number=at), chunks[at]).result()["y"], truth[at])
            return
        try:
            host.push(Place(name, number=at + 2), chunks[at]).result()
        except RefusedError as error:
            if f"expected chunk {at + 1}" in str(error):
                return
        time.sleep(0.01)  # the host has not heard of the cancellation yet
    raise AssertionError(f"stream {name} takes neither chunk {at} nor the one behind it")


def chunk_faults(host: Host, bundles: Bundles) -> None:
    """Row 9: swapped, repeated and lost chunks, no start, two starts, a name used again, two threads on one stream."""
    chunks = chunks_of(9, 6)
    truth = Alone(bundles.first).stream(chunks)
    refused(host.push(Place(31), chunks[0]), "StreamLost")
    got = push_all(host, 31, chunks[:2])
    for number in (3, 1, 0, 99):
        refused(host.push(Place(31, number=number), chunks[2]), "BadInput")
    refused(host.push(Place(31, start=True), chunks[2]), "BadInput")
    got += push_all(host, 31, chunks[2:3], 2)
    taken: list[Array] = []

    def push_third() -> None:
        with contextlib.suppress(RefusedError):
            taken.append(host.push(Place(31, number=3), chunks[3]).result()["y"])

    threads = [threading.Thread(target=push_third) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(taken) == 2, "one of two threads pushes the chunk, and the other gets the same answer"
    assert_same(*taken)
    got += taken[:1] + push_all(host, 31, chunks[4:], 4, end=True)
    for output, expected in zip(got, truth, strict=True):
        assert_same(output, expected)
    refused(host.push(Place(31, number=6), chunks[0]), "StreamLost")
    for output, expected in zip(push_all(host, 31, chunks, end=True), truth, strict=True):
        assert_same(output, expected)


def cross_talk(host: Host, bundles: Bundles) -> None:
    """Row 10: streams of mixed lengths in a seeded order, every third of them full of huge numbers."""
    drawn, alone = random.Random(10), Alone(bundles.first)
    streams = {name: chunks_of(name, drawn.randint(1, 8)) for name in range(41, 59)}
    for name in list(streams)[::3]:
        streams[name] = [{"x": np.full((1, 3, 2), 1e30, np.float32)} for _ in streams[name]]
    left = dict.fromkeys(streams, 0)
    got: dict[int, list[Array]] = {name: [] for name in streams}
    while left:
        some = drawn.sample(sorted(left), min(len(left), drawn.randint(1, 7)))
        calls = {}
        for name in some:
            at, count = left[name], len(streams[name])
            calls[name] = host.push(Place(name, at == 0, at == count - 1, at), streams[name][at])
        for name, call in calls.items():
            got[name].append(call.result()["y"])
            left[name] += 1
            if left[name] == len(streams[name]):
                del left[name]
    for name, chunks in streams.items():
        for output, expected in zip(got[name], alone.stream(chunks), strict=True):
            assert_same(output, expected)


def hot_swap(host: Host, bundles: Bundles) -> None:
    """Row 13: what is open stays with its bundle, what starts has the new one, one that is broken changes nothing."""
    chunks = chunks_of(13, 6)
    first, second = (Alone(bundle).stream(chunks) for bundle in (bundles.first, bundles.second))
    old = push_all(host, 61, chunks[:2])
    assert host.swap(bundles.second)
    young = push_all(host, 62, chunks[:3])
    old += push_all(host, 61, chunks[2:4], 2)
    assert not host.swap(bundles.broken)
    old += push_all(host, 61, chunks[4:], 4, end=True)
    young += push_all(host, 62, chunks[3:], 3, end=True)
    for name, got, truth in ((61, old, first), (62, young, second)):
        for output, expected in zip(got, truth, strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-6, atol=2e-6, err_msg=str(name))
    assert_same(host.submit(plain_feed(3)).result()["y"], Alone(bundles.second).answer(plain_feed(3)))


def drain(host: Host, bundles: Bundles) -> None:
    """Row 14: what was admitted is answered or named, and nothing new is taken. The last row: the host ends with it."""
    feeds = [plain_feed(seed) for seed in range(24)]
    for name in (71, 72):
        push_all(host, name, chunks_of(name, 2))
    calls = [host.submit(feed) for feed in feeds]
    calls[0].result()
    host.drain()
    named = 0
    for call in calls:
        try:
            call.result()
        except RefusedError as error:
            if error.kind not in ("Dropped", "Overloaded"):
                raise
            named += 1
    assert named < len(calls)
    refused(host.submit(feeds[0]), "Overloaded")


def all_rows() -> Iterator[tuple[str, Callable[[Host, Bundles], None]]]:
    """In this order."""
    yield "1 bad inputs", bad_inputs
    yield "5 cancel at every step", cancels
    yield "9 chunk faults", chunk_faults
    yield "10 cross-talk", cross_talk
    yield "13 hot swap", hot_swap
    yield "14 drain", drain
