"""forms: which of a target's forms are on, by what a recipe writes."""

import pytest

from compiler.errors import RecipeError
from compiler.targets.forms import Choice, names_of, require_known
from compiler.targets.onnx_static import OnnxStatic
from tests.kit.formed import OFFERS, ToyStatic

STANDARD_NAMES = ("swap_operands", "scale_operand.by_one", "round_operand")


def test_the_standard_plan_rounds_only_where_the_recipe_lets_it() -> None:
    assert names_of("standard", OFFERS, "net", lossy=True) == STANDARD_NAMES
    assert names_of("standard", OFFERS, "net", lossy=False) == STANDARD_NAMES[:2]


@pytest.mark.parametrize("choice", [("refuse_all", "swap_operands"), {"net": ["refuse_all", "swap_operands"]}])
def test_forms_run_in_the_order_of_the_target_whatever_the_order_of_the_list(choice: Choice) -> None:
    assert names_of(choice, OFFERS, "net", lossy=False) == ("swap_operands", "refuse_all")


def test_each_graph_may_have_a_plan_of_its_own() -> None:
    choice = {"net": ("swap_operands",), "other": ()}
    assert [names_of(choice, OFFERS, graph, lossy=True) for graph in choice] == [("swap_operands",), ()]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("swap_operand",), "forms: expected the name of a form, got 'swap_operand'; did you mean 'swap_operands'"),
        ({"net": ["scale_operand.by_two"]}, "got 'scale_operand.by_two'; did you mean 'scale_operand.by_one'"),
        (("swap_operands", "swap_operands"), "expected each form once, got 'swap_operands' again"),
        ("standart", "forms: expected standard, search or a list, got 'standart'; did you mean 'standard'"),
    ],
)
def test_a_wrong_plan_is_answered_with_the_nearest_right_one(choice: Choice, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        require_known(choice, OFFERS)
    assert message in str(caught.value)
    with pytest.raises(RecipeError):
        ToyStatic(forms=choice)


def test_the_plan_of_a_target_is_written_out_per_graph() -> None:
    target = ToyStatic().planned("net", lossy=False)
    assert target.forms == STANDARD_NAMES[:2]
    assert [variant.name for variant in target.plan] == [variant.name for variant in ToyStatic(forms=target.forms).plan]
    assert target.with_plan(["refuse_all"]) == ToyStatic(forms=("refuse_all",))
    assert "swap_operands" in repr(target), "which is part of the key of what it makes"


def test_forms_that_ship_have_names_of_their_own() -> None:
    names = [variant.name for variant in OnnxStatic.offers]
    assert len(set(names)) == len(names)
