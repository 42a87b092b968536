"""A version is closed with the last who needs it, once, and what the scheduler knew of it goes with it."""

from pathlib import Path

import pytest

from runtime_lite.errors import BadInput
from runtime_lite.serving.events import EventBus
from runtime_lite.serving.request import Version
from runtime_lite.serving.versions import Versions
from tests.runtime_lite.serving.served import feed, serve


@pytest.mark.parametrize("pinned_by", ["nobody", "a stream", "a request"])
def test_a_retired_version_is_closed_with_its_last_pin(bundle: Path, pinned_by: str) -> None:
    with serve(bundle) as place:
        old = place.model._version
        place.scheduler.held = True
        stream = place.model.open_stream("streaming") if pinned_by == "a stream" else None
        ticket = place.model.submit(feed(1), "plain") if pinned_by == "a request" else None
        assert old.pins == (0 if pinned_by == "nobody" else 1)
        place.model.swap(place.load(bundle))
        assert old.retired and old.gone.is_set() == (pinned_by == "nobody")
        if stream is not None:
            stream.close()
        if ticket is not None:
            assert ticket.cancel()
        assert old.gone.is_set() and old.pins == 0
        assert place.closed == len(old.runners)
        place.scheduler.held = False
        assert place.model.run(feed(1), "plain").keys() == {"y"}  # by the new one
        assert place.closed == len(old.runners)


def test_a_version_that_is_gone_costs_nothing_any_more(bundle: Path) -> None:
    with serve(bundle) as place:
        place.model.run(feed(1), "plain")
        before = place.model._version
        key = before.chunk_key(before.runners["plain"])
        costs = place.server._versions._costs
        assert costs.row_buckets(key)
        place.model.swap(place.load(bundle))
        with pytest.raises(KeyError):
            costs.row_buckets(key)
        place.model.close()
        with pytest.raises(BadInput, match="closed one"):
            place.model.run(feed(1), "plain")


def test_a_version_that_is_needed_again_before_it_is_closed_stays(bundle: Path) -> None:
    with serve(bundle) as place:
        versions = Versions(place.scheduler, place.server._versions._costs, EventBus(()))
        version = Version("other", place.model.bundle, {}, pins=1)
        versions.retire(version, "swapped", 0)
        for _ in range(2):  # as when a run that lost its thread is queued anew, and loses it once more
            version.unpin(versions.unneeded)
            version.pins += 1
        assert versions.leaving() == []
        version.unpin(versions.unneeded)
        assert versions.leaving() == [version]
