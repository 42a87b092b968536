"""Expands the short forms of a recipe's tree before it is checked: name ranges, passes, targets, checkpoints.

    cache_{00..01}: {state: "next_{00..01}"}  ->  cache_00: {state: next_00}, cache_01: ...
    passes: [simplify, pad_axes: {fill: 0.0}]       ->  {name: simplify, options: {}}, {name: pad_axes, options: ...}
    targets: [{kind: onnx_static, opset: 20}]       ->  {kind: onnx_static, options: {opset: 20}}

A part of another type than expected is left as it is; the check of the record that follows names it.
"""

import dataclasses
import re
from collections.abc import Callable

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import changed, changed_each, child_of
from compiler.recipe.tree.located_yaml import Node

MAX_RANGE_NAMES = 1000

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")

# Name ranges


def expand_name_ranges(tree: Node) -> Node:
    """Expand `{00..11}` in the inputs, states and outputs of every graph.

    Raises:
        RecipeError: a range is malformed, or the ranges of key and state differ.
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
    """Return `cache_{08..11}` as four names, and a name without a range as itself."""
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
    """Return the name and the options of a pass as written.

    Raises:
        RecipeError: the pass is neither a name nor one `name: {options}`.
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
    """Set one checkpoint for every factory of a recipe whose graphs share theirs.

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
    """Give `first_call` the checkpoint of `source` where it names none: both call forms share weights."""

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
