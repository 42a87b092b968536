"""A recipe's tree: where a key stands, and what is left to fill in."""

import pytest

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import require_filled, where
from compiler.recipe.tree.located_yaml import Node, read_document


def tree(text: str) -> Node:
    return read_document(text.encode(), "a.yaml")


def test_where_stops_at_the_deepest_key_that_exists() -> None:
    given = tree("a:\n  b:\n    - 1\n    - 2\n")
    assert where(given, ("a", "b", 1)) == "a.yaml:4: a.b.1"
    assert where(given, ("a", "b", 7)) == "a.yaml:2: a.b.7"
    assert where(given, ("a", "c", "d")) == "a.yaml:1: a.c.d"
    assert where(given, ()) == "a.yaml:1"


@pytest.mark.parametrize(
    ("text", "place"),
    [("a: TODO", "t.yaml:1: a"), ("a: 1\nb: [x, {c: TODO}]", "t.yaml:2: b.1.c"), ("a: TODO\nb: TODO", "t.yaml:1: a")],
)
def test_the_first_value_that_is_left_to_fill_in_is_told(text: str, place: str) -> None:
    with pytest.raises(RecipeError) as caught:
        require_filled(read_document(text.encode(), "t.yaml"))
    assert str(caught.value).startswith(f"{place}: expected a value, got TODO; fill it in")


def test_a_word_that_only_begins_like_it_is_a_value() -> None:
    require_filled(read_document(b"TODO: [TODOS, todo]", "t.yaml"))
