"""Defines the type of an entry of the rule table."""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Verdict, refuse

Rule: TypeAlias = Callable[[Case], Verdict]
"""A rule looks at one node and answers with a verdict, or refuses."""


@dataclasses.dataclass(frozen=True)
class Versioned:
    """A rule and the opsets it holds for.

    Attributes:
        rule: the rule.
        since: first opset of its domain.
        until: last opset, or None for all that follow.
        refusal: why the operator is refused by name, or empty when it has a rule.
    """

    rule: Rule
    since: int = 1
    until: int | None = None
    refusal: str = ""

    def covers(self, opset: int) -> bool:
        """Whether the entry holds for an opset."""
        return self.since <= opset and (self.until is None or opset <= self.until)


Table: TypeAlias = dict[tuple[str, str], Rule | Versioned]


def named_refusal(reason: str, cure: str) -> Versioned:
    """Return an entry for an operator that is known and always refused."""

    def rule(case: Case) -> Verdict:
        raise refuse(f"{case.op} {reason}", cure)

    return Versioned(rule, refusal=reason)
