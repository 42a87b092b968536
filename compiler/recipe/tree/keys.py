"""Finds the line of a key in a recipe's tree, refuses values left to fill in, and replaces single entries."""

import dataclasses
from collections.abc import Callable, Sequence

from compiler.errors import RecipeError
from compiler.recipe.tree.located_yaml import Node

Key = str | int


def join_keys(keys: Sequence[Key]) -> str:
    """Return a key as messages and `--set` write it: `graphs.encoder.axes`."""
    return ".".join(str(key) for key in keys)


def where(tree: Node, keys: Sequence[Key]) -> str:
    """Return the start of a message: `recipes/cpu.yaml:12: graphs.encoder`, with the line of the deepest existing key.

    A pass is called by its name, as its number counts the standard passes, which nobody has written.
    """
    node, shown = tree, list(keys)
    for place, key in enumerate(keys):
        child = child_of(node, key)
        if child is None:
            break
        node = child
        if place and keys[place - 1] == "passes" and isinstance(node.value, dict) and "name" in node.value:
            shown[place] = str(node.value["name"].value)
    return f"{node.origin}: {join_keys(shown)}" if keys else node.origin


def child_of(node: Node, key: Key) -> Node | None:
    """Return the entry of a mapping or list, or None."""
    if isinstance(node.value, dict):
        return node.value.get(str(key))
    if isinstance(node.value, tuple) and isinstance(key, int) and 0 <= key < len(node.value):
        return node.value[key]
    return None


SET = "--set"
"""Where values come from that the command line has written."""

TODO = "TODO"
"""A value that is still to be filled in."""


def require_filled(tree: Node) -> None:
    """Refuse a recipe with a value left to fill in.

    Raises:
        RecipeError: there is one; the message names the first.
    """
    keys = _keys_of_todo(tree)
    if keys is not None:
        cure = "fill it in; the comment beside it says with what"
        raise RecipeError(f"{where(tree, keys)}: expected a value, got {TODO}", cure=cure)


def _keys_of_todo(node: Node) -> list[Key] | None:
    if isinstance(node.value, dict | tuple):
        entries = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
        found = ((key, _keys_of_todo(child)) for key, child in entries)
        return next(([key, *inner] for key, inner in found if inner is not None), None)
    return [] if node.value == TODO else None


def changed(node: Node, key: str, change: Callable[[Node], Node]) -> Node:
    """Return the mapping with one entry changed; unchanged where there is no such entry."""
    if not isinstance(node.value, dict) or key not in node.value:
        return node
    return dataclasses.replace(node, value={**node.value, key: change(node.value[key])})


def changed_each(node: Node, change: Callable[[Node], Node]) -> Node:
    """Return the mapping or list with every entry changed."""
    if isinstance(node.value, dict):
        return dataclasses.replace(node, value={key: change(child) for key, child in node.value.items()})
    if isinstance(node.value, tuple):
        return dataclasses.replace(node, value=tuple(change(child) for child in node.value))
    return node
