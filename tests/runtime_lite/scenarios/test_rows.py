"""The short form of the scenarios: figures that are the same on every machine keep their bars."""

import pytest

from tests.soak.row import Row
from tests.soak.rows import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number} {row.name}")
def test_row(row: Row) -> None:
    figures = row.measure(row.short, False)
    print(dict(figures))
    assert row.faults(figures, short=True) == []


def test_rows_are_counted_but_for_30_and_each_has_a_bar_of_its_short_form() -> None:
    assert [row.number for row in ROWS] == [*range(1, 30), *range(31, len(ROWS) + 2)]
    assert all(any(bar.short for bar in row.bars) for row in ROWS)
