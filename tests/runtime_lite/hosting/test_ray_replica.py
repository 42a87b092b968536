"""A replica serves its own streams alone; where calls go and how many replicas there are follows from its streams."""

import asyncio
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from runtime_lite import BadInput, BundleRefused, ExecutorFailed, StreamLost
from runtime_lite.hosting import ray_replica
from runtime_lite.hosting.ray_replica import RayOptions, StreamsReplica, candidates_for, replicas_for, scale
from runtime_lite.serving.health import Health
from tests.runtime_lite.bundles import random_chunks, write_streaming_bundle
from tests.runtime_lite.hosting.ray_stand_in import Candidate, Identity


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_streaming_bundle(tmp_path_factory.mktemp("streaming"))


@pytest.fixture
def replica(bundle: Path) -> StreamsReplica:
    return StreamsReplica(str(bundle), RayOptions(graph="streaming", max_streams=2), "a")


def test_a_replica_serves_what_is_placed_and_refuses_all_else(replica: StreamsReplica) -> None:
    async def work() -> None:
        feeds = {"x": random_chunks(1)[0]}
        assert await replica.place("s", 1, b"", 1) == ("a", 1, 0, 1)
        outputs, content = await replica.push("s", 1, 0, feeds, with_snapshot=True, pin="a")
        assert outputs["y"].shape == (1, 3, 2)
        assert await replica.where("s") == ("a", 1, 1, 1)
        assert await replica.where("t") is None
        for stream, generation, pin, reason in (
            ("t", 1, "a", "unknown"),
            ("s", 2, "a", "generation"),
            ("s", 1, "b", "elsewhere"),
        ):
            with pytest.raises(StreamLost) as lost:
                await replica.push(stream, generation, 1, feeds, pin=pin)
            assert lost.value.reason == reason
        with pytest.raises(BadInput, match="of another stream"):
            await replica.place("t", 2, content, 1)
        assert await replica.place("t", 1, b"", 1) == ("a", 1, 0, 1)
        assert await replica.place("u", 1, b"", 1) == ("a", 1, -1, 1)
        assert replica.loads() == {"streams": 2.0, "places": 2.0}
        await replica.forget([("t", 1), ("s", 7), ("nobody", 1)], pin="a")
        assert replica.loads()["streams"] == 1.0

    asyncio.run(work())


def test_a_replica_whose_runs_hang_is_not_healthy(replica: StreamsReplica, monkeypatch: pytest.MonkeyPatch) -> None:
    replica.check_health()
    ill = Health(False, "a run of 'streaming' takes 9.0 s", 1, 1, 1, False, "")
    monkeypatch.setattr(replica._runtime, "health", lambda: ill)
    with pytest.raises(ExecutorFailed, match=r"got none: a run of 'streaming' takes 9\.0 s"):
        replica.check_health()


def test_wrong_options_and_bundles_are_refused(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected max_streams from 1"):
        StreamsReplica(str(bundle), RayOptions(max_streams=0), "a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BundleRefused):
        StreamsReplica(str(tmp_path / "empty"), RayOptions(), "a")


def replicas(**streams: float) -> list[Candidate]:
    return [Candidate(Identity(name), {"streams": count}) for name, count in streams.items()]


def names(candidates: Any) -> list[str]:
    return [each.replica_id.unique_id for each in candidates]


def test_a_pinned_call_goes_to_its_replica_and_to_any_once_that_is_gone() -> None:
    some = replicas(a=0, b=9, c=1)
    draw = random.Random(0)
    for _ in range(20):
        assert names(candidates_for(some, {"pin": "b"}, draw)) == ["b"]
        assert names(candidates_for(some, {"pin": "z"}, draw)) == ["a"]
    assert candidates_for([], {"pin": "z"}, draw) == []
    assert candidates_for([], {}, draw) == []


def test_a_new_stream_goes_to_the_emptier_one_of_two_and_avoids_some() -> None:
    some = replicas(a=5, b=9, c=1)
    draw = random.Random(0)
    for _ in range(50):
        chosen = names(candidates_for(some, {}, draw))
        assert len(chosen) == 2 and chosen == sorted(chosen, key={"a": 5, "b": 9, "c": 1}.get)  # type: ignore[arg-type]
        assert "c" not in names(candidates_for(some, {"avoid": ["c"]}, draw))
    assert names(candidates_for(some, {"avoid": ["a", "b", "c"]}, draw))  # better one of those than none
    assert names(candidates_for([Candidate(Identity("a"), {})], {}, draw)) == ["a"]  # it has not reported yet


def test_two_choices_with_numbers_of_the_last_second_stay_even() -> None:
    """As the fuller one of 40 replicas is at most 5 % above the mean after 4 000 streams, 100 between two reports."""
    draw = random.Random(2)
    counts = dict.fromkeys(range(40), 0)
    reported = dict(counts)
    for number in range(4_000):
        if number % 100 == 0:
            reported = dict(counts)
        some = [Candidate(Identity(str(name)), {"streams": reported[name]}) for name in counts]
        counts[int(names(candidates_for(some, {}, draw))[0])] += 1
    assert max(counts.values()) <= 1.15 * 100


@pytest.mark.parametrize(
    ("streams", "now", "wanted"),
    [(0, 1, 1), (7, 1, 1), (8, 1, 2), (14, 2, 2), (15, 2, 3), (29, 2, 5), (10, 3, 3), (9, 3, 2), (0, 4, 3), (5, 2, 2)],
)
def test_the_number_of_replicas_follows_from_places_that_are_taken(streams: int, now: int, wanted: int) -> None:
    loads = [{"streams": streams / now, "places": 10.0}] * now
    assert replicas_for(loads, now) == wanted


def test_the_number_is_steady_at_every_number_of_streams() -> None:
    for streams in range(200):
        now = 1
        for _ in range(40):
            wanted = replicas_for([{"streams": streams / now, "places": 10.0}] * now, now)
            if wanted == now:
                break
            now = wanted
        assert now == wanted


class Context(NamedTuple):
    aggregated_metrics: Any
    current_num_replicas: int
    target_num_replicas: int
    capacity_adjusted_min_replicas: int = 1
    capacity_adjusted_max_replicas: int = 4


def test_nothing_changes_before_every_replica_has_reported() -> None:
    both = {"streams": {"a": 9.0, "b": 9.0}, "places": {"a": 10.0, "b": 10.0}}
    assert scale(Context(both, 2, 2)) == (3, {})
    assert scale(Context(both, 3, 3)) == (3, {})
    assert scale(Context({}, 2, 2)) == (2, {})
    assert scale(Context(None, 2, 2)) == (2, {})
    none = {"streams": {"a": 0.0, "b": 0.0}, "places": {"a": 10.0, "b": 10.0}}
    assert scale(Context(none, 2, 2)) == (1, {})
    assert scale(Context(none, 2, 2, 2)) == (2, {})
    full = {"streams": {"a": 90.0}, "places": {"a": 10.0}}
    assert scale(Context(full, 1, 1)) == (4, {})


def test_the_module_has_nothing_else_to_make_by_name() -> None:
    with pytest.raises(AttributeError):
        ray_replica.nothing  # noqa: B018
    assert np.isfinite(ray_replica.UP_AT)
