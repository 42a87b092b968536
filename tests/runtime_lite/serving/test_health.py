"""Health is honest: a run that hangs and runs that fail are named, and a slow run of a slow graph is not."""

import pytest

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.task import Key
from runtime_lite.serving.health import fault_of_runs
from tests.soak.adder import fed, is_sum
from tests.soak.puppet import puppet


def run(started_ms: int, expected_ms: int) -> Run:
    return Run(Key("asr", "encoder"), 1, [], started_ms * NS_PER_MS, expected_ms * NS_PER_MS)


@pytest.mark.parametrize(
    ("flying", "failures", "fault"),
    [
        ([], 0, ""),
        ([run(0, 10)], 0, "a run of 'encoder' takes 10.0 s"),
        ([run(6_000, 10)], 0, ""),  # not for so long that it must hang
        ([run(0, 1_000)], 0, ""),  # not so much longer than expected
        ([run(9_000, 10), run(0, 10)], 0, "a run of 'encoder' takes 10.0 s"),
        ([], 2, ""),
        ([], 3, "the last 3 runs failed: asr: MemoryError: full"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_else(flying: list[Run], failures: int, fault: str) -> None:
    assert fault_of_runs(flying, None, failures, "asr: MemoryError: full", 10_000 * NS_PER_MS) == fault


@pytest.mark.parametrize(
    ("since_ms", "fault"),
    [(0, "work has waited for 10.0 s beside a free lane, and no run was decided"), (5_000, "")],
)
def test_a_queue_that_is_never_decided_is_named(since_ms: int, fault: str) -> None:
    assert fault_of_runs([], since_ms * NS_PER_MS, 0, "", 10_000 * NS_PER_MS) == fault


def test_a_scheduler_that_decides_nothing_is_seen_and_so_is_that_it_goes_on() -> None:
    with puppet() as place:
        place.scheduler.held = True
        ticket = place.model.submit(fed(1))
        for seconds in range(1, 11):
            place.pass_ms(1000)
            health = place.server.health()
            assert health.healthy is (seconds <= 5) and health.queued == 1
        place.release()
        assert is_sum(ticket.result(0), 1) and place.server.health().healthy
        place.pass_ms(60_000)
        assert place.server.health().healthy, "nothing waits"


def test_work_that_waits_for_a_lane_is_not_undecided() -> None:
    with puppet() as place:
        first, second = place.model.submit(fed(1)), place.model.submit(fed(2, 4))
        told: list[str] = []

        def look(_: object) -> None:
            if not told:
                place.pass_ms(60_000)
                told.append(place.server.health().reason)

        place.hook = look
        place.release()
        assert told == ["a run of 'adder' takes 60.0 s"]
        assert is_sum(first.result(0), 1) and second.done() and place.server.health().healthy
