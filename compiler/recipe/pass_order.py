"""Checks that a recipe lists the passes of a graph in an order in which each of them can work."""

from collections.abc import Callable, Collection, Mapping

from compiler.errors import RecipeError
from compiler.recipe.graph import Graph
from compiler.recipe.load import LoadedRecipe

NEEDED: Mapping[str, Callable[[Graph], bool]] = {
    "add_batch_axis": lambda graph: any(each.original is not None for each in graph.inputs.values()),
    "merge_first_call": lambda graph: graph.first_call is not None,
    "pad_axes": lambda graph: bool(graph.padded or graph.caches),
}
"""Passes that have work to do on some graphs only; where they have, what comes after them cannot do without."""


def check_order(loaded: LoadedRecipe, graph: str, after: Mapping[str, Collection[str]]) -> None:
    """Refuse a pass listed before one that must have run.

    Args:
        loaded: the recipe.
        graph: the graph whose passes are checked.
        after: by pass, those that must run before it, if they have anything to do on the graph.

    Raises:
        RecipeError: a pass comes later, or not at all; the message has the line of the pass that needs it.
    """
    spec = loaded.recipe.graphs[graph]
    names = [pass_spec.name for pass_spec in spec.passes]
    for index, name in enumerate(names):
        for first in after[name]:
            where, cure = loaded.where("graphs", graph, "passes", index), f"list {first} before {name}"
            if first in names[index + 1 :]:
                raise RecipeError(f"{where}: expected {first} before {name}, got it behind", cure=cure)
            if first not in names and first in NEEDED and NEEDED[first](spec):
                raise RecipeError(f"{where}: expected {first} before {name}, got none", cure=cure)
