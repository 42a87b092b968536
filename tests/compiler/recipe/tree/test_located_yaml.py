"""Values keep the place they were written at; spellings that mean something else are refused."""

import numpy as np
import pytest

from compiler.errors import RecipeError
from compiler.recipe.tree.located_yaml import node_of, read_document, read_value

DOCUMENT = b"""\
# comment
name: tiny
sizes: [1, 2.5, -3, 0x10, 1_000]
words: [text, "12", 'no', 1e-3]
empty:
flag: true
nested:
  deep: .inf
"""


def test_values_and_lines() -> None:
    root = read_document(DOCUMENT, "a.yaml")
    assert root.plain() == {
        "name": "tiny",
        "sizes": (1, 2.5, -3, 16, 1000),
        "words": ("text", "12", "no", "1e-3"),
        "empty": None,
        "flag": True,
        "nested": {"deep": float("inf")},
    }
    assert isinstance(root.value, dict)
    assert {key: child.origin for key, child in root.value.items()} == {
        "name": "a.yaml:2",
        "sizes": "a.yaml:3",
        "words": "a.yaml:4",
        "empty": "a.yaml:5",
        "flag": "a.yaml:6",
        "nested": "a.yaml:7",
    }


def test_quotes_and_spelling_are_kept_for_messages() -> None:
    words = read_value('[text, "12", 1.50, null, "", {a: 1}, [], {}]', "--set").value
    assert isinstance(words, tuple)
    assert [word.quoted for word in words] == [False, True, False, False, True, False, False, False]
    described = ["'text'", "'12'", "1.50", "null", "''", "a mapping with keys a", "a list of 0", "an empty mapping"]
    assert [word.describe() for word in words] == described
    assert {word.origin for word in words} == {"--set"}


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("12:30", 'write "12:30" in quotes, or the plain number'),
        ("1:30.5", 'write "1:30.5" in quotes, or the plain number'),
        ("010", 'write 10, or "010" in quotes'),
        ("-010", 'write 10, or "-010" in quotes'),
        ("2026-01-01", 'write "2026-01-01" in quotes'),
        ("=", 'write "=" in quotes'),
        ("{yes: 1}", 'write "yes" in quotes'),
        ("{1: 1}", 'write "1" in quotes'),
        ("{null: 1}", 'write "null" in quotes'),
    ],
)
def test_misleading_spelling_is_refused_with_the_right_one(text: str, cure: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_value(text, "--set")
    assert caught.value.cure == cure


def test_names_are_not_mistaken_for_numbers() -> None:
    assert read_value("[08, 1e5, v1, 1.2.3, .5e, _1]", "--set").plain() == ("08", "1e5", "v1", "1.2.3", ".5e", "_1")


def test_text_beyond_the_depth_limit_does_not_exhaust_the_stack() -> None:
    with pytest.raises(RecipeError, match="nesting deeper than 24"):
        read_value("[" * 100_000, "--set")
    with pytest.raises(RecipeError, match="nesting deeper than 24"):
        read_value("{a: " * 100_000, "--set")


def test_values_of_a_program_read_as_those_of_a_file() -> None:
    values = {"name": "tiny", "sizes": (1, 2.5), "flag": True, "empty": None, "initial": np.ones((1, 2), np.float32)}
    tree = node_of(values, "compile")
    assert tree.plain() == {**values, "initial": ((1.0, 1.0),)}
    assert isinstance(tree.value, dict)
    assert [tree.value[key].describe() for key in ("name", "flag", "empty")] == ["'tiny'", "true", "null"]
    assert tree.value["name"].origin == "compile"


@pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": {1, 2}}])
def test_values_that_no_file_holds_are_refused_with_their_place(value: object) -> None:
    with pytest.raises(
        RecipeError, match=r"^compile: graphs\.net(\.a)?: expected text, numbers, truths, lists or mappings"
    ):
        node_of({"graphs": {"net": value}}, "compile")
