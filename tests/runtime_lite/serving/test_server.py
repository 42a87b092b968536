"""Requests of many callers: who runs them, what shares a run, and how each ends, exactly once."""

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.task import BULK, UTTERANCE
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    WIDTH,
    random_chunks,
    random_row,
    truth_of_ragged,
    write_double_bundle,
    write_ragged_bundle,
)
from tests.runtime_lite.serving.served import Gate, Place, assert_close, close, serve, wait_until

MARK = 77.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_double_bundle(tmp_path_factory.mktemp("double"))


@pytest.fixture
def place(bundle: Path) -> Iterator[Place]:
    with serve(bundle) as opened:
        yield opened


def feed(seed: int, rows: int = 1) -> dict[str, Array]:
    return {"x": random_chunks(1, rows, seed)[0], "shift": np.arange(rows) + seed}


def poisoned(rows: int = 1) -> dict[str, Array]:
    return {"x": np.full((rows, 3, WIDTH), MARK, np.float32), "shift": np.zeros(rows, np.int64)}


def fail_on_mark(sizes: Mapping[str, int], feeds: Mapping[str, Array]) -> None:
    if (feeds["x"] == MARK).any():
        raise InternalError("poisoned")


def gate() -> Gate:
    return Gate(threading.Event(), threading.Event())


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


# What is learnt


def test_the_first_run_of_a_bucket_is_not_learnt_as_its_cost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have opened the session."""
    learnt: list[int] = []
    monkeypatch.setattr(CostTable, "observe", lambda self, key, rows, ns: learnt.append(rows))
    for rows in (1, 4, 1, 1, 4):
        place.model.run(feed(0, rows), "plain")
    assert learnt == [1, 1, 4]


# Who runs


def test_a_caller_runs_its_own_request_and_no_thread_is_started(place: Place) -> None:
    before = threading.active_count()
    ran_by: list[str] = []
    place.hook = lambda *_: ran_by.append(threading.current_thread().name)
    with place.model.open_stream("streaming") as stream:
        place.model.run(feed(1), "plain")
        place.model.run_many([feed(1), feed(2)], "plain")
        stream.push({"x": random_chunks(1)[0]})
    assert set(ran_by) == {threading.current_thread().name}
    assert threading.active_count() == before


def test_what_was_submitted_is_run_by_a_worker(place: Place) -> None:
    ran_by: list[str] = []
    place.hook = lambda *_: ran_by.append(threading.current_thread().name)
    ticket = place.model.submit(feed(1), "plain")
    assert_close(ticket.result(PATIENCE_S)["y"], place.model.run(feed(1), "plain")["y"])
    assert ran_by[0].startswith("runtime_lite worker")
    assert ticket.done() and ticket.outcome == "done" and not ticket.cancel()


def test_callers_that_wait_run_what_is_decided_for_others_too(place: Place) -> None:
    """One run holds the lane while others come; they share the next run, which one of them makes."""
    held = gate()
    place.hook = held
    first = in_thread(lambda: place.model.run(feed(0), "plain"))
    assert held.inside.wait(PATIENCE_S)
    answers: dict[int, Array] = {}
    others = [
        in_thread(lambda seed=seed: answers.update({seed: place.model.run(feed(seed), "plain")["y"]}))  # type: ignore[misc]
        for seed in (1, 2, 3)
    ]
    wait_until(lambda: place.server.health().queued == 3)
    place.hook = lambda *_: None
    held.leave.set()
    for thread in (first, *others):
        thread.join(PATIENCE_S)
    assert place.runs == [{"batch": 1, "frames": 3}, {"batch": 4, "frames": 3}]
    for seed, answer in answers.items():
        assert_close(answer, place.model.run(feed(seed), "plain")["y"])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("runtime_lite worker")]


def test_requests_that_may_share_a_run_do(place: Place) -> None:
    place.scheduler.held = True
    tickets = [place.model.submit(feed(seed), "plain") for seed in range(6)]
    assert place.server.health().queued == 6
    place.release()
    answers = [ticket.result(PATIENCE_S)["y"] for ticket in tickets]
    assert place.runs == [{"batch": 4, "frames": 3}] * 2
    for seed, answer in enumerate(answers):
        assert_close(answer, place.model.run(feed(seed), "plain")["y"])


def test_a_lane_more_runs_two_at_once(bundle: Path) -> None:
    with serve(bundle, lanes=2) as place:
        both = threading.Barrier(2)
        place.hook = lambda *_: both.wait(PATIENCE_S)
        tickets = [
            place.model.submit({"x": random_chunks(1)[0][:, :n], "shift": np.array([1])}, "plain") for n in (2, 3)
        ]
        assert [ticket.result(PATIENCE_S)["y"].shape[1] for ticket in tickets] == [2, 3]


def test_lanes_come_and_go_while_streams_are_live(bundle: Path) -> None:
    with serve(bundle) as place:
        chunks = random_chunks(8)
        with place.model.open_stream("streaming") as solo:
            truth = [solo.push({"x": chunk})["y"] for chunk in chunks]
        streams = [place.model.open_stream("streaming") for _ in range(6)]
        tickets = []
        for chunk, lanes in zip(chunks, (1, 4, 2, 1, 3, 1, 4, 1), strict=True):
            tickets.append([stream.submit({"x": chunk}) for stream in streams])
            place.server.resize(lanes)
        for row, y in zip(tickets, truth, strict=True):
            for ticket in row:
                assert_close(ticket.result(PATIENCE_S)["y"], y)
        # four runs at once, and of fewer lanes those in flight end before the next one starts
        place.server.resize(4)
        held, inside = threading.Event(), threading.Semaphore(0)

        def hook(*_: object) -> None:
            inside.release()
            assert held.wait(PATIENCE_S)

        place.hook = hook
        place.scheduler.held = True
        waiting = [place.model.submit(feed(seed, rows=4), "plain") for seed in range(6)]
        place.release()
        assert all(inside.acquire(timeout=PATIENCE_S) for _ in range(4))
        place.server.resize(1)
        assert place.server.health().running == 4
        held.set()
        for ticket in waiting:
            ticket.result(PATIENCE_S)
        assert place.server._lanes == [0]


def test_an_interrupted_leader_gives_the_rows_of_others_to_others(place: Place) -> None:
    held = gate()
    place.hook = held
    first = in_thread(lambda: place.model.run(feed(0), "plain"))
    assert held.inside.wait(PATIENCE_S)
    ticket = place.model.submit(feed(1), "plain")
    caught: list[BaseException] = []

    def interrupt(*_: object) -> None:
        place.hook = lambda *_: None
        raise KeyboardInterrupt

    place.hook = interrupt

    def interrupted() -> None:
        try:
            place.model.run(feed(2), "plain")
        except KeyboardInterrupt as error:
            caught.append(error)

    second = in_thread(interrupted)
    wait_until(lambda: place.server.health().queued == 2)
    held.leave.set()
    first.join(PATIENCE_S)
    second.join(PATIENCE_S)
    assert len(caught) == 1
    assert_close(ticket.result(PATIENCE_S)["y"], place.model.run(feed(1), "plain")["y"])
    assert place.server.balance().ends["interactive", "cancelled", "interrupted"] == 1


# Isolation


@pytest.mark.parametrize("bad", range(4))
def test_a_bad_item_fails_alone(place: Place, bad: int) -> None:
    place.scheduler.held = True
    place.hook = fail_on_mark
    tickets = [place.model.submit(poisoned() if at == bad else feed(at), "plain") for at in range(4)]
    place.release()
    for at, ticket in enumerate(tickets):
        if at == bad:
            with pytest.raises(InternalError, match="poisoned"):
                ticket.result(PATIENCE_S)
            assert ticket.outcome == "failed"
        else:
            assert_close(ticket.result(PATIENCE_S)["y"], place.model.run(feed(at), "plain")["y"])
    assert place.server.balance().ends["interactive", "failed", "InternalError"] == 1


def test_streams_beside_a_bad_chunk_go_on_and_its_own_stays_as_it_was(place: Place) -> None:
    chunks = random_chunks(2, 4)
    streams = [place.model.open_stream("streaming") for _ in range(4)]
    alone = [place.model.open_stream("streaming") for _ in range(4)]
    expected = [[stream.push({"x": chunk[at : at + 1]})["y"] for chunk in chunks] for at, stream in enumerate(alone)]
    for at, stream in enumerate(streams):
        stream.push({"x": chunks[0][at : at + 1]})
    before = streams[2].state
    place.scheduler.held = True
    place.hook = fail_on_mark
    tickets = [
        stream.submit({"x": poisoned()["x"] if at == 2 else chunks[1][at : at + 1]})
        for at, stream in enumerate(streams)
    ]
    behind = streams[2].submit({"x": chunks[1][2:3]})
    place.release()
    for at in (0, 1, 3):
        assert_close(tickets[at].result(PATIENCE_S)["y"], expected[at][1])
    with pytest.raises(InternalError):
        tickets[2].result(PATIENCE_S)
    with pytest.raises(Dropped, match="a chunk before it was lost"):
        behind.result(PATIENCE_S)
    assert streams[2].sequence == 1 and streams[2].state is before
    assert_close(streams[2].push({"x": chunks[1][2:3]})["y"], expected[2][1])


def test_a_wrong_feed_never_reaches_a_queue(place: Place) -> None:
    place.scheduler.held = True
    good = place.model.submit(feed(1), "plain")
    for wrong in ({"x": feed(1)["x"]}, {**feed(1), "x": feed(1)["x"] * np.nan}, {**feed(1), "z": np.ones(1)}, None):
        with pytest.raises(BadInput):
            place.model.submit(wrong, "plain")  # type: ignore[arg-type]
    for options in ({"deadline_ms": 0}, {"deadline_ms": "1"}, {"priority": 1.5}, {"service": "bulk"}):
        with pytest.raises(BadInput, match=r"plain\.submit: expected"):
            place.model.submit(feed(1), "plain", **options)
    assert place.server.balance().submitted == 1
    place.release()
    assert good.result(PATIENCE_S).keys() == {"y"}


@pytest.mark.parametrize("neighbour", [np.nan, np.inf, 3e38, 0.0])
def test_lengths_near_every_edge_have_their_answer_beside_any_neighbour(tmp_path: Path, neighbour: float) -> None:
    with serve(write_ragged_bundle(tmp_path / "bundle"), check_finite=False) as place:
        for first in (3, 4, 5, 7, 8):
            for second in (3, 4, 5, 8):
                place.scheduler.held = True
                rows = [random_row(first), random_row(second, 1)]
                poison = {**random_row(8, 2), "x": np.full((1, 8, WIDTH), neighbour, np.float32)}
                tickets = [place.model.submit(row) for row in (*rows, poison)]
                place.release()
                for ticket, row in zip(tickets, rows, strict=False):
                    found = ticket.result(PATIENCE_S)
                    y, mean = truth_of_ragged(row["x"], row["tokens"])
                    assert_close(found["y"], y)
                    assert_close(found["mean"], mean)
                tickets[2].result(PATIENCE_S)
        assert {"batch": 4, "time": 8} in place.runs


# Ends


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


def test_what_cannot_be_served_in_time_is_refused_when_it_comes(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        with pytest.raises(Overloaded) as refusal:
            place.model.submit(feed(1), "plain", deadline_ms=5)  # a run takes 10 ms
        assert refusal.value.reason == "cannot be answered in time"
        assert place.server.balance().count("dropped") == 1


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
        return await asyncio.wait_for(answers, 20)

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


# The whole


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
    thread = in_thread(lambda: reports.append(place.server.drain(20)))
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


class Ear:
    """Hears everything and keeps books of its own."""

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


def test_an_observer_hears_what_the_ledger_counts(bundle: Path) -> None:
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
    assert ends == place.server.balance().ends and not ear.alive
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
