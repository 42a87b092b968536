"""Expands a graph with several latencies into one graph per latency, before the recipe is checked.

    encoder: {source: ..., latencies: {fast: {axes: {chunk: {fixed: 4}}}, exact: {axes: {chunk: {fixed: 16}}}}}
        ->  encoder_fast:  {source: ..., axes: {..., chunk: {fixed: 4}},  latency: {of: encoder, name: fast}}
            encoder_exact: {source: ..., axes: {..., chunk: {fixed: 16}}, latency: {of: encoder, name: exact}}

What a latency writes is put over the graph: mappings key by key, everything else in the place of what was there; an
axis is replaced whole, since it has one kind. Gates and feeds that name the graph hold for each of its latencies.
"""

import dataclasses
from collections.abc import Mapping

from compiler.errors import RecipeError
from compiler.recipe.tree.keys import changed, child_of
from compiler.recipe.tree.located_yaml import Node

KEY = "latencies"

ROLES = ("verification", "calibration", "development", "distillation")


def expand_latencies(tree: Node) -> Node:
    """Expand every graph that has `latencies` into one graph per latency.

    Raises:
        RecipeError: latencies are not a mapping of names to keys of a graph, or a graph already has such a name.
    """
    graphs = child_of(tree, "graphs")
    if graphs is None or not isinstance(graphs.value, dict):
        return tree
    variants: dict[str, tuple[str, ...]] = {}
    entries: dict[str, Node] = {}
    for name, graph in graphs.value.items():
        written = child_of(graph, KEY)
        expanded = {name: graph} if written is None else _graphs_of(name, graph, written)
        for variant, node in expanded.items():
            if variant in entries or (variant != name and variant in graphs.value):
                message = f"{node.origin}: graphs.{name}.{KEY}: expected names that no graph has, got {variant!r} again"
                raise RecipeError(message, cure="rename the latency or the graph")
            entries[variant] = node
        if written is not None:
            variants[name] = tuple(expanded)
    if not variants:
        return tree
    tree = changed(tree, "graphs", lambda node: dataclasses.replace(node, value=entries))
    tree = changed(tree, "gates", lambda gates: changed(gates, "parity", lambda node: _for_each(node, variants)))
    return changed(tree, "data", lambda data: _feeds_for_each(data, variants))


def _graphs_of(name: str, graph: Node, written: Node) -> dict[str, Node]:
    """Return a graph for each latency, by its name."""
    where = f"{written.origin}: graphs.{name}.{KEY}"
    if not isinstance(written.value, dict) or not written.value:
        message = f"{where}: expected names of latencies, each with keys of the graph, got {written.describe()}"
        raise RecipeError(message, cure="write for example {fast: {axes: {chunk: {fixed: 4}}}, exact: {}}")
    assert isinstance(graph.value, dict)
    base = dataclasses.replace(graph, value={key: child for key, child in graph.value.items() if key != KEY})
    graphs: dict[str, Node] = {}
    for latency, over in written.value.items():
        if over.value is not None and not isinstance(over.value, dict):
            message = f"{over.origin}: graphs.{name}.{KEY}.{latency}: expected keys of the graph, got {over.describe()}"
            raise RecipeError(message, cure="write what differs from the graph, or {}")
        merged = base if over.value is None else _over(base, over)
        role = {"of": Node(name, over.origin, text=name), "name": Node(latency, over.origin, text=latency)}
        assert isinstance(merged.value, dict)
        graphs[f"{name}_{latency}"] = Node({**merged.value, "latency": Node(role, over.origin)}, over.origin)
    return graphs


def _over(base: Node, over: Node, key: str = "") -> Node:
    """Return a mapping with the entries of another merged over it."""
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for name, child in over.value.items():
        is_whole = key == "axes" or name not in merged
        merged[name] = child if is_whole else _over(merged[name], child, name)
    return dataclasses.replace(base, value=merged)


def _for_each(node: Node, variants: Mapping[str, tuple[str, ...]]) -> Node:
    """Return a mapping by graph, with the entry of a graph with latencies copied to each that is not named."""
    if not isinstance(node.value, dict):
        return node
    named = node.value
    entries: dict[str, Node] = {}
    for name, child in named.items():
        for variant in variants.get(name, (name,)):
            if variant == name or variant not in named:
                entries[variant] = child
    return dataclasses.replace(node, value=entries)


def _feeds_for_each(data: Node, variants: Mapping[str, tuple[str, ...]]) -> Node:
    for role in ROLES:
        data = changed(data, role, lambda node: changed(node, "feeds", lambda feeds: _for_each(feeds, variants)))
    return data
