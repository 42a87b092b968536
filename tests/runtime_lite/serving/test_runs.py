"""Runs: who makes them, what shares one, what is learnt from it, and that a bad item fails alone."""

import threading
from pathlib import Path

import numpy as np
import pytest

from runtime_lite.errors import BadInput, Dropped, InternalError
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.cost_table import CostTable
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    WIDTH,
    random_chunks,
    random_row,
    truth_of_ragged,
    write_ragged_bundle,
)
from tests.runtime_lite.serving.served import (
    Place,
    assert_close,
    fail_on_mark,
    feed,
    gate,
    in_thread,
    poisoned,
    serve,
    wait_until,
)

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
    before = set(threading.enumerate())
    ran_by: list[str] = []
    place.hook = lambda *_: ran_by.append(threading.current_thread().name)
    with place.model.open_stream("streaming") as stream:
        place.model.run(feed(1), "plain")
        place.model.run_many([feed(1), feed(2)], "plain")
        stream.push({"x": random_chunks(1)[0]})
    assert set(ran_by) == {threading.current_thread().name}
    assert set(threading.enumerate()) <= before


def test_what_was_submitted_is_run_by_a_worker(place: Place) -> None:
    ran_by: list[str] = []
    place.hook = lambda *_: ran_by.append(threading.current_thread().name)
    ticket = place.model.submit(feed(1), "plain")
    assert_close(ticket.result(PATIENCE_S)["y"], place.model.run(feed(1), "plain")["y"])
    assert ran_by[0].startswith("runtime_lite worker")
    assert ticket.done() and ticket.outcome == "done" and not ticket.cancel()


def test_callers_that_wait_run_what_is_decided_for_others_too(place: Place) -> None:
    """One run holds the lane while others come; they share the next run, which one of them makes."""
    before = set(threading.enumerate())
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
    started = set(threading.enumerate()) - before
    assert not [thread for thread in started if thread.name.startswith("runtime_lite worker")]


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
        assert place.server._runs._lanes == [0]


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
    assert place.server.request_counts().ends["interactive", "cancelled", "interrupted"] == 1


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
    assert place.server.request_counts().ends["interactive", "failed", "InternalError"] == 1


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
    assert streams[2].sequence == 1
    np.testing.assert_array_equal(streams[2].state.values["keys"], before.values["keys"])
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
    assert place.server.request_counts().submitted == 1
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


def test_a_request_that_is_dropped_for_one_run_may_be_in_the_run_that_is_decided_with_it(bundle: Path) -> None:
    """Its rows are those of two runs, and only the shorter one can still end in time."""
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        place.scheduler.held = True
        ticket = place.model.submit(feed(1, 5), "plain", deadline_ms=40)
        clock.advance_to(clock() + 29 * NS_PER_MS)
        place.release()
        with pytest.raises(Dropped, match="got none: deadline"):
            ticket.result(PATIENCE_S)
        wait_until(lambda: place.server.health().running == 0)
        assert [sizes["batch"] for sizes in place.runs] == [1]
