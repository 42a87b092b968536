"""The counts balance whatever happens, and nothing ends twice."""

import random

import pytest

from runtime_lite.errors import InternalError
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.request_accounting import RequestAccounting

OUTCOMES: tuple[Outcome, ...] = ("done", "dropped", "cancelled", "failed")


def test_the_books_balance_after_every_entry() -> None:
    accounting, order = RequestAccounting(), random.Random(3)
    alive: list[int] = []
    for _ in range(500):
        if alive and order.random() < 0.5:
            accounting.end(alive.pop(order.randrange(len(alive))), order.choice(OUTCOMES), order.choice(["", "late"]))
        else:
            alive.append(accounting.submit(order.choice(["chunk", "bulk"])))
        counts = accounting.counts()
        assert counts.balanced and counts.live == len(alive)
        assert counts.submitted == sum(counts.count(outcome) for outcome in OUTCOMES) + len(alive)
    assert accounting.live == sorted(alive)


def test_ends_are_counted_by_class_outcome_and_reason() -> None:
    accounting = RequestAccounting()
    for outcome, reason in (("done", ""), ("dropped", "late"), ("dropped", "late")):
        accounting.end(accounting.submit("chunk"), outcome, reason)  # type: ignore[arg-type]
    accounting.submit("bulk")
    assert accounting.counts().ends == {("chunk", "done", ""): 1, ("chunk", "dropped", "late"): 2}
    assert (accounting.counts().submitted, accounting.counts().live) == (4, 1)


def test_a_request_ends_once() -> None:
    accounting = RequestAccounting()
    number = accounting.submit("chunk")
    accounting.end(number, "done")
    for wrong in (number, 99):
        with pytest.raises(InternalError, match=f"expected a live request, got {wrong}, which is none"):
            accounting.end(wrong, "cancelled")
    assert accounting.counts().balanced
