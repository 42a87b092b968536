"""Many responses to one request: each delivered once and in order, the end told once, a slow reader bounded."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.clock import VirtualClock
from runtime_lite.serving.live_streams import SLOW_READER_NS
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, write_streaming_bundle
from tests.runtime_lite.serving.served import Place, assert_close, serve, wait_until


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


def chunks_of(count: int) -> list[dict[str, Array]]:
    return [{"x": chunk} for chunk in random_chunks(count)]


def expected(place: Place, chunks: list[dict[str, Array]]) -> list[Array]:
    with place.model.open_stream() as stream:
        return [stream.push(chunk)["y"] for chunk in chunks]


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_responses_come_in_order_and_the_end_once(place: Place, count: int) -> None:
    chunks = chunks_of(count)
    truth = expected(place, chunks)
    with place.model.open_stream() as stream:
        responses = stream.submit_all(chunks)
        found = [response["y"] for response in responses]
        assert len(found) == count and responses.outcome == "done"
        for got, wanted in zip(found, truth, strict=True):
            assert_close(got, wanted)
        assert list(responses) == [] and responses.result(1) == []
        assert stream.sequence == count


def test_coroutines_read_responses_and_await_all_of_them(place: Place) -> None:
    chunks = chunks_of(20)
    truth = expected(place, chunks)

    async def read() -> tuple[list[Any], list[Any]]:
        with place.model.open_stream() as one, place.model.open_stream() as other:
            found = [response async for response in one.submit_all(chunks, room=2)]
            return found, await other.submit_all(chunks, room=2)

    for answers in asyncio.run(asyncio.wait_for(read(), 30)):
        for answer, y in zip(answers, truth, strict=True):
            assert_close(answer["y"], y)


@pytest.mark.parametrize("room", [1, 3, 9])
def test_who_reads_all_is_woken_at_the_end_or_when_nothing_more_has_room(place: Place, room: int) -> None:
    chunks = chunks_of(9)
    truth = expected(place, chunks)
    with place.model.open_stream() as stream:
        place.scheduler.held = True
        responses = stream.submit_all(chunks, room=room)
        found: list[Any] = []
        reader = threading.Thread(target=lambda: found.extend(responses.result()))
        reader.start()
        wait_until(lambda: bool(responses.wakers))
        assert not responses.readers  # a response alone would wake those
        place.release()
        reader.join(PATIENCE_S)
        for got, wanted in zip(found, truth, strict=True):
            assert_close(got["y"], wanted)


def test_an_error_in_the_middle_comes_behind_the_responses_before_it(place: Place) -> None:
    chunks = chunks_of(6)
    truth = expected(place, chunks)
    place.runs.clear()

    def fail_fourth(*_: object) -> None:
        if len(place.runs) == 4:
            raise InternalError("fourth")

    place.hook = fail_fourth
    with place.model.open_stream() as stream:
        responses = stream.submit_all(chunks)
        reader = iter(responses)
        got = [next(reader)["y"] for _ in range(3)]
        with pytest.raises(InternalError, match="fourth"):
            next(reader)
        assert_close(got, truth[:3])
        assert stream.sequence == 3 and responses.outcome == "failed"
        place.hook = lambda *_: None
        assert_close(stream.push(chunks[3])["y"], truth[3])  # the stream goes on from there


def test_a_slow_reader_pauses_its_own_stream_and_is_ended(bundle: Path) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        chunks = chunks_of(9)
        slow, quick = place.model.open_stream(), place.model.open_stream()
        responses = slow.submit_all(chunks, room=3)
        assert len(quick.submit_all(chunks, room=9).result(PATIENCE_S)) == 9  # nobody else is hurt
        assert slow.sequence == 3 and not responses.done()
        reader = iter(responses)
        next(reader)
        wait_until(lambda: slow.sequence == 4)
        clock.advance_to(SLOW_READER_NS - 1)
        place.server.tick()
        assert not responses.done()
        clock.advance_to(SLOW_READER_NS)
        place.server.tick()
        assert responses.outcome == "dropped" and responses.reason == "slow reader"
        assert len([next(reader) for _ in range(3)]) == 3  # what was made is read
        with pytest.raises(Dropped, match="slow reader"):
            next(reader)
        with pytest.raises(BadInput, match="got one that ended: slow reader"):
            slow.push(chunks[0])


def test_taking_back_a_request_of_many_leaves_the_stream_where_its_runs_left_it(place: Place) -> None:
    chunks = chunks_of(6)
    truth = expected(place, chunks)
    with place.model.open_stream() as stream:
        responses = stream.submit_all(chunks, room=2)
        behind = stream.submit(chunks[0])
        wait_until(lambda: stream.sequence == 2)
        assert responses.cancel()
        with pytest.raises(Cancelled):
            next(iter(responses))
        with pytest.raises(Dropped, match="a chunk before it was lost"):
            behind.result(PATIENCE_S)
        assert_close(stream.push(chunks[2], sequence=2)["y"], truth[2])


def test_room_and_chunks_are_checked(place: Place) -> None:
    with place.model.open_stream() as stream:
        with pytest.raises(BadInput, match="expected room for at least 1 response, got 0"):
            stream.submit_all(chunks_of(2), room=0)
        with pytest.raises(BadInput, match="submit_all: chunk 1: 'x': expected float32"):
            stream.submit_all([chunks_of(1)[0], {"x": np.zeros((1, 3, 2))}])
        with pytest.raises(BadInput, match="expected a list of feeds, got a dict"):
            stream.submit_all(chunks_of(1)[0])  # type: ignore[arg-type]
        assert stream.sequence == 0
    assert place.server.request_counts().submitted == 0


def test_whoever_asks_is_called_once_when_a_request_has_ended_in_whatever_way(place: Place) -> None:
    chunk, ends = chunks_of(1)[0], [threading.Event() for _ in range(4)]
    with place.model.open_stream() as stream, place.model.open_stream() as other:
        place.scheduler.held = True
        answered, cancelled = stream.submit(chunk), other.submit(chunk)
        answered.when_done(ends[0].set)
        cancelled.when_done(ends[1].set)
        assert not any(end.is_set() for end in ends)
        cancelled.cancel()
        assert ends[1].wait(PATIENCE_S) and not ends[0].is_set()
        place.release()
        assert ends[0].wait(PATIENCE_S) and answered.outcome == "done"
        answered.when_done(ends[2].set)
        assert ends[2].is_set()
        many = other.submit_all([chunk] * 3, room=1)
        calls: list[bool] = []
        many.when_done(lambda: calls.append(many.done()))
        many.when_done(ends[3].set)
        assert len(list(many)) == 3
        assert ends[3].wait(PATIENCE_S) and calls == [True]


def test_what_a_callback_raises_reaches_no_request(place: Place) -> None:
    """It is called by the thread that serves everybody."""

    def fail() -> None:
        raise ValueError("of the caller")

    chunk = chunks_of(1)[0]
    with place.model.open_stream() as stream, place.model.open_stream() as other:
        place.scheduler.held = True
        failing, beside = stream.submit(chunk), other.submit(chunk)
        failing.when_done(fail)
        place.release()
        assert beside.result(PATIENCE_S) and failing.result(PATIENCE_S)
        wait_until(lambda: place.server.health().observer_fault == "when_done: ValueError: of the caller")
        failing.when_done(fail)  # it has ended: at once, and as quietly
        assert place.server.health().healthy and stream.submit(chunk).result(PATIENCE_S)
        with pytest.raises(BadInput, match="submit: expected something to call, got 3; pass a function"):
            failing.when_done(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [-1, float("nan"), float("inf"), 10**30, "x", True])
def test_a_timeout_is_seconds(place: Place, odd: Any) -> None:
    with place.model.open_stream() as stream:
        for ticket in (stream.submit(chunks_of(1)[0]), stream.submit_all(chunks_of(2))):
            with pytest.raises(BadInput, match="expected timeout as seconds from 0 on, got "):
                ticket.result(odd)
            assert ticket.result(PATIENCE_S)
            with pytest.raises(BadInput, match="expected timeout as seconds from 0 on, got "):
                ticket.result(odd)


def test_nothing_is_asked_of_a_swapped_version_too(place: Place, bundle: Path) -> None:
    with place.model.open_stream() as stream:
        place.model.swap(place.load(bundle))
        assert stream.submit_all([]).result(PATIENCE_S) == []
        assert stream.push(chunks_of(1)[0])
