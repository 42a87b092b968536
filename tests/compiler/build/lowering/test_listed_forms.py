"""listed_forms: plans that only the graphs and limits of a recipe show to be wrong, with the line of the target."""

from pathlib import Path

import pytest

from compiler.build.pipeline import check
from compiler.errors import RecipeError
from compiler.recipe.load import load_recipe
from compiler.targets import TARGETS
from tests.kit.formed import ToyStatic
from tests.kit.models.tiny_graph import write_stream


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "onnx_static", ToyStatic)
    monkeypatch.chdir(tmp_path)
    write_stream(tmp_path)


def checked(forms: str, *more: str) -> object:
    return check(load_recipe("stream.yaml", [f"targets.0.forms={forms}", *more]))[0].target.forms


LOSSY = "gates.parity.net.lossy={max_abs: 0.1}"


@pytest.mark.parametrize("forms", ["[]", "[swap_operands]", "{net: [swap_operands, refuse_all]}", "standard"])
@pytest.mark.usefixtures("toys")
def test_a_plan_may_be_a_word_or_a_list_or_one_per_graph(forms: str) -> None:
    assert checked(forms) is not None


@pytest.mark.parametrize(
    ("forms", "message"),
    [
        ("[swap_operand]", "targets.0: onnx_static: forms: expected the name of a form, got 'swap_operand'; did you"),
        ("{nett: []}", "targets.0: onnx_static: forms: expected the name of a graph, got 'nett'; did you mean 'net'"),
        ("{}", "targets.0: onnx_static: forms: expected a plan for every graph, got none for 'net'; add net: []"),
        ("[round_operand]", "targets.0: expected gates.parity.net.lossy, as round_operand rounds on purpose, got none"),
        ("3", "forms: expected str | a list of str | a mapping to a list of str, got 3"),
        ("{net: 3}", "forms: expected str | a list of str | a mapping to a list of str, got {'net': 3}"),
    ],
)
@pytest.mark.usefixtures("toys")
def test_a_wrong_plan_is_answered_with_its_line(forms: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        checked(forms)
    assert message in str(caught.value)
    assert str(caught.value).startswith("stream.yaml:15: ")


@pytest.mark.usefixtures("toys")
def test_forms_may_round_where_the_recipe_says_how_much_may_be_lost() -> None:
    assert checked("[round_operand]", LOSSY) == ("round_operand",)
    assert checked("{net: [round_operand]}", LOSSY) == {"net": ("round_operand",)}
