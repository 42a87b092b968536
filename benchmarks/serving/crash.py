"""Measures how soon streams recover if the process of their executor is killed."""

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.serving.rounds import spread
from runtime_lite import ExecutorFailed, Model, Runtime, in_child
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends
from runtime_lite.serving.events import Execution
from tests.runtime_lite.executors.test_child import children

STREAMS = 8
ANSWERS_BETWEEN = 4 * STREAMS
"""Answers from one kill to the next, at least: every stream is at work again."""

Feed = Mapping[str, Array]


class _Speaker:
    """A stream that pushes chunk after chunk; a chunk whose run failed is pushed again."""

    def __init__(self, model: Model, name: str, feeds: Sequence[Feed], stop: threading.Event) -> None:
        self.outputs: list[Feed] = []
        self.failed = 0
        self.fault: BaseException | None = None
        self._stream, self._feeds, self._stop = model.open_stream(name), feeds, stop
        self._thread = threading.Thread(target=self._speak)
        self._thread.start()

    def _speak(self) -> None:
        try:
            while not self._stop.is_set():
                self._push(self._feeds[len(self.outputs) % len(self._feeds)])
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits for it
            self.fault = error

    def _push(self, feed: Feed) -> None:
        try:
            self.outputs.append(self._stream.push(feed))
        except ExecutorFailed as error:
            if error.reason != "crash":
                raise
            self.failed += 1

    def end(self) -> None:
        """Wait for the last chunk.

        Raises:
            The error that ended the stream early.
        """
        self._thread.join()
        if self.fault is not None:
            raise self.fault
        assert self._stream.sequence == len(self.outputs)
        self._stream.close()


def measure_crash(path: Path, name: str, lanes: int, kills: int) -> list[dict[str, Any]]:
    """Kill the process during runs, again and again; return a row per measure.

    Args:
        path: bundle.
        name: graph with states.
        lanes: runs at once.
        kills: number of kills.
    """
    before = children(os.getpid())
    stop = threading.Event()
    heard = Ends()
    with Runtime(workers=lanes, observers=[heard]) as runtime:
        model = runtime.load(path, executors=in_child(), warm_up=True)
        feeds = recorded_feeds(model, name)
        speakers = [_Speaker(model, name, _from(feeds, number), stop) for number in range(STREAMS)]
        try:
            killed = [_kill(speakers, before) for _ in range(kills)]
            _wait_for_answers(speakers)
        finally:
            stop.set()
        for speaker in speakers:
            speaker.end()
        counts = runtime.request_counts
    failed = sum(speaker.failed for speaker in speakers)
    assert counts.balanced and counts.count("failed") == failed
    known, again = zip(*(_times_ms(heard.executions, at) for at in killed), strict=True)
    return [
        {"measure": "kills, with streams at work", "value": f"{kills}, {STREAMS}"},
        {"measure": "known after, ms", "value": spread(known, 1)},
        {"measure": "answers again after, ms", "value": spread(again, 1)},
        {"measure": "chunks answered", "value": str(counts.count("done"))},
        {"measure": "of them in a run that was repeated in a new process", "value": str(_repeated(heard.executions))},
        {"measure": "chunks named as failed, and pushed again", "value": str(failed)},
        {"measure": "chunks lost", "value": str(counts.submitted - counts.count("done") - failed)},
        {"measure": "largest deviation from each stream alone", "value": f"{_deviation(path, name, speakers):.1e}"},
    ]


def _from(feeds: Sequence[Feed], start: int) -> list[Feed]:
    """Return the feeds, starting with another one."""
    return [feeds[(start + at) % len(feeds)] for at in range(len(feeds))]


def _kill(speakers: Sequence[_Speaker], before: set[int]) -> int:
    """Kill the process once all streams have runs; return the time of the kill."""
    _wait_for_answers(speakers)
    at = time.monotonic_ns()
    for child in children(os.getpid()) - before:
        os.kill(child, signal.SIGKILL)
    return at


def _wait_for_answers(speakers: Sequence[_Speaker]) -> None:
    enough = _answers(speakers) + ANSWERS_BETWEEN
    while _answers(speakers) < enough:
        faults = [speaker.fault for speaker in speakers if speaker.fault is not None]
        if faults:
            raise faults[0]
        time.sleep(0.005)


def _answers(speakers: Sequence[_Speaker]) -> int:
    return sum(len(speaker.outputs) for speaker in speakers)


def _times_ms(runs: Sequence[Execution], killed: int) -> tuple[float, float]:
    """Return the time from a kill to the first known failure, and to the next successful run, in ms."""
    known = min(run.ended for run in runs if run.fault is not None and run.ended >= killed)
    again = min(run.ended for run in runs if run.fault is None and run.began >= known)
    return (known - killed) / 1e6, (again - killed) / 1e6


def _repeated(runs: Sequence[Execution]) -> int:
    """Return the number of chunks whose shared run failed and that were answered by repeated parts."""
    return sum(run.rows for run in runs if run.retry and run.fault is None)


def _deviation(path: Path, name: str, speakers: Sequence[_Speaker]) -> float:
    """Return the largest error of the outputs relative to the same chunks through a stream alone."""
    worst = 0.0
    with Runtime() as runtime:
        model = runtime.load(path)
        feeds = recorded_feeds(model, name)
        for number, speaker in enumerate(speakers):
            mine = _from(feeds, number)
            with model.open_stream(name) as stream:
                for at, got in enumerate(speaker.outputs):
                    for output, expected in stream.push(mine[at % len(mine)]).items():
                        scale = max(float(np.max(np.abs(expected))), 1e-9)
                        worst = max(worst, float(np.max(np.abs(got[output] - expected))) / scale)
    return worst
