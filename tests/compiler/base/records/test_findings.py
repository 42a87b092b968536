"""findings: a limit that is met, missed, or not to be compared; what nobody has looked at."""

import math

import pytest

from compiler.base.records.findings import Finding, at_most, most_urgent_first, with_unreached


@pytest.mark.parametrize(
    ("value", "holds"), [(1.0, True), (0.5, True), (1.5, False), (math.nan, False), (math.inf, False)]
)
def test_an_upper_bound_holds_up_to_itself(value: float, holds: bool) -> None:
    assert at_most("budget.size_mb", limit=1.0, measured=value).holds is holds


@pytest.mark.parametrize(
    ("limit", "measured", "used"),
    [(2.0, 1.0, 0.5), (2.0, math.nan, math.inf), (0.0, 0.0, 0.0), (0.0, 1.0, math.inf), (None, 1.0, None)],
)
def test_the_share_of_a_limit(limit: float | None, measured: float, used: float | None) -> None:
    assert Finding("g", measured=measured, limit=limit).used == used


def test_no_share_of_a_limit_that_is_the_least() -> None:
    least = Finding("parity.sqnr_db", "net", "y", 60.0, 40.0, True, is_least=True)
    assert (least.used, least.limit_words, least.verdict) == (None, "at least 40", "holds")


def test_promises_that_nobody_has_looked_at_come_behind() -> None:
    found = at_most("budget.p95_ms", "net", "batch=1", limit=2.0, measured=1.0)
    promised = [Finding("budget.p95_ms", limit=2.0), Finding("edges", "net"), Finding("edges", "other")]
    assert with_unreached([found, Finding("edges", "net", "silence", holds=True)], promised)[2:] == (promised[2],)


def test_what_fails_comes_first_and_what_nobody_has_looked_at_next() -> None:
    holds, fails, unreached = (Finding("g", subject=str(each), holds=each) for each in (True, False, None))
    assert most_urgent_first([holds, unreached, fails]) == [fails, unreached, holds]
    assert [each.verdict for each in (fails, unreached, holds)] == ["FAILS", "not reached", "holds"]
