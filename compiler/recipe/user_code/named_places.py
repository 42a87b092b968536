"""Checks that the files, modules and names in a recipe exist, by reading modules without running their code."""

import ast
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pydantic

from compiler.base.cache.module_search import places_of
from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.field_types import FilePath, ObjectName
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.tree.keys import Key
from compiler.recipe.user_code.callables import shown_path

Named = tuple[tuple[Key, ...], str]
"""The keys of a recipe's value, and the value."""


def require_named_places(loaded: LoadedRecipe) -> tuple[int, int]:
    """Require that every file and every module that a recipe names exists.

    Returns:
        The numbers of named files and modules.

    Raises:
        RecipeError: one does not exist; the message has the line of the recipe.
    """
    files, references = list(_named(loaded.recipe, FilePath)), list(_named(loaded.recipe, ObjectName))
    for keys, file in files:
        path = loaded.locate(file)
        if not path.exists():
            raise RecipeError(
                f"{loaded.where(*keys)}: expected a file, got nothing at {shown_path(path)}", cure="check the path"
            )
    for keys, reference in references:
        module, _, name = reference.partition(":")
        places = places_of(module, loaded.search_path())
        if not places:
            folders = [shown_path(folder) for folder in loaded.search_path()]
            raise RecipeError(
                f"{loaded.where(*keys)}: expected a module, got {module!r}, which is not there",
                cure=f"check the name, or run from the folder that holds it; searched {folders}",
            )
        known = _names_in(Path(places[0]))
        if known is not None and name not in known:
            raise RecipeError(
                f"{loaded.where(*keys)}: expected a callable in {module}, got nothing called {name!r}",
                cure=did_you_mean(name, (known_name for known_name in known if not known_name.startswith("_"))),
            )
    return len(files), len(references)


def _names_in(module: Path) -> set[str] | None:
    """Return the names that a module defines, imports or assigns; None where its text does not show them."""
    try:
        tree = ast.parse(module.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    makes_more = names & {"*", "__getattr__"} or "globals" in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return None if makes_more else names


def _named(record: pydantic.BaseModel, wanted: Any, keys: tuple[Key, ...] = ()) -> Iterator[Named]:
    """Yield the values of fields of a declared type of text, with their keys, at any depth."""
    hints = typing.get_type_hints(type(record), include_extras=True)
    for field in type(record).model_fields:
        yield from _held(getattr(record, field), wanted, (*keys, field), _mentions(hints[field], wanted))


def _held(value: Any, wanted: Any, keys: tuple[Key, ...], is_wanted: bool) -> Iterator[Named]:
    if isinstance(value, pydantic.BaseModel):
        yield from _named(value, wanted, keys)
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _held(child, wanted, (*keys, key), is_wanted)
    elif isinstance(value, tuple):
        for index, child in enumerate(value):
            yield from _held(child, wanted, (*keys, index), is_wanted)
    elif is_wanted and isinstance(value, str):
        yield keys, value


def _mentions(hint: Any, wanted: Any) -> bool:
    return hint == wanted or any(_mentions(each, wanted) for each in typing.get_args(hint))
