"""One record of a request: its parts are tasks of the scheduler, and hold nothing of it once they are released."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from runtime_lite.errors import Cancelled, Dropped
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import ENDED, NEW, QUEUED, UTTERANCE
from runtime_lite.serving.request import LiveRequest, Part, Version, make_part
from tests.runtime_lite.serving.served import Place, feed


def request_of(place: Place) -> LiveRequest[Any]:
    return LiveRequest(place.server, "test", "chunk", lambda outputs: outputs[0][0])


def part_of(place: Place, request: LiveRequest[Any], hard: int | None = None) -> Part:
    version: Version = place.model._version
    runner = version.runners["plain"]
    return make_part(request, 0, version, runner, [runner.check("test", feed(1))], UTTERANCE, 5, hard)


def test_a_part_has_the_times_of_its_class_and_its_request_those_of_the_whole(place: Place) -> None:
    request = request_of(place)
    part = part_of(place, request)
    assert (part.arrival, part.soft, part.hard) == (5, 5 + 1000 * NS_PER_MS, 5 + 2000 * NS_PER_MS)
    assert (request.soft, request.hard) == (part.soft, part.hard)
    assert part_of(place, request, 77).hard == request.hard == 77


def test_the_scheduler_queues_the_part_itself(place: Place) -> None:
    place.scheduler.held = True
    ticket = place.model.submit(feed(1), "plain")
    (part,) = ticket.parts
    assert (part.state, part.queued, part.request) == (QUEUED, True, ticket)
    ticket.cancel()
    assert (part.state, part.queued, ticket.parts) == (ENDED, False, [])


def test_what_a_queue_remembers_of_a_part_that_left_holds_neither_request_nor_arrays(place: Place) -> None:
    place.scheduler.held = True
    array = feed(1)
    ticket = place.model.submit(array, "plain", deadline_ms=10_000, copy=False)
    (part,) = ticket.parts
    held = weakref.ref(array["x"])
    ended = weakref.ref(ticket)
    ticket.cancel()
    del ticket, array
    gc.collect()
    assert held() is None and ended() is None
    assert part.feeds == () and not hasattr(part, "request")


@pytest.mark.parametrize("outcome", ["done", "dropped", "cancelled"])
def test_a_request_that_has_ended_gives_its_answer_or_what_it_ended_with(place: Place, outcome: Any) -> None:
    request = request_of(place)
    assert not request.done() and request.put(0, [{"y": feed(1)["x"]}])
    request.end(outcome, "", Dropped("test: late", "late") if outcome == "dropped" else None)
    assert request.done()
    if outcome == "done":
        assert request.answer().keys() == {"y"}
        return
    with pytest.raises(Dropped if outcome == "dropped" else Cancelled):
        request.answer()
    assert request.is_known


def test_a_version_that_is_retired_is_unneeded_with_its_last_pin(bundle: Path, place: Place) -> None:
    version, unneeded = Version("v", place.model.bundle, {}, pins=2), list[Version]()
    version.retired = True
    version.unpin(unneeded)
    assert unneeded == []
    version.unpin(unneeded)
    assert unneeded == [version]


def test_a_part_that_is_made_is_not_queued_yet(place: Place) -> None:
    part = part_of(place, request_of(place))
    assert part.state == NEW and not part.queued
