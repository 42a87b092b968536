"""The mutation test of derived steps: what weakens a condition must be noticed by some random stateless graph.

`python -m tests.property.mutate_derivation --limit 100` changes one constant, comparison, condition, operator or sign
at a time in what says of a graph that steps may be derived, and tries each change on random graphs that execute it
(`tests.property.derived_steps`): streams of every kind, and as many that are none. Caught is a graph whose steps answer
otherwise than the whole of it, whose certificate the checker does not follow, or that ends in an error. A change is
stricter by which graphs are refused, or their streams end that went on. Of what the graphs miss, it is told apart what
the module's own tests notice.
"""

import argparse
import collections
import dataclasses
import hashlib
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from compiler.errors import Refused
from compiler.proof.derivation.derive import derive
from tests.kit.whole_sequences import LARGEST, Drawing, whole_graph
from tests.property.corpus import ROOT, Line, Tracer, written_by
from tests.property.derived_steps import KINDS, tried
from tests.property.equivalent import EQUIVALENT
from tests.property.mutate import DERIVATION, MISSED, Tried, chosen, seen_share, share, table, with_part
from tests.property.mutate_streams import is_noticed_by_tests
from tests.property.mutations import Mutation, Stillborn, mutations_of, plant
from tests.property.trial import Result, in_child

CONDITIONS = (
    "compiler/graph/axis_map.py", "compiler/proof/derivation/any_length.py",
    "compiler/proof/derivation/contents.py", "compiler/proof/derivation/dependence.py",
    "compiler/proof/derivation/judging.py", "compiler/proof/derivation/masks.py",
    "compiler/proof/derivation/other_sizes.py", "compiler/proof/derivation/placed.py",
    "compiler/proof/derivation/prefixes.py", "compiler/proof/derivation/reading.py",
    "compiler/proof/derivation/regrouping.py", "compiler/proof/derivation/shifted_scores.py",
    "compiler/proof/derivation/spans.py",
)  # fmt: skip
"""What says whether steps may be derived, and what every value reads."""

MOST = 12
"""Graphs that one change is tried on, of those of several layers."""

SMALL = ("spelled", "operators")
"""Kinds whose graphs have one layer or none: of these, more are drawn."""

MOST_SMALL = 60
"""Of these that one change is tried on, before the others."""

SECONDS = 300
"""After which one change is taken not to end."""

INTRODUCTION = """The conditions under which steps are derived of a graph over whole sequences are mutated in the same
way, and tried on random stateless graphs (`tests/property/derived_steps.py`), half of them no streams: caught is a
graph whose steps answer otherwise than the whole of it, whose certificate the checker does not follow, or that ends in
an error.
"""

CAUGHT_BY = {"unsound": "comparison", "disputed": "checker"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a graph.

    Attributes:
        written: a digest of the steps and their certificate; empty where they are refused.
        is_endless: whether their streams go on without end.
    """

    written: bytes = b""
    is_endless: bool = False


@dataclasses.dataclass(frozen=True)
class Attack:
    """A stateless graph, what became of it, and what it executes.

    Attributes:
        drawing: of the graph.
        kind: of which it is.
        outcome: what became of it.
        lines: what is executed of what is mutated.
    """

    drawing: Drawing
    kind: str
    outcome: "Outcome"
    lines: frozenset[Line]


def look(drawing: Drawing) -> Outcome:
    """Derive steps of a graph."""
    try:
        derived = derive(
            whole_graph(drawing), "time", "past", drawing.longest, LARGEST, drawing.chunk,
            forget=drawing.forgets,
        )  # fmt: skip
    except Refused:
        return Outcome()
    claimed = {key: told for key, told in derived.certificate.items() if key != "why_it_ends"}  # a text for people
    digest = written_by(derived.model) + hashlib.sha256(repr(claimed).encode()).digest()
    return Outcome(digest, any(each.is_count for each in derived.cached))


def attack_of(drawing: Drawing, kind: str) -> Attack:
    """A graph with what it executes of the conditions."""
    tracer = Tracer({str(ROOT / name): name for name in CONDITIONS})
    with tracer.on():
        outcome = look(drawing)
    return Attack(drawing, kind, outcome, frozenset(tracer.lines))


def harvest(count: int) -> list[Attack]:
    """Graphs of every kind; half of them are spoiled."""
    found = []
    for kind, of in KINDS.items():
        seeds = range(2 * count if kind in SMALL else count if kind == "frames" else count // 4)
        found += [attack_of(of(seed, spoiled=seed % 2 == 1), kind) for seed in seeds]
    return found


def attacked(mutation: Mutation, attacks: Sequence[Attack]) -> Result:
    """Plant a change and try the attacks. To be called in a process that ends afterwards."""
    result = Result(reached=len(attacks))
    try:
        plant(mutation)
    except Stillborn:
        return Result(stillborn=True)
    for attack in attacks:
        try:
            outcome = look(attack.drawing)
            found = None if outcome == attack.outcome else tried(attack.drawing)
        except Exception as error:  # noqa: BLE001 - whatever stops the derivation is noticed
            result.changed += 1
            result.caught("crash", f"{attack.drawing}: {type(error).__name__}: {error}")
            break
        if found is None:
            continue
        result.changed += 1
        if found.verdict in CAUGHT_BY:
            result.caught(CAUGHT_BY[found.verdict], f"{attack.drawing}: {found.detail}")
            break
        result.stricter += found.verdict == "refused" or (attack.outcome.is_endless and not outcome.is_endless)
    return result


def tried_on(mutation: Mutation, attacks: Sequence[Attack], seed: int) -> Tried:
    """What becomes of a change on the attacks that execute it."""
    wanted = {(mutation.module, line) for line in range(mutation.line, mutation.last + 1)}
    reaching = [each for each in attacks if not wanted.isdisjoint(each.lines)]
    random = np.random.default_rng(seed)
    mixed = [reaching[at] for at in random.permutation(len(reaching))]
    small = [each for each in mixed if each.kind in SMALL][:MOST_SMALL]
    small.sort(key=lambda each: not each.drawing.spoiler)  # what must not be derived catches most, and ends the trial
    others = [each for each in mixed if each.kind not in SMALL][:MOST]
    result = in_child(lambda: attacked(mutation, [*small, *others]), SECONDS)
    return Tried(mutation.module, mutation.key, mutation.line, result)


def told(found: Sequence[Tried], noticed: Collection[str], command: str) -> str:
    """The page's part on derivation, in Markdown."""
    left = [each for each in found if each.outcome in MISSED]
    lines = [DERIVATION, "", f"Written by `{command}`.", "", INTRODUCTION, table(found), seen_share(found), ""]
    lines += [f"Of the {len(left)} that were missed, {len(noticed)} fail a test of their module. The others:", ""]
    rest = [each for each in left if each.name not in noticed]
    lines += [f"- `{each.name}` (line {each.line}): {each.outcome}, {each.result.reached} graphs." for each in rest]
    same = [each for each in found if each.outcome == "equivalent"]
    lines += [f"- `{each.name}`: equal, {EQUIVALENT[each.name]}" for each in same]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate and report; 1 when less than the wanted share is caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.mutate_derivation", description=__doc__)
    parser.add_argument("--limit", type=int, help="mutants; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--graphs", type=int, default=60)
    parser.add_argument("--only", nargs="*", default=[*CONDITIONS], help="modules")
    parser.add_argument("--write", type=Path, help="the page whose part on derivation is written")
    parser.add_argument("--least", type=float, default=0.0, help="share that has to be caught")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    attacks = harvest(given.graphs)
    print(f"{time.monotonic() - started:.0f} s: {len(attacks)} attacks", flush=True)
    print(collections.Counter("refused" if not each.outcome.written else "derived" for each in attacks), flush=True)
    mutants = chosen([each for name in given.only for each in mutations_of(name)], given.limit, given.seed)
    found = []
    for mutation in mutants:
        found.append(tried_on(mutation, attacks, given.seed))
        last = found[-1]
        print(f"{last.outcome}: {last.name} (line {last.line}) {last.result.by} {last.result.detail}", flush=True)
    missed = {each.name for each in found if each.outcome in MISSED}
    noticed = {each.key for each in mutants if each.key in missed and is_noticed_by_tests(each)}
    given_words = " ".join(arguments if arguments is not None else sys.argv[1:])
    page = told(found, noticed, f"python -m tests.property.mutate_derivation {given_words}".strip())
    print(page)
    if given.write is not None:
        text = given.write.read_text(encoding="utf-8")
        given.write.write_text(with_part(text, DERIVATION, page), encoding="utf-8")
    print(f"{time.monotonic() - started:.0f} s: {100 * share(found):.1f} % caught")
    return 0 if share(found) >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
