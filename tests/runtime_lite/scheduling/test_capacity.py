"""How many streams a machine carries."""

import pytest

from runtime_lite.scheduling.capacity import Machine, Measured, Work, most_streams, plan_streams
from tests.runtime_lite.scheduling.traffic import CHUNKS, MS, utterances

FAST: Measured = {CHUNKS: {1: (10 * MS, 10 * MS), 4: (16 * MS, 16 * MS)}}
PERIOD = 640 * MS


def work(seconds: float = 10, requests_per_s: float = 0.0) -> Work:
    requests = (utterances(5),) if requests_per_s else ()
    return Work((CHUNKS,), requests, PERIOD, 320 * MS, requests_per_s, seconds)


def test_no_stream_is_late_on_an_idle_machine() -> None:
    plan = plan_streams(Machine(FAST, 1), work(), 1)
    assert plan.holds and (plan.p50_ms, plan.p99_ms) == (10, 10)
    assert plan.utilisation == pytest.approx(10 / 640, rel=0.1)


@pytest.mark.parametrize("lanes", [1, 2])
def test_the_most_that_is_carried_is_three_quarters_of_what_the_lanes_could(lanes: int) -> None:
    machine = Machine(FAST, lanes)
    most = most_streams(machine, work())
    assert most.holds
    assert most.streams == pytest.approx(0.75 * lanes * 640 / 4, rel=0.05), "four rows cost 16 ms"
    assert not plan_streams(machine, work(), most.streams + 1).holds


def test_costs_that_vary_show_in_the_latency_and_too_slow_a_machine_carries_none() -> None:
    varying = {CHUNKS: {1: (10 * MS, 100 * MS)}}
    plan = plan_streams(Machine(varying, 1), work(), 5)
    assert plan.p50_ms < 20 and plan.p99_ms >= 100
    assert most_streams(Machine({CHUNKS: {1: (700 * MS, 700 * MS)}}, 1), work()).streams == 0


def test_other_requests_are_served_beside_streams() -> None:
    costs = {**FAST, utterances(5): {1: (20 * MS, 20 * MS)}}
    plan = plan_streams(Machine(costs, 1), work(requests_per_s=10), 20)
    assert plan.holds and plan.requests_in_time == 1.0
    assert plan.utilisation > plan_streams(Machine(costs, 1), work(), 20).utilisation + 0.15


def test_the_same_question_has_the_same_answer() -> None:
    varying = {CHUNKS: {1: (10 * MS, 20 * MS), 4: (16 * MS, 30 * MS)}}
    assert plan_streams(Machine(varying, 1), work(), 50) == plan_streams(Machine(varying, 1), work(), 50)
