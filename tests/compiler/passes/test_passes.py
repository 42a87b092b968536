"""Passes by name, with the options of a recipe."""

import pytest

from compiler.graph.stages import Pass
from compiler.passes import PASSES, make_pass, pass_kinds
from compiler.recipe.tree.standard_passes import STANDARD_PASSES


def test_lists_of_a_recipe_are_tuples_in_a_pass() -> None:
    made = make_pass("quantize_static", {"keep_float": ["*/joint/*"]})
    assert vars(made)["keep_float"] == ("*/joint/*",)
    hash(made)


def test_every_pass_is_known_by_its_name() -> None:
    assert [kind.name for kind in pass_kinds().values()] == list(pass_kinds()) == [kind.name for kind in PASSES]


@pytest.mark.parametrize("kind", PASSES)
def test_what_must_have_run_before_a_pass_exists_and_waits_for_nothing_that_waits_for_it(kind: type[Pass]) -> None:
    kinds = pass_kinds()
    waited_for = list(kind.after)
    for name in waited_for:
        waited_for += [each for each in kinds[name].after if each not in waited_for]
    assert kind.name not in waited_for


def test_the_standard_passes_stand_in_order() -> None:
    for index, name in enumerate(STANDARD_PASSES):
        assert not set(pass_kinds()[name].after) & set(STANDARD_PASSES[index + 1 :])
        assert set(pass_kinds()[name].after) <= set(STANDARD_PASSES), "no pass waits for one that is not there"
