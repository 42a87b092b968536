"""Makes and checks the targets of a recipe before anything runs."""

import dataclasses
import importlib.metadata
import re
from collections.abc import Sequence

from compiler.base.did_you_mean import did_you_mean
from compiler.build.lowering.listed_forms import check_variants
from compiler.errors import RecipeError, ToolchainAbsent
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.options import make
from compiler.targets import TARGETS
from compiler.targets.base import Target


@dataclasses.dataclass(frozen=True)
class ListedTarget:
    """A target that a bundle is built for.

    Attributes:
        index: its place among the recipe's targets.
        label: distinguishes it from the other targets: its name, and the options in which targets of that name differ.
        target: made from it.
    """

    index: int
    label: str
    target: Target


def targets_of_recipe(loaded: LoadedRecipe) -> tuple[ListedTarget, ...]:
    """Return the targets that ship, in the order of the recipe, or else one that emits nothing.

    Raises:
        RecipeError: a target or an option does not exist or has a wrong value; one rounds on purpose and the recipe has
            no limit for the loss; one takes ranges from data and the recipe has none; one is listed twice; or there are
            limits of a target that is not listed.
    """
    targets = [
        make(loaded.where("targets", index), "target", target.kind, TARGETS, target.options)
        for index, target in enumerate(loaded.recipe.targets)
    ]
    labels = [_label(targets, index) for index in range(len(targets))]
    _check_limits(loaded, labels)
    for index, target in enumerate(targets):
        limited = loaded.with_limits_of(labels[index])
        check_variants(limited, target, index)
        _check_rounding(limited, target, index)
        _check_calibration(loaded, target, index)
        if target in targets[:index]:
            where = loaded.where("targets", index)
            raise RecipeError(
                f"{where}: expected each target once, got {target.name} as in targets.{targets.index(target)}",
                cure="take one out, or change an option",
            )
    shipping = [index for index, target in enumerate(targets) if target.ships] or [0]
    return tuple(ListedTarget(index, labels[index], targets[index]) for index in shipping)


def _label(targets: Sequence[Target], index: int) -> str:
    """Return a target's folder name: its name where that is unique, else followed by its own options' values."""
    target = targets[index]
    alike = [each for each in targets if each.name == target.name and each != target]
    fields = [field.name for field in dataclasses.fields(target)]
    differing = [name for name in fields if any(getattr(each, name) != getattr(target, name) for each in alike)]
    values = [re.sub(r"[^A-Za-z0-9.]+", "_", str(getattr(target, name))).strip("_") for name in differing]
    return "-".join([target.name, *values])


def _check_limits(loaded: LoadedRecipe, labels: Sequence[str]) -> None:
    for name, gate in loaded.recipe.gates.parity.items():
        unknown = next((label for label in gate.targets or () if label not in labels), None)
        if unknown is not None:
            raise RecipeError(
                f"{loaded.where('gates', 'parity', name, 'targets', unknown)}: expected one of the recipe's targets "
                f"({', '.join(labels)}), got {unknown!r}",
                cure=did_you_mean(unknown, labels),
            )


def _check_rounding(loaded: LoadedRecipe, target: Target, index: int) -> None:
    for name, gate in loaded.recipe.gates.parity.items():
        if target.rounds and gate.lossy is None:
            where = loaded.where("targets", index)
            raise RecipeError(
                f"{where}: expected gates.parity.{name}.lossy, as {target.name} rounds on purpose, got none",
                cure="say how much may be lost, as in lossy: {max_abs: 0.5, sqnr_db: 25}",
            )


def _check_calibration(loaded: LoadedRecipe, target: Target, index: int) -> None:
    if target.calibrates and loaded.recipe.data.calibration is None:
        where = loaded.where("targets", index)
        raise RecipeError(
            f"{where}: expected data.calibration, as {target.name} takes ranges of values from it, got none",
            cure="name a generator of streams under data.calibration, of recordings that have no other role",
        )


def missing_packages(target: type[Target]) -> tuple[str, ...]:
    """Return the distributions that a build for a target needs and this machine lacks."""
    return tuple(package for package in target.packages if not _is_installed(package))


def require_packages(target: Target) -> None:
    """Refuse a target whose artefacts cannot be run on this machine.

    Raises:
        ToolchainAbsent: packages are missing; the message names them.
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
