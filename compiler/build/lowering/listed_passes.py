"""Makes and checks the passes that a recipe lists for a graph, and computes the cache key of each pass's result."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from compiler.errors import RecipeError
from compiler.graph.stages import Pass
from compiler.numerics.quantization.placement import with_placement
from compiler.passes import make_pass, pass_kinds, with_preferred
from compiler.recipe.graph_parts import PassSpec
from compiler.recipe.load import LoadedRecipe
from compiler.recipe.options import make
from compiler.recipe.pass_order import check_order
from compiler.recipe.stage_inputs import PassInputs, key_of
from compiler.targets import placements


def check_passes(loaded: LoadedRecipe) -> None:
    """Construct every pass once, so that a wrong one is reported with its line before anything runs.

    Raises:
        RecipeError: a pass or an option does not exist, has a wrong value, comes before one that must have run, or
            rounds on purpose where the recipe allows no loss.
    """
    kinds = pass_kinds()
    for name, graph in loaded.recipe.graphs.items():
        for index, spec in enumerate(graph.passes):
            where = loaded.where("graphs", name, "passes", index)
            pass_made = make(where, "pass", spec.name, kinds, _options(where, spec))
            if pass_made.lossy and loaded.recipe.gates.parity[name].lossy is None:
                raise RecipeError(
                    f"{where}: expected gates.parity.{name}.lossy, as {spec.name} rounds on purpose, got none",
                    cure="say how much may be lost, as in lossy: {max_abs: 0.5, sqnr_db: 25}",
                )
        check_order(loaded, name, {pass_name: kind.after for pass_name, kind in kinds.items()})


def _options(where: str, spec: PassSpec) -> dict[str, Any]:
    try:
        return with_placement(spec.options, placements())
    except RecipeError as error:
        raise RecipeError(f"{where}: {spec.name}: {error.message}", cure=error.cure) from None


@dataclasses.dataclass(frozen=True)
class PlannedPass:
    """A pass and what follows from its place.

    Attributes:
        made: the pass.
        key: of its result.
        was_rounded: whether a pass before it rounds on purpose: half precision, int8.
    """

    made: Pass
    key: str
    was_rounded: bool

    @property
    def is_rounded(self) -> bool:
        """Whether the graph after the pass is rounded."""
        return self.was_rounded or self.made.lossy


def plan_of(
    key: str, specs: Sequence[PassSpec], preferred: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> list[PlannedPass]:
    """Return every planned pass, in order.

    Args:
        key: key of the first pass's input.
        specs: passes in the recipe.
        preferred: the target's options by pass; the recipe's take precedence.
    """
    plan: list[PlannedPass] = []
    for listed in specs:
        spec = PassSpec(name=listed.name, options=with_preferred(listed.name, listed.options, preferred))
        key = key_of(PassInputs(key, spec))
        was_rounded = bool(plan) and plan[-1].is_rounded
        plan.append(PlannedPass(make_pass(spec.name, spec.options, placements()), key, was_rounded))
    return plan
