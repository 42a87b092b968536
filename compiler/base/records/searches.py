"""Defines the record of a search for the fastest variants of a graph: all measurements, and the chosen variants."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.base.records.timings import Comparison, Ratio


@dataclasses.dataclass(frozen=True)
class Trial:
    """One candidate on top of a plan.

    Attributes:
        candidate: its name.
        plan: the other variants that were switched on in the trial.
        verdict: `kept`, or why not.
        compared: with it to without; None where it was not measured.
        noise_db: signal over noise with it, in dB, of a candidate that rounds.
    """

    candidate: str
    plan: tuple[str, ...]
    verdict: str
    compared: Comparison | None = None
    noise_db: float | None = None

    @property
    def noise(self) -> str:
        """The noise in decibels as text; empty where it was not measured."""
        return "" if self.noise_db is None else f"{self.noise_db:.1f}"


@dataclasses.dataclass(frozen=True)
class Search:
    """A search for one graph.

    Attributes:
        graph: its name.
        plan: the variants that are switched on.
        trials: in the order in which they ran.
        total: the plan to no candidate at all; None where it is empty.
        machine: the processor with its abilities, and what ran the graphs.
        seconds: that the search took.
    """

    graph: str
    plan: tuple[str, ...]
    trials: tuple[Trial, ...]
    total: Comparison | None
    machine: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the search as plain data, for the stage cache."""
        return dataclasses.asdict(self)

    def rows(self) -> "list[tuple[str, ...]]":
        """Return a row of texts for each trial, and one for the plan; `HEADS` are the titles of the columns."""
        told = [
            (
                self.graph,
                trial.candidate,
                ", ".join(trial.plan) or "none",
                *_figures(trial.compared),
                trial.noise,
                trial.verdict,
            )
            for trial in self.trials
        ]
        whole = (self.graph, "the plan", "none", *_figures(self.total), "", ", ".join(self.plan) or "no form")
        return [*told, whole]


HEADS = ("graph", "form", "on top of", "[ratio (p10..p90)]", "[both buckets]", "[saved ms]", "[SQNR dB]", "")


def _figures(compared: Comparison | None) -> tuple[str, str, str]:
    """Return as texts the buckets, the ratio over all buckets with its interval, and the milliseconds saved."""
    if compared is None:
        return "", "", ""
    both = compared.together
    saved = ", ".join(f"{each:.3g}" for each in compared.saved_ms)
    return ", ".join(map(str, compared.buckets)), f"{both.median:.3f} within {both.least:.3f}..{both.most:.3f}", saved


def search_of(content: Mapping[str, Any]) -> Search:
    """Return the search that `Search.to_json` wrote."""
    trials = tuple(
        Trial(**{**each, "plan": tuple(each["plan"]), "compared": _comparison(each["compared"])})
        for each in content["trials"]
    )
    own = {"plan": tuple(content["plan"]), "trials": trials, "total": _comparison(content["total"])}
    return Search(**{**content, **own})


def _comparison(content: Mapping[str, Any] | None) -> Comparison | None:
    if content is None:
        return None
    buckets = tuple(Ratio(**each) for each in content["buckets"])
    return Comparison(buckets, Ratio(**content["together"]), tuple(content["saved_ms"]))


def pinned(searches: Sequence[Search]) -> str:
    """Return the recipe's line that pins the plans found, so that builds on all machines use them."""
    plans = [f"[{', '.join(each.plan)}]" for each in searches]
    if len(plans) == 1:
        return f"forms: {plans[0]}"
    return f"forms: {{{', '.join(f'{each.graph}: {plan}' for each, plan in zip(searches, plans, strict=True))}}}"
