"""Steps of streaming models: built from a recipe that lists inputs, states and axes, each row as the module alone."""

import pytest

from compiler.errors import Refused
from tests.zoo.streams.__main__ import PAGE
from tests.zoo.streams.families import FAMILIES
from tests.zoo.streams.prove import follow

BY_NAME = {family.name: family for family in FAMILIES}
QUICK = ("spotter_rolled_buffer", "wenet_like_row", "gru_layers_batch")


@pytest.mark.parametrize("name", QUICK)
def test_a_few_steps(name: str) -> None:
    found = follow(BY_NAME[name], 30)
    assert found.error <= 1e-5 and found.replayed > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_every_step_is_what_the_page_says(name: str) -> None:
    (row,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {name} |"))
    if "| built |" in row:
        follow(BY_NAME[name], 100)
    else:
        with pytest.raises(Refused):
            follow(BY_NAME[name], 100)


def test_the_page_has_every_step_and_most_are_built() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    named = [line.split(" | ")[0].removeprefix("| ") for line in rows if not line.startswith("| step ")]
    assert named == [family.name for family in FAMILIES]
    assert sum("| built |" in line for line in rows) >= 0.9 * len(FAMILIES)
