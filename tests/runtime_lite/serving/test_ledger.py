"""The books balance whatever happens, and nothing ends twice."""

import random

import pytest

from runtime_lite.errors import InternalError
from runtime_lite.serving.events import Outcome
from runtime_lite.serving.ledger import Ledger

OUTCOMES: tuple[Outcome, ...] = ("done", "dropped", "cancelled", "failed")


def test_the_books_balance_after_every_entry() -> None:
    ledger, order = Ledger(), random.Random(3)
    alive: list[int] = []
    for _ in range(500):
        if alive and order.random() < 0.5:
            ledger.end(alive.pop(order.randrange(len(alive))), order.choice(OUTCOMES), order.choice(["", "late"]))
        else:
            alive.append(ledger.submit(order.choice(["chunk", "bulk"])))
        balance = ledger.balance()
        assert balance.balanced and balance.live == len(alive)
        assert balance.submitted == sum(balance.count(outcome) for outcome in OUTCOMES) + len(alive)
    assert ledger.live == sorted(alive)


def test_ends_are_counted_by_class_outcome_and_reason() -> None:
    ledger = Ledger()
    for outcome, reason in (("done", ""), ("dropped", "late"), ("dropped", "late")):
        ledger.end(ledger.submit("chunk"), outcome, reason)  # type: ignore[arg-type]
    ledger.submit("bulk")
    assert ledger.balance().ends == {("chunk", "done", ""): 1, ("chunk", "dropped", "late"): 2}
    assert (ledger.balance().submitted, ledger.balance().live) == (4, 1)


def test_a_request_ends_once() -> None:
    ledger = Ledger()
    number = ledger.submit("chunk")
    ledger.end(number, "done")
    for wrong in (number, 99):
        with pytest.raises(InternalError, match=f"expected a live request, got {wrong}, which is none"):
            ledger.end(wrong, "cancelled")
    assert ledger.balance().balanced
