"""Streams by their callers' names: started once, ended once, forgotten when they idle, and never anybody else's."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from runtime_lite import BadInput, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import NamedStreams, Place
from runtime_lite.scheduling.clock import VirtualClock
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
        (Place("a", start=True), "which is open; end it first"),
        (Place("b"), "which nobody has started"),
        (Place("a", number=0), "expected chunk 1 of the stream, got 0"),
        (Place("a", number=2), "expected chunk 1 of the stream, got 2"),
    ):
        with pytest.raises(BadInput, match=text):
            answer(streams, wrong, chunks[1])
    assert_close(answer(streams, Place("a", number=1), chunks[1]), truth[1])
    assert_close(answer(streams, Place("a", end=True), chunks[2]), truth[2])
    with pytest.raises(BadInput, match="which nobody has started"):
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
    with pytest.raises(BadInput, match="got one of 5, which nobody has started"):
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
            with pytest.raises(BadInput, match="which has ended: idle"):
                answer(streams, Place(f"{round_of_names}-0"), chunk)
        answer(streams, Place("last", start=True), chunk)
        assert len(streams._streams) == 1
