"""Steps of streaming models: built from a recipe that lists inputs, states and axes, each row as the module alone."""

import pytest

from compiler.errors import Refused
from tests.zoo.streams.__main__ import PAGE, rows_of
from tests.zoo.streams.families import FAMILIES, LIBRARY
from tests.zoo.streams.prove import follow

BY_NAME = {family.name: family for family in FAMILIES}
QUICK = ("spotter_rolled_buffer", "wenet_like_row")


@pytest.mark.parametrize("name", QUICK)
def test_a_few_steps(name: str) -> None:
    found = follow(BY_NAME[name], 30)
    assert found.error <= 1e-5 and found.replayed > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_every_step_is_what_the_page_says(name: str) -> None:
    if name in LIBRARY:
        pytest.importorskip("transformers", reason="the extra zoo is not installed")
    row = rows_of(PAGE.read_text(encoding="utf-8"))[name]
    if "| built |" in row:
        follow(BY_NAME[name], 100)
    else:
        with pytest.raises(Refused):
            follow(BY_NAME[name], 100)


def test_the_page_has_every_step_and_most_are_built() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert list(rows) == [family.name for family in FAMILIES]
    assert sum("| built |" in row for row in rows.values()) >= 0.9 * len(FAMILIES)
    tries = {family.name: f" | {family.tries} | " for family in FAMILIES}
    assert all(tries[name] in row for name, row in rows.items())
