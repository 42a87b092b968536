"""What runs cost a full server: every bucket in its turn and full, and all of the lane's time is in the costs."""

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from runtime_lite.bench_served import TURN, Fill, Turns, bench_served
from runtime_lite.errors import RuntimeLiteError
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.task import CHUNK, Key, Task, task_at
from tests.runtime_lite.bundles import write_double_bundle, write_ragged_bundle, write_streaming_bundle

ONE = Key("m", "g")


def turns(lanes: int = 1) -> Turns:
    return Turns([Fill(ONE, 1, 1, 1), Fill(ONE, 4, 4, 1)], lanes)


def queue(rule: Turns, count: int) -> list[Task]:
    tasks = [task_at(ONE, CHUNK, 0) for _ in range(count)]
    assert [rule.submit(task, 0) for task in tasks] == [None] * count
    return tasks


def decided(rule: Turns, now: int) -> Run:
    run = rule.decide(now).run
    assert run is not None
    return run


def test_each_bucket_has_its_turn_with_what_has_waited_longest() -> None:
    rule = turns()
    tasks = queue(rule, TURN + 6)
    for turn in range(TURN):
        run = decided(rule, turn)
        assert (run.rows, run.tasks) == (1, tasks[turn : turn + 1]) and rule.decide(turn).run is None, "one lane"
        rule.finished(run, turn + 3)
    run = decided(rule, 100)
    assert (run.rows, run.tasks) == (4, tasks[TURN : TURN + 4])
    rule.finished(run, 107)
    assert rule.times == {(ONE, 1): [3] * TURN, (ONE, 4): [7]} and rule.least_runs() == 1
    assert rule.decide(107).run is None, "two tasks do not fill four rows"
    assert rule.cancel(tasks[-1]) and rule.cancel(tasks[-2])


def test_every_lane_has_a_run() -> None:
    rule = turns(lanes=2)
    queue(rule, 3)
    runs = [decided(rule, 0), decided(rule, 0)]
    assert rule.decide(0).run is None
    rule.finished(runs[0], 1)
    assert decided(rule, 1).rows == 1
    rule.resize(1)
    assert rule.decide(1).run is None


class Noting:
    """An executor that notes what it runs, and what the states of the rows are."""

    def __init__(self, bundle: Bundle, name: str, threads: int) -> None:
        self.inner: Executor = make_executor(bundle, name, threads)
        self.fed: list[tuple[str, dict[str, int], list[int]]] = []
        self.name, self.threads, self.lock = name, threads, threading.Lock()

    def run(self, sizes: Mapping[str, int], feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        with self.lock:
            self.fed.append((self.name, dict(sizes), feeds.get("time_length", np.zeros(0)).tolist()))
        self.inner.run(sizes, feeds, outputs)

    def close(self) -> None:
        self.inner.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_all_buckets_of_all_graphs_run_full(workers: int, tmp_path: Path) -> None:
    made: list[Noting] = []

    def noting(bundle: Bundle, name: str, threads: int) -> Executor:
        made.append(Noting(bundle, name, threads))
        return made[-1]

    timings = bench_served(write_double_bundle(tmp_path / "bundle"), 2, workers, 2, noting)
    buckets = [("plain", f"batch={n},frames={f}") for n in (1, 4) for f in (2, 3)]
    assert [(t.graph, t.bucket) for t in timings] == buckets + [("streaming", f"batch={n}") for n in (1, 4)]
    assert all(0 < t.p50_ms <= t.p95_ms <= t.p99_ms and t.first_ms > 0 for t in timings)
    assert [each.threads for each in made] == [2, 2]
    runs = Counter((name, *sizes.values()) for each in made for name, sizes, _ in each.fed)
    assert len(runs) == len(timings) and min(runs.values()) >= workers * 3, "one that is not timed, two that are"


def test_rows_are_as_long_as_the_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: set[str] = set()
    run = OnnxExecutor.run

    def note(
        self: OnnxExecutor, sizes: Mapping[str, int], feeds: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> None:
        fed.add(f"{sizes['batch']}x{sizes['time']}: {feeds['time_length'].tolist()}")
        run(self, sizes, feeds, outputs)

    monkeypatch.setattr(OnnxExecutor, "run", note)
    bench_served(write_ragged_bundle(tmp_path / "bundle"), 1, 2, 1)
    assert fed == {"1x4: [4]", "1x8: [8]", "4x4: [4, 4, 4, 4]", "4x8: [8, 8, 8, 8]"}


def test_a_run_that_fails_ends_it_with_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: OnnxExecutor, sizes: object, *arrays: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(OnnxExecutor, "run", fail)
    before = set(threading.enumerate())
    with pytest.raises((RuntimeError, RuntimeLiteError), match="the device is gone"):
        bench_served(write_streaming_bundle(tmp_path / "bundle"), 1, 2, 1)
    assert set(threading.enumerate()) <= before
