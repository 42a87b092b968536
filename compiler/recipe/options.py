"""Constructs passes and targets with the options of a recipe; refuses a wrong option with its line."""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.tree.standard_passes import STANDARD

Made = TypeVar("Made")


def make(
    where: str, what: str, name: str, kinds: Mapping[str, Callable[..., Made]], options: Mapping[str, Any]
) -> Made:
    """Return a pass or a target with its options.

    Args:
        where: the place in the recipe.
        what: `pass` or `target`.
        name: name of the pass or target.
        kinds: all passes or targets, by name.
        options: options in the recipe.

    Raises:
        RecipeError: the name or an option is unknown, or a value has a wrong type.
    """
    if name not in kinds:
        known = [*kinds, STANDARD] if what == "pass" else kinds
        raise RecipeError(f"{where}: expected the name of a {what}, got {name!r}", cure=did_you_mean(name, known))
    kind = kinds[name]
    fields = {field.name: field.type for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for option, value in options.items():
        if option not in fields:
            raise RecipeError(
                f"{where}: expected an option of {name}, got {option!r}", cure=did_you_mean(option, fields)
            )
        if not _fits(value, fields[option]):
            raise RecipeError(
                f"{where}: {name}: {option}: expected {_name_of(fields[option])}, got {value!r}",
                cure="change the value",
            )
    try:
        return kind(**options)
    except RecipeError as error:
        raise RecipeError(f"{where}: {name}: {error.message}", cure=error.cure) from None


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value of the recipe has a field's type; an int counts as a float, a bool as neither."""
    if isinstance(wanted, types.UnionType):
        return any(_fits(value, alternative) for alternative in wanted.__args__)
    if wanted is types.NoneType:
        return value is None
    if wanted is float:
        return type(value) in (int, float)
    if typing.get_origin(wanted) is tuple:
        return isinstance(value, list | tuple) and all(_fits(entry, typing.get_args(wanted)[0]) for entry in value)
    if typing.get_origin(wanted) is Mapping:
        return isinstance(value, Mapping) and all(_fits(entry, typing.get_args(wanted)[1]) for entry in value.values())
    return wanted not in (bool, int, str) or type(value) is wanted


def _name_of(wanted: Any) -> str:
    if typing.get_origin(wanted) is tuple:
        return f"a list of {_name_of(typing.get_args(wanted)[0])}"
    if typing.get_origin(wanted) is Mapping:
        return f"a mapping to {_name_of(typing.get_args(wanted)[1])}"
    if isinstance(wanted, types.UnionType):
        return " | ".join(map(_name_of, wanted.__args__)).replace("NoneType", "None")
    return str(wanted.__name__)
