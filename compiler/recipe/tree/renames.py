"""Replaces outdated names in a recipe by the current ones; an old name is accepted for one version.

    data: {healing: {count: 200, ...}}    ->  data: {distillation: {count: 200, ...}}

A name is removed from `OLD_NAMES` in the version after the one that renamed it.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import SET, changed, changed_each, join_keys
from compiler.recipe.tree.located_yaml import Node

ANY = "*"
"""Stands for every key of a mapping, or every entry of a list."""

PASSES: Mapping[str, str] = {
    "compute_once": "hoist_invariants",
    "equalize_channels": "smooth_channels",
    "fold_mask_inputs": "remove_mask_inputs",
    "multiply_before_lookup": "fold_table_product",
    "rescale_streams": "rescale_residuals",
}
"""Passes, and forms that are passes."""

OLD_NAMES: Mapping[tuple[str, ...], Mapping[str, str]] = {
    ("data",): {"healing": "distillation"},
    ("graphs", ANY, "passes"): PASSES,
    ("targets", ANY, "forms"): PASSES,
    ("targets", ANY, "forms", ANY): PASSES,
}
"""By the path of a mapping or list: the old name of a key or an entry, and the name that it has now."""

Tell = Callable[[str], None]
"""Is given each notice, one line of text."""


def with_new_names(tree: Node, tell: Tell) -> Node:
    """Return the recipe with old names replaced.

    Args:
        tree: the recipe, with passes and targets in any form.
        tell: called with a notice for each old name, with its line.

    Raises:
        RecipeError: a key is given under both of its names.
    """
    for path, names in OLD_NAMES.items():
        tree = _changed_at(tree, path, functools.partial(_renamed, path=path, names=names, tell=tell))
    return tree


def with_new_path(override: str, tell: Tell) -> str:
    """Return the text of `--set` with old names in its path replaced.

    Args:
        override: `path.to.key=value`.
        tell: called with a notice for each old name.
    """
    path, equals, value = override.partition("=")
    keys = path.split(".")
    for pattern, names in OLD_NAMES.items():
        above, key = keys[: len(pattern)], keys[len(pattern) :][:1]
        if (
            key
            and key[0] in names
            and all(part in (ANY, key_above) for part, key_above in zip(pattern, above, strict=True))
        ):
            tell(_notice(SET, above, key[0], names[key[0]]))
            keys[len(pattern)] = names[key[0]]
    return ".".join(keys) + equals + value


def _changed_at(node: Node, path: Sequence[str], change: Callable[[Node], Node]) -> Node:
    """Return the node with every node at a path changed."""
    if not path:
        return change(node)
    if path[0] == ANY:
        return changed_each(node, lambda child: _changed_at(child, path[1:], change))
    return changed(node, path[0], lambda child: _changed_at(child, path[1:], change))


def _renamed(node: Node, path: Sequence[str], names: Mapping[str, str], tell: Tell) -> Node:
    """Return a mapping with its keys, or a list with its entries, renamed."""
    if isinstance(node.value, dict):
        return _with_new_keys(node, path, names, tell)
    if not isinstance(node.value, tuple):
        return node
    return dataclasses.replace(node, value=tuple(_renamed_entry(each, path, names, tell) for each in node.value))


def _renamed_entry(entry: Node, path: Sequence[str], names: Mapping[str, str], tell: Tell) -> Node:
    """Return a renamed entry of a list: a name, or a name with options."""
    if isinstance(entry.value, dict):
        return _with_new_keys(entry, path, names, tell)
    if not isinstance(entry.value, str) or entry.value not in names:
        return entry
    new = names[entry.value]
    tell(_notice(entry.origin, path, entry.value, new))
    return dataclasses.replace(entry, value=new, text=new)


def _with_new_keys(node: Node, path: Sequence[str], names: Mapping[str, str], tell: Tell) -> Node:
    assert isinstance(node.value, dict)
    for old, child in node.value.items():
        if old in names:
            if names[old] in node.value:
                where = f"{child.origin}: {join_keys((*path, old))}"
                message = f"{where}: expected one of {names[old]} and its old name {old}, got both"
                raise RecipeError(message, cure=f"delete {old}")
            tell(_notice(child.origin, path, old, names[old]))
    return dataclasses.replace(node, value={names.get(key, key): child for key, child in node.value.items()})


def _notice(origin: str, path: Sequence[str], old: str, new: str) -> str:
    return f"{origin}: {join_keys(path)}: {old} is now called {new}; write {new}, the next version does not read {old}"
