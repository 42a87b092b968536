"""Interleavings of the scheduler: some of those that `python -m tests.property.serving` plays, and planted defects."""

from collections.abc import Callable
from typing import Any

import pytest

from runtime_lite.scheduling.admission import Streams
from runtime_lite.scheduling.decision import Decision
from runtime_lite.scheduling.queues import OpenStream, TaskQueue
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.task import Key, Task
from tests.property.serving import BrokenPromise, Life


def play(count: int) -> None:
    for seed in range(count):
        Life(seed).play()


def test_no_promise_breaks() -> None:
    play(1500)


def enter_at_once(streams: Streams, task: Task, number: int) -> OpenStream:
    stream = streams._open.setdefault(number, OpenStream())
    stream.current = task
    return stream


def one_lane_more(scheduler: Scheduler, now: int) -> Decision:
    lanes, scheduler._lanes = scheduler._lanes, 4
    decision = original_decide(scheduler, now)
    scheduler._lanes = lanes
    return decision


original_decide = Scheduler.decide


def changed(method: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: change(method, *arguments, **named)


PLANTED: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "nothing is dropped": (Scheduler, "_drop", lambda self, now: []),
    "dropped too early": (Scheduler, "_drop", changed(Scheduler._drop, lambda f, self, now: f(self, now + 3_000_000))),
    "runs whatever the deadline": (
        Scheduler,
        "_start",
        changed(Scheduler._start, lambda f, self, plan, *rest: f(self, plan._replace(cost=0), *rest)),
    ),
    "chunks overtake": (Streams, "enter", enter_at_once),
    "the next chunk is forgotten": (Scheduler, "_promote", lambda self, task, stream: None),
    "any key holds any": (Key, "holds", lambda self, other: True),
    "a lane too many": (Scheduler, "decide", one_lane_more),
    "asked again at once": (
        Scheduler,
        "decide",
        changed(Scheduler.decide, lambda f, self, now: f(self, now)._replace(wake=now)),
    ),
    "a set-aside task is lost": (TaskQueue, "rush", lambda self: self.take(self.due, "ended")),
    "what runs can be cancelled": (
        Scheduler,
        "cancel",
        changed(Scheduler.cancel, lambda f, self, task: f(self, task) or task.state == "running"),
    ),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = PLANTED[defect]
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises((BrokenPromise, ValueError, KeyError, AssertionError)):
        play(1500)
