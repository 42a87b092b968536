"""Forms are passes that a target may apply to graphs with fixed sizes; a plan lists those that are on.

A form changes how fast a graph is, not what it says. A target lists what it offers in the order in which it runs.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import RecipeError
from compiler.graph.stages import Pass

STANDARD = "standard"
"""The plan of the forms that have been measured to win."""

SEARCH = "search"
"""The plan that is found by measuring on the machine that builds."""

Choice = str | tuple[str, ...] | Mapping[str, tuple[str, ...]]
"""A plan as recipes write it: a word, the names of forms, or those of each graph."""


@dataclasses.dataclass(frozen=True)
class Form:
    """One form that a target offers.

    Attributes:
        made: the pass, with its options.
        variant: tells apart forms that are one pass with other options; empty where it is offered once.
        is_standard: whether it wins on the machines that it was measured on, and is on unless a recipe says otherwise.
    """

    made: Pass
    variant: str = ""
    is_standard: bool = False

    @property
    def name(self) -> str:
        """Return the name in plans: `pass` or `pass.variant`."""
        return f"{self.made.name}.{self.variant}" if self.variant else self.made.name


def names_of(choice: Choice, offers: Sequence[Form], graph: str, *, lossy: bool) -> tuple[str, ...]:
    """Return the names of the forms that are on for one graph, in the order of the target.

    Args:
        choice: the recipe's choice.
        offers: the target's forms.
        graph: the graph's name.
        lossy: whether its parity gate allows a loss; otherwise no standard form may round.
    """
    if isinstance(choice, str):
        return tuple(form.name for form in offers if form.is_standard and (lossy or not form.made.lossy))
    listed = choice[graph] if isinstance(choice, Mapping) else choice
    return tuple(form.name for form in offers if form.name in listed)


def require_known(choice: Choice, offers: Sequence[Form]) -> None:
    """Refuse a plan with a form that is not offered, or with one twice.

    Raises:
        RecipeError: the message names the form and the closest offered one.
    """
    if isinstance(choice, str):
        if choice not in (STANDARD, SEARCH):
            offered = ", ".join(form.name for form in offers)
            cure = f"{did_you_mean(choice, [STANDARD, SEARCH])}; or list forms of [{offered}]"
            raise RecipeError(f"forms: expected {STANDARD}, {SEARCH} or a list, got {choice!r}", cure=cure)
        return
    for listed in choice.values() if isinstance(choice, Mapping) else [choice]:
        _require_listed(listed, [form.name for form in offers])


def _require_listed(listed: Sequence[str], known: Collection[str]) -> None:
    for place, name in enumerate(listed):
        if name not in known:
            raise RecipeError(f"forms: expected the name of a form, got {name!r}", cure=did_you_mean(name, known))
        if name in listed[:place]:
            raise RecipeError(f"forms: expected each form once, got {name!r} again", cure="list it once")
