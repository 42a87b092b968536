"""Streams by their callers' names: started once, ended once, forgotten when they idle, and never anybody else's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, Overloaded, StreamLost
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import NamedStreams, Place
from runtime_lite.scheduling.clock import VirtualClock
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, truth_of_stream, write_streaming_bundle
from tests.runtime_lite.serving import served
from tests.runtime_lite.serving.served import assert_close, serve

IDLE_S = 30.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


@pytest.fixture
def place(bundle: Path) -> Iterator[served.Place]:
    with serve(bundle, max_streams=4) as opened:
        yield opened


def named(place: served.Place) -> NamedStreams:
    return NamedStreams(place.model, "streaming", IDLE_S)


def answer(streams: NamedStreams, where: Place, chunk: Array) -> Array:
    return streams.submit(where, {"x": chunk}).result()["y"]


def test_chunks_of_two_names_are_two_streams_each_with_its_own_state(place: served.Place) -> None:
    streams = named(place)
    chunks = {name: random_chunks(4, rows=rows, seed=rows) for name, rows in (("voice", 1), (7, 2))}
    for at in range(4):
        for name, feeds in chunks.items():
            truth = [output for output, _ in truth_of_stream(feeds)]
            assert_close(answer(streams, Place(name, at == 0, at == 3, at), feeds[at]), truth[at])
    assert place.server.health().streams == 0


def test_a_start_of_an_open_stream_a_chunk_of_none_and_a_wrong_number_change_nothing(place: served.Place) -> None:
    streams = named(place)
    chunks = random_chunks(3)
    truth = [output for output, _ in truth_of_stream(chunks)]
    assert_close(answer(streams, Place("a", start=True), chunks[0]), truth[0])
    for wrong, text in (
        (Place("a", start=True), "which is open in generation 0; end it first"),
        (Place("a", number=0), "expected chunk 1 of the stream, got 0"),
        (Place("a", number=2), "expected chunk 1 of the stream, got 2"),
    ):
        with pytest.raises(BadInput, match=text):
            answer(streams, wrong, chunks[1])
    with pytest.raises(StreamLost, match="which nobody has started"):
        answer(streams, Place("b"), chunks[1])
    assert_close(answer(streams, Place("a", number=1), chunks[1]), truth[1])
    assert_close(answer(streams, Place("a", end=True), chunks[2]), truth[2])
    with pytest.raises(StreamLost, match="which has ended: closed behind chunk 2"):
        answer(streams, Place("a"), chunks[0])
    assert_close(answer(streams, Place("a", start=True, end=True), chunks[0]), truth[0])


def test_a_start_that_is_refused_takes_no_slot(place: served.Place) -> None:
    streams = named(place)
    for _ in range(9):
        with pytest.raises(BadInput):
            answer(streams, Place("a", start=True), np.zeros((1, 9, 9), np.float32))
    for name in range(4):
        answer(streams, Place(name + 1, start=True), random_chunks(1)[0])
    with pytest.raises(Overloaded, match="all 4 slots are taken"):
        answer(streams, Place(5, start=True), random_chunks(1)[0])
    with pytest.raises(StreamLost, match="got one of 5 in generation 0, which nobody has started"):
        answer(streams, Place(5), random_chunks(1)[0])


def test_the_end_holds_even_if_its_chunk_is_taken_back(place: served.Place) -> None:
    streams, chunk = named(place), random_chunks(1)[0]
    place.scheduler.held = True
    ticket = streams.submit(Place("a", start=True, end=True), {"x": chunk})
    assert ticket.cancel()
    place.release()
    assert place.server.health().streams == 0


def test_streams_that_are_forgotten_end_by_themselves_and_leave_no_name_behind(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock, max_streams=3) as place:
        streams, chunk = named(place), random_chunks(1)[0]
        for round_of_names in range(5):
            for name in range(3):
                answer(streams, Place(f"{round_of_names}-{name}", start=True), chunk)
            clock.advance_to(clock() + int((IDLE_S + 1) * 1e9))
            place.server.tick()
            with pytest.raises(StreamLost, match="which has ended: idle"):
                answer(streams, Place(f"{round_of_names}-0"), chunk)
        answer(streams, Place("last", start=True), chunk)
        assert len(streams._streams) == 1


def truth_of(chunks: Array) -> list[Array]:
    return [output for output, _ in truth_of_stream(chunks)]


def test_another_generation_is_refused_and_a_newer_one_takes_the_name_over(place: served.Place) -> None:
    streams, chunks = named(place), random_chunks(4)
    truth = truth_of(chunks)
    streams.open("a", 4)
    assert_close(answer(streams, Place("a", number=0, generation=4), chunks[0]), truth[0])
    for generation in (0, 3, 5):
        with pytest.raises(StreamLost, match="which is of generation 4 here") as lost:
            answer(streams, Place("a", number=1, generation=generation), chunks[1])
        assert (lost.value.reason, lost.value.last_counted) == ("generation", None)
    with pytest.raises(BadInput, match="which is open in generation 4; end it first"):
        streams.open("a", 4)  # the second of two who open one stream
    assert_close(answer(streams, Place("a", number=1, generation=4), chunks[1]), truth[1])
    streams.open("a", 5)
    with pytest.raises(StreamLost, match="which is of generation 5 here"):
        answer(streams, Place("a", number=2, generation=4), chunks[2])
    assert_close(answer(streams, Place("a", number=0, generation=5), chunks[0]), truth[0])
    assert streams.close("a", 5) == 1
    with pytest.raises(StreamLost, match="which is of generation 5 here"):
        streams.open("a", 5)  # late: it has been opened and closed
    assert place.server.health().streams == 0


def test_a_repeated_chunk_counts_once_and_is_answered_again(place: served.Place) -> None:
    streams, chunks = named(place), random_chunks(3)
    truth = truth_of(chunks)
    first = Place("a", start=True, number=0, generation=1)
    for _ in range(3):
        assert_close(answer(streams, first, chunks[0]), truth[0])
    second = Place("a", number=1, generation=1)
    place.scheduler.held = True
    tickets = [streams.submit(second, {"x": chunks[1]}) for _ in range(3)]
    place.release()
    for ticket in tickets:
        assert_close(ticket.result()["y"], truth[1])
    with pytest.raises(BadInput, match="expected chunk 2 of the stream, got 1"):
        answer(streams, second, chunks[2])  # another chunk under the number of one that counted
    with pytest.raises(BadInput, match="expected chunk 2 of the stream, got 0"):
        answer(streams, Place("a", number=0, generation=1), chunks[0])
    assert_close(answer(streams, Place("a", number=2, generation=1), chunks[2]), truth[2])
    assert streams.close("a", 1) == 3


def test_a_repeated_chunk_whose_first_was_taken_back_counts(place: served.Place) -> None:
    streams, chunks = named(place), random_chunks(1)
    streams.open("a", 1)
    place.scheduler.held = True
    assert streams.submit(Place("a", number=0, generation=1), {"x": chunks[0]}).cancel()
    place.release()
    assert_close(answer(streams, Place("a", number=0, generation=1), chunks[0]), truth_of(chunks)[0])


def test_a_stream_goes_on_elsewhere_from_its_bytes_and_nowhere_else(place: served.Place, bundle: Path) -> None:
    here, chunks = named(place), random_chunks(6, rows=2)
    truth = truth_of(chunks)
    here.open("a", 1, rows=2)
    for number in range(3):
        assert_close(answer(here, Place("a", number=number, generation=1), chunks[number]), truth[number])
    early = here.snapshot("a", 1)
    assert_close(answer(here, Place("a", number=3, generation=1), chunks[3]), truth[3])
    moved = here.take_out("a", 1)
    assert moved[:4] == ("a", 1, 2, 4)
    with pytest.raises(StreamLost, match="which has moved to another worker behind chunk 3") as lost:
        answer(here, Place("a", number=4, generation=1), chunks[4])
    assert (lost.value.reason, lost.value.last_counted) == ("moved", 3)
    with serve(bundle) as other:
        there = named(other)
        for name, generation, rows, sequence, text in (
            ("b", 2, 2, None, "got one of another stream"),
            ("a", 1, 2, None, "expected a generation above that of the snapshot, 1, got 1"),
            ("a", 2, 1, None, "for 1 rows, got those of another graph or number of rows"),
            ("a", 2, 2, 3, "expected a snapshot before chunk 3, got one before chunk 4"),
        ):
            with pytest.raises(BadInput, match=text):
                there.restore(name, generation, moved.content, rows, sequence)
        assert there.count == 0 and other.server.health().streams == 0
        assert there.restore("a", 2, moved.content, 2, 4) == 4
        assert there.where("a") == ("a", 2, 2, 4, b"")
        with pytest.raises(BadInput, match="which is open in generation 2"):
            there.restore("a", 2, moved.content, 2)
        for number in (4, 5):
            assert_close(answer(there, Place("a", number=number, generation=2), chunks[number]), truth[number])
        assert there.restore("a", 3, early, 2) == 3  # back to an older moment, and it says so
        with pytest.raises(BadInput, match="expected chunk 3 of the stream, got 5"):
            answer(there, Place("a", number=5, generation=3), chunks[5])
        assert_close(answer(there, Place("a", number=3, generation=3), chunks[3]), truth[3])


def test_a_drain_hands_all_streams_out_behind_their_chunks(place: served.Place, bundle: Path) -> None:
    here, chunks = named(place), random_chunks(3)
    truth = truth_of(chunks)
    for name in range(4):
        here.open(name, 1)
    place.scheduler.held = True
    pending = [here.submit(Place(name, number=0, generation=1), {"x": chunks[0]}) for name in range(3)]
    place.release()
    leaving = here.drain(10.0)
    first = next(leaving)
    with pytest.raises(Overloaded, match="draining"):
        here.open("late", 1)
    last = [name for name in range(4) if name != first.stream][-1]
    assert here.where(last) is not None  # it goes on until its turn
    moved = [first, *leaving]
    assert sorted((each.stream, each.sequence) for each in moved) == [(0, 1), (1, 1), (2, 1), (3, 0)]
    for ticket in pending:
        assert_close(ticket.result()["y"], truth[0])
    assert here.count == 0 and place.server.health().streams == 0
    with serve(bundle) as other:
        there = named(other)
        for each in moved:
            number = there.restore(each.stream, 2, each.content)
            assert_close(answer(there, Place(each.stream, number=number, generation=2), chunks[number]), truth[number])


def test_a_chunk_that_does_not_end_within_the_limit_loses_its_stream_by_name(bundle: Path) -> None:
    gate = served.gate()
    with serve(bundle) as place:
        place.hook = gate
        streams, chunk = named(place), random_chunks(1)[0]
        streams.open("a", 1)
        ticket = streams.submit(Place("a", number=0, generation=1), {"x": chunk})
        assert gate.inside.wait(PATIENCE_S)
        (lost,) = streams.drain(0.01)
        assert lost == ("a", 1, 1, 0, b"")
        gate.leave.set()
        with pytest.raises(StreamLost, match="which has moved"):
            streams.submit(Place("a", number=1, generation=1), {"x": chunk})
        assert ticket.done()


def test_wrong_names_generations_and_limits_are_refused(place: served.Place) -> None:
    streams, odd = named(place), [None, 1.0, "", True, b"x", ["a"]]
    for name in odd:
        with pytest.raises(BadInput, match="expected the name of a stream as a text or a number"):
            streams.open(name)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="expected the name of a stream"):
            streams.snapshot(name)  # type: ignore[arg-type]
    for generation in (None, 1.0, -1, True, 2**63):
        with pytest.raises(BadInput, match="expected a generation from 0 on"):
            streams.open("a", generation)  # type: ignore[arg-type]
    streams.open("a", 1)
    for limit_s in (None, -1, "x"):
        with pytest.raises(BadInput, match="expected limit_s as seconds"):
            streams.take_out("a", 1, limit_s)  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="expected limit_s as seconds"):
            list(streams.drain(limit_s))  # type: ignore[arg-type]
    assert streams.where("a") == ("a", 1, 1, 0, b"") and streams.where("b") is None


def test_what_is_remembered_of_ended_streams_is_bounded(place: served.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime_lite.hosting.named_streams.MOST_REMEMBERED", 3)
    streams = named(place)
    for name in range(9):
        streams.open(name, 1)
        streams.close(name, 1)
    with pytest.raises(StreamLost, match="which has ended: closed"):
        streams.close(8, 1)
    with pytest.raises(StreamLost, match="which nobody has started here"):
        streams.close(0, 1)
