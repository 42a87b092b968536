"""Streams: order, numbers, snapshots and forks, idle ones, and no cross-talk whatever happens beside them."""

import contextlib
import copy
import dataclasses
import random
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving.no_op import write_no_op
from runtime_lite import Runtime
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import npz_from_golden
from runtime_lite.format.manifest import Axis
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.serving.ticket import Ticket
from runtime_lite.stream import Stream
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import (
    STEP,
    WIDTH,
    graph_files,
    random_chunks,
    streaming_golden,
    streaming_graph,
    write_bundle,
    write_double_bundle,
    write_streaming_bundle,
)
from tests.runtime_lite.serving.served import Gate, Place, assert_close, gate, serve, wait_until


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


@pytest.fixture
def place(bundle: Path) -> Iterator[Place]:
    with serve(bundle) as opened:
        yield opened


def feeds(count: int, seed: int = 0) -> list[dict[str, Array]]:
    return [{"x": chunk} for chunk in random_chunks(count, seed=seed)]


def alone(place: Place, chunks: list[dict[str, Array]]) -> list[Array]:
    with place.model.open_stream() as stream:
        return [stream.push(chunk)["y"] for chunk in chunks]


def test_streams_of_any_age_share_a_run_and_each_has_the_answers_it_has_alone(place: Place) -> None:
    chunks = [feeds(9, seed) for seed in range(4)]
    truth = [alone(place, each) for each in chunks]
    streams = [place.model.open_stream() for _ in chunks]
    for age, stream in enumerate(streams):
        for chunk in chunks[age][: 2 * age]:
            stream.push(chunk)
    place.runs.clear()
    place.scheduler.held = True
    tickets = [stream.submit(chunks[age][2 * age]) for age, stream in enumerate(streams)]
    place.release()
    for age, ticket in enumerate(tickets):
        assert_close(ticket.result(PATIENCE_S)["y"], truth[age][2 * age])
    assert place.runs == [{"batch": 4}]


def test_random_streams_beside_each_other_are_bit_equal_to_each_alone(tmp_path: Path) -> None:
    """Mixed lengths, starts, cancels, and neighbours full of NaN, all in one bucket, so that not a bit may differ."""
    graph = streaming_graph()
    graph = dataclasses.replace(graph, axes={"batch": Axis((4,))}, artifacts=graph.artifacts[1:])
    files = graph_files() | {graph.golden: npz_from_golden(streaming_golden())}
    path = write_bundle(tmp_path / "bundle", {"streaming": graph}, files)
    with serve(path, lanes=2, check_finite=False) as place:
        order = random.Random(11)
        lengths = [order.randint(1, 12) for _ in range(24)]
        chunks = [feeds(length, seed) for seed, length in enumerate(lengths)]
        truth = [alone(place, each) for each in chunks]
        streams: dict[int, Stream] = {}
        positions = Counter[int]()
        poisoned = place.model.open_stream()
        place.runs.clear()
        while any(positions[at] < lengths[at] for at in range(24)):
            place.scheduler.held = True
            pending: dict[int, Ticket[dict[str, Array]]] = {}
            for at in order.sample(range(24), 10):
                if positions[at] < lengths[at]:
                    if at not in streams:
                        streams[at] = place.model.open_stream()
                    pending[at] = streams[at].submit(chunks[at][positions[at]], sequence=positions[at])
            nan = poisoned.submit({"x": np.full((1, STEP, WIDTH), np.nan, np.float32)})
            taken_back = {at for at in pending if order.random() < 0.2 and pending[at].cancel()}
            place.release()
            for at, ticket in pending.items():
                if at in taken_back:
                    with pytest.raises(Cancelled):
                        ticket.result(PATIENCE_S)
                    assert streams[at].sequence == positions[at]
                else:
                    np.testing.assert_array_equal(ticket.result(PATIENCE_S)["y"], truth[at][positions[at]])
                    positions[at] += 1
            assert np.isnan(nan.result(PATIENCE_S)["y"]).all()
        assert len(place.runs) < sum(lengths)  # they did share runs


def test_answers_of_a_stream_leave_in_the_order_of_its_chunks(bundle: Path) -> None:
    with serve(bundle, lanes=2, max_streams=16) as place:
        order, pause = random.Random(2), threading.Event()
        place.hook = lambda *_: pause.wait(order.random() / 1000)
        chunks = feeds(6)
        truth = alone(place, chunks)
        streams = [place.model.open_stream() for _ in range(12)]
        tickets = [[stream.submit(chunk) for chunk in chunks] for stream in streams]
        done = [False]
        while not all(done):
            done = [ticket.done() for ticket in reversed(tickets[0])][::-1]
            assert done == sorted(done, reverse=True)  # never a later one before an earlier one
            pause.wait(0.0005)
        for row in tickets:
            assert_close([ticket.result(PATIENCE_S)["y"] for ticket in row], truth)


def test_chunks_out_of_order_are_refused_and_change_nothing(place: Place) -> None:
    chunks = feeds(4)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    stream.push(chunks[0], sequence=0)
    for wrong in (0, 2, 7):
        with pytest.raises(BadInput, match=f"expected chunk 1 of the stream, got {wrong}; push every chunk once"):
            stream.push(chunks[1], sequence=wrong)
    for no_number in (-1, 1.0, "1", True):
        with pytest.raises(BadInput, match="expected sequence as a number from 0 on"):
            stream.submit(chunks[1], sequence=no_number)  # type: ignore[arg-type]
    assert_close(stream.push(chunks[1], sequence=1)["y"], truth[1])
    place.scheduler.held = True
    queued = stream.submit(chunks[2], sequence=2)
    with pytest.raises(BadInput, match="expected chunk 3 of the stream, got 2"):
        stream.submit(chunks[2], sequence=2)
    with pytest.raises(BadInput, match="expected one push at a time"):
        stream.push(chunks[2])
    for call in (stream.snapshot, stream.reset, stream.fork):
        with pytest.raises(BadInput, match="expected a stream at rest, got one with a chunk on its way"):
            call()
    place.release()
    assert_close(queued.result(PATIENCE_S)["y"], truth[2])
    assert_close(stream.push(chunks[3])["y"], truth[3])


def test_what_is_taken_back_before_it_runs_takes_the_chunks_behind_it_along(place: Place) -> None:
    chunks = feeds(4)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    place.scheduler.held = True
    tickets = [stream.submit(chunk) for chunk in chunks]
    assert tickets[1].cancel()
    place.release()
    assert_close(tickets[0].result(PATIENCE_S)["y"], truth[0])
    for ticket in tickets[2:]:
        with pytest.raises(Dropped, match="a chunk before it was lost"):
            ticket.result(PATIENCE_S)
    assert stream.sequence == 1
    assert_close(stream.push(chunks[1])["y"], truth[1])


def test_credits_bound_what_a_stream_may_queue(place: Place) -> None:
    stream = place.model.open_stream(credits=2)
    place.scheduler.held = True
    tickets = [stream.submit(chunk) for chunk in feeds(2)]
    with pytest.raises(Overloaded, match="credits"):
        stream.submit(feeds(1)[0])
    place.release()
    for ticket in tickets:
        ticket.result(PATIENCE_S)
    stream.submit(feeds(1)[0]).result(PATIENCE_S)


def test_slots_bound_the_streams_and_come_back(bundle: Path) -> None:
    with serve(bundle, max_streams=2) as place:
        first, _ = place.model.open_stream(), place.model.open_stream()
        for call in (place.model.open_stream, first.fork):
            with pytest.raises(Overloaded, match="all 2 slots are taken"):
                call()
        first.close()
        with place.model.open_stream() as again:
            assert_close(again.push(feeds(1)[0])["y"], place.model.run(feeds(1)[0])["y"])


def test_a_fork_and_a_snapshot_go_on_from_where_they_were_taken(place: Place) -> None:
    chunks, others = feeds(6), feeds(6, seed=5)
    stream = place.model.open_stream()
    for chunk in chunks[:3]:
        stream.push(chunk)
    snapshot = stream.snapshot()
    fork = stream.fork()
    assert fork.sequence == snapshot.sequence == 3
    branch = alone(place, [*chunks[:3], *others[3:]])
    for at in range(3, 6):
        assert_close(fork.push(others[at])["y"], branch[at])
    trunk = alone(place, chunks)
    for _ in range(2):
        for at in range(3, 6):
            assert_close(stream.push(chunks[at])["y"], trunk[at])
        stream.restore(snapshot)
    stream.close()
    with place.model.open_stream() as other:
        other.restore(snapshot)
        assert_close(other.push(chunks[3])["y"], trunk[3])
        other.reset()
        assert_close(other.push(chunks[0])["y"], trunk[0])


def test_a_snapshot_may_be_stored_and_a_forged_one_is_refused(place: Place) -> None:
    stream, chunks = place.model.open_stream(), [{"x": chunk} for chunk in random_chunks(3)]
    stream.push(chunks[0])
    snapshot = copy.deepcopy(stream.snapshot())
    expected = stream.push(chunks[1])["y"]
    forged: list[dict[str, Any]] = [
        {"sequence": -1},
        {"sequence": "1"},
        {"bundle": np.zeros(3)},
        {"graph": None},
        {"state": None},
        {"state": StreamState(1, snapshot.state.lengths, {})},
    ]
    for fields in forged:
        with pytest.raises(BadInput, match="restore: expected "):
            stream.restore(dataclasses.replace(snapshot, **fields))
    assert stream.sequence == 2
    stream.restore(snapshot)
    assert_close(stream.push(chunks[1])["y"], expected)


def test_a_snapshot_of_something_else_is_refused(place: Place, tmp_path: Path) -> None:
    stream = place.model.open_stream()
    with pytest.raises(BadInput, match="expected a snapshot, got 3"):
        stream.restore(3)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected a state of 1 rows, got 2"):
        stream.restore(place.model.open_stream(rows=2).snapshot())
    with serve(write_double_bundle(tmp_path / "double")) as other:
        foreign = other.model.open_stream("streaming").snapshot()
    with pytest.raises(BadInput, match="a state belongs to the weights that made it"):
        stream.restore(foreign)


def test_a_snapshot_goes_on_from_its_bytes_in_another_runtime_of_the_bundle(place: Place, bundle: Path) -> None:
    chunks = feeds(5)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    for chunk in chunks[:3]:
        stream.push(chunk)
    content = stream.snapshot().to_bytes("room", 4)
    with serve(bundle) as elsewhere, elsewhere.model.open_stream() as other:
        with pytest.raises(BadInput, match=r"streaming\.restore: expected a snapshot of a stream without a name"):
            other.restore(content)
        with pytest.raises(BadInput, match="expected a snapshot of generation 5, got one of generation 4"):
            other.restore(content, "room", 5)
        assert other.sequence == 0
        other.restore(content, "room", 4)
        assert other.sequence == 3
        for at in (3, 4):
            np.testing.assert_array_equal(other.push(chunks[at])["y"], truth[at])
    place.scheduler.held = True
    ticket = stream.submit(chunks[3])
    with pytest.raises(BadInput, match="expected a stream at rest, got one with a chunk on its way"):
        stream.restore(content, "room", 4)
    place.release()
    ticket.result(PATIENCE_S)


def test_bytes_of_the_snapshot_of_another_bundle_are_refused(place: Place, tmp_path: Path) -> None:
    with serve(write_double_bundle(tmp_path / "double")) as other:
        foreign = other.model.open_stream("streaming").snapshot().to_bytes()
    with pytest.raises(BadInput, match="a state belongs to the weights that made it"):
        place.model.open_stream().restore(foreign)


def test_a_changed_snapshot_becomes_no_bytes(place: Place) -> None:
    snapshot = place.model.open_stream().snapshot()
    changes: list[dict[str, Any]] = [{"sequence": -1}, {"sequence": "1"}, {"bundle": "x"}, {"graph": 3}, {"state": 3}]
    for fields in changes:
        with pytest.raises(BadInput, match=r"to_bytes: expected a snapshot as snapshot\(\) gave it"):
            dataclasses.replace(snapshot, **fields).to_bytes()


def test_an_idle_stream_expires_with_an_event(bundle: Path) -> None:
    clock = VirtualClock()
    changes: list[tuple[int, str, str]] = []

    class Ear:
        def stream_changed(self, model: str, stream: int, change: str, reason: str, now: int) -> None:
            changes.append((stream, change, reason))

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

    with serve(bundle, clock=clock, observers=[Ear()]) as place:
        stream, other = place.model.open_stream(idle_s=1.0), place.model.open_stream()
        clock.advance_to(900 * NS_PER_MS)
        stream.push(feeds(1)[0])
        clock.advance_to(1800 * NS_PER_MS)
        place.server.tick()
        stream.push(feeds(1)[0])
        clock.advance_to(2799 * NS_PER_MS)
        place.server.tick()
        assert place.server.health().streams == 2
        clock.advance_to(2800 * NS_PER_MS)
        place.server.tick()
        with pytest.raises(BadInput, match="expected an open stream, got one that ended: idle"):
            stream.push(feeds(1)[0])
        assert (stream.ended, other.ended) == ("idle", "")
        stream.close()
        other.push(feeds(1)[0])
    assert changes == [(1, "opened", ""), (2, "opened", ""), (1, "expired", "idle"), (2, "closed", "")]


def test_any_interleaving_of_ends_cancels_and_expiries_loses_no_slot(bundle: Path) -> None:
    """Cancel, idle expiry, end and new chunks at the same instants of a virtual clock, in seeded orders."""
    for seed in range(40):
        order, clock = random.Random(seed), VirtualClock()
        with serve(bundle, clock=clock, max_streams=4) as place:
            live: list[Stream] = []
            tickets: list[Ticket[dict[str, Array]]] = []
            for _ in range(60):
                match order.randrange(7):
                    case 0:
                        try:
                            live.append(place.model.open_stream(idle_s=0.002))
                        except Overloaded:
                            assert place.server._streams.slots_taken == 4
                    case 1 if live:
                        live.pop(order.randrange(len(live))).close()
                    case 2 if tickets:
                        order.choice(tickets).cancel()
                    case 3:
                        clock.advance_to(clock() + NS_PER_MS)
                    case 4:
                        place.server.tick()
                    case 5:
                        place.scheduler.held = not place.scheduler.held
                    case 6 if live:
                        with contextlib.suppress(BadInput, Overloaded):
                            tickets.append(order.choice(live).submit(feeds(1)[0]))
                assert place.server._streams.slots_taken == place.server.health().streams <= 4
                assert place.server.request_counts().balanced


def test_a_stream_that_nobody_could_carry_is_refused(place: Place) -> None:
    with pytest.raises(Overloaded, match="utilisation"):
        place.model.open_stream(period_ms=1)  # a run takes 10 ms
    with place.model.open_stream(period_ms=1000) as stream:
        stream.push(feeds(1)[0])
    for options in ({"credits": 0}, {"idle_s": -1}, {"period_ms": "5"}, {"service": None}, {"priority": 1000}):
        with pytest.raises(BadInput, match=r"streaming\.open_stream: expected"):
            place.model.open_stream(**options)


def test_a_stream_that_ends_drops_what_it_has_not_answered(place: Place) -> None:
    stream = place.model.open_stream()
    place.scheduler.held = True
    tickets = [stream.submit(chunk) for chunk in feeds(2)]
    stream.close()
    place.release()
    for ticket in tickets:
        with pytest.raises(Dropped, match="closed"):
            ticket.result(PATIENCE_S)
    assert place.runs == []


def test_a_commit_after_the_end_reaches_no_other_stream(bundle: Path) -> None:
    with serve(bundle, max_streams=1) as place:
        inside, leave = threading.Event(), threading.Event()

        def stop(sizes: Mapping[str, int], feeds: Mapping[str, Array]) -> None:
            inside.set()
            assert leave.wait(PATIENCE_S)

        place.hook = stop
        old = place.model.open_stream()
        late = old.submit(feeds(1, seed=8)[0])
        assert inside.wait(PATIENCE_S)
        old.close()
        place.hook = lambda *_: None
        with place.model.open_stream() as new:  # takes the slot while the old chunk still runs
            ticket = new.submit(feeds(1)[0])
            leave.set()
            assert_close(ticket.result(PATIENCE_S)["y"], place.model.run(feeds(1)[0])["y"])
            assert new.sequence == 1
        with pytest.raises(Dropped):
            late.result(PATIENCE_S)


def test_a_stream_that_nobody_holds_gives_its_slot_back(bundle: Path) -> None:
    with serve(bundle, max_streams=2) as place:
        kept = place.model.open_stream()
        for chunk in feeds(20):
            place.model.open_stream().push(chunk)
        assert place.server.health().streams == 1
        kept.push(feeds(1)[0])
        del kept
        assert place.server.health().streams == 0 == place.server._streams.slots_taken


def test_an_answer_of_a_stream_that_nobody_holds_comes_before_its_end(bundle: Path) -> None:
    with serve(bundle, max_streams=1) as place:
        truth = alone(place, feeds(3))
        place.scheduler.held = True
        responses = place.model.open_stream().submit_all(feeds(3))
        with pytest.raises(Overloaded, match="all 1 slots are taken"):
            place.model.open_stream()
        place.release()
        for response, expected in zip(responses.result(PATIENCE_S), truth, strict=True):
            assert_close(response["y"], expected)
        place.model.open_stream()


def test_a_version_is_closed_with_the_last_stream_that_nobody_holds(place: Place, bundle: Path) -> None:
    stream = place.model.open_stream()
    old = place.model._version
    place.model.swap(place.load(bundle))
    assert not old.gone.is_set()
    del stream
    place.server.health()
    assert old.gone.is_set()


def test_a_finalizer_waits_for_no_lock(place: Place) -> None:
    held = [place.model.open_stream()]
    thread = threading.Thread(target=held.clear, daemon=True)
    with place.server.lock:
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert place.server.health().streams == 0


@pytest.mark.parametrize("rows", [1, 4])
def test_a_steady_stream_gets_memory_for_its_answers_alone(tmp_path: Path, rows: int) -> None:
    feed = {"x": np.ones((rows, 65536), np.float32)}
    with Runtime() as runtime:
        stream = runtime.load(write_no_op(tmp_path, width=65536, stream=True)).open_stream(rows=rows)
        for _ in range(4):
            stream.push(feed)
        tracemalloc.start()
        try:
            for _ in range(4):
                before = tracemalloc.get_traced_memory()[0]
                tracemalloc.reset_peak()
                answer = stream.push(feed)
                at_most = tracemalloc.get_traced_memory()[1] - before
                assert at_most < 1.25 * answer["y"].nbytes, "a state is as large again"
                del answer
        finally:
            tracemalloc.stop()


def held_to_fail(place: Place) -> Gate:
    """Let the next run wait at a gate, and fail behind it."""
    held = gate()

    def fail(*_: object) -> None:
        held(*_)
        raise InternalError("poisoned")

    place.hook = fail
    return held


def failed(place: Place, stream: Stream, chunk: dict[str, Array]) -> Ticket[Any]:
    """A chunk whose run fails, unseen by its caller."""

    def fail(*_: object) -> None:
        raise InternalError("poisoned")

    place.hook = fail
    ticket = stream.submit(chunk)
    wait_until(ticket.done)
    place.hook = lambda *_: None
    return ticket


def expired(place: Place, stream: Stream, chunk: dict[str, Array]) -> Ticket[Any]:
    """A chunk that is dropped before it runs, unseen by its caller."""
    place.scheduler.held = True
    ticket = stream.submit(chunk, deadline_ms=15)
    wait_until(ticket.done)
    place.release()
    return ticket


@pytest.mark.parametrize("lose", [failed, expired])
def test_a_chunk_behind_a_lost_one_takes_its_place_only_when_its_caller_knows(
    place: Place, lose: Callable[[Place, Stream, dict[str, Array]], Ticket[Any]]
) -> None:
    chunks = feeds(3)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    assert_close(stream.push(chunks[0])["y"], truth[0])
    lost = lose(place, stream, chunks[1])
    for push in (stream.submit, stream.push, lambda chunk: stream.submit_all([chunk])):
        with pytest.raises(BadInput, match="expected chunk 1 of the stream, which was lost, got one behind it; read"):
            push(chunks[2])
    assert stream.sequence == 1
    with pytest.raises((Dropped, InternalError)):
        lost.result(PATIENCE_S)
    assert_close(stream.submit(chunks[1]).result(PATIENCE_S)["y"], truth[1])
    with pytest.raises((Dropped, InternalError)):  # known already: what goes on meanwhile is no loss
        lost.result(PATIENCE_S)
    assert_close(stream.push(chunks[2])["y"], truth[2])


@pytest.mark.parametrize("way", ["sequence", "reset", "restore"])
def test_who_says_where_he_goes_on_need_not_be_told(place: Place, way: str) -> None:
    chunks = feeds(2)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    stream.push(chunks[0])
    taken = stream.snapshot()
    failed(place, stream, chunks[1])
    if way == "sequence":
        assert_close(stream.push(chunks[1], sequence=1)["y"], truth[1])
    elif way == "restore":
        stream.restore(taken)
        assert_close(stream.push(chunks[1])["y"], truth[1])
    else:
        stream.reset()
        assert_close(stream.push(chunks[0])["y"], truth[0])


def test_an_older_loss_that_is_read_late_tells_nothing_of_a_newer_one(place: Place) -> None:
    chunks = feeds(2)
    stream = place.model.open_stream()
    first = failed(place, stream, chunks[0])
    second = stream.submit(chunks[0], sequence=0)
    second.result(PATIENCE_S)
    third = failed(place, stream, chunks[1])
    with pytest.raises(InternalError):
        first.result(PATIENCE_S)
    with pytest.raises(BadInput, match="expected chunk 1 of the stream, which was lost"):
        stream.submit(chunks[1])
    with pytest.raises(InternalError):
        third.result(PATIENCE_S)
    stream.push(chunks[1])


def test_who_reads_that_a_chunk_was_late_does_not_know_that_one_before_it_failed(place: Place) -> None:
    chunks = feeds(3)
    stream = place.model.open_stream()
    stream.push(chunks[0])
    held = held_to_fail(place)
    before = stream.submit(chunks[1])
    assert held.inside.wait(PATIENCE_S)
    late = stream.submit(chunks[2], deadline_ms=1)
    wait_until(late.done)
    held.leave.set()
    wait_until(before.done)
    place.hook = lambda *_: None
    with pytest.raises(Dropped, match="late"):
        late.result(PATIENCE_S)
    with pytest.raises(BadInput, match="expected chunk 1 of the stream, which was lost"):
        stream.submit(chunks[2])
    with pytest.raises(InternalError):
        before.result(PATIENCE_S)
    stream.push(chunks[1])


@pytest.mark.parametrize("way", ["late", "taken back"])
def test_who_knows_that_a_chunk_gave_no_answer_goes_on_when_its_run_fails_later(place: Place, way: str) -> None:
    chunks = feeds(2)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    stream.push(chunks[0])
    held = held_to_fail(place)
    running = stream.submit(chunks[1], deadline_ms=200)
    assert held.inside.wait(PATIENCE_S)
    behind = stream.submit(chunks[1], deadline_ms=1)
    wait_until(behind.done)
    if way == "late":
        with pytest.raises(Dropped, match="late"):
            running.result(PATIENCE_S)
    else:
        assert running.cancel()
    held.leave.set()
    wait_until(lambda: place.server.health().running == 0)
    place.hook = lambda *_: None
    with pytest.raises(Dropped, match="late"):
        behind.result(PATIENCE_S)
    assert_close(stream.submit(chunks[1]).result(PATIENCE_S)["y"], truth[1])


def test_who_takes_a_chunk_back_that_runs_does_not_know_that_the_one_behind_it_was_late(place: Place) -> None:
    chunks = feeds(3)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    stream.push(chunks[0])
    place.hook = held = gate()
    running = stream.submit(chunks[1])
    assert held.inside.wait(PATIENCE_S)
    late = stream.submit(chunks[2], deadline_ms=1)
    wait_until(late.done)
    assert running.cancel()
    for _ in range(2):
        with pytest.raises(BadInput, match="expected chunk 2 of the stream, which was lost"):
            stream.submit(chunks[2])
        held.leave.set()
        wait_until(lambda: stream.sequence == 2)  # it counts
    with pytest.raises(Dropped, match="late"):
        late.result(PATIENCE_S)
    assert_close(stream.push(chunks[2])["y"], truth[2])


def test_who_takes_the_last_chunk_back_knows_that_it_is_lost_and_who_takes_another_does_not(place: Place) -> None:
    chunks = feeds(3)
    truth = alone(place, chunks)
    stream = place.model.open_stream()
    place.scheduler.held = True
    tickets = [stream.submit(chunk) for chunk in chunks]
    assert tickets[2].cancel()
    again = stream.submit(chunks[2])
    assert tickets[1].cancel()  # takes the one behind it along
    with pytest.raises(BadInput, match="expected chunk 1 of the stream, which was lost"):
        stream.submit(chunks[2])
    with pytest.raises(Dropped):
        again.result(PATIENCE_S)
    place.release()
    for at in (1, 2):
        assert_close(stream.submit(chunks[at]).result(PATIENCE_S)["y"], truth[at])


def test_a_buffer_is_its_callers_again_when_submit_returns(place: Place) -> None:
    chunks = feeds(6)
    truth = alone(place, chunks)
    ring = {"x": np.empty_like(chunks[0]["x"])}
    place.scheduler.held = True
    stream, tickets = place.model.open_stream(), list[Ticket[Any]]()
    for chunk in chunks[:3]:
        ring["x"][...] = chunk["x"]
        tickets.append(stream.submit(ring))
    ring["x"][...] = chunks[3]["x"]
    rest = stream.submit_all([ring])
    ring["x"][...] = np.nan
    handed = {"x": chunks[4]["x"].copy()}
    tickets.append(stream.submit(handed, copy=False))
    place.release()
    for at, ticket in zip((0, 1, 2, 4), tickets, strict=True):
        assert_close(ticket.result(PATIENCE_S)["y"], truth[at])
    assert_close(rest.result(PATIENCE_S)[0]["y"], truth[3])
    with pytest.raises(BadInput, match="expected copy as True or False, got 1"):
        stream.submit(ring, copy=1)  # type: ignore[arg-type]
