"""Rows 4, 5, 11, 18, 22 and 28: readers, cancels, slots, order, responses and request counts, moved by hand."""

import contextlib
import gc
import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.serving.rounds import times_us
from runtime_lite import Runtime
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BadInput, Cancelled, Dropped, InternalError, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, UTTERANCE
from runtime_lite.serving.ticket import Ticket
from runtime_lite.stream import Stream
from tests.soak.adder import fed, is_sum
from tests.soak.items import MARK, fail_on_mark
from tests.soak.observed_requests import ObservedRequests
from tests.soak.puppet import Puppet, adder, puppet
from tests.soak.row import Figures

ROOM = 4


def slow_consumer(size: int, timed: bool) -> Figures:
    """Row 4: a reader that never reads, one that reads a response per second, and others with `size` chunks."""
    observed, wrong = ObservedRequests(), 0
    with puppet(observers=[observed]) as place:
        never, seldom, other = (place.model.open_stream() for _ in range(3))
        unread = never.submit_all([fed(1)] * 64, room=ROOM)
        read_later = seldom.submit_all([fed(1)] * 64, room=ROOM)
        reader, most = iter(read_later), 0
        place.release()
        for second in range(40):
            for number in range(size // 40):
                wrong += not is_sum(place.model.run(fed(number)), number)
            other.push(fed(1))
            wrong += not is_sum({"y": other.state.values["past"]}, second + 1)
            wrong += not is_sum(next(reader), second + 1)
            place.release()
            place.pass_ms(1000)
            most = max(most, observed.responses[unread.number], observed.responses[read_later.number] - second - 1)
        left = [is_sum(outputs, at + 1) for at, outputs in enumerate(_until_error(unread))]
        wrong += left != [True] * ROOM
        ended = observed.streams.get(1) == "slow reader" and unread.reason == "slow reader"
    return {
        "responses buffered": most,
        "ended with a reason": ended,
        "others ended": len(observed.streams) - 1,
        "wrong": wrong,
    } | ({"p99 of others / without": _p99_ratio(size)} if timed else {})


def _p99_ratio(size: int) -> float:
    """Median over rounds of the 99th percentile of pushes beside a reader that never reads, over that without one."""
    ratios = []
    with Runtime(workers=2) as runtime:
        model = runtime.load(adder(), warm_up=True)
        with model.open_stream() as stream:
            for _ in range(11):
                alone = _p99_us(stream, size // 22)
                with model.open_stream() as never:
                    unread = never.submit_all([fed(1)] * 64, room=ROOM)
                    ratios.append(_p99_us(stream, size // 22) / alone)
                assert unread.reason == "closed"
    return statistics.median(ratios)


def _p99_us(stream: Stream, count: int) -> float:
    return float(np.percentile(times_us(lambda: stream.push(fed(0)), count), 99))


def _until_error(responses: Any) -> list[dict[str, Array]]:
    found: list[dict[str, Array]] = []
    with contextlib.suppress(Dropped):
        found.extend(responses)
    return found


def cancels(size: int, timed: bool) -> Figures:
    """Row 5: a cancel at each moment of a request's life, `size` times."""
    gc.collect()
    states = _states()
    lost = most = unnamed = 0
    with puppet() as place:
        for number in range(size):
            for moment in MOMENTS:
                with place.model.open_stream() as stream, place.model.open_stream() as neighbour:
                    taken, place.runs = place.slots_taken, 0
                    beside = neighbour.submit(fed(number))
                    runs, ended = moment(place, stream)
                    unnamed += not ended
                    most = max(most, runs)
                    place.hook = lambda _: None
                    place.release()
                    assert is_sum(beside.result(0), number)
                    lost += taken - place.slots_taken
    return {"slots lost": lost, "states kept": _states() - states, "runs after a cancel": most, "unnamed": unnamed}


def _states() -> int:
    return sum(type(each) is StreamState for each in gc.get_objects())


def _is_cancelled(ticket: Ticket[Any]) -> bool:
    try:
        ticket.result(0)
    except Cancelled:
        return ticket.outcome == "cancelled" and not ticket.cancel()
    return False


def _while_queued(place: Puppet, stream: Stream) -> tuple[int, bool]:
    place.release()
    place.scheduler.held, place.runs = True, 0
    ticket = stream.submit(fed(1))
    ticket.cancel()
    place.release()
    return place.runs, _is_cancelled(ticket) and stream.sequence == 0


def _while_forming(place: Puppet, stream: Stream) -> tuple[int, bool]:
    """The run is decided and has not begun: it is the one that is wasted."""
    place.release()
    place.runs = 0
    ticket = stream.submit(fed(1))
    assert place.hands.waiting
    ticket.cancel()
    place.release()
    return place.runs, _is_cancelled(ticket)


def _while_running(place: Puppet, stream: Stream) -> tuple[int, bool]:
    place.release()
    ticket = stream.submit(fed(1))

    def cancel(_: object) -> None:
        ticket.cancel()
        place.runs = 0

    place.hook = cancel
    place.release()
    return place.runs, _is_cancelled(ticket)


def _between_steps(place: Puppet, stream: Stream) -> tuple[int, bool]:
    place.release()
    ticket = stream.submit_all([fed(1)] * 8)
    for _ in range(3):
        place.hands.make()
    ticket.cancel()
    place.runs = 0
    place.release()
    return place.runs, _is_cancelled(ticket) and stream.sequence in (3, 4)


def _after_the_last(place: Puppet, stream: Stream) -> tuple[int, bool]:
    ticket = stream.submit(fed(1))
    place.release()
    place.runs = 0
    return place.runs, not ticket.cancel() and is_sum(ticket.result(0), 1)


MOMENTS = (_while_queued, _while_forming, _while_running, _between_steps, _after_the_last)


def slot_race(size: int, timed: bool) -> Figures:
    """Row 11: `size` interleavings of chunks, cancels, ends and idle expiry at one instant of the virtual clock."""
    draw = random.Random(11)
    found = dict.fromkeys(("double frees", "lost slots", "wrong answers"), 0)
    with puppet(max_streams=4, lanes=2) as place:
        for _ in range(size):
            _one_race(place, draw, found)
    return found


def _one_race(place: Puppet, draw: random.Random, found: dict[str, int]) -> None:
    """Three streams that expire at the same instant meet what else happens at it, in any order."""
    streams = [place.model.open_stream(idle_s=0.001) for _ in range(3)]
    newcomers: list[Stream] = []
    tickets = [stream.submit(fed(at)) for at, stream in enumerate(streams) if draw.random() < 0.7]
    if place.hands.waiting and draw.random() < 0.5:
        place.hands.make()
    place.clock.advance_to(place.clock() + 1_000_000)
    acts: list[Callable[[], object]] = [stream.close for stream in streams if draw.random() < 0.5]
    acts += [ticket.cancel for ticket in tickets if draw.random() < 0.5]
    acts += [
        lambda: _open(place, newcomers),
        place.server.tick,
        lambda: _make_one(place, draw),
        lambda: _open(place, newcomers),
    ]
    draw.shuffle(acts)
    nested = acts.pop() if draw.random() < 0.5 else None

    def meanwhile(_: object) -> None:
        nonlocal nested
        act, nested = nested, None
        if act is not None:
            act()

    place.hook = meanwhile
    for act in acts:
        act()
        found["lost slots"] += place.slots_taken != place.server.health().streams
    place.release()
    place.hook = lambda _: None
    place.server.tick()
    for stream in newcomers:  # it was fed nothing
        found["wrong answers"] += not is_sum({"y": stream.state.values["past"]}, 0)
    for stream in (*streams, *newcomers):
        stream.close()
    found["lost slots"] += place.slots_taken
    slots = place.server._streams._slots
    found["double frees"] += len(slots._free) - len(set(slots._free))
    for at, ticket in enumerate(tickets):
        found["wrong answers"] += ticket.outcome is None or (ticket.outcome == "done" and not _is_number(ticket, at))


def _is_number(ticket: Ticket[Any], at: int) -> bool:
    return any(is_sum(ticket.result(0), number) for number in range(at, 3))


def _make_one(place: Puppet, draw: random.Random) -> None:
    if place.hands.waiting:
        place.hands.make(draw.randrange(len(place.hands.waiting)))


def _open(place: Puppet, newcomers: list[Stream]) -> None:
    """A new stream takes a slot that was just freed."""
    try:
        newcomers.append(place.model.open_stream())
    except Overloaded:
        assert place.slots_taken == 4


def order(size: int, timed: bool) -> Figures:
    """Row 18: 64 streams with `size` chunks each, whose runs are made and end in any order."""
    draw, inversions, wrong = random.Random(18), 0, 0
    seen: list[tuple[int, int]] = []
    with puppet(lanes=8) as place:

        def wander(_: object) -> None:
            """Other runs begin, and end, while this one is in flight."""
            while place.hands.waiting and draw.random() < 0.5:
                place.hands.make(draw.randrange(len(place.hands.waiting)))

        place.hook = wander
        streams = [place.model.open_stream(credits=size) for _ in range(64)]
        tickets: list[list[Ticket[Any]]] = [[] for _ in streams]
        while any(len(each) < size for each in tickets):
            at = draw.choice([at for at, each in enumerate(tickets) if len(each) < size])
            for _ in range(draw.randint(1, size - len(tickets[at]))):
                place.scheduler.held = draw.random() < 0.5
                ticket = streams[at].submit(fed(1))
                number = len(tickets[at])
                ticket.wakers.append(lambda at=at, number=number: seen.append((at, number)))  # type: ignore[misc]
                tickets[at].append(ticket)
            if place.hands.waiting and draw.random() < 0.5:
                place.hands.make()
        place.release()
        after: Counter[int] = Counter()
        for at, number in seen:
            inversions += number != after[at]
            after[at] += 1
        wrong = sum(not is_sum(t.result(0), n + 1) for each in tickets for n, t in enumerate(each))
        for stream in streams:
            stream.close()
    return {"inversions": inversions, "wrong answers": wrong, "lost": 64 * size - len(seen)}


def decoupled(size: int, timed: bool) -> Figures:
    """Row 22: requests with no response, with one, with `size`, and with an error in the middle."""
    wrong = 0
    ends: list[int] = []
    for count, bad in ((0, None), (1, None), (size, None), (size, size // 2), (size, 0), (1, 0)):
        observed = ObservedRequests()
        with puppet(observers=[observed]) as place, place.model.open_stream() as stream:
            place.hook = fail_on_mark
            feeds = [fed(MARK if at == bad else 1) for at in range(count)]
            responses = stream.submit_all(feeds, room=max(count, 1))
            place.release()
            reader, got, failed = iter(responses), 0, 0
            try:
                for got, outputs in enumerate(reader, start=1):
                    wrong += not is_sum(outputs, got)
            except InternalError:
                failed += 1
            wrong += got != (count if bad is None else bad) or failed != (bad is not None)
            wrong += bool(list(reader)) or observed.responses[responses.number] != got
            wrong += not observed.agree(place.server.request_counts())
            ends.append(sum(observed.ends.values()))
    return {"wrong": wrong, "most final markers": max(ends), "least final markers": min(ends)}


def request_accounting(size: int, timed: bool) -> Figures:
    """Row 28: `size` acts of any kind, in any order; the counts are looked at after each."""
    draw, observed, unbalanced = random.Random(28), ObservedRequests(), 0
    with puppet(lanes=3, max_streams=6, observers=[observed]) as place:
        place.hook = fail_on_mark
        live: list[Stream] = []
        tickets: list[Ticket[Any]] = []
        acts = _acts(place, draw, live, tickets)
        for _ in range(size):
            with contextlib.suppress(BadInput, Overloaded):
                draw.choice(acts)()
            place.server._bus.spread()
            unbalanced += not observed.agree(place.server.request_counts())
            del tickets[:-50]
        for stream in live:
            stream.close()
        place.release()
    unbalanced += not observed.agree(place.server.request_counts())
    return {"unbalanced": unbalanced, "ways to end seen": len({(kind, why) for _, kind, why in observed.ends})}


def _acts(
    place: Puppet, draw: random.Random, live: list[Stream], tickets: list[Ticket[Any]]
) -> list[Callable[[], object]]:
    def feed() -> Mapping[str, Array]:
        return draw.choice((fed(1), fed(2), fed(MARK), {"x": fed(1)["x"] * float("nan")}))

    def submit() -> None:
        service = draw.choice((INTERACTIVE, UTTERANCE, BULK, CHUNK))
        deadline = draw.choice((None, 5.0, 15.0, 100.0))
        tickets.append(place.model.submit(feed(), service=service, deadline_ms=deadline))

    def submit_chunk() -> None:
        if live:
            tickets.append(draw.choice(live).submit(feed(), deadline_ms=draw.choice((None, 15.0))))

    def submit_all() -> None:
        if live:
            tickets.append(draw.choice(live).submit_all([feed() for _ in range(draw.randint(0, 5))], room=2))

    def read() -> None:
        for ticket in [each for each in tickets if each.done()]:
            with contextlib.suppress(InternalError, Dropped, Cancelled):
                ticket.result(0)

    def open_stream() -> None:
        live.append(place.model.open_stream(credits=3, idle_s=draw.choice((None, 0.05))))

    def close_stream() -> None:
        if live:
            live.pop(draw.randrange(len(live))).close()

    def fork() -> None:
        if live:
            live.append(draw.choice(live).fork())

    def cancel() -> None:
        if tickets:
            draw.choice(tickets).cancel()

    def make() -> None:
        _make_one(place, draw)

    def hold() -> None:
        place.scheduler.held = draw.random() < 0.3

    def pass_time() -> None:
        place.pass_ms(draw.choice((0, 1, 7, 40, 40_000)))

    seldom = [submit_all, read, open_stream, close_stream, fork, cancel, hold, pass_time]
    return [*seldom, submit, submit, submit_chunk, submit_chunk, make, make, make]
