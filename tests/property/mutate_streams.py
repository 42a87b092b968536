"""The mutation test of streams: what weakens what carries states must be noticed by some random step graph.

`python -m tests.property.mutate_streams --limit 100` changes one constant, comparison, condition, operator or sign at a
time, and tries each change on the step graphs that execute it. Caught is what the checker does not follow, what answers
otherwise than the author's loop or shows poison, and what ends in an error. A change of the checker itself is caught
where a weakness that was planted into the prover, or a forged certificate, is no longer noticed. Of what the graphs
miss, it is told apart what the module's own tests notice.
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import itertools
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pydantic
import pytest

from compiler.errors import GateFailed, RecipeError, Refused
from compiler.graph.runners.stream import expected_states
from compiler.graph.stages import Lowered
from tests.property.corpus import ROOT, Line, Tracer, written_by
from tests.property.forged_streams import Claim, claims_of, forged
from tests.property.mutate import MISSED, STREAMS, Tried, chosen, seen_share, share, table, with_part
from tests.property.mutations import Mutation, Stillborn, mutations_of, plant
from tests.property.planted_streams import PLANTED
from tests.property.stream_graphs import feeds_of
from tests.property.stream_grower import Grown
from tests.property.streams import (
    AuthorsLoop,
    Disagreement,
    Undefined,
    Unsound,
    compare,
    drawn,
    lowered_of,
    sessions_of,
)
from tests.property.trial import Result, in_child

CARRYING = (
    "compiler/states/streaming/stable.py", "compiler/states/streaming/state_network.py",
    "compiler/states/streaming/carrying_cut.py", "compiler/passes/window_states.py", "compiler/passes/pad_axes.py",
    "compiler/passes/select_states.py", "compiler/passes/merge_first_call.py", "compiler/passes/add_batch_axis.py",
    "compiler/build/capture/initial_graph.py", "compiler/states/kept_frames.py", "compiler/build/capture/counts.py",
    "compiler/proof/padding/outputs.py",
    "compiler/proof/padding/padded_graph.py",
    "compiler/proof/padding/lowerings/newest.py",
)  # fmt: skip
"""What carries states and lets chunks be short."""

CHECKING = (
    "compiler/checker/slots.py", "compiler/checker/replay.py", "compiler/checker/check.py",
    "compiler/checker/states.py",
)  # fmt: skip
"""What follows the certificates of streams."""

NOTICED = "a test fails"

MOST = 25
"""Graphs that one change is tried on."""

CERTIFIED = (0, 1, 3, 4, 6, 17)
"""Seeds of graphs whose certificates are forged."""

FORGED, ALIKE = 200, 8
"""Forgeries of every certificate that are looked at, and how many are kept that are refused at one place."""

SHOWING = (0, 3, 4, 17, 35, 164)
"""Seeds of graphs in which the checker notices planted weaknesses."""

SECONDS = 300
"""After which one change is taken not to end."""

INTRODUCTION = """What carries states, lets chunks be short and follows their proofs is mutated in the same way, and
tried on random step graphs (`tests/property/streams.py`): caught is what the checker does not follow, what answers
otherwise than the author's loop or shows poison, and what ends in an error. A change of the checker is caught where a
weakness that was planted into the prover, or a forged certificate (`tests/property/forged_streams.py`), is no longer
noticed. Most changes of these modules choose otherwise what is
cached, or concern a form of model that few graphs have.
"""


@dataclasses.dataclass(frozen=True)
class Attack:
    """A step graph, what became of it, and what it executes.

    Attributes:
        seed: of the graph.
        weakness: what is planted into the prover; nothing for a graph that is lowered as it should be.
        kind: `lowered`, `refused` or `disagreement`.
        written: a digest of the lowered graph and its record.
        lines: what is executed of what is mutated.
        forged: a certificate that the checker refuses; none where the graph is lowered.
    """

    seed: int
    weakness: str
    kind: str
    written: bytes
    lines: frozenset[Line]
    forged: Claim | None = None


def look(seed: int, weakness: str = "") -> tuple[str, bytes, Lowered | None]:
    """What becomes of a graph in front of any comparison, a digest of it, and its record."""
    with PLANTED[weakness]() if weakness else contextlib.nullcontext():
        try:
            grown = drawn(seed)
            lowered = lowered_of(grown)
        except (Refused, RecipeError, pydantic.ValidationError):
            return "refused", b"", None
        except Disagreement:
            return "disagreement", b"", None
    record = repr((lowered.states, lowered.caches, lowered.padded_axes, lowered.batch_axis, lowered.data_outputs))
    told = record.encode() + _carried(grown, lowered)
    return "lowered", written_by(lowered.model) + hashlib.sha256(told).digest(), lowered


def _carried(grown: Grown, lowered: Lowered) -> bytes:
    """What is carried behind one call, and in front of all, of the states of the author's loop."""
    loop = AuthorsLoop(grown, sessions_of(grown))
    found = [expected_states(lowered, loop.states)]
    with contextlib.suppress(Undefined):
        loop.push(feeds_of(grown, np.random.default_rng(0), 1)[0])
        found.append(expected_states(lowered, loop.states))
    return b"".join(array.tobytes() for states in found for array in states.values())


def attack_of(seed: int, files: Sequence[str], weakness: str = "") -> Attack:
    """A graph with what it executes of some files."""
    tracer = Tracer({str(ROOT / name): name for name in files})
    with tracer.on():
        kind, written, _ = look(seed, weakness)
    return Attack(seed, weakness, kind, written, frozenset(tracer.lines))


def harvest(seeds: Sequence[int]) -> list[Attack]:
    """Graphs of some seeds; and for every planted weakness the first that the checker notices."""
    found = [attack_of(seed, (*CARRYING, *CHECKING)) for seed in seeds]
    for weakness in PLANTED:
        tried = (attack_of(seed, CHECKING, weakness) for seed in SHOWING)
        found += itertools.islice((each for each in tried if each.kind == "disagreement"), 1)
    return [*found, *forgeries(CERTIFIED)]


def forgeries(seeds: Sequence[int]) -> list[Attack]:
    """Forged certificates that the checker refuses, a few for every place where it does."""
    found: list[Attack] = []
    refused: collections.Counter[str] = collections.Counter()
    for seed in seeds:
        for claim in claims_of(seed):
            for kind, each in forged(claim, seed, FORGED):
                place = each.rejected_at()
                refused[place] += 1
                if place and refused[place] <= ALIKE:
                    found.append(_forged_attack(seed, kind, each))
    return found


def _forged_attack(seed: int, kind: str, claim: Claim) -> Attack:
    tracer = Tracer({str(ROOT / name): name for name in CHECKING})
    with tracer.on():
        claim.rejected_at()
    return Attack(seed, f"forged: {kind}", "refused", b"", frozenset(tracer.lines), claim)


def attacked(mutation: Mutation, attacks: Sequence[Attack]) -> Result:
    """Plant a change and try the attacks. To be called in a process that ends afterwards."""
    result = Result(reached=len(attacks))
    try:
        plant(mutation)
    except Stillborn:
        return Result(stillborn=True)
    for attack in attacks:
        try:
            kind, written, lowered = _again(attack)
        except Exception as error:  # noqa: BLE001 - whatever stops the compiler is noticed
            result.changed += 1
            result.caught("crash", f"seed {attack.seed}: {type(error).__name__}: {error}")
            break
        if (kind, written) == (attack.kind, attack.written):
            continue
        result.changed += 1
        if attack.weakness:
            result.caught("attack", f"seed {attack.seed}: {attack.weakness} is not noticed")
        elif kind == "disagreement":
            result.caught("checker", f"seed {attack.seed}")
        elif lowered is None:
            result.stricter += 1
        else:
            _compare(attack, lowered, result)
        if result.by:
            break
    return result


def _again(attack: Attack) -> tuple[str, bytes, Lowered | None]:
    if attack.forged is None:
        return look(attack.seed, attack.weakness)
    return "refused" if attack.forged.rejected_at() else "followed", b"", None


def _compare(attack: Attack, lowered: Lowered, result: Result) -> None:
    """Follow a graph that is lowered otherwise."""
    try:
        compare(drawn(attack.seed), lowered, np.random.default_rng(attack.seed + 1), is_served=False)
    except (Unsound, GateFailed) as failed:
        result.caught("comparison", f"seed {attack.seed}: {failed}")
    except (Undefined, Refused):
        result.stricter += 1
    except Exception as error:  # noqa: BLE001 - a graph that does not run was written by the mutant
        result.caught("crash", f"seed {attack.seed}: {type(error).__name__}: {error}")


def tried(mutation: Mutation, attacks: Sequence[Attack], seed: int) -> Tried:
    """What becomes of a change on the attacks that execute it."""
    wanted = {(mutation.module, line) for line in range(mutation.line, mutation.last + 1)}
    reaching = [each for each in attacks if not wanted.isdisjoint(each.lines)]
    if mutation.module in CHECKING:  # a graph that is right shows nothing of a checker that lets more pass
        reaching = [each for each in reaching if each.weakness]
    order = np.random.default_rng(seed).permutation(len(reaching))[: MOST if mutation.module not in CHECKING else None]
    result = in_child(lambda: attacked(mutation, [reaching[at] for at in order]), SECONDS)
    return Tried(mutation.module, mutation.key, mutation.line, result)


def is_noticed_by_tests(mutation: Mutation) -> bool:
    """Whether a test of the module's own fails with a change."""
    folder, _, file = mutation.module.rpartition("/")
    path = ROOT / "tests" / folder / f"test_{file}"

    def run() -> Result:
        result = Result(reached=1)
        plant(mutation)
        if pytest.main([str(path), "-q", "-x", "-p", "no:cacheprovider"]) == pytest.ExitCode.TESTS_FAILED:
            result.caught("crash", NOTICED)
        return result

    return path.exists() and in_child(run, SECONDS).detail == NOTICED


def told(found: Sequence[Tried], noticed: Collection[str], command: str) -> str:
    """The page's part on streams, in Markdown."""
    left = [each for each in found if each.outcome in MISSED]
    lines = [STREAMS, "", f"Written by `{command}`.", "", INTRODUCTION, table(found), seen_share(found), ""]
    lines += [f"Of the {len(left)} that were missed, {len(noticed)} fail a test of their module. The others:", ""]
    rest = [each for each in left if each.name not in noticed]
    lines += [f"- `{each.name}` (line {each.line}): {each.outcome}, {each.result.reached} attacks." for each in rest]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate and report; 1 when less than the wanted share is caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.mutate_streams", description=__doc__)
    parser.add_argument("--limit", type=int, help="mutants; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[*CARRYING, *CHECKING], help="modules")
    parser.add_argument("--write", type=Path, help="the page whose part on streams is written")
    parser.add_argument("--least", type=float, default=0.0, help="share that has to be caught")
    given = parser.parse_args(arguments)
    started = time.monotonic()
    plain, started_apart = range(given.graphs), range(9, 10 * (given.graphs // 4), 10)
    attacks = harvest(sorted({*plain, *started_apart}))
    print(f"{time.monotonic() - started:.0f} s: {len(attacks)} attacks", flush=True)
    print(collections.Counter(each.kind for each in attacks), flush=True)
    mutants = chosen([each for name in given.only for each in mutations_of(name)], given.limit, given.seed)
    found = []
    for mutation in mutants:
        found.append(tried(mutation, attacks, given.seed))
        last = found[-1]
        print(f"{last.outcome}: {last.name} (line {last.line}) {last.result.by} {last.result.detail}", flush=True)
    missed = {each.name for each in found if each.outcome in MISSED}
    noticed = {each.key for each in mutants if each.key in missed and is_noticed_by_tests(each)}
    command = (
        f"python -m tests.property.mutate_streams {' '.join(arguments if arguments is not None else sys.argv[1:])}"
    )
    page = told(found, noticed, command.strip())
    print(page)
    if given.write is not None:
        text = given.write.read_text(encoding="utf-8")
        given.write.write_text(with_part(text, STREAMS, page), encoding="utf-8")
    print(f"{time.monotonic() - started:.0f} s: {100 * share(found):.1f} % caught")
    return 0 if share(found) >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
