"""Streams of two real processes: one is killed, stopped or drained, and every answer is that of the stream alone."""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import Runtime
from runtime_lite.format.arrays import Array
from tests.runtime_lite.bundles import random_chunks, write_streaming_bundle
from tests.runtime_lite.hosting.stream_worker import Worker, WorkerGoneError, output_of

NAMES = [f"room {number}" for number in range(6)]
COUNT, EVERY = 12, 3
"""Chunks of a stream, and chunks between two snapshots."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


@pytest.fixture
def workers(bundle: Path) -> Iterator[tuple[Worker, Worker]]:
    with contextlib.ExitStack() as stack:
        both = []
        for _ in range(2):
            both.append(Worker(bundle, "streaming"))
            stack.callback(both[-1].end)
        for worker in both:
            assert worker.answer() == {"ready": True}
        yield both[0], both[1]


def alone(bundle: Path, chunks: Array) -> list[Array]:
    with Runtime() as runtime, runtime.load(bundle).open_stream() as stream:
        return [stream.push({"x": chunk})["y"] for chunk in chunks]


def chunks_of(name: str) -> Array:
    return random_chunks(COUNT, seed=NAMES.index(name))


def open_all(worker: Worker, until: int) -> tuple[dict[str, list[Array]], dict[str, str]]:
    """Push the first chunks of all streams; return their outputs, and the newest snapshot of each."""
    outputs: dict[str, list[Array]] = {name: [] for name in NAMES}
    snapshots: dict[str, str] = {}
    for name in NAMES:
        worker.ask("open", name=name, generation=1)
    for number in range(until):
        for name in NAMES:
            outputs[name].append(worker.push(name, 1, number, chunks_of(name)[number]))
            if number % EVERY == EVERY - 1:
                snapshots[name] = worker.ask("snapshot", name=name, generation=1)["content"]
    return outputs, snapshots


def go_on(worker: Worker, outputs: dict[str, list[Array]], numbers: dict[str, int]) -> None:
    """Push the remaining chunks of all streams in turns, from a number each, in their second generation."""
    for name, number in numbers.items():
        del outputs[name][number:]
    for number in range(min(numbers.values()), COUNT):
        for name in NAMES:
            if number >= numbers[name]:
                outputs[name].append(worker.push(name, 2, number, chunks_of(name)[number]))


def assert_as_alone(bundle: Path, outputs: dict[str, list[Array]]) -> None:
    for name in NAMES:
        np.testing.assert_array_equal(outputs[name], alone(bundle, chunks_of(name)))


def test_a_killed_worker_loses_no_stream_that_has_a_snapshot(bundle: Path, workers: tuple[Worker, Worker]) -> None:
    first, second = workers
    outputs, snapshots = open_all(first, 7)
    for name in NAMES:  # all of them are on their way when it is killed
        first.send_chunk(name, 1, 7, chunks_of(name)[7])
    first.signal(signal.SIGKILL)
    answered = 0
    with contextlib.suppress(WorkerGoneError):
        while True:
            outputs[NAMES[answered]].append(output_of(first.answer()))
            answered += 1
    refused = second.ask("push", name=NAMES[0], generation=1, number=8, x="")
    assert refused["error"] == "StreamLost" and "nobody has started here" in refused["text"]
    numbers = {
        name: second.ask("restore", name=name, generation=2, content=content)["number"]
        for name, content in snapshots.items()
    }
    assert set(numbers.values()) == {6}
    go_on(second, outputs, numbers)
    assert_as_alone(bundle, outputs)


def test_a_worker_that_was_stopped_is_refused_what_has_moved_on(bundle: Path, workers: tuple[Worker, Worker]) -> None:
    mute, second = workers
    outputs, snapshots = open_all(mute, 6)
    mute.signal(signal.SIGSTOP)
    mute.send_chunk(NAMES[0], 1, 6, chunks_of(NAMES[0])[6])  # nobody waits for its answer any more
    numbers = {
        name: second.ask("restore", name=name, generation=2, content=content)["number"]
        for name, content in snapshots.items()
    }
    go_on(second, outputs, numbers)
    mute.signal(signal.SIGCONT)
    mute.answer()
    woken = mute.ask("push", name=NAMES[0], generation=2, number=7, x="")
    assert woken["error"] == "StreamLost" and "which is of generation 1 here" in woken["text"]
    back = mute.ask("restore", name=NAMES[0], generation=1, content=snapshots[NAMES[0]])
    assert back["error"] == "BadInput" and "above that of the snapshot" in back["text"]
    assert_as_alone(bundle, outputs)


def test_a_drained_worker_hands_over_all_streams_where_they_are(bundle: Path, workers: tuple[Worker, Worker]) -> None:
    first, second = workers
    outputs, _ = open_all(first, 5)
    moved = first.ask("drain")["moved"]
    assert sorted(name for name, *_ in moved) == NAMES
    numbers = {}
    for name, generation, sequence, content in moved:
        answer = second.ask("restore", name=name, generation=generation + 1, content=content)
        assert answer["number"] == sequence == 5
        numbers[name] = sequence
    late = first.ask("push", name=NAMES[0], generation=1, number=5, x="")
    assert (late["error"], late["last_counted"]) == ("StreamLost", 4)
    go_on(second, outputs, numbers)
    assert_as_alone(bundle, outputs)
