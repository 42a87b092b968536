"""Defines the record of one gate's finding: the measurement, its limit, and whether the limit is kept."""

import dataclasses
from collections.abc import Iterable, Mapping

BUILT = "engine"
"""The gate of findings that a vendor's builder has made an engine, which nobody has run."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One promise about one thing.

    Attributes:
        gate: key of the recipe below `gates` without the graph's name, e.g. `parity.max_abs`, or else the gate's name:
            `buckets`, `invariance` and others are in force without being named.
        graph: of the recipe; empty for what concerns the whole bundle.
        subject: the measured thing: a tensor, a bucket; empty for the whole.
        measured: what came; None where it has no number, or was not reached.
        limit: the bound that the recipe sets; None where the promise has no number.
        holds: None where nobody has looked.
        detail: further information for the reader, in one phrase.
        figures: other numbers that were measured beside, by name, for programs.
        is_least: whether the limit is the smallest number that holds, and not the largest.
    """

    gate: str
    graph: str = ""
    subject: str = ""
    measured: float | None = None
    limit: float | None = None
    holds: bool | None = None
    detail: str = ""
    figures: Mapping[str, float | None] = dataclasses.field(default_factory=dict)
    is_least: bool = False

    @property
    def thing(self) -> tuple[str, str, str]:
        """The subject of the finding; of two findings with one subject the later replaces the earlier."""
        return self.gate, self.graph, self.subject

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return "not reached" if self.holds is None else "holds" if self.holds else "FAILS"

    @property
    def limit_words(self) -> str:
        """The limit in words."""
        return "" if self.limit is None else f"{'at least ' if self.is_least else ''}{self.limit:.4g}"

    @property
    def used(self) -> float | None:
        """The used share of an upper limit; None without an upper limit, infinite for NaN."""
        if self.limit is None or self.measured is None or self.is_least:
            return None
        share = self.measured / self.limit if self.limit else (0.0 if self.measured <= 0.0 else float("inf"))
        return share if share == share else float("inf")


def at_most(
    gate: str,
    graph: str = "",
    subject: str = "",
    *,
    limit: float,
    measured: float,
    detail: str = "",
    figures: Mapping[str, float | None] | None = None,
) -> Finding:
    """Return the finding of a promise with an upper limit; NaN violates it."""
    return Finding(gate, graph, subject, measured, limit, measured <= limit, detail, figures or {})


def with_unreached(findings: Iterable[Finding], promised: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, followed by the promises that no finding covers.

    Args:
        findings: the results of gates.
        promised: the promises of the recipe, without measurements.
    """
    found = tuple(findings)
    known = {(each.gate, graph) for each in found for graph in (each.graph, "")}
    return (*found, *(each for each in promised if (each.gate, each.graph) not in known))


def most_urgent_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings: failed ones first, then those not reached, then those that hold; otherwise in order."""
    return sorted(findings, key=lambda each: (each.holds is not False, each.holds is not None))
