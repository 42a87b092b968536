"""The targets of a recipe, made and checked before anything runs."""

import importlib.metadata

from compiler.errors import RecipeError, Refused, ToolchainAbsent
from compiler.lowering.listed_forms import check_forms
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.options import make
from compiler.targets import TARGETS
from compiler.targets.base import Target


def target_of_recipe(loaded: LoadedRecipe) -> Target:
    """The one target that ships, or else a target that emits nothing.

    Raises:
        RecipeError: a target or an option does not exist or has a wrong value; or one rounds on purpose where the
            recipe does not say how much may be lost.
        Refused: two targets ship.
    """
    targets = [
        make(loaded.where("targets", index), "target", target.kind, TARGETS, target.options)
        for index, target in enumerate(loaded.recipe.targets)
    ]
    for index, target in enumerate(targets):
        check_forms(loaded, target, index)
        _check_rounding(loaded, target, index)
    shipping = [target for target in targets if target.ships]
    if len(shipping) > 1:
        kinds = [target.kind for target in loaded.recipe.targets]
        where = loaded.where("targets", len(loaded.recipe.targets) - 1)
        raise Refused(f"{where}: one bundle holds one target, got {kinds}", cure="write one recipe per target")
    return shipping[0] if shipping else targets[0]


def _check_rounding(loaded: LoadedRecipe, target: Target, index: int) -> None:
    for name, gate in loaded.recipe.gates.parity.items():
        if target.rounds and gate.lossy is None:
            where = loaded.where("targets", index)
            raise RecipeError(
                f"{where}: expected gates.parity.{name}.lossy, as {target.name} rounds on purpose, got none",
                cure="say how much may be lost, as in lossy: {max_abs: 0.5, sqnr_db: 25}",
            )


def missing_packages(target: type[Target]) -> tuple[str, ...]:
    """Distributions that a build for a target needs and this machine lacks."""
    return tuple(package for package in target.packages if not _is_installed(package))


def require_packages(target: Target) -> None:
    """Refuse a target whose artefacts nothing on this machine runs.

    Raises:
        ToolchainAbsent: names what is missing.
    """
    missing = missing_packages(type(target))
    if missing:
        cures = [part.cure for part in target.parts() if part.cure]
        raise ToolchainAbsent(
            f"target {target.name}: expected the packages that verify what it writes, got none of {', '.join(missing)}",
            cure=cures[0] if cures else f"pip install {' '.join(missing)}",
        )


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
