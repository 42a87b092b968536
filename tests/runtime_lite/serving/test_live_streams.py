"""A stream has one chunk in flight, ends once, and frees its slot in the same moment, however it ends."""

from pathlib import Path

import pytest

from runtime_lite.errors import BadInput, Dropped
from runtime_lite.scheduling.clock import NS_PER_MS, VirtualClock
from tests.kit.patience import PATIENCE_S
from tests.runtime_lite.bundles import random_chunks
from tests.runtime_lite.serving.served import serve


@pytest.mark.parametrize(
    ("end", "reason"),
    [("close", "closed"), ("idle", "idle"), ("unload", "model closed")],
)
def test_an_end_drops_what_is_queued_and_frees_the_slot(bundle: Path, end: str, reason: str) -> None:
    clock = VirtualClock()
    with serve(bundle, clock=clock) as place:
        stream = place.model.open_stream("streaming", idle_s=10)
        place.scheduler.held = True
        tickets = [] if end == "idle" else [stream.submit({"x": chunk}) for chunk in random_chunks(3)]
        assert place.server.health().queued == min(1, len(tickets))  # one in flight, the others behind it
        if end == "close":
            stream.close()
        elif end == "unload":
            place.model.close()
        else:
            clock.advance_to(9_999 * NS_PER_MS)
            place.server.tick()
            assert place.server.health().streams == 1
            clock.advance_to(10_000 * NS_PER_MS)
            place.server.tick()
        health = place.server.health()
        assert (health.streams, health.queued, place.server._streams.slots_taken) == (0, 0, 0)
        for ticket in tickets:
            with pytest.raises(Dropped) as dropped:
                ticket.result(PATIENCE_S)
            assert dropped.value.reason == reason
        with pytest.raises(BadInput, match=r"streaming\.push: expected a"):
            stream.push({"x": random_chunks(1)[0]})
