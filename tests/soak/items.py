"""Rows 1, 2 and 9: what callers do wrong, and items that take their run along."""

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runtime_lite.errors import BadInput, Dropped, InternalError, RuntimeLiteError
from runtime_lite.format.arrays import Array
from runtime_lite.stream import Stream
from tests.soak.adder import WIDTH, fed, is_sum
from tests.soak.puppet import Puppet, puppet
from tests.soak.row import Figures

X = fed(1)["x"]

WRONG_FEEDS: Mapping[str, Callable[[random.Random], Any]] = {
    "dtype": lambda draw: {"x": X.astype(draw.choice(["float64", "int64", "float16", "bool", "U4", "M8[s]", "O"]))},
    "rank": lambda draw: {"x": draw.choice([X[0], X[None], np.float32(1), X.reshape(1, 2, 2)])},
    "width": lambda draw: {"x": np.zeros((1, draw.choice([0, 1, WIDTH - 1, WIDTH + 1, 10_000])), np.float32)},
    "no rows": lambda draw: {"x": X[:0]},
    "name": lambda draw: {draw.choice(["", "X", "past", "x ", "y", 7, None, b"x"]): X},
    "one name more": lambda draw: {"x": X, draw.choice(["past", "z"]): X},
    "nothing": lambda draw: draw.choice([{}, None, 3, "x", [], X, object()]),
    "not finite": lambda draw: {
        "x": np.where(np.equal(X, draw.randint(1, 4)), draw.choice([np.nan, np.inf, -np.inf]), X)
    },
    "no array": lambda draw: {"x": draw.choice([None, "1", {}, object(), [[1.0, 2.0]], [[1], [2, 3]]])},
}


def bad_inputs(size: int, timed: bool) -> Figures:
    """Row 1: `size` wrong feeds among good ones, to requests and to a stream."""
    crashes = accepted = wrong = 0
    took = 0
    draw = random.Random(1)
    kinds = list(WRONG_FEEDS.values())
    with puppet() as place, place.model.open_stream(credits=1 << 20) as stream:
        for begin in range(0, size, 100):
            place.scheduler.held = True
            good = []
            for number in range(begin, min(begin + 100, size)):
                feed = kinds[number % len(kinds)](draw)
                send: Callable[[Any], Any] = place.model.submit if draw.random() < 0.5 else stream.submit
                started = time.perf_counter_ns()
                try:
                    send(feed)
                    accepted += 1
                except RuntimeLiteError:
                    pass
                except Exception:  # noqa: BLE001 - what is counted
                    crashes += 1
                took += time.perf_counter_ns() - started
                good.append((number, place.model.submit(fed(number))))
            place.release()
            wrong += sum(not is_sum(ticket.result(0), number) for number, ticket in good)
        wrong += not is_sum(stream.push(fed(3)), 3)
    return {"crashes": crashes, "accepted": accepted, "wrong neighbours": wrong, "reject us": took / size / 1e3}


MARK = 7777


def fail_on_mark(feeds: Mapping[str, Array]) -> None:
    """An executor's hook: a run with the mark in any of its rows fails."""
    if (feeds["x"] == MARK).any():
        raise InternalError("poisoned")


def poisoned_item(size: int, timed: bool) -> Figures:
    """Row 2: a batch of `size` requests, each of them the poisoned one once; then several at once."""
    draw, wrong, named, most = random.Random(2), 0, 0, 0.0
    sets = [{at} for at in range(size)] + [{at for at in range(size) if draw.random() < 0.2} for _ in range(size)]
    with puppet() as place:
        for bad in sets:
            place.hook = fail_on_mark
            place.scheduler.held = True
            tickets = [place.model.submit(fed(MARK if at in bad else at)) for at in range(size)]
            place.runs = 0
            place.release()
            if len(bad) == 1:
                most = max(most, (place.runs - 1) / (2 * math.log2(size)))
            for at, ticket in enumerate(tickets):
                if at in bad:
                    named += isinstance(ticket.error, InternalError)
                else:
                    wrong += ticket.outcome != "done" or not is_sum(ticket.result(0), at)
    return {
        "wrong neighbours": wrong,
        "unnamed items": sum(map(len, sets)) - named,
        "extra runs / 2 log2 n": most,
    }


class Chunked:
    """A stream with what it should say.

    Attributes:
        stream: under test.
        total: of all chunks that count.
        count: how many count.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream, self.total, self.count = stream, 0, 0

    def is_as_it_was(self) -> bool:
        """Whether the runtime's state of it is what the chunks that count come to."""
        return self.stream.sequence == self.count and is_sum({"y": self.stream.state.values["past"]}, self.total)


def chunk_faults(size: int, timed: bool) -> Figures:
    """Row 9: `size` faults, each in one of some streams whose neighbours go on."""
    draw = random.Random(9)
    found = dict.fromkeys(("untyped", "changed states", "wrong neighbours"), 0)
    with puppet(max_streams=8) as place:
        streams = [Chunked(place.model.open_stream()) for _ in range(8)]
        for _ in range(size):
            at = draw.randrange(8)
            fault = draw.choice(FAULTS)
            found["untyped"] += not fault(place, streams[at], draw)
            if streams[at].stream._live.ended:
                streams[at] = Chunked(place.model.open_stream())  # takes the slot of the one before it
            found["changed states"] += not streams[at].is_as_it_was()
            tickets = []
            for each in streams:
                number = draw.randint(-9, 9)
                each.total, each.count = each.total + number, each.count + 1
                tickets.append((each.total, each.stream.submit(fed(number), sequence=each.count - 1)))
            place.release()
            found["wrong neighbours"] += sum(not is_sum(ticket.result(0), total) for total, ticket in tickets)
    return found


def _refused(call: Callable[[], object], *kinds: type[Exception]) -> bool:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - judged by its type
        return isinstance(error, kinds or BadInput)
    return False


def _swapped(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """The chunk after the next one comes first."""
    return _refused(lambda: one.stream.push(fed(1), sequence=one.count + 1))


def _repeated(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """A chunk that counts already comes again."""
    return not one.count or _refused(lambda: one.stream.push(fed(1), sequence=one.count - 1))


def _lost(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """Some chunks never come: no start, where the stream is new."""
    return _refused(lambda: one.stream.submit(fed(1), sequence=one.count + draw.randint(1, 99)))


def _started_twice(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """Chunk 0 comes while another one is queued."""
    place.scheduler.held = True
    first = one.stream.submit(fed(5))
    refused = _refused(lambda: one.stream.submit(fed(1), sequence=0))
    first.cancel()
    place.release()
    return refused


def _never_ended(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """Nobody closes it: it expires, and says so."""
    one.stream.close()
    one.stream = place.model.open_stream(idle_s=1)
    place.scheduler.held = False
    well = is_sum(one.stream.push(fed(4)), 4)
    place.pass_ms(1000)
    return well and _refused(lambda: one.stream.push(fed(1)))


def _used_after_its_end(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """Its place belongs to another stream by now."""
    one.stream.close()
    other = Chunked(place.model.open_stream())
    refused = _refused(lambda: one.stream.push(fed(1))) and _refused(lambda: one.stream.snapshot())
    well = other.is_as_it_was()
    other.stream.close()
    return refused and well


def _pushed_by_two(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """A push while another one runs."""
    answers: list[bool] = []
    place.hook = lambda _: answers.append(_refused(lambda: one.stream.push(fed(1))))
    place.scheduler.held = False
    one.total, one.count = one.total + 4, one.count + 1
    well = is_sum(one.stream.push(fed(4)), one.total)
    place.hook = lambda _: None
    return well and all(answers)


def _failed(place: Puppet, one: Chunked, draw: random.Random) -> bool:
    """Its run fails; the chunk behind it is lost with it."""
    place.hook = fail_on_mark
    place.scheduler.held = True
    tickets = [one.stream.submit(fed(number)) for number in (MARK, 2)]
    place.release()
    place.hook = lambda _: None
    return _refused(lambda: tickets[0].result(0), InternalError) and _refused(lambda: tickets[1].result(0), Dropped)


FAULTS = (
    _swapped,
    _repeated,
    _lost,
    _started_twice,
    _never_ended,
    _used_after_its_end,
    _pushed_by_two,
    _failed,
)
