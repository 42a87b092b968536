"""searches: what was measured is read as it was written, in words and in the line of a recipe."""

import dataclasses
import json

import pytest
import yaml

from compiler.base.records.searches import HEADS, Search, Trial, pinned, search_of
from compiler.base.records.timings import Comparison, Ratio

RATIO = Ratio("batch=1", 0.8, 0.75, 0.85, 0.79, 0.81, 16)
COMPARED = Comparison((RATIO, dataclasses.replace(RATIO, sizes="batch=16")), RATIO, (1.25, 20.0))
SEARCH = Search(
    "net",
    ("a", "b.c"),
    (Trial("a", (), "kept", COMPARED), Trial("d", ("a",), "too much noise", noise_db=31.46), Trial("e", (), "late")),
    COMPARED,
    "a machine",
    12.5,
)


@pytest.mark.parametrize("search", [SEARCH, dataclasses.replace(SEARCH, plan=(), total=None)])
def test_a_search_is_read_as_it_was_written(search: Search) -> None:
    assert search_of(json.loads(json.dumps(search.to_json()))) == search


def test_each_trial_is_a_row_and_the_plan_another() -> None:
    first, second, third, plan = SEARCH.rows()
    ratios = "batch=1 0.80 (0.75..0.85), batch=16 0.80 (0.75..0.85)"
    assert first == ("net", "a", "none", ratios, "0.800 within 0.790..0.810", "1.25, 20", "", "kept")
    assert second == ("net", "d", "a", "", "", "", "31.5", "too much noise")
    assert third[-1] == "late"
    assert plan == ("net", "the plan", "none", *first[3:6], "", "a, b.c")
    assert {len(row) for row in SEARCH.rows()} == {len(HEADS)}
    assert dataclasses.replace(SEARCH, plan=()).rows()[-1][-1] == "no form"


def test_what_is_pinned_is_a_line_of_a_recipe() -> None:
    other = dataclasses.replace(SEARCH, graph="other", plan=())
    assert yaml.safe_load(pinned([SEARCH])) == {"forms": ["a", "b.c"]}
    assert yaml.safe_load(pinned([SEARCH, other])) == {"forms": {"net": ["a", "b.c"], "other": []}}
