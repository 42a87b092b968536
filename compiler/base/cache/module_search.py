"""Finds the file from which a module would be imported, without importing it and without running code."""

import importlib.machinery
import sys
from collections.abc import Iterable
from pathlib import Path


def places_of(name: str, folders: Iterable[Path]) -> tuple[str, ...]:
    """Return the file that a module would be imported from, or the folders of a namespace package; empty if not found.

    Args:
        name: `package.module`; enclosing packages are searched, not imported.
        folders: searched before the import path, in this order.
    """
    first, *parts = name.split(".")
    if first in sys.builtin_module_names:
        return () if parts else ("built-in",)
    spec = _found(first, [*(str(folder.absolute()) for folder in folders), *sys.path])
    for part in parts:
        spec = None if spec is None else _found(part, list(spec.submodule_search_locations or ()))
    if spec is None:
        return ()
    return (spec.origin,) if spec.origin else tuple(spec.submodule_search_locations or ())


def _found(name: str, folders: list[str]) -> importlib.machinery.ModuleSpec | None:
    """Find a module by its last name alone, as a dotted name would import the enclosing packages."""
    try:
        return importlib.machinery.PathFinder.find_spec(name, folders)
    except (ImportError, ValueError):
        return None
