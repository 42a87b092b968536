"""The accelerators that a recipe may name."""

import pytest

from compiler.errors import RecipeError
from compiler.targets.ethos_u.accelerators import U55, U85, family_of


def test_an_accelerator_belongs_to_a_family() -> None:
    assert family_of("ethos-u85-2048") is U85
    assert (family_of("ethos-u55-32"), U55.takes_int16, U85.takes_int16) == (U55, False, True)


def test_an_unknown_accelerator_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(RecipeError, match=r"accelerator: expected one of Arm's Ethos-U, got 'ethos-u85-25'") as caught:
        family_of("ethos-u85-25")
    assert "'ethos-u85-256'" in caught.value.cure
