"""Work goes to a caller that waits for it, to any caller, then to workers; nobody polls."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime_lite.errors import ExecutorFailed
from runtime_lite.serving.worker_pool import Worker, WorkerPool
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.serving.served import feed, serve


def make_workers(done: list[tuple[int, str]], finished: threading.Event, wanted: int) -> WorkerPool[int]:
    lock = threading.Lock()

    def work(item: int, worker: Worker[int]) -> None:
        with lock:
            done.append((item, threading.current_thread().name))
            workers.rest(worker)
            if len(done) == wanted:
                finished.set()

    workers: WorkerPool[int] = WorkerPool(work, lambda: None, lambda: 0, lock)
    return workers


def left(workers: WorkerPool[int]) -> list[str]:
    """Threads that do not end when they are told."""
    workers.stop()
    return workers.left(time.monotonic() + PATIENCE_S)


def test_no_thread_is_there_before_work_is() -> None:
    before = set(threading.enumerate())
    workers = make_workers([], threading.Event(), 0)
    assert set(threading.enumerate()) <= before
    assert left(workers) == []


def test_work_is_handed_to_the_caller_that_waits_for_it_and_else_to_a_worker() -> None:
    done: list[tuple[int, str]] = []
    finished = threading.Event()
    workers = make_workers(done, finished, 2)
    first: Worker[int] = Worker(lambda: False)
    second: Worker[int] = Worker(lambda: False)
    for worker in (first, second):
        workers.rest(worker)
    workers.hand_over(1, second)
    workers.hand_over(2, second)  # has work already: to the other one
    assert (first.sleep(), second.sleep()) == (2, 1)
    workers.hand_over(3, None)
    workers.hand_over(4, first)
    assert finished.wait(PATIENCE_S)
    assert sorted(item for item, _ in done) == [3, 4]
    assert all(name.startswith("runtime_lite worker") for _, name in done)
    assert left(workers) == []


def test_a_worker_is_used_again() -> None:
    done: list[tuple[int, str]] = []
    finished = threading.Event()
    workers = make_workers(done, finished, 1)
    workers.hand_over(1, None)
    assert finished.wait(PATIENCE_S)
    workers.hand_over(2, None)
    assert left(workers) == []
    assert [item for item, _ in done] == [1, 2] and len({name for _, name in done}) == 1


def test_a_caller_that_leaves_gives_back_what_it_was_handed() -> None:
    workers = make_workers([], threading.Event(), 0)
    caller: Worker[int] = Worker(lambda: False)
    workers.rest(caller)
    workers.hand_over(7, caller)
    assert workers.leave(caller) == 7 and workers.leave(caller) is None
    assert left(workers) == []


def test_a_caller_that_is_dismissed_wakes_without_work() -> None:
    workers = make_workers([], threading.Event(), 0)
    caller: Worker[int] = Worker(lambda: False)
    workers.rest(caller)
    workers.dismiss(caller)
    assert caller.sleep() is None
    assert left(workers) == []


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """A switch: whether the system gives no more threads."""
    start = threading.Thread.start
    denied = False

    def starting(thread: threading.Thread) -> None:
        if denied:
            raise RuntimeError("can't start new thread")
        start(thread)

    def switch(on: bool) -> None:
        nonlocal denied
        denied = on

    monkeypatch.setattr(threading.Thread, "start", starting)
    return switch


def test_work_without_a_thread_of_its_own_waits_for_one_that_there_is(no_threads: Callable[[bool], None]) -> None:
    done: list[tuple[int, str]] = []
    finished = threading.Event()
    workers = make_workers(done, finished, 3)
    workers.ready(timer=False, worker=True)
    no_threads(True)
    for item in (1, 2, 3):
        workers.hand_over(item, None)
    assert finished.wait(PATIENCE_S)
    assert [item for item, _ in done] == [1, 2, 3] and len({name for _, name in done}) == 1
    no_threads(False)
    assert left(workers) == []


def test_a_caller_takes_what_has_no_thread(no_threads: Callable[[bool], None]) -> None:
    workers = make_workers([], threading.Event(), 0)
    no_threads(True)
    workers.hand_over(1, None)
    caller: Worker[int] = Worker(lambda: False)
    workers.rest(caller)
    assert caller.sleep() == 1


def test_without_any_thread_a_request_is_refused_by_name_before_it_is_taken(
    bundle: Path, no_threads: Callable[[bool], None]
) -> None:
    with serve(bundle) as place:
        no_threads(True)
        with pytest.raises(ExecutorFailed, match=r"expected a thread to serve it, got none: .*start new thread") as no:
            place.model.submit(feed(1), "plain")
        assert no.value.reason == "limit"
        with pytest.raises(ExecutorFailed, match=r"streaming\.open_stream: expected a thread"):
            place.model.open_stream("streaming", idle_s=1)
        assert place.server.request_counts().submitted == 0 == place.server.health().streams  # nothing was taken
        assert place.model.run(feed(1), "plain")  # a caller needs no thread
        no_threads(False)
        assert place.model.submit(feed(1), "plain").result(PATIENCE_S)
        no_threads(True)  # what there is goes on
        tickets = [place.model.submit(feed(seed), "plain") for seed in range(8)]
        assert all(ticket.result(PATIENCE_S) for ticket in tickets)
        no_threads(False)
