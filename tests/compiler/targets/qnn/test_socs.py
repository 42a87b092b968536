"""SoCs by number and part number."""

import pytest

from compiler.errors import RecipeError
from compiler.targets.qnn.socs import SOCS, soc_of


@pytest.mark.parametrize("written", [43, "43", "SM8550", " sm8550 "])
def test_a_soc_is_known_by_its_number_and_by_its_part_number(written: str | int) -> None:
    assert (soc_of(written).number, soc_of(written).name) == (43, "SM8550")


def test_no_number_and_no_name_stands_twice() -> None:
    assert len({soc.number for soc in SOCS}) == len({soc.name for soc in SOCS}) == len(SOCS)
    assert [soc.number for soc in SOCS] == sorted(soc.number for soc in SOCS)


@pytest.mark.parametrize("written", [1, "SM8551", ""])
def test_another_one_is_refused_with_the_nearest(written: str | int) -> None:
    with pytest.raises(RecipeError, match="soc: expected an SoC of Qualcomm, got") as caught:
        soc_of(written)
    assert "SM8550" in caught.value.cure
