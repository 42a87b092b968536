"""Several models on one device: transient results, rescoring of finished segments and bursts, on a virtual clock."""

from typing import Any

from runtime_lite import BULK, UTTERANCE, Model
from tests.soak.adder import fed, is_sum
from tests.soak.books import Books
from tests.soak.puppet import Puppet, adder, puppet

STREAMS, CHUNKS, BURST = 6, 4, 40
PERIOD_MS, RUN_MS = 160.0, 12.0


def test_transient_results_stay_in_time_beside_rescoring_and_bursts_and_all_is_answered() -> None:
    """A burst is there before the chunks of every period; chunks run first, and what is rescored keeps its deadline."""
    books = Books()
    with puppet(observers=[books]) as place:
        rescorer = Model(place.server, place.load(adder(2)), 0)
        place.hook = lambda _: place.clock.advance_to(place.clock() + int(RUN_MS * 1e6))
        streams = [place.model.open_stream(period_ms=PERIOD_MS) for _ in range(STREAMS)]
        rescored: list[Any] = []
        burst: list[Any] = []
        for total in range(1, 3 * CHUNKS + 1):
            place.scheduler.held = True
            began = place.clock()
            burst += [rescorer.submit(fed(number), service=BULK) for number in range(BURST)]
            if total % CHUNKS == 0:  # a segment is finished: all of it once more, by the better model
                rescored += [rescorer.submit(fed(total), service=UTTERANCE) for _ in streams]
            chunks = [stream.submit(fed(1), deadline_ms=PERIOD_MS) for stream in streams]
            place.scheduler.held = False
            place.server.tick()
            while not all(chunk.done() for chunk in chunks):
                place.hands.make()
            assert (place.clock() - began) / 1e6 <= 3 * RUN_MS, "chunks waited for the burst"
            assert all(is_sum(chunk.result(0), total) for chunk in chunks)
            _go_on_until(place, began + int(PERIOD_MS * 1e6))
        place.release()
        assert all(is_sum(ticket.result(0), 2 * CHUNKS * (1 + at // STREAMS)) for at, ticket in enumerate(rescored))
        assert all(is_sum(ticket.result(0), 2 * (at % BURST)) for at, ticket in enumerate(burst))
        ledger = place.server.balance()
        assert ledger.count("done") == ledger.submitted == 3 * CHUNKS * (STREAMS + BURST) + 3 * STREAMS
        rescorer.close()
        for stream in streams:
            stream.close()


def _go_on_until(place: Puppet, until: int) -> None:
    """Make runs that wait until the next chunks come."""
    while place.hands.waiting and place.clock() < until:
        place.hands.make()
    if place.clock() < until:
        place.pass_ms((until - place.clock()) / 1e6)
