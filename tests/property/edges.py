"""Random graphs and edge feeds: a pass that is called exact must answer as before, infinities and NaN included.

`python -m tests.property.edges --graphs 5000` draws many; the tests draw a few. The graphs are those of the fuzzer of
padding, with constants and functions from the edges of what float32 holds among them.
"""

import argparse
import collections
import sys
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from compiler.build.verify.edge_agreement import edge_cases, first_disagreement
from compiler.build.verify.edge_feeds import KINDS as FEEDS
from compiler.build.verify.edge_feeds import Range
from compiler.graph.runners.choose import runner_of
from compiler.graph.stages import Array, Feed, Lowered, Pass
from compiler.passes.canonicalize_positions import CanonicalizePositions
from compiler.passes.canonicalize_reshapes import CanonicalizeReshapes
from compiler.passes.canonicalize_transposes import CanonicalizeTransposes
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from compiler.passes.simplify import Simplify
from compiler.recipe.gates import Tolerance
from tests.kit.graphs import copy_of
from tests.kit.offline import Differs
from tests.property.fuzz import KINDS, grow
from tests.property.graph_builder import WIDTH, GraphBuilder, Kinds, Mixture

EXACT: tuple[Pass, ...] = (
    Simplify(), CanonicalizeTransposes(), CanonicalizeReshapes(), CanonicalizePositions(), RemoveMaskInputs(),
)  # fmt: skip
"""Passes called exact that take graphs without states; the others meet edge feeds in their contracts."""

CONSTANTS = (1e-9, -1e-9, 1e-8, 3e-8, 1e-30, 1e-38, 0.0, -0.0, 1.0, 1 + 2e-7, -1.0, 2.0, 65504.0, 1e30, 3e38, np.inf)
"""What lies next to the neutral numbers of sums and products, and at the ends of the type."""

LENGTHS = (9, 6, 12)

SAME = Tolerance(max_abs=1e-5)
"""Constants may be folded in another order; rounding beyond that is for a numeric pass."""


def _edge_constant(builder: GraphBuilder) -> None:
    found = builder.pick()
    op = str(builder.rng.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"]))
    constant = builder.insert.constant(np.array(builder.rng.choice(CONSTANTS), np.float32), "edge")
    turn = op != "Pow" and bool(builder.rng.integers(0, 2))
    builder.keep(builder.op(op, [constant, found.value] if turn else [found.value, constant]), found.frames_last)


def _clip(builder: GraphBuilder) -> None:
    """Bounds in any order, one of them missing at times."""
    found = builder.pick()
    low, high = (
        None if not builder.rng.integers(0, 4) else builder.insert.constant(np.array(each, np.float32), "bound")
        for each in builder.rng.choice([-3.0, -1.0, 0.0, 1.0, 2.0, 5.0], 2)
    )
    builder.keep(builder.op("Clip", [found.value, low, high]), found.frames_last)


def _bare(builder: GraphBuilder) -> None:
    """Functions with a pole or an end of their domain."""
    found = builder.pick()
    op = str(builder.rng.choice(["Log", "Sqrt", "Reciprocal", "Relu", "Sign", "Exp", "Abs", "Neg", "Floor"]))
    builder.keep(builder.op(op, [found.value]), found.frames_last)


def _quotient(builder: GraphBuilder) -> None:
    a = builder.pick()
    b = builder.pick(a.frames_last)
    builder.keep(builder.op("Div", [a.value, b.value]), a.frames_last)


EDGE_KINDS: Kinds = ((_edge_constant, 16), (_clip, 8), (_bare, 10), (_quotient, 2))


def attack(seed: int, nodes: int = 7) -> str:
    """Run the exact passes over one random graph and compare on edge feeds.

    Returns:
        `agrees`; `undefined` where the graph does not run.

    Raises:
        Differs: a pass has changed an answer.
    """
    origin = grow(seed, nodes, Mixture("edges", (*KINDS, *EDGE_KINDS)))
    runner = runner_of(origin)

    def run(feeds: Iterable[Feed]) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        for feed in feeds:
            yield runner.step(feed), {}

    feeds = [{"x": np.ones((1, length, WIDTH), np.float32)} for length in LENGTHS]
    cases = edge_cases(list(FEEDS), feeds, {"x": Range(-4.0, 4.0)}, run, origin)
    if any(case.unanswered for case in cases):
        return "undefined"
    lowered: Lowered = copy_of(origin)
    for made in EXACT:
        lowered = made.apply(lowered).lowered
        found = first_disagreement(lowered, lambda after=lowered: runner_of(after), cases, SAME)  # type: ignore[misc]
        if found is not None:
            raise Differs(f"{found.failure('fuzz', made.name, '')}")
    return "agrees"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw many graphs and print what became of them; 1 when a pass has changed an answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--nodes", type=int, default=7, help="most nodes of a graph")
    options = parser.parse_args(arguments)
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(options.seed, options.seed + options.graphs):
        try:
            counts[attack(seed, options.nodes)] += 1
        except Differs as difference:
            counts["differs"] += 1
            print(f"seed {seed}: {difference}", flush=True)
    print(dict(sorted(counts.items())))
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
