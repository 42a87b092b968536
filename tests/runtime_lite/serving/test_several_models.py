"""Several models on one device: transient results, rescoring of finished segments and bursts, on a virtual clock."""

from collections.abc import Mapping
from typing import Any

import pytest

from runtime_lite import BULK, UTTERANCE, Dropped, Model
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.scheduling.choice import FOR_EVER, Chooser
from runtime_lite.scheduling.cost_table import key_of
from runtime_lite.scheduling.queues import TaskQueue
from runtime_lite.scheduling.task import Key
from runtime_lite.serving.request import Version
from tests.soak.adder import fed, is_sum
from tests.soak.observed_requests import ObservedRequests
from tests.soak.puppet import Puppet, adder, puppet

STREAMS, CHUNKS = 6, 4
PERIOD_MS, RUN_MS = 160.0, 12.0
LONG, SHORT = 832, 40
"""Bursts, in requests: 13 runs of 64 rows, nearly all of a period; and part of a run, which has rows to spare."""


def serve_all(burst_of: int) -> None:
    """A burst is there before the chunks of every period; chunks run first, and what is rescored keeps its deadline."""
    observed = ObservedRequests()
    with puppet(observers=[observed]) as place:
        rescorer = Model(place.server, place.load(adder(2)), 0)
        place.hook = lambda _: place.clock.advance_to(place.clock() + int(RUN_MS * 1e6))
        streams = [place.model.open_stream(period_ms=PERIOD_MS) for _ in range(STREAMS)]
        rescored: list[Any] = []
        burst: list[Any] = []
        for total in range(1, 2 * CHUNKS + 1):
            place.scheduler.held = True
            began = place.clock()
            burst += [rescorer.submit(fed(number), service=BULK) for number in range(burst_of)]
            if total % CHUNKS == 0:  # a segment is finished: all of it once more, by the better model
                rescored += [rescorer.submit(fed(total), service=UTTERANCE) for _ in streams]
            chunks = [stream.submit(fed(1), deadline_ms=PERIOD_MS) for stream in streams]
            place.scheduler.held = False
            place.server.tick()
            while not all(chunk.done() for chunk in chunks):
                place.hands.make()
            assert (place.clock() - began) / 1e6 <= PERIOD_MS, "chunks waited for the burst"
            assert all(is_sum(chunk.result(0), total) for chunk in chunks)
            _go_on_until(place, began + int(PERIOD_MS * 1e6))
        place.release()
        assert all(is_sum(ticket.result(0), 2 * CHUNKS * (1 + at // STREAMS)) for at, ticket in enumerate(rescored))
        assert all(is_sum(ticket.result(0), 2 * (at % burst_of)) for at, ticket in enumerate(burst))
        counts = place.server.request_counts()
        assert counts.count("done") == counts.submitted == 2 * CHUNKS * (STREAMS + burst_of) + 2 * STREAMS
        rescorer.close()
        for stream in streams:
            stream.close()


def _go_on_until(place: Puppet, until: int) -> None:
    """Make runs that wait until the next chunks come."""
    while place.hands.waiting and place.clock() < until:
        place.hands.make()
    if place.clock() < until:
        place.pass_ms((until - place.clock()) / 1e6)


@pytest.mark.parametrize("burst_of", [SHORT, LONG])
def test_transient_results_stay_in_time_beside_rescoring_and_bursts_and_all_is_answered(burst_of: int) -> None:
    serve_all(burst_of)


def claims_what_chunks_need(chooser: Chooser, queue: TaskQueue, slack: int, now: int) -> Any:
    """Efficient work runs, whatever real-time work it makes late."""
    return chooser._useful(queue, FOR_EVER, now)


def is_of_the_first_model(version: Version, runner: GraphRunner, sizes: Mapping[str, int]) -> Key:
    """Rows of two models share a run."""
    return key_of("tiny1", runner.name, runner.graph, sizes, False)


@pytest.mark.parametrize(
    ("burst_of", "owner", "name", "broken"),
    [
        (LONG, Chooser, "_claim", claims_what_chunks_need),
        (SHORT, Version, "key_of", is_of_the_first_model),
    ],
)
def test_a_planted_break_is_seen(
    burst_of: int, owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, Dropped)):
        serve_all(burst_of)
