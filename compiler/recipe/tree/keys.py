"""Complete a recipe's tree before it is checked: name ranges, `--set`, checkpoints, one form for passes and targets.

    cache_{00..01}: {state: "next_{00..01}"}  ->  cache_00: {state: next_00}, cache_01: ...
    passes: [simplify, pad_axes: {fill: 0.0}]       ->  {name: simplify, options: {}}, {name: pad_axes, options: ...}
    targets: [{kind: onnx_static, opset: 20}]       ->  {kind: onnx_static, options: {opset: 20}}

A part of another type than expected is left as it is; the check of the record that follows names it.
"""

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import pydantic

from compiler.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.tree.located_yaml import Node, read_value

MAX_RANGE_NAMES = 1000

Key = str | int

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def join_keys(keys: Sequence[Key]) -> str:
    """A key as messages and `--set` write it: `graphs.encoder.axes`."""
    return ".".join(str(key) for key in keys)


def where(tree: Node, keys: Sequence[Key]) -> str:
    """The start of a message: `recipes/cpu.yaml:12: graphs.encoder`, with the line of the deepest key that exists.

    A pass is known by its name: its number counts the standard passes, which nobody has written.
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
    """The entry of a mapping or list, or None."""
    if isinstance(node.value, dict):
        return node.value.get(str(key))
    if isinstance(node.value, tuple) and isinstance(key, int) and 0 <= key < len(node.value):
        return node.value[key]
    return None


TODO = "TODO"
"""A value that is still to be filled in."""


def require_filled(tree: Node) -> None:
    """Point at the first value that is left to fill in.

    Raises:
        RecipeError: there is one.
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
    """The mapping with one entry changed; the node itself where there is no such entry."""
    if not isinstance(node.value, dict) or key not in node.value:
        return node
    return dataclasses.replace(node, value={**node.value, key: change(node.value[key])})


def changed_each(node: Node, change: Callable[[Node], Node]) -> Node:
    """The mapping or list with every entry changed."""
    if isinstance(node.value, dict):
        return dataclasses.replace(node, value={key: change(child) for key, child in node.value.items()})
    if isinstance(node.value, tuple):
        return dataclasses.replace(node, value=tuple(change(child) for child in node.value))
    return node


# Name ranges


def expand_name_ranges(tree: Node) -> Node:
    """Write out `{00..11}` in the inputs, states and outputs of every graph.

    Raises:
        RecipeError: a range is not one, or key and state do not hold the same.
    """

    def expand_graph(graph: Node) -> Node:
        return changed(changed(graph, "inputs", _expand_inputs), "outputs", _expand_outputs)

    return changed(tree, "graphs", lambda graphs: changed_each(graphs, expand_graph))


def _expand_inputs(inputs: Node) -> Node:
    if not isinstance(inputs.value, dict):
        return inputs
    entries: dict[str, Node] = {}
    for key, spec in inputs.value.items():
        for name, expanded in zip(_names(key, spec.origin), _expand_states(key, spec), strict=True):
            if name in entries:
                raise RecipeError(
                    f"{spec.origin}: expected each input once, got {name!r} again", cure="let the ranges not overlap"
                )
            entries[name] = expanded
    return dataclasses.replace(inputs, value=entries)


def _expand_states(key: str, spec: Node) -> list[Node]:
    count = len(_names(key, spec.origin))
    entries = spec.value if isinstance(spec.value, dict) else {}
    state = entries.get("state")
    if state is None or not isinstance(state.value, str):
        return [spec] * count
    key_range, state_range = _range_in(key), _range_in(state.value)
    if key_range != state_range:
        raise RecipeError(
            f"{state.origin}: expected the same range in an input and its state, got {key!r} and {state.value!r}",
            cure=f"write {key_range or state_range} in both",
        )
    names = _names(state.value, state.origin)
    return [
        dataclasses.replace(spec, value={**entries, "state": dataclasses.replace(state, value=name)}) for name in names
    ]


def _range_in(name: str) -> str:
    found = _RANGE.search(name)
    return found.group() if found else ""


def _expand_outputs(outputs: Node) -> Node:
    if not isinstance(outputs.value, tuple):
        return outputs
    expanded: list[Node] = []
    for node in outputs.value:
        names = _names(node.value, node.origin) if isinstance(node.value, str) else [node.value]
        expanded += [dataclasses.replace(node, value=name) for name in names]
    return dataclasses.replace(outputs, value=tuple(expanded))


def _names(name: str, origin: str) -> list[str]:
    """`cache_{08..11}` as four names; a name without a range as itself."""
    ranges = list(_RANGE.finditer(name))
    if not ranges and not ("{" in name and ".." in name):
        return [name]
    if len(ranges) != 1:
        raise RecipeError(
            f"{origin}: expected one range such as {{00..11}} in a name, got {name!r}", cure="write one range"
        )
    first, last = ranges[0].groups()
    count = int(last) - int(first) + 1
    if not 1 <= count <= MAX_RANGE_NAMES or len(first) > len(last):
        raise RecipeError(
            f"{origin}: expected an ascending range of at most {MAX_RANGE_NAMES} names, got {name!r}",
            cure="write the smaller number first, both with the same number of digits",
        )
    head, tail = name[: ranges[0].start()], name[ranges[0].end() :]
    return [f"{head}{number:0{len(first)}d}{tail}" for number in range(int(first), int(last) + 1)]


# Passes and targets


def normalize_specs(tree: Node) -> Node:
    """Give every pass the form {name, options} and every target the form {kind, options}.

    Raises:
        RecipeError: a pass is neither a name nor one `name: {options}`.
    """
    tree = changed(
        tree, "graphs", lambda graphs: changed_each(graphs, lambda graph: changed(graph, "passes", _normalize_passes))
    )
    return changed(tree, "targets", lambda targets: changed_each(targets, _normalize_target))


def _normalize_passes(passes: Node) -> Node:
    return changed_each(passes, _normalize_pass) if isinstance(passes.value, tuple) else passes


def _normalize_pass(node: Node) -> Node:
    name, options = split_pass(node)
    value = {"name": Node(name, node.origin, text=name), "options": options}
    return Node(value, node.origin)


def split_pass(node: Node) -> tuple[str, Node]:
    """The name and the options of a pass as written.

    Raises:
        RecipeError: it is neither a name nor one `name: {options}`.
    """
    if isinstance(node.value, str):
        return node.value, Node({}, node.origin)
    if isinstance(node.value, dict) and len(node.value) == 1:
        name, options = next(iter(node.value.items()))
        if options.value is None:
            return name, Node({}, node.origin)
        if isinstance(options.value, dict):
            return name, options
    raise RecipeError(
        f"{node.origin}: expected a pass name or `name: {{option: value}}`, got {node.describe()}",
        cure='write each pass as its own list entry, e.g. "- pad_axes: {fill: 0.0}"',
    )


def _normalize_target(node: Node) -> Node:
    if not isinstance(node.value, dict):
        return node
    options = {key: child for key, child in node.value.items() if key != "kind"}
    kind = {"kind": node.value["kind"]} if "kind" in node.value else {}
    return Node({**kind, "options": Node(options, node.origin)}, node.origin)


# Checkpoints


def replace_checkpoints(tree: Node, checkpoint: str) -> Node:
    """Use one checkpoint for every factory of a recipe whose graphs share theirs.

    Raises:
        RecipeError: the recipe names different checkpoints, or no factory.
    """
    graphs = child_of(tree, "graphs")
    if graphs is None or not isinstance(graphs.value, dict):
        return tree
    sources = [source for graph in graphs.value.values() for source in _sources(graph)]
    named = {
        node.value for source in sources if (node := child_of(source, "checkpoint")) and isinstance(node.value, str)
    }
    if len(named) > 1:
        raise RecipeError(
            f"--checkpoint: expected a recipe with one checkpoint, got {', '.join(sorted(map(str, named)))}",
            cure="write --set graphs.<graph>.source.checkpoint=FILE for each",
        )
    if not any(child_of(source, "factory") for source in sources):
        raise RecipeError(
            "--checkpoint: expected a recipe with a factory, got only onnx sources", cure="leave the option out"
        )

    def replace(source: Node) -> Node:
        if not isinstance(source.value, dict) or "factory" not in source.value:
            return source
        return dataclasses.replace(
            source, value={**source.value, "checkpoint": Node(checkpoint, "--checkpoint", text=checkpoint)}
        )

    return _changed_sources(tree, replace)


def _sources(graph: Node) -> list[Node]:
    return [source for key in ("source", "first_call") if (source := child_of(graph, key))]


def _changed_sources(tree: Node, change: Callable[[Node], Node]) -> Node:
    def change_graph(graph: Node) -> Node:
        return changed(changed(graph, "source", change), "first_call", change)

    return changed(tree, "graphs", lambda graphs: changed_each(graphs, change_graph))


def inherit_checkpoints(tree: Node) -> Node:
    """Give `first_call` the checkpoint of `source` where it names none: two call forms of one model share weights."""

    def inherit(graph: Node) -> Node:
        source = child_of(graph, "source")
        checkpoint = child_of(source, "checkpoint") if source else None

        def inherit_from_source(first_call: Node) -> Node:
            entries = first_call.value
            if (
                checkpoint is None
                or not isinstance(entries, dict)
                or "factory" not in entries
                or "checkpoint" in entries
            ):
                return first_call
            return dataclasses.replace(first_call, value={**entries, "checkpoint": checkpoint})

        return changed(graph, "first_call", inherit_from_source)

    return changed(tree, "graphs", lambda graphs: changed_each(graphs, inherit))


# Overrides and the schema


def apply_override(tree: Node, text: str, schema: Any) -> Node:
    """Set one value.

    Args:
        tree: the recipe, passes and targets as written.
        text: `path.to.key=value`; entries of lists are named by number, passes by name too.
        schema: the record the tree will be checked against; it says which keys may be added.

    Raises:
        RecipeError: the path leads nowhere, or the value is not YAML.
    """
    path, equals, value = text.partition("=")
    if not path or not equals:
        raise RecipeError(
            f"--set: expected path.to.key=value, got {text!r}",
            cure="for example --set gates.parity.encoder.max_abs=1.0e-6",
        )
    return _set(tree, schema, path.split("."), read_value(value, "--set"), [])


def _set(node: Node, schema: Any, keys: list[str], new: Node, done: list[str]) -> Node:
    if not keys:
        return new
    if isinstance(node.value, tuple):
        index = _index(node.value, keys[0], done)
        child = _set_entry(node.value[index], child_schema(schema, index), keys[1:], new, [*done, keys[0]])
        return dataclasses.replace(node, value=(*node.value[:index], child, *node.value[index + 1 :]))
    if node.value is not None and not isinstance(node.value, dict):
        raise RecipeError(
            f"--set: expected a mapping or list at {join_keys(done)}, got {node.describe()}", cure="shorten the path"
        )
    entries: dict[str, Node] = node.value or {}
    key, rest = _split_key(entries, keys)
    below = child_schema(schema, key)
    if key not in entries and (below is None or not _may_add(schema, below)):
        known = {*entries, *known_keys(schema)}
        raise RecipeError(
            f"--set: expected an existing path, got {join_keys([*done, *keys])!r}", cure=did_you_mean(key, known)
        )
    child = _set(entries.get(key, Node(None, "--set")), below, rest, new, [*done, key])
    return dataclasses.replace(node, value={**entries, key: child})


def _set_entry(node: Node, schema: Any, keys: list[str], new: Node, done: list[str]) -> Node:
    """Set inside a list entry; a pass is opened to `name: {options}` first."""
    if keys and "name" in known_keys(schema) and "options" in known_keys(schema):
        name, options = split_pass(node)
        return Node({name: _set(options, Any, keys, new, done)}, node.origin)
    if keys and "options" in known_keys(schema):
        return _set(node, Any, keys, new, done)
    return _set(node, schema, keys, new, done)


def _index(entries: tuple[Node, ...], key: str, done: list[str]) -> int:
    names = [_entry_name(entry) for entry in entries]
    if key in names:
        return names.index(key)
    if key.isdigit() and int(key) < len(entries):
        return int(key)
    known = {*(name for name in names if name), *(str(index) for index in range(len(entries)))}
    raise RecipeError(f"--set: expected an entry of {join_keys(done)}, got {key!r}", cure=did_you_mean(key, known))


def _entry_name(entry: Node) -> str:
    """What a list entry can be called by: a pass by its name, a target by its kind."""
    if isinstance(entry.value, str):
        return entry.value
    kind = child_of(entry, "kind")
    if kind is not None and isinstance(kind.value, str):
        return kind.value
    return next(iter(entry.value)) if isinstance(entry.value, dict) and len(entry.value) == 1 else ""


def _split_key(entries: dict[str, Node], keys: list[str]) -> tuple[str, list[str]]:
    """The longest existing key at the start of a path (tensor names may hold dots), and the rest."""
    for count in range(len(keys), 0, -1):
        if ".".join(keys[:count]) in entries:
            return ".".join(keys[:count]), keys[count:]
    return keys[0], keys[1:]


def _may_add(schema: Any, below: Any) -> bool:
    """Whether an absent key may be added: fields of records, and scalars of open mappings."""
    return bool(known_keys(schema)) or below is Any or not known_keys(below)


def _unwrap(schema: Any) -> Any:
    """A type without alias, Annotated and Optional."""
    while True:
        if typing.get_origin(schema) is typing.Annotated:
            schema = typing.get_args(schema)[0]
        elif typing.get_origin(schema) is types.UnionType and type(None) in typing.get_args(schema):
            rest = [member for member in typing.get_args(schema) if member is not type(None)]
            schema = rest[0]
        else:
            return schema


def child_schema(schema: Any, key: Key) -> Any:
    """The type below a key, or None where there is none."""
    schema = _unwrap(schema)
    if schema is Any:
        return Any
    if isinstance(schema, type) and issubclass(schema, pydantic.BaseModel):
        field = schema.model_fields.get(str(key))
        return field.annotation if field else None
    members = schema.__args__ if typing.get_origin(schema) is types.UnionType else (schema,)
    for member in map(_unwrap, members):
        if typing.get_origin(member) in (dict, tuple):
            arguments = typing.get_args(member)
            return arguments[1] if typing.get_origin(member) is dict else arguments[0]
    return None


def known_keys(schema: Any) -> tuple[str, ...]:
    """The keys of a record, in order; empty for anything else."""
    schema = _unwrap(schema)
    if isinstance(schema, type) and issubclass(schema, pydantic.BaseModel):
        return tuple(schema.model_fields)
    return ()
