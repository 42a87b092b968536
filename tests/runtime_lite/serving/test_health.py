"""Health is honest: a run that hangs and runs that fail are named, and a slow run of a slow graph is not."""

import pytest

from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.decision import Run
from runtime_lite.scheduling.task import Key
from runtime_lite.serving.health import fault_of_runs


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
    assert fault_of_runs(flying, failures, "asr: MemoryError: full", 10_000 * NS_PER_MS) == fault
