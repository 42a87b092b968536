"""docs/recipe.md tells every key of a recipe, as the code reads it."""

from pathlib import Path

import pytest
from pydantic import Field

from compiler.build import pipeline
from compiler.recipe.field_types import Record
from compiler.recipe.load import load_recipe
from compiler.recipe.record import Recipe
from tests.docs import recipe_page

EVERY_KEY = str(Path(__file__).parent / "every_key.yaml")


def test_page_is_what_the_records_say() -> None:
    assert recipe_page.PAGE.read_text(encoding="utf-8") == recipe_page.page(), "run python -m tests.docs.recipe_page"


def test_every_key_has_a_meaning() -> None:
    missing = [
        f"{record.__name__}.{key}" for record, key in recipe_page.every_key() if key not in recipe_page.meanings(record)
    ]
    assert missing == [], "write it under Attributes of the record's docstring"


def test_every_key_has_an_example_and_no_example_is_left_over() -> None:
    wanted = {
        f"{record.__name__}.{key}" for record, key in recipe_page.every_key() if not recipe_page.is_section(record, key)
    }
    assert set(recipe_page.EXAMPLES) == wanted


@pytest.mark.parametrize("key", recipe_page.EXAMPLES)
def test_example_loads_and_is_what_it_says(key: str) -> None:
    example = recipe_page.EXAMPLES[key]
    loaded = load_recipe(EVERY_KEY, [*example.beside, f"{example.place}={example.value}"])
    pipeline.check(loaded)
    field = key.partition(".")[2]
    assert field in example.place or example.place.endswith((".passes", "targets"))


def test_a_key_without_a_meaning_is_found() -> None:
    class Careless(Record):
        """Says nothing of its keys.

        Attributes:
            told: what it is,
                over two lines.
        """

        told: int = 1
        untold: int = Field(default=2, ge=1)

    assert recipe_page.meanings(Careless) == {"told": "what it is, over two lines"}


def test_tables_tell_types_bounds_and_defaults() -> None:
    text = recipe_page.page()
    assert "| `chained_steps` | whole number, at least 1 | **needed** |" in text
    assert "| `max_growth` | number, at least 1 | `1.5` |" in text
    assert "| `decode` | `module:name` | **needed** |" in text
    assert "| `buckets` | list: whole number, at least 1 | none |" in text
    assert list(Recipe.model_fields) == [key for record, key in recipe_page.every_key() if record is Recipe]
