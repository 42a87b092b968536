"""Whether the passes of a graph stand in an order in which each can work, by the recipe alone."""

from collections.abc import Callable, Collection, Mapping

from compiler.errors import RecipeError
from compiler.recipe.graph import Graph
from compiler.recipe.load import LoadedRecipe

NEEDED: Mapping[str, Callable[[Graph], bool]] = {
    "add_batch_axis": lambda graph: graph.is_for_one_row,
    "merge_first_call": lambda graph: graph.first_call is not None,
    "pad_axes": lambda graph: bool(graph.padded) or any(axis.window is not None for axis in graph.axes.values()),
}
"""Passes that have work to do on some graphs only; where they have, what comes after them cannot do without."""


def check_order(loaded: LoadedRecipe, graph: str, after: Mapping[str, Collection[str]]) -> None:
    """Refuse a pass in front of one that must have run.

    Args:
        loaded: the recipe.
        graph: whose passes.
        after: by pass, those that must have run when it comes; one that has nothing to do on the graph may be left out.

    Raises:
        RecipeError: one comes later, or not at all; with the line of the pass that waits for it.
    """
    spec = loaded.recipe.graphs[graph]
    names = [each.name for each in spec.passes]
    for index, name in enumerate(names):
        for first in after[name]:
            is_behind = first in names[index + 1 :]
            if is_behind or (first not in names and first in NEEDED and NEEDED[first](spec)):
                got = "it behind" if is_behind else "none"
                raise RecipeError(
                    f"{loaded.where('graphs', graph, 'passes', index)}: expected {first} before {name}, got {got}",
                    cure=f"list {first} before {name}",
                )
