"""Reads the recipe that is stored in a bundle, as plain values."""

from typing import Any

from compiler.recipe.tree.located_yaml import read_document
from compiler.recipe.tree.renames import with_new_names
from runtime_lite.format.reader import Bundle


def recipe_of(bundle: Bundle) -> Any:
    """Return the values of a bundle's recipe with defaults, under this version's names.

    Args:
        bundle: a bundle opened for reading.

    Raises:
        RecipeError: the file is not plain YAML, or has a key under both its old and its new name.
    """
    written = read_document(bundle.read_file(bundle.manifest.recipe), f"{bundle.path}: {bundle.manifest.recipe}")
    return with_new_names(written, lambda notice: None).plain()
