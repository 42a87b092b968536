"""A request ends at its deadline, whatever still runs for it; what has ended is not remembered."""

from pathlib import Path
from typing import Any

import pytest

from runtime_lite.errors import Dropped
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from runtime_lite.scheduling.task import UTTERANCE
from runtime_lite.serving.deadlines import SPARE, Deadlines
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange
from runtime_lite.serving.ticket import Ticket
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks, write_wired_bundle
from tests.runtime_lite.serving.served import Place, assert_close, feed, gate, serve


class Heard:
    """An observer of requests."""

    def __init__(self, requests: list[Request]) -> None:
        self.submitted = requests.append

    def ended(self, request: Request, outcome: Outcome, reason: str, at: int) -> None: ...
    def responded(self, *told: Any) -> None: ...
    def executed(self, run: Execution) -> None: ...
    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, at: int) -> None: ...
    def model_changed(self, model: str, change: ModelChange, at: int) -> None: ...


def ticket_of(number: int, hard: int | None) -> "Ticket[object]":
    ticket: Ticket[object] = Ticket(None, "test", "bulk", lambda _: None)  # type: ignore[arg-type]
    ticket.number, ticket.hard = number, hard
    return ticket


def test_those_that_are_due_come_in_order_and_once() -> None:
    alive = {number: ticket_of(number, hard) for number, hard in ((1, 30), (2, None), (3, 10), (4, 20))}
    deadlines = Deadlines(alive)
    for ticket in alive.values():
        if ticket.hard is not None:
            deadlines.add(ticket)
    assert deadlines.next == 11
    assert deadlines.passed(10) == []  # an answer at the deadline is in time
    del alive[4]
    assert [each.number for each in deadlines.passed(40)] == [3, 1]
    assert not deadlines.passed(100)


def test_what_has_ended_is_forgotten_long_before_its_deadline() -> None:
    alive: dict[int, Ticket[object]] = {}
    deadlines = Deadlines(alive)
    for number in range(20 * SPARE):
        alive[number] = ticket_of(number, 10**12)
        deadlines.add(alive[number])
        alive.pop(number - 5, None)
    assert len(deadlines.due) <= 2 * SPARE


@pytest.mark.parametrize("way", ["deadline_ms", "class"])
def test_a_request_ends_at_its_deadline_while_its_run_goes_on(place: Place, way: str) -> None:
    held = gate()
    place.hook = held
    service = UTTERANCE._replace(hard_ms=60)
    ticket = (
        place.model.submit(feed(1), "plain", deadline_ms=60)
        if way == "deadline_ms"
        else place.model.submit(feed(1), "plain", service=service)
    )
    assert held.inside.wait(PATIENCE_S)
    with pytest.raises(Dropped) as late:
        ticket.result(PATIENCE_S)
    assert late.value.reason == "late"
    assert place.server.health().running == 1
    held.leave.set()


def test_a_chunk_that_waits_behind_one_that_runs_ends_in_time_and_those_behind_it_are_lost(place: Place) -> None:
    held = gate()
    chunks = [{"x": chunk} for chunk in random_chunks(4)]
    stream = place.model.open_stream("streaming")
    place.hook = held
    first = stream.submit(chunks[0])
    assert held.inside.wait(PATIENCE_S)
    second, third = stream.submit(chunks[1], deadline_ms=30), stream.submit(chunks[2])
    for ticket, reason in ((second, "late"), (third, "a chunk before it was lost")):
        with pytest.raises(Dropped) as lost:
            ticket.result(PATIENCE_S)
        assert lost.value.reason == reason
    held.leave.set()
    place.hook = lambda *_: None
    assert first.result(PATIENCE_S)
    with place.model.open_stream("streaming") as alone:
        truth = [alone.push(chunk)["y"] for chunk in chunks]
    assert_close(stream.push(chunks[1])["y"], truth[1])


def test_a_late_chunk_that_runs_moves_its_stream_on(place: Place) -> None:
    held = gate()
    chunks = [{"x": chunk} for chunk in random_chunks(2)]
    with place.model.open_stream("streaming") as alone:
        truth = [alone.push(chunk)["y"] for chunk in chunks]
    stream = place.model.open_stream("streaming")
    place.hook = held
    ticket = stream.submit(chunks[0], deadline_ms=60)
    assert held.inside.wait(PATIENCE_S)
    with pytest.raises(Dropped, match="late"):
        ticket.result(PATIENCE_S)
    behind = stream.submit(chunks[1])
    held.leave.set()
    assert_close(behind.result(PATIENCE_S)["y"], truth[1])


def test_the_deadline_of_wired_graphs_is_that_of_the_whole(tmp_path: Path) -> None:
    clock, requests = VirtualClock(), list[Request]()
    with serve(write_wired_bundle(tmp_path / "wired"), clock=clock, observers=[Heard(requests)]) as place:
        held = gate()
        place.hook = held
        given = {"x": random_chunks(1)[0], "shift": feed(1)["shift"], "tokens": feed(1)["shift"][:, None].repeat(3, 1)}
        ticket = place.model.submit(given, deadline_ms=90)
        assert held.inside.wait(PATIENCE_S)
        assert (ticket.hard, ticket.soft) == (90 * NS_PER_MS, 160 * NS_PER_MS)
        clock.advance_to(90 * NS_PER_MS)
        place.server.tick()
        assert not ticket.done()
        clock.advance_to(90 * NS_PER_MS + 1)
        place.server.tick()
        with pytest.raises(Dropped, match="late"):
            ticket.result(PATIENCE_S)
        held.leave.set()
    assert requests[0].hard == 90 * NS_PER_MS
