"""Requests come as the traffic says, in the order of time, the same for the same seed."""

import itertools

from runtime_lite.load_test.arrivals import NS_PER_S, Arrival, Traffic, arrivals_of


def of_kind(arrivals: list[Arrival], kind: str) -> list[Arrival]:
    return [arrival for arrival in arrivals if arrival.kind == kind]


def test_streams_come_chunk_by_chunk_and_others_follow_them() -> None:
    traffic = Traffic(seconds=10.0, streams=7, chunks=12, period_s=0.25)
    arrivals = arrivals_of(traffic, seed=1)
    assert arrivals == sorted(arrivals)
    by_stream: dict[int, list[Arrival]] = {}
    for arrival in arrivals:
        by_stream.setdefault(arrival.source, []).append(arrival)
    for chunks in by_stream.values():
        assert [chunk.item for chunk in chunks] == list(range(len(chunks)))
        assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert len(chunks) <= traffic.chunks
        assert {b.at - a.at for a, b in itertools.pairwise(chunks)} <= {NS_PER_S // 4}
    assert len(arrivals) == 7 * 40  # seven at any time, four chunks a second each
    assert len(by_stream) > 7
    assert len({chunks[0].at % (NS_PER_S // 4) for chunks in by_stream.values()}) == 7


def test_utterances_come_at_random_with_the_rate_asked_for() -> None:
    found = of_kind(arrivals_of(Traffic(seconds=100.0, utterances_per_s=50.0), seed=3), "utterance")
    assert 4500 < len(found) < 5500
    assert [arrival.source for arrival in found] == list(range(len(found)))
    gaps = sorted(b.at - a.at for a, b in itertools.pairwise(found))
    assert gaps[len(gaps) // 2] < NS_PER_S / 50  # an exponential law: half of the gaps are shorter than the mean


def test_bursts_come_at_once() -> None:
    found = of_kind(arrivals_of(Traffic(seconds=3.0, burst=5, burst_every_s=1.0), seed=0), "burst")
    assert [(arrival.at, arrival.item) for arrival in found] == [
        (half * NS_PER_S // 2, item) for half in (1, 3, 5) for item in range(5)
    ]


def test_a_seed_says_it_all_and_kinds_do_not_disturb_each_other() -> None:
    both = Traffic(seconds=2.0, streams=3, utterances_per_s=10.0, burst=2)
    assert arrivals_of(both, 5) == arrivals_of(both, 5)
    assert arrivals_of(both, 5) != arrivals_of(both, 6)
    alone = arrivals_of(Traffic(seconds=2.0, streams=3), 5)
    assert of_kind(arrivals_of(both, 5), "stream") == of_kind(alone, "stream")
    assert arrivals_of(Traffic(seconds=2.0), 5) == []
