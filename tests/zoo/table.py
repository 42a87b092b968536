"""The page docs/generated/zoo.md: every family, what was proved of it, and how close the numbers are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.zoo.family import GROUPS, Family
from tests.zoo.verdicts import PROVED, REFUSED, STUCK, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "generated" / "zoo.md"

INTRODUCTION = """# The zoo

Public architectures in tiny configurations, exported as a user would export them, and what Slipway makes of them.
**Proved** means: padding to any number of slots with one true length per row, and any mixture of rows in one batch,
leave every valid answer of every row as it is when the original runs on that row alone. The proof is made from the
graph; then it is attacked. Rows of random lengths, the smallest and the largest among them, run together in buckets of
three sizes with zeros, NaN, infinities and 1e30 in every free place, with random indices there, and beside rows full of
rubbish. *Error* is the largest difference to the original alone, relative to values above 1; not one bit of a valid
answer may change with what lies in free places or in other rows. *Added* counts the nodes that padding put into the
graph. *Lengths* are the true lengths that were proved, per axis.
**Refused** means that no proof was found, with the first reason: a build stops there.

Weights are random; graphs and constants are those of the architecture. `python -m tests.zoo table` proves, attacks and
writes this page; `python -m tests.zoo export` makes the graphs, with the packages of the extra `zoo`.
"""


def page(families: Sequence[Family], verdicts: Mapping[str, Verdict]) -> str:
    """The text of the page."""
    counts = [sum(verdicts[family.name].result == result for family in families) for result in (PROVED, REFUSED, STUCK)]
    parts = [
        INTRODUCTION,
        f"Of {len(families)} families {counts[0]} are proved, {counts[1]} are refused, and {counts[2]} are not "
        "exported by PyTorch with dynamic axes.\n",
    ]
    for group, title in GROUPS.items():
        chosen = [family for family in families if family.group == group]
        rows = [_row(family, verdicts[family.name]) for family in chosen]
        head = "| family | result | added | lengths | error |\n|---|---|---|---|---|"
        parts.append(f"## {title[0].upper()}{title[1:]}\n\n" + "\n".join([head, *rows]) + "\n")
    return "\n".join(parts)


def _row(family: Family, verdict: Verdict) -> str:
    if verdict.result != PROVED:
        reason = verdict.reason.replace("|", "\\|")
        return f"| {family.name} | {verdict.result}: {reason} | | | |"
    added = f"{verdict.inserted} of {verdict.nodes + verdict.inserted}"
    return f"| {family.name} | {verdict.result} | {added} | {verdict.lengths} | {verdict.error} |"
