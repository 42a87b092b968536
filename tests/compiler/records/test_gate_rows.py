"""gate_rows: a bound that is met, missed, or not to be compared."""

import math

import pytest

from compiler.records.gate_rows import at_most


@pytest.mark.parametrize(
    ("value", "holds"), [(1.0, True), (0.5, True), (1.5, False), (math.nan, False), (math.inf, False)]
)
def test_an_upper_bound_holds_up_to_itself(value: float, holds: bool) -> None:
    assert at_most("budget.size_mb", "", "", 1.0, value).holds is holds
