"""The passes of a recipe are checked before anything runs, and each has a key of its own."""

from pathlib import Path

import pytest

from compiler.build.lowering.listed_passes import check_passes, plan_of
from compiler.errors import RecipeError
from compiler.passes.pack_states import PackStates
from compiler.recipe.graph_parts import PassSpec
from compiler.recipe.load import load_recipe
from tests.kit.recipes import changed, write

PASSES = "      - pad_axes: {fill: 0.0}\n      - simplify\n"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("window_stattes", "expected the name of a pass, got 'window_stattes'; did you mean 'window_states'?"),
        ("simplify: {round: 2}", "expected an option of simplify, got 'round'"),
        ("merge_first_call", "expected merge_first_call before unstack_states, got it behind"),
        ("quantize_dynamic: {placement: a}", "quantize_dynamic: expected a placement of cpu, tensorrt, got 'a'; write"),
        ("quantize_dynamic", "expected gates.parity.encoder.lossy, as quantize_dynamic rounds on purpose, got none"),
    ],
)
def test_a_pass_behind_standard_is_known_by_its_name_and_line(entry: str, words: str, tmp_path: Path) -> None:
    """Its number in the list that `standard` stands for is no number of the recipe."""
    text = changed(PASSES, f"      - standard\n      - {entry}\n")
    (line,) = [at for at, each in enumerate(text.splitlines(), 1) if each.strip() == f"- {entry}"]
    with pytest.raises(RecipeError) as refused:
        check_passes(load_recipe(write(tmp_path, text)))
    place = f"tiny.yaml:{line}: graphs.encoder.passes.{entry.split(':')[0]}: "
    if "behind" in words:  # told where the pass stands that waits for it
        place = f"tiny.yaml:{line - 1}: graphs.encoder.passes.unstack_states: "
    assert place + words in str(refused.value)


def test_a_key_follows_from_all_that_came_before() -> None:
    specs = [PassSpec(name="simplify"), PassSpec(name="pad_axes"), PassSpec(name="simplify")]
    plan = plan_of("captured", specs)
    assert [each.made.name for each in plan] == ["simplify", "pad_axes", "simplify"]
    assert len({each.key for each in plan}) == 3
    assert plan_of("captured", specs[:2]) == plan[:2]
    assert plan_of("other", specs)[0].key != plan[0].key


def test_what_comes_behind_a_pass_that_rounds_is_rounded() -> None:
    plan = plan_of("captured", [PassSpec(name=name) for name in ("simplify", "quantize_dynamic", "simplify")])
    assert [(each.was_rounded, each.is_rounded) for each in plan] == [(False, False), (False, True), (True, True)]


def test_options_of_the_target_stand_where_the_recipe_says_none() -> None:
    specs = [PassSpec(name="pack_states"), PassSpec(name="pack_states", options={"most": 4})]
    plain, preferred = plan_of("captured", specs), plan_of("captured", specs, {"pack_states": {"most": None}})
    assert [each.made for each in plain] == [PackStates(), PackStates(4)]
    assert [each.made for each in preferred] == [PackStates(None), PackStates(4)]
    assert preferred[0].key != plain[0].key
