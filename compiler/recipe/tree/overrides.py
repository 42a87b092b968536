"""Applies `--set path.to.key=value` to a recipe's tree; later checks decide whether the key is allowed."""

import dataclasses

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.tree.keys import SET, child_of, join_keys
from compiler.recipe.tree.located_yaml import Node, read_value
from compiler.recipe.tree.short_forms import split_pass


def apply_override(tree: Node, text: str) -> Node:
    """Set one value of a recipe's tree.

    Args:
        tree: the recipe, with passes and targets as written.
        text: `path.to.key=value`; entries of lists are named by number, passes by name too.

    Raises:
        RecipeError: the path leads nowhere, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise RecipeError(
            f"--set: expected path.to.key=value, got {text!r}",
            cure="for example --set gates.parity.encoder.max_abs=1.0e-6",
        )
    return _set(tree, path.split("."), read_value(value, SET), [])


def _set(node: Node, keys: list[str], new: Node, done: list[str]) -> Node:
    if not keys:
        return new
    if isinstance(node.value, tuple):
        index = _index(node.value, keys[0], done)
        set_in = _set_option if done[-1:] == ["passes"] else _set
        child = set_in(node.value[index], keys[1:], new, [*done, keys[0]])
        return dataclasses.replace(node, value=(*node.value[:index], child, *node.value[index + 1 :]))
    if node.value is not None and not isinstance(node.value, dict):
        raise RecipeError(
            f"--set: expected a mapping or list at {join_keys(done)}, got {node.describe()}", cure="shorten the path"
        )
    entries: dict[str, Node] = node.value or {}
    key, rest = _split_key(entries, keys)
    child = _set(entries.get(key, Node(None, SET)), rest, new, [*done, key])
    return dataclasses.replace(node, value={**entries, key: child})


def _set_option(written: Node, keys: list[str], new: Node, done: list[str]) -> Node:
    """Replace a pass, or set one of its options after expanding it to `name: {options}`."""
    if not keys:
        return new
    name, options = split_pass(written)
    return Node({name: _set(options, keys, new, done)}, written.origin)


def _index(entries: tuple[Node, ...], key: str, done: list[str]) -> int:
    names = [_entry_name(entry) for entry in entries]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(entries):
        return int(key)
    known = {*(name for name in names if name), *(str(index) for index in range(len(entries)))}
    raise RecipeError(f"--set: expected an entry of {join_keys(done)}, got {key!r}", cure=did_you_mean(key, known))


def _entry_name(entry: Node) -> str:
    """Return the name of a list entry: a pass's name, or a target's kind."""
    if isinstance(entry.value, str):
        return entry.value
    kind = child_of(entry, "kind")
    if kind is not None and isinstance(kind.value, str):
        return kind.value
    return next(iter(entry.value)) if isinstance(entry.value, dict) and len(entry.value) == 1 else ""


def _split_key(entries: dict[str, Node], keys: list[str]) -> tuple[str, list[str]]:
    """Return the longest existing key at the start of a path (tensor names may contain dots), and the rest."""
    for count in range(len(keys), 0, -1):
        if ".".join(keys[:count]) in entries:
            return ".".join(keys[:count]), keys[count:]
    return keys[0], keys[1:]
