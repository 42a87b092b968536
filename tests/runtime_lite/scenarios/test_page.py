"""The page of the scenarios says what the kept figures say."""

from tests.soak.figures import PAGE, kept, page
from tests.soak.row import Bar
from tests.soak.rows import ROWS


def test_page_is_what_the_kept_figures_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(kept()), "run: .venv/bin/python -m tests.soak --table"


def test_kept_figures_have_a_value_for_each_bar_of_their_row() -> None:
    found = kept()
    for row in ROWS:
        if str(row.number) in found:
            missing = {bar.figure for bar in row.bars} - found[str(row.number)]["figures"].keys()
            assert not missing, f"row {row.number}: measure it again"


def test_a_bar_that_is_not_kept_is_seen() -> None:
    row = ROWS[0]
    told = {"figures": {"crashes": 1, "accepted": 0}, "machine": "m", "seconds": 1, "size": 5}
    text = page({str(row.number): told})
    assert "crashes 1 (**<= 0**); accepted 0 (<= 0)" in text
    assert Bar("x", least=2).fault({"x": 1.5}) == "x: expected >= 2, got 1.5"
