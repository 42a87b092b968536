"""Passes by name, with the options of a recipe."""

import pytest

from compiler.passes import PASSES, make_pass


def test_lists_of_a_recipe_are_tuples_in_a_pass() -> None:
    made = make_pass("quantize_static", {"keep_float": ["*/joint/*"]})
    assert vars(made)["keep_float"] == ("*/joint/*",)
    hash(made)


@pytest.mark.parametrize("name", PASSES)
def test_every_pass_has_its_name(name: str) -> None:
    assert PASSES[name].name == name
