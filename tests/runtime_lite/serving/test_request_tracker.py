"""Every request ends once, in whatever way, and takes along what hangs on it."""

import asyncio
import gc
import random
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.task import BULK, UTTERANCE
from runtime_lite.serving.events import EventBus, Outcome
from runtime_lite.serving.metrics import Metrics
from runtime_lite.serving.request import LiveRequest
from runtime_lite.serving.request_tracker import RequestTracker
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.serving.served import (
    Place,
    assert_close,
    feed,
    gate,
    serve,
    wait_until,
)


def test_a_request_is_taken_back_wherever_it_is(place: Place) -> None:
    place.scheduler.held = True
    queued = place.model.submit(feed(1), "plain")
    assert queued.cancel() and not queued.cancel()
    held = gate()
    place.hook = held
    place.scheduler.held = False
    running = place.model.submit(feed(2), "plain")
    assert held.inside.wait(PATIENCE_S)
    assert running.cancel()
    held.leave.set()
    for ticket in (queued, running):
        with pytest.raises(
            Cancelled, match=r"plain\.submit: expected a request in progress, got one that was cancelled"
        ):
            ticket.result(PATIENCE_S)
    place.hook = lambda *_: None
    done = place.model.submit(feed(3), "plain")
    done.result(PATIENCE_S)
    assert not done.cancel() and done.outcome == "done"
    assert len(place.runs) == 2  # what was queued never ran


def test_a_deadline_drops_what_is_queued_and_what_comes_late(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        place.scheduler.held = True
        queued = place.model.submit(feed(1), "plain", deadline_ms=50)
        endless = place.model.submit(feed(2), "plain", service=BULK)
        clock.advance_to(60 * NS_PER_MS)
        place.release()
        with pytest.raises(Dropped) as dropped:
            queued.result(PATIENCE_S)
        assert dropped.value.reason == "deadline"
        endless.result(PATIENCE_S)
        place.hook = lambda *_: clock.advance_to(clock() + 100 * NS_PER_MS)
        late = place.model.submit(feed(3), "plain", deadline_ms=50)
        with pytest.raises(Dropped) as dropped:
            late.result(PATIENCE_S)
        assert dropped.value.reason == "late"
        with pytest.raises(Dropped):
            place.model.submit(feed(3), "plain", service=UTTERANCE._replace(hard_ms=99.0)).result(PATIENCE_S)


def test_parts_of_one_request_that_are_dropped_together_end_it_once(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        place.scheduler.held = True
        ticket = place.model.submit(feed(1, rows=11), "plain", deadline_ms=60)
        assert place.server.health().queued == 3
        clock.advance_to(70 * NS_PER_MS)
        place.release()
        with pytest.raises(Dropped, match="deadline"):
            ticket.result(PATIENCE_S)
        assert place.server.request_counts().count("dropped") == 1 and place.server.health().queued == 0


def test_what_cannot_be_served_in_time_is_refused_when_it_comes(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        with pytest.raises(Overloaded) as refusal:
            place.model.submit(feed(1), "plain", deadline_ms=5)  # a run takes 10 ms
        assert refusal.value.reason == "cannot be answered in time"
        assert place.server.request_counts().count("dropped") == 1


def test_what_cannot_be_served_in_time_is_refused_before_its_values_are_looked_at(bundle: Path) -> None:
    """Where something waits, and feeds of the kind were checked before; whoever listens hears of it all the same."""
    clock, metrics = VirtualClock(), Metrics()
    with serve(bundle, clock=clock, observers=[metrics]) as place:
        place.scheduler.held = True
        wrong = feed(1)
        wrong["x"][0, 0, 0] = np.nan
        place.model.submit(feed(1), "plain")
        with pytest.raises(BadInput, match="finite"):
            place.model.submit(wrong, "plain", deadline_ms=1000)
        for _ in range(2):
            with pytest.raises(Overloaded, match=r"plain\.submit: .* cannot be answered in time"):
                place.model.submit(wrong, "plain", deadline_ms=5)
        counts = place.server.request_counts()
        assert (counts.submitted, counts.live, counts.count("dropped")) == (3, 1, 2) and counts.balanced
        ended = {"service": "interactive", "outcome": "dropped", "reason": "cannot be answered in time"}
        assert metrics.registry.get_sample_value("slipway_requests_ended_total", ended) == 2
        assert metrics.registry.get_sample_value("slipway_requests_live", {"service": "interactive"}) == 1
        place.server.drain(0)
        with pytest.raises(Overloaded, match="draining"):
            place.model.submit(feed(1), "plain", deadline_ms=5)


def test_waiting_gives_up_and_the_request_goes_on(place: Place) -> None:
    place.scheduler.held = True
    ticket = place.model.submit(feed(1), "plain")
    with pytest.raises(TimeoutError, match="not ready after"):
        ticket.result(0.01)
    place.release()
    assert ticket.result(PATIENCE_S).keys() == {"y"}


def test_coroutines_await_share_runs_and_take_back_what_they_leave(place: Place) -> None:
    async def scenario() -> list[dict[str, Array]]:
        place.scheduler.held = True
        tickets = [place.model.submit(feed(seed), "plain") for seed in range(4)]
        left = place.model.submit(feed(9), "plain")
        waiting = asyncio.ensure_future(_answer(left))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert left.outcome == "cancelled"
        answers = asyncio.gather(*(_answer(ticket) for ticket in tickets))
        await asyncio.sleep(0)
        place.release()
        return await asyncio.wait_for(answers, PATIENCE_S)

    for seed, answer in enumerate(asyncio.run(scenario())):
        assert_close(answer["y"], place.model.run(feed(seed), "plain")["y"])
    assert place.runs[0] == {"batch": 4, "frames": 3}


async def _answer(ticket: Any) -> dict[str, Array]:
    found: dict[str, Array] = await ticket
    return found


def test_what_a_request_held_is_freed_with_it_without_a_collector(place: Place) -> None:
    """A feed that lives on until a collection is memory that grows with the load."""
    gc.collect()
    gc.disable()
    try:
        gone: list[weakref.ref[Array]] = []

        def fed(seed: int) -> dict[str, Array]:
            given = feed(seed)
            gone.append(weakref.ref(given["x"]))
            return given

        place.model.run(fed(1), "plain")
        place.model.run_many([fed(2), fed(3)], "plain")
        kept = place.model.submit(fed(4), "plain")
        kept.result(PATIENCE_S)
        place.scheduler.held = True
        cancelled = place.model.submit(fed(5), "plain")
        cancelled.cancel()
        place.release()
        with place.model.open_stream("streaming") as stream:
            chunk = {"x": fed(6)["x"]}
            stream.push(chunk)
            del chunk
        place.model.run(feed(9), "plain")  # the worker has let go of its last run
        wait_until(lambda: not any(each() is not None for each in gone))
    finally:
        gc.enable()


# Counts

OUTCOMES: tuple[Outcome, ...] = ("done", "dropped", "cancelled", "failed")


def tracker() -> RequestTracker:
    """One of requests without parts, which no scheduler sees."""
    nobody: Any = None
    return RequestTracker(nobody, nobody, EventBus(()), nobody)


def entered(tracker: RequestTracker, service: str) -> LiveRequest[object]:
    nobody: Any = None
    request: LiveRequest[object] = LiveRequest(nobody, "test", service, tuple)
    tracker.enter(request)
    return request


def test_the_counts_balance_after_every_request() -> None:
    tracked, order = tracker(), random.Random(3)
    alive: list[LiveRequest[object]] = []
    for _ in range(500):
        if alive and order.random() < 0.5:
            ended = alive.pop(order.randrange(len(alive)))
            tracked.end(ended, order.choice(OUTCOMES), order.choice(["", "late"]), None, 0)
        else:
            alive.append(entered(tracked, order.choice(["chunk", "bulk"])))
        counts = tracked.counts()
        assert counts.balanced and counts.live == len(alive)
        assert counts.submitted == sum(counts.count(outcome) for outcome in OUTCOMES) + len(alive)
    assert sorted(tracked.requests) == sorted(request.number for request in alive)


def test_ends_are_counted_by_class_outcome_and_reason() -> None:
    tracked = tracker()
    for outcome, reason in (("done", ""), ("dropped", "late"), ("dropped", "late")):
        tracked.end(entered(tracked, "chunk"), outcome, reason, None, 0)  # type: ignore[arg-type]
    entered(tracked, "bulk")
    assert tracked.counts().ends == {("chunk", "done", ""): 1, ("chunk", "dropped", "late"): 2}
    assert (tracked.counts().submitted, tracked.counts().live) == (4, 1)


def test_a_request_ends_once() -> None:
    tracked = tracker()
    request, other = entered(tracked, "chunk"), entered(tracker(), "chunk")
    with pytest.raises(InternalError, match="expected a live request, got 1, which is none"):
        tracked.end(other, "done", "", None, 0)
    tracked.end(request, "done", "", None, 0)
    with pytest.raises(InternalError, match="expected a live request, got 1, which is none"):
        tracked.end(request, "cancelled", "", None, 0)
    assert request.outcome == "done" and other.outcome is None
    assert tracked.counts().balanced
