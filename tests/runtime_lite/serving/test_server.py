"""The whole of a server: draining, closing, health, what observers hear, and many callers at once."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Bundle, Runtime
from runtime_lite import stream as stream_module
from runtime_lite.calls.feeds import FeedCheck
from runtime_lite.calls.state import StreamState, copy_of_state
from runtime_lite.errors import BadInput, Cancelled, Dropped, ExecutorFailed, InternalError, Overloaded
from runtime_lite.executors.executor import Executor, ExecutorFactory, make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.task import INTERACTIVE
from runtime_lite.serving import server
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import WIDTH, random_chunks
from tests.runtime_lite.serving.served import (
    Gate,
    Place,
    close,
    fail_on_mark,
    feed,
    gate,
    in_thread,
    poisoned,
    serve,
    wait_until,
)


def test_draining_takes_nothing_new_and_names_what_the_limit_cuts_off(place: Place) -> None:
    stream = place.model.open_stream("streaming")
    held = gate()
    place.hook = held
    running = place.model.submit(feed(1), "plain")
    assert held.inside.wait(PATIENCE_S)
    queued = [place.model.submit(feed(seed), "plain") for seed in (2, 3)]
    report = place.server.drain(0.01)
    assert report.finished == 0 and report.dropped == tuple(t.number for t in (running, *queued))
    calls: list[Callable[[], object]] = [
        lambda: place.model.run(feed(1), "plain"),
        lambda: stream.push({"x": random_chunks(1)[0]}),
        lambda: place.model.open_stream("streaming"),
    ]
    for call in calls:
        with pytest.raises(Overloaded, match="draining"):
            call()
    held.leave.set()
    for ticket in (running, *queued):
        with pytest.raises(Dropped, match="drained"):
            ticket.result(PATIENCE_S)
    assert place.server.health().draining


def test_draining_waits_for_what_was_admitted(place: Place) -> None:
    place.scheduler.held = True
    tickets = [place.model.submit(feed(seed), "plain") for seed in range(5)]
    reports: list[Any] = []
    thread = in_thread(lambda: reports.append(place.server.drain(PATIENCE_S)))
    wait_until(lambda: place.server.health().draining)
    place.release()
    thread.join(PATIENCE_S)
    assert reports[0].finished == 5 and reports[0].dropped == ()
    assert all(ticket.outcome == "done" for ticket in tickets)


def test_health_tells_of_a_run_that_hangs_and_of_runs_that_fail(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        assert place.server.health().healthy
        held = gate()
        place.hook = held
        ticket = place.model.submit(feed(1), "plain")
        assert held.inside.wait(PATIENCE_S)
        assert place.server.health().healthy
        clock.advance_to(60_000 * NS_PER_MS)
        assert place.server.health().reason == "a run of 'plain' takes 60.0 s"
        held.leave.set()
        ticket.result(PATIENCE_S)
        assert place.server.health().healthy
        place.hook = fail_on_mark
        for _ in range(3):
            with pytest.raises(InternalError):
                place.model.run(poisoned(), "plain")
        assert "the last 3 runs failed: tiny1: InternalError: poisoned" in place.server.health().reason
        place.model.run(feed(1), "plain")
        assert place.server.health().healthy


def test_a_closed_model_waits_for_its_run_and_drops_the_rest(place: Place) -> None:
    held = gate()
    place.hook = held
    running = place.model.submit(feed(1), "plain")
    assert held.inside.wait(PATIENCE_S)
    queued = place.model.submit(feed(2), "plain")
    closing = in_thread(place.model.close)
    with pytest.raises(Dropped, match="model closed"):
        queued.result(PATIENCE_S)
    assert place.closed == 0 and closing.is_alive()  # not while the run is in flight
    held.leave.set()
    closing.join(PATIENCE_S)
    assert place.closed == 2
    with pytest.raises(Dropped, match="model closed"):
        running.result(PATIENCE_S)


def gated(held: Gate) -> ExecutorFactory:
    """Makes executors whose runs stop at a gate."""

    def make(bundle: Bundle, name: str, threads: int) -> Executor:
        executor = make_executor(bundle, name, threads)
        run = executor.run

        def run_behind_the_gate(*arguments: Any) -> None:
            held()
            run(*arguments)

        executor.run = run_behind_the_gate  # type: ignore[method-assign, assignment]
        return executor

    return make


@pytest.mark.parametrize("closed", ["model", "runtime"])
def test_closing_names_a_run_that_does_not_end_and_the_rest_is_closed(bundle: Path, closed: str) -> None:
    held = gate()
    runtime = Runtime()
    models = [runtime.load(bundle, executors=gated(held)), runtime.load(bundle)]
    running = models[0].submit(feed(1), "plain")
    assert held.inside.wait(PATIENCE_S)
    close = models[0].close if closed == "model" else runtime.close
    with pytest.raises(ExecutorFailed, match=r"expected runs to end within 0\.01 s, got .* still at work; .*in_child"):
        close(limit_s=0.01)
    with pytest.raises(Dropped, match="model closed"):
        running.result(0)  # who waits for an answer is told at once
    assert models[0].closed and models[0].bundle.manifest and not models[0]._version.gone.is_set()
    assert models[1]._version.gone.is_set() is (closed == "runtime")
    held.leave.set()
    assert models[0]._version.gone.wait(PATIENCE_S), "it is closed when its run ends"
    close(limit_s=PATIENCE_S)
    runtime.close(PATIENCE_S)
    assert runtime.request_counts.balanced and runtime.request_counts.live == 0


def test_a_stream_is_forked_in_one_step_or_not_at_all(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is closed in the middle of it closes no version that the fork would run in."""
    closing = threading.Thread(target=place.model.close)

    def copy_while_it_closes(state: StreamState) -> StreamState:
        closing.start()
        until = time.monotonic() + 0.2  # in vain, for closing waits for the fork
        while place.closed == 0 and time.monotonic() < until:
            time.sleep(0.001)
        return copy_of_state(state)

    with place.model.open_stream("streaming") as stream:
        stream.push({"x": random_chunks(1)[0]})
        for module in (server, stream_module):
            monkeypatch.setattr(module, "copy_of_state", copy_while_it_closes)
        fork = stream.fork()
        closing.join(PATIENCE_S)
        with pytest.raises(BadInput, match="got one of a closed model"):
            fork.push({"x": random_chunks(1)[0]})
    assert place.closed == 2 and place.server.health().streams == 0


class Gatekeeper:
    """An observer that stops the first thread that tells of a run, or tears it away."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stops = [stop]

    def executed(self, execution: Execution) -> None:
        if self._stops:
            self._stops.pop()()

    def submitted(self, request: Request) -> None: ...
    def responded(self, request: Request, index: int, now: int) -> None: ...
    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None: ...
    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None: ...
    def model_changed(self, model: str, change: ModelChange, now: int) -> None: ...


def test_a_run_that_was_handed_to_a_caller_whose_request_then_ended_is_run(bundle: Path) -> None:
    held = gate()
    with serve(bundle, observers=[Gatekeeper(held)]) as place:

        def hold(*_: object) -> None:
            place.scheduler.held = True

        place.scheduler.held = True
        first = place.model.submit(feed(1), "plain")
        place.scheduler.held, place.hook = False, hold
        raised: list[type[BaseException]] = []

        def call() -> None:
            try:
                place.model.run({"x": random_chunks(1)[0]}, "streaming")
            except Cancelled as error:
                raised.append(type(error))

        caller = in_thread(call)
        assert held.inside.wait(PATIENCE_S)  # it has run the first, and would go to sleep
        (its_own,) = place.server._tracker.requests.values()
        place.hook = lambda *_: None
        place.release()  # its own run is handed to it
        assert place.server.cancel(its_own)
        held.leave.set()
        caller.join(PATIENCE_S)
        assert raised == [Cancelled] and first.done()
        assert place.model.submit(feed(2), "plain").result(PATIENCE_S)  # the lane is free


def test_a_thread_that_is_interrupted_behind_its_run_gives_on_what_it_was_to_run_next(bundle: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with serve(bundle, observers=[Gatekeeper(interrupt)]) as place:
        place.scheduler.held = True
        first = place.model.submit(feed(1), "plain")
        place.scheduler.held = False
        with pytest.raises(KeyboardInterrupt):
            place.model.run({"x": random_chunks(1)[0]}, "streaming")
        assert first.result(PATIENCE_S)
        assert place.model.submit(feed(2), "plain").result(PATIENCE_S)


class Ear:
    """Hears everything and counts requests itself."""

    def __init__(self) -> None:
        self.alive: set[int] = set()
        self.ends: list[tuple[str, Outcome, str]] = []
        self.executions: list[Execution] = []
        self.changes: list[str] = []

    def submitted(self, request: Request) -> None:
        assert request.number not in self.alive
        self.alive.add(request.number)

    def responded(self, request: Request, index: int, now: int) -> None:
        assert request.number in self.alive

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        self.alive.remove(request.number)
        self.ends.append((request.service, outcome, reason))

    def executed(self, execution: Execution) -> None:
        self.executions.append(execution)

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        self.changes.append(change)

    def model_changed(self, model: str, change: ModelChange, now: int) -> None:
        self.changes.append(change)


def test_an_observer_hears_what_request_accounting_counts(bundle: Path) -> None:
    ear = Ear()
    with serve(bundle, observers=[ear]) as place:
        place.hook = fail_on_mark
        place.scheduler.held = True
        tickets = [place.model.submit(f, "plain") for f in (feed(1), poisoned(), feed(2))]
        tickets[2].cancel()
        place.release()
        assert tickets[0].result(PATIENCE_S).keys() == {"y"}
        with pytest.raises(InternalError):
            tickets[1].result(PATIENCE_S)
        with place.model.open_stream("streaming") as stream:
            stream.push({"x": random_chunks(1)[0]})
    ends = {key: ear.ends.count(key) for key in ear.ends}
    assert ends == place.server.request_counts().ends and not ear.alive
    assert ear.changes == ["loaded", "opened", "closed", "unloaded"]
    first = ear.executions[0]
    assert (first.rows, first.sizes, first.used, first.places) == (2, {"batch": 4, "frames": 3}, 14, 28)
    assert first.fault == "InternalError: poisoned" and not first.retry and ear.executions[1].retry
    assert all(run.decided <= run.began <= run.ended for run in ear.executions)


def test_many_callers_at_once_have_the_answers_of_one(bundle: Path) -> None:
    """Runs, submits, streams and cancels from many threads; every answer is bit-equal to that of a caller alone."""
    with serve(bundle, lanes=2) as place:
        expected = [place.model.run(feed(seed), "plain")["y"] for seed in range(8)]
        chunks = random_chunks(6)
        with place.model.open_stream("streaming") as stream:
            steps = [stream.push({"x": chunk})["y"] for chunk in chunks]
        wrong: list[str] = []

        def work(seed: int) -> None:
            order = random.Random(seed)
            for _ in range(12):
                kind, at = order.randrange(4), order.randrange(8)
                if kind == 0 and not close(place.model.run(feed(at), "plain")["y"], expected[at]):
                    wrong.append("run")
                elif kind == 1 and not close(
                    place.model.submit(feed(at), "plain").result(PATIENCE_S)["y"], expected[at]
                ):
                    wrong.append("submit")
                elif kind == 2:
                    place.model.submit(feed(at), "plain").cancel()
                elif kind == 3:
                    with place.model.open_stream("streaming") as stream:
                        for chunk, y in zip(chunks[: order.randint(1, 6)], steps, strict=False):
                            if not close(stream.push({"x": chunk})["y"], y):
                                wrong.append("push")

        threads = [in_thread(lambda seed=seed: work(seed)) for seed in range(6)]  # type: ignore[misc]
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        assert wrong == []


def test_a_feed_that_comes_while_others_wait_is_known_by_one_look(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    kind_of = FeedCheck._kind

    def look(self: FeedCheck, arrays: Mapping[str, Array], rows: int) -> tuple[object, ...] | None:
        looks.append(arrays)
        return kind_of(self, arrays, rows)

    expected = place.model.run(feed(1), "plain")["y"]
    place.scheduler.held = True
    waiting = place.model.submit(feed(2), "plain")
    monkeypatch.setattr(FeedCheck, "_kind", look)
    admitted = place.model.submit(feed(1), "plain", deadline_ms=1000 * PATIENCE_S)
    assert len(looks) == 1
    with pytest.raises(BadInput, match="submit: 'x': expected finite values, got nan"):
        place.model.submit(
            {**feed(1), "x": np.full((1, 3, WIDTH), np.nan, np.float32)}, "plain", deadline_ms=1000 * PATIENCE_S
        )
    place.release()
    assert close(admitted.result(PATIENCE_S)["y"], expected) and waiting.result(PATIENCE_S)


@pytest.mark.parametrize("field", ["name", "soft_ms", "share"])
def test_a_class_that_means_nothing_is_refused_when_it_comes(place: Place, field: str) -> None:
    wrong: dict[str, Any] = {field: None}
    odd = INTERACTIVE._replace(**wrong)
    with pytest.raises(BadInput, match=f"submit: expected a service class with a {field}, got None; see ServiceClass"):
        place.model.submit(feed(1), "plain", service=odd)
    with pytest.raises(BadInput, match=f"open_stream: expected a service class with a {field}, got None"):
        place.model.open_stream("streaming", service=odd)
    assert place.server.request_counts().submitted == 0
