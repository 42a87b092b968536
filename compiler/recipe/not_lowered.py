"""What a recipe may say and no pass lowers yet: each is refused by its name, with its line, before anything runs."""

from compiler.errors import Refused
from compiler.recipe.load import LoadedRecipe
from compiler.stages import CACHE_CURE
from runtime_lite.format.cache_axis import not_yet


def require_lowered_parts(loaded: LoadedRecipe) -> None:
    """Refuse caches and wires of a kind that is not lowered yet.

    Raises:
        Refused: the recipe has one; names it and its line.
    """
    for name in loaded.recipe.graphs:
        require_lowered_caches(loaded, name)
    for number, wire in enumerate(loaded.recipe.wiring):
        if loaded.recipe.graphs[wire.to_graph].inputs[wire.input].state is not None:
            raise Refused(
                f"{loaded.where('wiring', number)}: states that another graph starts from are not built yet",
                cure="leave the wire out: one bundle holds the graphs, and who runs them hands states on",
            )


def require_lowered_caches(loaded: LoadedRecipe, graph: str) -> None:
    """Refuse caches of one graph of a kind that is not lowered yet: no runner feeds them back as they are meant.

    Raises:
        Refused: the graph has one; names it and its line.
    """
    for axis, cache in loaded.recipe.graphs[graph].caches.items():
        assert cache.side is not None and cache.update is not None
        kind = not_yet(cache.side, cache.update)
        if kind is not None:
            key = "side" if cache.side != "right" else "update"
            where = loaded.where("graphs", graph, "axes", axis, key)
            raise Refused(f"{where}: {kind} are not lowered yet", cure=CACHE_CURE)
