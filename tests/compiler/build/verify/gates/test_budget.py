"""The gate on size and time: all bytes count, and the smallest bucket."""

from unittest import mock

import pytest

from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import with_unreached
from compiler.build.verify.gates.budget import BUDGET, check_budget
from compiler.errors import GateFailed
from compiler.recipe.gates import BudgetGate

SPEED = [SpeedRow("net", "batch=1", 1.0, 2.0, 1), SpeedRow("net", "batch=16", 10.0, 20.0, 1)]


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (None, None),
        (BudgetGate(), None),
        (BudgetGate(size_mb=1.0, p95_ms=2.0), None),
        (BudgetGate(size_mb=0.5), "at most 0.5 MB, got 1.0 MB; raise gates.budget.size_mb"),
        (BudgetGate(p95_ms=1.5), "within 1.5 ms (p95), got 2.00 ms at batch=1; raise gates.budget.p95_ms"),
    ],
)
def test_budget_counts_all_bytes_and_the_smallest_bucket(gate: BudgetGate | None, words: str | None) -> None:
    if words is None:
        check_budget(gate, 1_000_000, SPEED)
        return
    with pytest.raises(GateFailed) as caught:
        check_budget(gate, 1_000_000, SPEED)
    assert words in str(caught.value)


def test_every_graph_is_promised_its_time_and_one_that_nobody_has_timed_is_not_reached() -> None:
    recipe = mock.Mock(graphs={"encoder": None, "decoder": None})
    recipe.gates.budget = BudgetGate(p95_ms=5.0)
    found = check_budget(recipe.gates.budget, 0, [SpeedRow("encoder", "batch=1", 1.0, 2.0, 1)])
    rows = with_unreached(found, BUDGET.promises(recipe, ""))
    assert [(each.gate, each.graph, each.verdict) for each in rows] == [
        ("budget.p95_ms", "encoder", "holds"),
        ("budget.p95_ms", "decoder", "not reached"),
    ]
