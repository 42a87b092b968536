"""Checks that a recipe's list of variants covers every graph, and rounds only where the recipe allows a loss."""

from collections.abc import Mapping

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.recipe.load import LoadedRecipe
from compiler.targets.base import Target


def check_variants(loaded: LoadedRecipe, target: Target, index: int) -> None:
    """Require that every graph has a plan, and that variants that round are listed only where the recipe allows a loss.

    Args:
        loaded: the recipe.
        target: the target made from the recipe.
        index: its index among the recipe's targets.

    Raises:
        RecipeError: a plan is wrong; the message has the line of the target.
    """
    where, graphs, forms = loaded.where("targets", index), loaded.recipe.graphs, target.forms
    if isinstance(forms, str):
        return
    if isinstance(forms, Mapping):
        for name in forms:
            if name not in graphs:
                message = f"{where}: {target.name}: forms: expected the name of a graph, got {name!r}"
                raise RecipeError(message, cure=did_you_mean(name, graphs))
        lacking = next((name for name in graphs if name not in forms), None)
        if lacking is not None:
            message = f"{where}: {target.name}: forms: expected a plan for every graph, got none for {lacking!r}"
            raise RecipeError(message, cure=f"add {lacking}: [] for none")
    for name in graphs:
        rounding = next((variant.name for variant in target.planned(name, lossy=True).plan if variant.made.lossy), None)
        if rounding is not None and loaded.recipe.gates.parity[name].lossy is None:
            raise RecipeError(
                f"{where}: expected gates.parity.{name}.lossy, as {rounding} rounds on purpose, got none",
                cure="say how much may be lost, as in lossy: {max_abs: 0.5, sqnr_db: 25}, or take the form out",
            )
