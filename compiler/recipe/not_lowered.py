"""Refuses wires into states, which a recipe may declare but no pass lowers yet; the message names the line."""

from compiler.errors import Refused
from compiler.recipe.load import LoadedRecipe


def require_lowered_parts(loaded: LoadedRecipe) -> None:
    """Refuse wires of a kind that is not supported yet.

    Raises:
        Refused: the recipe has one; the message names it and its line.
    """
    for number, wire in enumerate(loaded.recipe.wiring):
        if loaded.recipe.graphs[wire.to_graph].inputs[wire.input].state is not None:
            raise Refused(
                f"{loaded.where('wiring', number)}: states that another graph starts from are not built yet",
                cure="leave the wire out: one bundle holds the graphs, and who runs them hands states on",
            )
