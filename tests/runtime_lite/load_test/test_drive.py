"""Requests are sent at their time, latency is counted from it, and streams are open no longer than they live."""

import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from runtime_lite import BadInput, Overloaded
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.arrivals import Arrival, Traffic, arrivals_of
from runtime_lite.load_test.drive import Ends, Source, drive
from tests.runtime_lite.serving.happenings import MS, request

NOTHING: Mapping[str, Array] = {}


@dataclass
class Number:
    number: int


@dataclass
class Puppet:
    """A runtime on a clock of its own: every request takes as long as it is told, and the generator waits for it."""

    takes_ms: int = 5
    blocks_ms: int = 0
    most_streams: int = 1000
    now: int = 10**15
    ends: Ends = field(default_factory=Ends)
    opened: list["PuppetStream"] = field(default_factory=list)

    def clock(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def submit(self, feeds: Mapping[str, Array]) -> Number:
        number = len(self.ends.outcomes)
        self.ends.ended(request(number), "done", "", self.now + self.takes_ms * MS)
        self.now += self.blocks_ms * MS
        return Number(number)

    def open_stream(self) -> "PuppetStream":
        if sum(stream.is_open for stream in self.opened) >= self.most_streams:
            raise Overloaded("full", "slots")
        self.opened.append(PuppetStream(self))
        return self.opened[-1]

    def sources(self) -> dict[str, Source]:
        return {
            "stream": Source([NOTHING], self.submit, self.open_stream),
            "utterance": Source([NOTHING] * 3, self.submit),
            "burst": Source([NOTHING] * 3, self.submit),
        }


@dataclass(eq=False)
class PuppetStream:
    puppet: Puppet
    is_open: bool = True
    left: int = 1000

    def submit(self, feeds: Mapping[str, Array]) -> Number:
        if not self.is_open or not self.left:
            raise BadInput("closed")
        self.left -= 1
        return self.puppet.submit(feeds)

    def close(self) -> None:
        assert self.is_open
        self.is_open = False


def run(puppet: Puppet, arrivals: list[Arrival]) -> list[tuple[int, float, str]]:
    """Sent in ms, latency in ms, and reason of every request."""
    served = drive(arrivals, puppet.sources(), lambda: None, puppet.ends, puppet.clock, puppet.wait)  # type: ignore[arg-type]
    assert [each.arrival for each in served] == arrivals
    return [(each.sent // MS, each.latency_ms, each.reason) for each in served]


def test_a_generator_that_is_held_up_does_not_make_latency_look_better() -> None:
    arrivals = [Arrival(at * 10 * MS, "utterance", at, 0, True) for at in range(4)]
    assert run(Puppet(), arrivals) == [(0, 5.0, ""), (10, 5.0, ""), (20, 5.0, ""), (30, 5.0, "")]
    held_up = run(Puppet(blocks_ms=30), arrivals)
    assert held_up == [(0, 5.0, ""), (30, 25.0, ""), (60, 45.0, ""), (90, 65.0, "")]


def test_streams_are_closed_when_their_last_chunk_has_ended_and_at_the_end() -> None:
    puppet = Puppet()
    run(puppet, arrivals_of(Traffic(seconds=5.0, streams=4, chunks=5, period_s=0.1), seed=2))
    assert len(puppet.opened) > 20
    assert not any(stream.is_open for stream in puppet.opened)
    few = Puppet(most_streams=5)  # four at once, and one that ends while the next one begins
    assert {reason for *_, reason in run(few, arrivals_of(Traffic(5.0, 4, 5, 0.1), seed=2))} == {""}


def test_a_stream_that_is_refused_or_ends_early_is_not_sent_to() -> None:
    chunks = [Arrival(item * 10 * MS, "stream", 0, item, item == 2) for item in range(3)]
    assert [reason for *_, reason in run(Puppet(most_streams=0), chunks)] == [
        "slots",
        "stream refused",
        "stream refused",
    ]
    puppet = Puppet()
    puppet.open_stream = lambda: PuppetStream(puppet, left=1)  # type: ignore[method-assign]
    assert [reason for *_, reason in run(puppet, chunks)] == ["", "stream ended", "stream ended"]


def test_a_feed_that_is_wrong_is_the_callers_mistake() -> None:
    puppet = Puppet()
    puppet.open_stream = lambda: PuppetStream(puppet, left=0)  # type: ignore[method-assign]
    with pytest.raises(BadInput):
        run(puppet, [Arrival(0, "stream", 0, 0, True)])


def test_what_was_answered_is_not_kept() -> None:
    """As its callers let go of it: a generator that keeps all answers of a long load is slowed down by them."""
    alive: list[weakref.ref[Number]] = []
    puppet, most = Puppet(), 0

    def submit(feeds: Mapping[str, Array]) -> Number:
        nonlocal most
        most = max(most, sum(each() is not None for each in alive))
        sent = Number(puppet.submit(feeds).number)
        alive.append(weakref.ref(sent))
        return sent

    arrivals = [Arrival(at * MS, "utterance", at, 0, True) for at in range(20)]
    served = drive(
        arrivals, {"utterance": Source([NOTHING], submit)}, lambda: None, puppet.ends, puppet.clock, puppet.wait
    )
    assert len(served) == len(alive) == 20 and most <= 1


def test_the_collector_looks_at_no_arrivals_while_a_load_runs() -> None:
    """An arrival is a tuple of its own kind, which the collector never lets go of: at each look at all of them."""
    arrivals = arrivals_of(Traffic(seconds=5.0, streams=4, chunks=5, period_s=0.1), seed=2)
    looked_at: list[int] = []

    def submit() -> "PuppetStream":
        looked_at.append(sum(type(each) is Arrival for each in gc.get_objects()))
        return PuppetStream(puppet, left=5)

    puppet = Puppet()
    puppet.open_stream = submit  # type: ignore[method-assign]
    run(puppet, arrivals)
    assert looked_at and max(looked_at) == 0
    assert sum(type(each) is Arrival for each in gc.get_objects()) >= len(arrivals)
