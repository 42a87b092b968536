"""Wired graphs are one request: one deadline, one end, stages that share runs with others', states kept together."""

import gc
import random
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.task import BULK, Task
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    random_chunks,
    truth_of_plain,
    truth_of_ragged,
    truth_of_stream,
    write_wired_bundle,
)
from tests.runtime_lite.serving.served import Place, close, gate, in_thread, serve, wait_until

BAD = 999
COST_MS = 10.5
"""What one row costs in every graph: see `served.Place.load`."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_wired_bundle(tmp_path_factory.mktemp("wired"))


def feed(seed: int, rows: int = 1) -> dict[str, Array]:
    tokens = np.random.default_rng(seed).integers(0, 3, (rows, 3))
    return {"x": random_chunks(1, rows, seed)[0], "shift": np.arange(rows) + seed, "tokens": tokens}


def truth(fed: Mapping[str, Array], y: Array | None = None) -> dict[str, Array]:
    """What the whole gives; `y` is what a stream's first graph gave."""
    y = next(truth_of_stream(fed["x"][None]))[0] if y is None else y
    by_tokens, mean = truth_of_ragged(y, fed["tokens"])
    return {"streaming.y": y, "plain.y": truth_of_plain(y, fed["shift"]), "ragged.y": by_tokens, "mean": mean}


def assert_same(got: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert list(got) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0.0, atol=2e-5)


def graph_of(sizes: Mapping[str, int]) -> str:
    return "plain" if "frames" in sizes else "ragged" if "time" in sizes else "streaming"


def in_graph(name: str, hook: Callable[[Mapping[str, int], Mapping[str, Array]], object]) -> Any:
    """A hook for the runs of one graph."""
    return lambda sizes, feeds: hook(sizes, feeds) if graph_of(sizes) == name else None


def graphs_run(place: Place) -> list[str]:
    return [graph_of(sizes) for sizes in place.runs]


def fail_on_bad(sizes: Mapping[str, int], feeds: Mapping[str, Array]) -> None:
    if (feeds["shift"] == BAD).any():
        raise InternalError("poisoned")


# One request


def test_a_pipeline_is_one_request_and_each_graph_runs_once(place: Place) -> None:
    assert_same(place.model.run(feed(1)), truth(feed(1)))
    assert place.model.submit(feed(2), priority=3).result(PATIENCE_S).keys() == truth(feed(2)).keys()
    assert graphs_run(place) == ["streaming", "plain", "ragged"] * 2
    assert dict(place.server.request_counts().ends) == {
        ("interactive", "done", ""): 1,
        ("interactive+3", "done", ""): 1,
    }


def test_the_same_graph_of_several_requests_shares_a_run(place: Place) -> None:
    place.scheduler.held = True
    tickets = [place.model.submit(feed(seed)) for seed in range(4)]
    assert place.server.health().queued == 4  # the first graph of each
    place.release()
    for seed, ticket in enumerate(tickets):
        assert_same(ticket.result(PATIENCE_S), truth(feed(seed)))
    assert [(graph_of(sizes), sizes["batch"]) for sizes in place.runs] == [
        ("streaming", 4),
        ("plain", 4),
        ("ragged", 4),
    ]


def test_more_rows_than_fit_are_several_items_that_overtake_nothing(place: Place) -> None:
    assert_same(place.model.run(feed(1, rows=11)), truth(feed(1, rows=11)))
    assert place.server.request_counts().submitted == 1


def test_every_graph_has_the_class_and_priority_of_its_request_and_times_before_what_comes_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: dict[str, Task] = {}
    submit = place.scheduler.submit
    monkeypatch.setattr(
        place.scheduler, "submit", lambda task, now: (tasks.update({task.key.graph: task}), submit(task, now))[1]
    )
    place.scheduler.held = True
    ticket = place.model.submit(feed(1), service=BULK, priority=7, deadline_ms=60_000)
    first = tasks["streaming"]
    place.release()
    ticket.result(PATIENCE_S)
    assert {task.service for task in tasks.values()} == {BULK._replace(name="bulk+7", priority=6)}
    assert {task.arrival for task in tasks.values()} == {first.arrival}
    for name in ("plain", "ragged"):
        assert tasks[name].hard == first.arrival + 60_000 * NS_PER_MS
        assert tasks[name].soft == first.arrival + int(BULK.soft_ms) * NS_PER_MS
    behind = int(COST_MS * NS_PER_MS)  # the two others may run at once: the longer of them
    assert tasks["plain"].hard - first.hard == behind == tasks["plain"].soft - first.soft  # type: ignore[operator]


# Ends


def test_what_cannot_go_through_all_graphs_in_time_is_refused_when_it_comes(bundle: Path) -> None:
    with serve(bundle, clock=VirtualClock()) as place:
        with pytest.raises(Overloaded) as refusal:
            place.model.submit(feed(1), deadline_ms=15)  # one run fits, two do not
        assert refusal.value.reason == "cannot be answered in time"
        assert place.runs == [] and place.server.request_counts().count("dropped") == 1


@pytest.mark.parametrize("queued", [False, True])
def test_a_graph_that_is_late_ends_the_request_by_name(bundle: Path, queued: bool) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:

        def slow(*_: object) -> None:
            clock.advance_to(clock() + (60 if not queued else 1) * NS_PER_MS)
            place.scheduler.held = queued

        place.hook = in_graph("streaming", slow)
        ticket = place.model.submit(feed(1), deadline_ms=50)
        if queued:
            wait_until(lambda: place.server.health().queued == 2)
            clock.advance_to(60 * NS_PER_MS)
            place.release()
        with pytest.raises(
            Dropped, match=r"streaming\+plain\+ragged\.submit: graph 'plain': expected an answer"
        ) as end:
            ticket.result(PATIENCE_S)
        assert end.value.reason == ("deadline" if queued else "cannot be answered in time")
        assert graphs_run(place) == ["streaming"]
        assert place.server.health().queued == 0


def test_an_answer_behind_the_deadline_is_not_delivered(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        place.hook = in_graph("ragged", lambda *_: clock.advance_to(clock() + 100 * NS_PER_MS))
        with pytest.raises(Dropped) as late:
            place.model.submit(feed(1), deadline_ms=90).result(PATIENCE_S)
        assert late.value.reason == "late"


@pytest.mark.parametrize("stage", ["streaming", "plain", "ragged"])
def test_a_request_is_taken_back_in_every_graph_and_those_behind_it_never_run(place: Place, stage: str) -> None:
    held = gate()
    place.hook = in_graph(stage, held)
    ticket = place.model.submit(feed(1))
    assert held.inside.wait(PATIENCE_S)
    assert ticket.cancel() and not ticket.cancel()
    held.leave.set()
    with pytest.raises(Cancelled):
        ticket.result(PATIENCE_S)
    wait_until(lambda: place.server.health().running == 0)
    order = ["streaming", "plain", "ragged"]
    assert graphs_run(place) == order[: order.index(stage) + 1]


def test_a_graph_that_fails_ends_its_request_and_no_other(place: Place) -> None:
    place.hook = in_graph("plain", fail_on_bad)
    place.scheduler.held = True
    feeds = [{**feed(seed), "shift": np.array([BAD if seed == 2 else seed])} for seed in range(4)]
    tickets = [place.model.submit(each) for each in feeds]
    place.release()
    for seed, (ticket, fed) in enumerate(zip(tickets, feeds, strict=True)):
        if seed == 2:
            with pytest.raises(InternalError, match="poisoned"):
                ticket.result(PATIENCE_S)
        else:
            assert_same(ticket.result(PATIENCE_S), truth(fed))
    wait_until(lambda: place.server.health().running == 0)
    assert place.server.request_counts().ends["interactive", "failed", "InternalError"] == 1


def test_a_caller_that_is_interrupted_takes_its_request_back_between_graphs(place: Place) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    place.hook = in_graph("plain", interrupt)
    with pytest.raises(KeyboardInterrupt):
        place.model.run(feed(1))
    place.hook = lambda *_: None
    assert place.server.request_counts().ends["interactive", "cancelled", "interrupted"] == 1
    assert_same(place.model.run(feed(2)), truth(feed(2)))


def test_a_request_stays_with_its_version_and_the_last_graph_closes_it(place: Place, bundle: Path) -> None:
    held = gate()
    place.hook = in_graph("streaming", held)
    ticket = place.model.submit(feed(1))
    assert held.inside.wait(PATIENCE_S)
    old = place.model._version
    place.model.swap(place.load(bundle))
    assert not old.gone.is_set()
    place.hook = lambda *_: None
    held.leave.set()
    assert_same(ticket.result(PATIENCE_S), truth(feed(1)))
    assert old.gone.wait(PATIENCE_S) and place.closed == 3


def test_closing_ends_what_is_between_graphs(place: Place) -> None:
    held = gate()
    place.hook = in_graph("streaming", held)
    ticket = place.model.submit(feed(1))
    assert held.inside.wait(PATIENCE_S)
    closing = in_thread(place.model.close)
    with pytest.raises(Dropped, match="model closed"):
        ticket.result(PATIENCE_S)
    held.leave.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive() and graphs_run(place) == ["streaming"]


# Streams


def chunk_feeds(count: int, seed: int = 0) -> list[dict[str, Array]]:
    return [{**feed(seed + at), "x": x} for at, x in enumerate(random_chunks(count, seed=seed))]


def truths(feeds: list[dict[str, Array]]) -> list[dict[str, Array]]:
    chunks = np.stack([fed["x"] for fed in feeds])
    return [truth(fed, y) for fed, (y, _) in zip(feeds, truth_of_stream(chunks), strict=True)]


def test_a_stream_carries_its_state_through_the_pipeline(place: Place) -> None:
    feeds = chunk_feeds(9)
    with place.model.open_stream() as stream, place.model.open_stream() as other:
        for at, (fed, expected) in enumerate(zip(feeds, truths(feeds), strict=True)):
            assert_same(stream.push(fed, sequence=at), expected)
            other.push(feed(at + 50))  # beside it
        assert list(stream.state.values) == ["streaming.keys"] and list(stream.state.lengths) == ["streaming.cache"]
        stream.reset()
        for got, expected in zip(stream.submit_all(feeds), truths(feeds), strict=True):
            assert_same(got, expected)
        assert stream.sequence == 9


def test_chunks_of_several_streams_share_the_runs_of_every_graph(bundle: Path) -> None:
    with serve(bundle, clock=VirtualClock()) as place:  # on a slow machine some are late, and go alone
        streams = [place.model.open_stream() for _ in range(4)]
        place.scheduler.held = True
        tickets = [stream.submit(feed(seed)) for seed, stream in enumerate(streams)]
        place.release()
        for seed, ticket in enumerate(tickets):
            assert_same(ticket.result(PATIENCE_S), truth(feed(seed)))
        assert [(graph_of(sizes), sizes["batch"]) for sizes in place.runs] == [
            ("streaming", 4),
            ("plain", 4),
            ("ragged", 4),
        ]


@pytest.mark.parametrize("stage", ["plain", "ragged"])
@pytest.mark.parametrize("end", ["fails", "is late", "is cancelled"])
def test_states_are_kept_together_or_not_at_all(bundle: Path, stage: str, end: str) -> None:
    """A chunk whose first graph has run and a later one has not leaves the stream as it was."""
    clock = VirtualClock()
    feeds = chunk_feeds(4)
    with serve(bundle, clock=clock) as place:
        stream = place.model.open_stream()
        stream.push(feeds[0])
        before = {name: value.copy() for name, value in stream.state.values.items()}
        cancelled: list[bool] = []

        def act(*_: object) -> None:
            if end == "fails":
                raise InternalError("poisoned")
            if end == "is late":
                clock.advance_to(clock() + 90 * NS_PER_MS)
            else:
                cancelled.append(ticket.cancel())

        order = ["streaming", "plain", "ragged"]
        at = stage if end == "fails" else order[order.index(stage) - 1]  # late, or taken back, before the stage runs
        place.hook = in_graph(at, act)
        place.scheduler.held = True
        ticket = stream.submit(feeds[1], deadline_ms=80)
        behind = stream.submit(feeds[2])
        place.release()
        with pytest.raises((InternalError, Dropped, Cancelled)):
            ticket.result(PATIENCE_S)
        with pytest.raises(Dropped, match="a chunk before it was lost"):
            behind.result(PATIENCE_S)
        place.hook = lambda *_: None
        wait_until(lambda: place.server.health().running == 0)
        assert stream.sequence == 1
        assert all(np.array_equal(stream.state.values[name], value) for name, value in before.items())
        for fed, expected in list(zip(feeds, truths(feeds), strict=True))[1:]:
            assert_same(stream.push(fed), expected)


def test_a_stream_is_forked_and_restored_as_a_whole(place: Place) -> None:
    feeds = chunk_feeds(5)
    expected = truths(feeds)
    stream = place.model.open_stream()
    for fed in feeds[:2]:
        stream.push(fed)
    snapshot = stream.snapshot()
    with stream.fork() as other:
        for at in (2, 3, 4):
            assert_same(other.push(feeds[at]), expected[at])
    for _ in range(2):
        for at in (2, 3):
            assert_same(stream.push(feeds[at]), expected[at])
        stream.restore(snapshot)
    with place.model.open_stream("streaming") as alone, pytest.raises(BadInput, match="of another bundle or graph"):
        alone.restore(snapshot)


def test_what_a_pipeline_cannot_do_is_refused_by_name(place: Place) -> None:
    with pytest.raises(BadInput, match="expected no period_ms for wired graphs, got 100"):
        place.model.open_stream(period_ms=100)
    with pytest.raises(BadInput, match="expected rows from 1 to 4, got 5"):
        place.model.open_stream(rows=5)


# All together


def test_what_a_request_held_is_freed_with_it_without_a_collector(place: Place) -> None:
    gc.collect()
    gc.disable()
    try:
        gone: list[weakref.ref[Array]] = []

        def fed(seed: int, bad: bool = False) -> dict[str, Array]:
            given = feed(seed) | ({"shift": np.array([BAD])} if bad else {})
            gone.append(weakref.ref(given["tokens"]))
            return given

        place.model.run(fed(1))
        place.hook = in_graph("plain", fail_on_bad)
        for call in (place.model.run, lambda given: place.model.submit(given).result(PATIENCE_S)):
            try:
                call(fed(2, bad=True))
            except InternalError as error:
                error.__traceback__ = None
        place.scheduler.held = True
        place.model.submit(fed(3)).cancel()
        place.release()
        with place.model.open_stream() as stream:
            stream.push(fed(4))
            stream.submit(fed(5)).cancel()
        place.model.run(feed(9))
        wait_until(lambda: not any(each() is not None for each in gone))
    finally:
        gc.enable()


def test_many_callers_at_once_have_the_answers_of_one(bundle: Path) -> None:
    """Runs, submits, streams, failures and cancels from many threads, beside requests of single graphs."""
    feeds = chunk_feeds(6)
    expected = truths(feeds)
    alone = [truth(fed) for fed in feeds]
    wrong: list[str] = []

    def same(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> bool:
        return list(got) == list(wanted) and all(np.allclose(got[name], wanted[name], atol=2e-5) for name in wanted)

    with serve(bundle, lanes=2) as place:
        place.hook = in_graph("plain", fail_on_bad)

        def work(seed: int) -> None:
            order = random.Random(seed)
            for _ in range(8):
                kind, at = order.randrange(6), order.randrange(6)
                if kind == 0 and not same(place.model.run(feeds[at]), alone[at]):
                    wrong.append("run")
                elif kind == 1 and not same(place.model.submit(feeds[at]).result(PATIENCE_S), alone[at]):
                    wrong.append("submit")
                elif kind == 2:
                    place.model.submit(feeds[at]).cancel()
                elif kind == 3:
                    with pytest.raises(InternalError):
                        place.model.run(feeds[at] | {"shift": np.array([BAD])})
                elif kind == 4:
                    y = place.model.run({"x": alone[at]["streaming.y"], "shift": feeds[at]["shift"]}, "plain")["y"]
                    if not close(y, alone[at]["plain.y"]) and not np.allclose(y, alone[at]["plain.y"], atol=2e-5):
                        wrong.append("single")
                else:
                    with place.model.open_stream() as stream:
                        for number in range(order.randint(1, 6)):
                            if not same(stream.push(feeds[number]), expected[number]):
                                wrong.append("push")

        threads = [in_thread(lambda seed=seed: work(seed)) for seed in range(6)]  # type: ignore[misc]
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
