"""Defines the standard passes, and inserts them where a recipe lists no passes or the word `standard`."""

import dataclasses

from compiler.recipe.tree.keys import changed, changed_each
from compiler.recipe.tree.located_yaml import Node

STANDARD = "standard"
"""Stands in a list of passes for the standard pipeline."""

STANDARD_PASSES = (
    "simplify",
    "canonicalize_attention",
    "canonicalize_transposes",
    "canonicalize_reshapes",
    "canonicalize_positions",
    "remove_mask_inputs",
    "simplify",
    "add_batch_axis",
    "merge_first_call",
    "unstack_states",
    "fold_factors",
    "carry_contexts",
    "select_states",
    "pad_axes",
    "window_states",
    "project_positions",
    "pack_states",
    "simplify",
)
"""The pipeline of a graph whose recipe lists no passes; each does nothing where there is nothing to do."""


def add_default_passes(tree: Node) -> Node:
    """Write the standard passes into every graph that lists none or `standard`, so that `--set` reaches them."""

    def add(graph: Node) -> Node:
        if not isinstance(graph.value, dict):
            return graph
        listed = graph.value.get("passes", Node((Node(STANDARD, graph.origin, text=STANDARD),), graph.origin))
        if not isinstance(listed.value, tuple):
            return graph
        passes: list[Node] = []
        for entry in listed.value:
            named = [Node(name, entry.origin, text=name) for name in STANDARD_PASSES]
            passes += named if entry.value == STANDARD else [entry]
        return dataclasses.replace(
            graph, value={**graph.value, "passes": dataclasses.replace(listed, value=tuple(passes))}
        )

    return changed(tree, "graphs", lambda graphs: changed_each(graphs, add))
