"""Defines variants, the optional passes of a target for graphs of fixed sizes, and reads the choice of a recipe.

A variant changes how fast a graph is, not what it says. A target lists what it offers in the order in which it runs.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.graph.stages import Pass

STANDARD = "standard"
"""The plan of the variants that have been measured to win."""

SEARCH = "search"
"""The plan that is found by measuring on the machine that builds."""

Choice = str | tuple[str, ...] | Mapping[str, tuple[str, ...]]
"""A plan as recipes write it: a word, the names of variants, or those of each graph."""


@dataclasses.dataclass(frozen=True)
class Variant:
    """One variant that a target offers.

    Attributes:
        made: the pass, with its options.
        suffix: distinguishes variants that are one pass with other options; empty where it is offered once.
        is_standard: whether it is faster on the measured machines; it is then on unless a recipe turns it off.
    """

    made: Pass
    suffix: str = ""
    is_standard: bool = False

    @property
    def name(self) -> str:
        """Return the name in plans: `pass` or `pass.suffix`."""
        return f"{self.made.name}.{self.suffix}" if self.suffix else self.made.name


def names_of(choice: Choice, offers: Sequence[Variant], graph: str, *, lossy: bool) -> tuple[str, ...]:
    """Return the names of the variants that are on for one graph, in the order of the target.

    Args:
        choice: the recipe's choice.
        offers: the target's forms.
        graph: the graph's name.
        lossy: whether its parity gate allows a loss; otherwise no standard variant may round.
    """
    if isinstance(choice, str):
        return tuple(variant.name for variant in offers if variant.is_standard and (lossy or not variant.made.lossy))
    listed = choice[graph] if isinstance(choice, Mapping) else choice
    return tuple(variant.name for variant in offers if variant.name in listed)


def require_known(choice: Choice, offers: Sequence[Variant]) -> None:
    """Refuse a plan with a variant that is not offered, or with one twice.

    Raises:
        RecipeError: the message names the variant and the closest offered one.
    """
    if isinstance(choice, str):
        if choice not in (STANDARD, SEARCH):
            offered = ", ".join(variant.name for variant in offers)
            cure = f"{did_you_mean(choice, [STANDARD, SEARCH])}; or list forms of [{offered}]"
            raise RecipeError(f"forms: expected {STANDARD}, {SEARCH} or a list, got {choice!r}", cure=cure)
        return
    for listed in choice.values() if isinstance(choice, Mapping) else [choice]:
        _require_listed(listed, [variant.name for variant in offers])


def _require_listed(listed: Sequence[str], known: Collection[str]) -> None:
    for place, name in enumerate(listed):
        if name not in known:
            raise RecipeError(f"forms: expected the name of a form, got {name!r}", cure=did_you_mean(name, known))
        if name in listed[:place]:
            raise RecipeError(f"forms: expected each form once, got {name!r} again", cure="list it once")
