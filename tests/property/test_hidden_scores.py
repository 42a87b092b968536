"""Random masks in front of a softmax: bounded scores give the same bits, and a proof that proves all is found out."""

import pytest

from compiler.proof.facts.seen_rows import SeenRows
from tests.property.hidden_scores import changed

SEEDS = range(40)


def test_bounded_scores_give_the_same_bits() -> None:
    found = [changed(seed) for seed in SEEDS]
    assert [wrong for _, wrong in found if wrong] == []
    assert sum(is_rewritten for is_rewritten, _ in found) >= 10


def test_a_row_that_sees_nothing_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeenRows, "why_not", lambda self, node: "")
    assert any(changed(seed)[1] for seed in SEEDS)
