"""Failed checks become one sentence about the value a person wrote."""

from typing import Annotated, Literal

import pydantic
import pytest

from compiler.recipe.field_types import Record
from compiler.recipe.tree.located_yaml import read_document
from compiler.recipe.tree.messages import first_problem


class Part(Record):
    kind: Literal["float32", "int64"] = "float32"
    ratio: float = 1.0
    choice: Annotated[int, pydantic.Field(ge=1)] | Annotated[str, pydantic.Field(pattern="^[a-z]+$")] = 1
    short: Annotated[str, pydantic.Field(min_length=1, max_length=3)] = "a"


class Whole(Record):
    part: Part
    later: int = 0


def message(text: str) -> str:
    tree = read_document(text.encode(), "a.yaml")
    with pytest.raises(pydantic.ValidationError) as caught:
        Whole.model_validate(tree.plain())
    return str(first_problem(tree, caught.value.errors()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "part: expected this key, got none; add part"),
        ("part: 3", "part: expected a mapping, got 3; write `key: value` lines below it, indented"),
        ("part: three", "part: expected a mapping, got 'three'; write `key: value` lines below it, indented"),
        ("part: {ratio: 1e3}", "part.ratio: expected a number, got '1e3'; YAML reads 1e3 as text; write 1.0e+3"),
        ("part: {ratio: [1]}", "part.ratio: expected a number, got a list of 1; write a number"),
        ("part: {choice: 0}", "part.choice: expected a number of at least 1, got 0; change the value"),
        (
            "part: {choice: A}",
            "part.choice: expected a name of letters, digits and underscores that starts with a letter, got 'A'; "
            "change the value",
        ),
        ("part: {choice: [1]}", "part.choice: expected an integer or text, got a list of 1; write an integer or text"),
        ("part: {short: abcd}", "part.short: expected at most 3 characters, got 'abcd'; change the value"),
        ("part: {short: ''}", "part.short: expected text, got ''; change the value"),
        (
            "part: {kind: LONG}",
            "part.kind: expected one of the known names, got 'LONG'; did you mean 'int64'? known: float32, int64",
        ),
    ],
)
def test_one_sentence_per_kind_of_problem(text: str, expected: str) -> None:
    assert message(text) == f"a.yaml:1: {expected}"


def test_misspelt_key_comes_before_what_it_causes() -> None:
    assert message("part: {ratio: x, knid: int64}").startswith(
        "a.yaml:1: part.knid: expected a known key, got 'knid'; did you"
    )
    assert message("prat: {}").startswith("a.yaml:1: prat: expected a known key, got 'prat'; did you mean 'part'?")
