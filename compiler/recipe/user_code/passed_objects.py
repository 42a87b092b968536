"""Makes Python objects of a caller available where a recipe names code, through a temporary module.

A recipe names code as `package.module:name`. What can be found by such a name keeps it; a module of the framework, or a
function that was made at run time, is called `passed_objects:<where it was given>`.
"""

import contextlib
import copy
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import Key, join_keys

MODULE = "passed_objects"

KEYS = frozenset({"factory", "feeds", "recordings", "decode", "metric"})
"""Keys of a recipe that name code."""

_BUILDING = threading.Lock()


def with_references(value: Any, objects: dict[str, Callable[..., Any]], keys: Sequence[Key] = ()) -> Any:
    """Return the values of a recipe with a reference in place of every object.

    Args:
        value: mappings, lists and scalars; code stands at the keys that name code.
        objects: dictionary to which objects without an importable name are added.
        keys: keys of the value.
    """
    if isinstance(value, Mapping):
        return {key: with_references(child, objects, (*keys, key)) for key, child in value.items()}
    if isinstance(value, list | tuple) and keys and keys[-1] == "feeds":
        return _passed(_named(lambda: value, keys), objects, keys)
    if isinstance(value, list | tuple):
        return [with_references(child, objects, (*keys, index)) for index, child in enumerate(value)]
    if not KEYS.isdisjoint(keys[-2:]) and (callable(value) or is_module(value)):
        if is_module(value):
            return _passed(_copier(value, keys), objects, keys)
        return _own_reference(value) or _passed(value, objects, keys)
    return value


def _passed(function: Callable[..., Any], objects: dict[str, Callable[..., Any]], keys: Sequence[Key]) -> str:
    objects[_name_of(keys)] = function
    return f"{MODULE}:{_name_of(keys)}"


def _name_of(keys: Sequence[Key]) -> str:
    return re.sub(r"\W", "_", "_".join(map(str, keys)))


def _named(function: Callable[[], Any], keys: Sequence[Key]) -> Callable[[], Any]:
    """Return a function after giving it the name that messages use."""
    function.__module__, function.__qualname__ = MODULE, _name_of(keys)
    return function


def is_module(value: object) -> bool:
    """Whether a value is a torch module, and not a class of modules; torch need not be imported."""
    return not isinstance(value, type) and all(
        callable(getattr(value, each, None)) for each in ("forward", "state_dict")
    )


def _own_reference(function: Callable[..., Any]) -> str | None:
    """Return `package.module:name` by which the import system finds this very object; None where there is none.

    Objects of the main program have none, as it is not imported again under its name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not name.isidentifier() or module == "__main__":
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is function else None


def _copier(module: Any, keys: Sequence[Key]) -> Callable[[], Any]:
    """Return a factory of copies on the CPU, so that a build does not change the caller's module."""

    def copied() -> Any:
        try:
            return copy.deepcopy(module).cpu()
        except Exception as error:
            raise RecipeError(
                f"{join_keys(keys)}: expected a module that copy.deepcopy copies, got {type(error).__name__}: {error}",
                cure="give a function that makes the module and loads its weights",
            ) from error

    return _named(copied, keys)


@contextlib.contextmanager
def passed(objects: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Make objects importable from `passed_objects` while the body runs.

    Raises:
        RecipeError: another build runs in this process, as reads are tracked for one build at a time.
    """
    if not _BUILDING.acquire(blocking=False):
        message = "expected one build at a time in a process, got a second one while the first runs"
        raise RecipeError(message, cure="wait for the first, or build in another process")
    try:
        module = types.ModuleType(MODULE)
        vars(module).update(objects)
        sys.modules[MODULE] = module
        yield
    finally:
        sys.modules.pop(MODULE, None)
        _BUILDING.release()
