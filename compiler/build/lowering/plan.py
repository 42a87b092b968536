"""Plans how one graph becomes artefacts of a target: its passes, its variants, and the cache keys of their results."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from compiler.base.records.searches import Search
from compiler.build.capture.original import Original
from compiler.build.lowering.kept_passes import KeptPasses
from compiler.build.lowering.listed_passes import PlannedPass, plan_of
from compiler.build.lowering.pass_parity import PassParity
from compiler.build.report.progress import Progress
from compiler.recipe.gates import ParityGate
from compiler.recipe.stage_inputs import SearchInputs, TargetInputs, key_of
from compiler.targets.base import Target


@dataclasses.dataclass(frozen=True, eq=False)
class LoweringPlan:
    """The plan of one graph for one target.

    Attributes:
        original: the captured graph and the reference.
        target: what the graph is lowered to, with its variants for this graph written out once these are known.
        gate: the graph's parity gate, with the limits of this target.
        passes: the passes, in order.
        key: of the graph after the passes.
        search_key: of a search for variants.
        kept: results of earlier builds.
        parity: compares the graph after a pass with the original.
        searched: how the variants were found by measuring, where the recipe asks for that.
    """

    original: Original
    target: Target
    gate: ParityGate
    passes: tuple[PlannedPass, ...]
    key: str
    search_key: str
    kept: KeptPasses
    parity: PassParity
    searched: Search | None = None

    @property
    def name(self) -> str:
        """Return the graph's name."""
        return self.original.name

    @property
    def buckets(self) -> Mapping[str, tuple[int, ...]]:
        """Return the sizes by bucketed axis."""
        return self.original.buckets

    @property
    def progress(self) -> Progress:
        """Return what shows the stages."""
        return self.original.progress

    @property
    def target_key(self) -> str:
        """Return the key of the artefacts."""
        return key_of(TargetInputs(self.key, self.target.name, repr(self.target), self.buckets))

    @property
    def is_rounded(self) -> bool:
        """Whether a pass, a variant or the target rounds on purpose: half precision, int8."""
        is_rounded = bool(self.passes) and self.passes[-1].is_rounded
        return is_rounded or self.target.rounds or any(variant.made.lossy for variant in self.target.plan)

    def is_known(self) -> bool:
        """Whether the reports on all passes, the variants and the artefacts are in the cache."""
        if self.target.searches:
            return False
        return all(map(self.kept.knows, (*(planned.key for planned in self.passes), self.target_key)))

    def with_search(self, search: Search) -> Self:
        """Return the plan with the variants that a search has found."""
        return dataclasses.replace(self, target=self.target.with_plan(search.plan), searched=search)


def plan_lowering(original: Original, target: Target, gate: ParityGate, failures: Path | None = None) -> LoweringPlan:
    """Plan the passes of a graph, and its variants where they need not be searched, or were by an earlier build.

    Args:
        original: the captured graph and the reference.
        target: the target that the graph is lowered to.
        gate: the parity gate of what the target writes.
        failures: folder for the reproducer of a gate that fails, or None.
    """
    key = key_of(original.lowering_inputs())
    passes = tuple(plan_of(key, original.passes, target.pass_options))
    last = passes[-1].key if passes else key
    plan = LoweringPlan(
        original=original,
        target=target.planned(original.name, lossy=gate.lossy is not None),
        gate=gate,
        passes=passes,
        key=last,
        search_key=key_of(SearchInputs(last, target.name, repr(target), original.buckets)),
        kept=KeptPasses(original),
        parity=PassParity(original, failures),
    )
    earlier = plan.kept.search(plan.search_key) if plan.target.searches else None
    return plan if earlier is None else plan.with_search(earlier)
