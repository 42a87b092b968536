"""How many streams a machine carries."""

from dataclasses import replace

import pytest

from runtime_lite.scheduling import capacity
from runtime_lite.scheduling.capacity import Machine, Measured, Work, most_streams, plan_streams
from runtime_lite.scheduling.cost_table import Spread
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, utterances


def spread(p50_ms: int, p95_ms: int, p99_ms: int | None = None) -> Spread:
    return Spread(p50_ms * MS, p95_ms * MS, (p99_ms or p95_ms) * MS)


FAST: Measured = {CHUNKS: {1: spread(10, 10), 4: spread(16, 16)}}
PERIOD = 640 * MS


def work(seconds: float = 10, requests_per_s: float = 0.0) -> Work:
    requests = (utterances(5),) if requests_per_s else ()
    return Work((CHUNKS,), requests, PERIOD, 320 * MS, requests_per_s=requests_per_s, seconds=seconds)


def test_no_stream_is_late_on_an_idle_machine() -> None:
    plan = plan_streams(Machine(FAST, 1), work(), 1)
    assert plan.holds and (plan.p50_ms, plan.p99_ms) == (10, 10)
    assert plan.utilisation == pytest.approx(10 / 640, rel=0.1)


@pytest.mark.parametrize("lanes", [1, 2])
def test_the_most_that_is_carried_leaves_others_their_shares_of_the_lanes(lanes: int) -> None:
    machine = Machine(FAST, lanes)
    most = most_streams(machine, work())
    assert most.holds
    assert most.streams == pytest.approx(0.88 * lanes * 640 / 4, rel=0.05), "four rows cost 16 ms"
    assert not plan_streams(machine, work(), most.streams + 1).holds


def test_costs_that_vary_show_in_the_latency_and_too_slow_a_machine_carries_none() -> None:
    varying = {CHUNKS: {1: spread(10, 100)}}
    plan = plan_streams(Machine(varying, 1), work(), 4)
    assert plan.p50_ms < 20 and plan.p99_ms >= 100
    assert most_streams(Machine({CHUNKS: {1: spread(700, 700)}}, 1), work()).streams == 0


def test_the_slowest_of_a_hundred_runs_shows_beyond_the_99th_percentile() -> None:
    found = [spread(10, 20, 300).at(chance / 1000) // MS for chance in range(1000)]
    assert [found.count(ms) for ms in (10, 20, 300)] == [900, 90, 10]
    plan = plan_streams(Machine({CHUNKS: {1: spread(10, 10, 400)}}, 1), work(), 5)
    assert plan.p99_ms < 420 and 0 < plan.late < 0.1, "late after 320 ms"


def test_without_admission_streams_are_carried_up_to_the_limit() -> None:
    """Four rows cost 16 ms: 160 streams fill the device; admission lets in what leaves others their shares."""
    machine, admitted = Machine(FAST, 1), most_streams(Machine(FAST, 1), work())
    limit = most_streams(machine, replace(work(), admission=False, most_late=0.01))
    assert (limit.refused, limit.holds) == (0, True) and 0.9 * 160 <= limit.streams <= 1.05 * 160
    assert admitted.late == 0 and admitted.streams < 0.95 * limit.streams
    beyond = plan_streams(machine, replace(work(), admission=False, most_late=0.01), 190)
    assert (beyond.refused, beyond.holds) == (0, False) and beyond.late > 0.01


def test_other_requests_are_served_beside_streams() -> None:
    costs = {**FAST, utterances(5): {1: spread(20, 20)}}
    plan = plan_streams(Machine(costs, 1), work(requests_per_s=10), 20)
    assert plan.holds and plan.requests_in_time == 1.0
    assert plan.utilisation > plan_streams(Machine(costs, 1), work(), 20).utilisation + 0.15


def test_the_same_question_has_the_same_answer() -> None:
    varying = {CHUNKS: {1: spread(10, 20), 4: spread(16, 30)}}
    assert plan_streams(Machine(varying, 1), work(), 50) == plan_streams(Machine(varying, 1), work(), 50)


@pytest.mark.parametrize("others", [{}, {4: spread(60, 60), 8: spread(120, 120)}], ids=["alone", "beside others"])
def test_what_a_runtime_has_learnt_decides_who_is_let_in(others: dict[int, Spread]) -> None:
    """A run in ten takes three times as long: on the average a fifth of the lane more, which admission knows of."""
    steady, varying = ({CHUNKS: {1: spread(10, slow), **others}} for slow in (10, 30))
    streams = [most_streams(Machine(costs, 1), work()).streams for costs in (steady, varying)]
    assert streams[0] == pytest.approx(0.88 * 64, rel=0.03)
    assert streams[1] == pytest.approx(streams[0] / 1.2, rel=0.05)


FASTER: Measured = {CHUNKS: {1: Spread.always(MS), 4: Spread.always(16 * MS // 10)}}


@pytest.mark.parametrize("admission", [True, False])
def test_streams_that_are_grouped_are_carried_as_single_ones(admission: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(work(1), admission=admission, most_late=0.0 if admission else 0.01)
    single = most_streams(Machine(FASTER, 1), asked)
    monkeypatch.setattr(capacity, "MOST_CHUNKS", 500)
    grouped = most_streams(Machine(FASTER, 1), asked)
    assert single.grain == 1 and grouped.grain > 3
    assert grouped.streams == pytest.approx(single.streams, rel=0.02)
    assert grouped.utilisation == pytest.approx(single.utilisation, rel=0.05)
    assert single.p50_ms <= 1.1 * grouped.p50_ms and grouped.p50_ms <= 2 * grouped.grain * single.p50_ms


def test_requests_beside_streams_that_are_grouped_keep_their_part_of_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {**FASTER, utterances(5): {1: Spread.always(MS)}}
    asked = work(2, requests_per_s=200)
    single = plan_streams(Machine(costs, 1), asked, 800)
    monkeypatch.setattr(capacity, "MOST_CHUNKS", 1000)
    grouped = plan_streams(Machine(costs, 1), asked, 800)
    assert single.grain == 1 < grouped.grain and grouped.requests_in_time == single.requests_in_time == 1.0
    assert grouped.utilisation == pytest.approx(single.utilisation, rel=0.1)


def test_no_stream_stands_for_others_where_runs_are_long() -> None:
    """A run of 16 ms on a machine three times slower would take a third of the soft target of 160 ms."""
    assert plan_streams(Machine(FAST, 64), work(1), 10_000).grain <= 2


def test_a_search_begins_near_its_end_whatever_the_machine() -> None:
    for costs in (FAST, FASTER):
        numbers: list[int] = []
        most = most_streams(Machine(costs, 1), work(1), numbers.append)
        assert most.streams in numbers and len(numbers) < 12
