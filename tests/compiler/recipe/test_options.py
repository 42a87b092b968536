"""Options of a recipe fit the fields of the record that takes them, or the line says which one does not."""

import dataclasses

import pytest

from compiler.errors import RecipeError
from compiler.recipe.options import make


@dataclasses.dataclass(frozen=True)
class Simmer:
    """A record with an option of each type."""

    rounds: int = 1
    heat: float = 0.5
    salt: float | None = None
    is_covered: bool = True
    spices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise RecipeError(f"rounds: expected 1 or more, got {self.rounds}", cure="change the value")


KINDS = {"simmer": Simmer}


def test_options_become_fields() -> None:
    made = make("tiny.yaml:3", "pass", "simmer", KINDS, {"rounds": 2, "heat": 1, "salt": None, "spices": ["mace"]})
    assert (made.rounds, made.heat, made.salt, tuple(made.spices)) == (2, 1, None, ("mace",))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("simmr", {}, "expected the name of a pass, got 'simmr'; did you mean 'simmer'?"),
        ("standrd", {}, "did you mean 'standard'?"),
        ("simmer", {"round": 2}, "expected an option of simmer, got 'round'; did you mean 'rounds'?"),
        ("simmer", {"rounds": 2.0}, "simmer: rounds: expected int, got 2.0; change the value"),
        ("simmer", {"rounds": True}, "simmer: rounds: expected int, got True; change the value"),
        ("simmer", {"heat": "high"}, "simmer: heat: expected float, got 'high'; change the value"),
        ("simmer", {"salt": "some"}, "simmer: salt: expected float | None, got 'some'; change the value"),
        ("simmer", {"is_covered": 1}, "simmer: is_covered: expected bool, got 1; change the value"),
        ("simmer", {"spices": "mace"}, "simmer: spices: expected a list of str, got 'mace'; change the value"),
        ("simmer", {"spices": [1]}, "simmer: spices: expected a list of str, got [1]; change the value"),
        ("simmer", {"rounds": 0}, "simmer: rounds: expected 1 or more, got 0; change the value"),
    ],
)
def test_what_does_not_fit_is_answered_with_its_line(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as refused:
        make("tiny.yaml:3", "pass", name, KINDS, options)
    assert str(refused.value).startswith("tiny.yaml:3: ") and message in str(refused.value)


def test_no_target_is_called_standard() -> None:
    with pytest.raises(RecipeError, match="expected the name of a target, got 'standard'") as refused:
        make("tiny.yaml:3", "target", "standard", KINDS, {})
    assert "did you mean" not in str(refused.value)
