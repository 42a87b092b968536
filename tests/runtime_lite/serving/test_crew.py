"""Work goes to a caller that waits for it, to any caller, then to workers; nobody polls."""

import threading
import time

from runtime_lite.serving.crew import Crew, Hand
from tests.kit.patience import PATIENCE_S


def make_crew(done: list[tuple[int, str]], finished: threading.Event, wanted: int) -> Crew[int]:
    lock = threading.Lock()

    def work(item: int, hand: Hand[int]) -> None:
        with lock:
            done.append((item, threading.current_thread().name))
            crew.rest(hand)
            if len(done) == wanted:
                finished.set()

    crew: Crew[int] = Crew(work, lambda: None, lambda: 0, lock)
    return crew


def test_no_thread_is_there_before_work_is() -> None:
    before = set(threading.enumerate())
    crew = make_crew([], threading.Event(), 0)
    assert set(threading.enumerate()) <= before
    assert crew.stop(time.monotonic() + PATIENCE_S) == []


def test_work_is_handed_to_the_caller_that_waits_for_it_and_else_to_a_worker() -> None:
    done: list[tuple[int, str]] = []
    finished = threading.Event()
    crew = make_crew(done, finished, 2)
    first: Hand[int] = Hand(lambda: False)
    second: Hand[int] = Hand(lambda: False)
    for hand in (first, second):
        crew.rest(hand)
    crew.hand_over(1, second)
    crew.hand_over(2, second)  # has work already: to the other one
    assert (first.sleep(), second.sleep()) == (2, 1)
    crew.hand_over(3, None)
    crew.hand_over(4, first)
    assert finished.wait(PATIENCE_S)
    assert sorted(item for item, _ in done) == [3, 4]
    assert all(name.startswith("runtime_lite worker") for _, name in done)
    assert crew.stop(time.monotonic() + PATIENCE_S) == []


def test_a_worker_is_used_again() -> None:
    done: list[tuple[int, str]] = []
    finished = threading.Event()
    crew = make_crew(done, finished, 1)
    crew.hand_over(1, None)
    assert finished.wait(PATIENCE_S)
    crew.hand_over(2, None)
    assert crew.stop(time.monotonic() + PATIENCE_S) == []
    assert [item for item, _ in done] == [1, 2] and len({name for _, name in done}) == 1


def test_a_caller_that_leaves_gives_back_what_it_was_handed() -> None:
    crew = make_crew([], threading.Event(), 0)
    caller: Hand[int] = Hand(lambda: False)
    crew.rest(caller)
    crew.hand_over(7, caller)
    assert crew.leave(caller) == 7 and crew.leave(caller) is None
    assert crew.stop(time.monotonic() + PATIENCE_S) == []


def test_a_caller_that_is_dismissed_wakes_without_work() -> None:
    crew = make_crew([], threading.Event(), 0)
    caller: Hand[int] = Hand(lambda: False)
    crew.rest(caller)
    crew.dismiss(caller)
    assert caller.sleep() is None
    assert crew.stop(time.monotonic() + PATIENCE_S) == []
