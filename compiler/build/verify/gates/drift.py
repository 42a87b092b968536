"""Checks that the error of a stream does not grow over many chained calls of the smallest artefact.

The feeds are all verification streams, the longest first, one behind the other, and from the start again until there
are enough; states are handed on throughout, also from one stream to the next. Until the caches are full errors grow by
nature; of the calls after that the second half must be no worse than the first, but for a factor.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from compiler.base.records.drift_curves import DriftCurve
from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.bucket_runner import BucketRunners
from compiler.build.verify.differences import NO_PARTS, Parts, states_of
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.calib.classes import are_classes
from compiler.calib.noise import rms
from compiler.errors import GateFailed, Location
from compiler.graph.runners.ahead import ahead
from compiler.graph.runners.coded_states import states_in_numbers
from compiler.graph.runners.stream import Advance, Run, Stepper, expected_states
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import DriftGate
from compiler.recipe.record import Recipe

POINTS = 200
"""Points of a kept curve; each is the largest of its calls."""


def chained_feeds(streams: Sequence[Sequence[Feed]], steps: int) -> Iterator[Feed]:
    """Yield `steps` feeds: stream after stream, and from the start again."""
    return itertools.islice(itertools.cycle(feed for stream in streams for feed in stream), steps)


def measure_drift(
    lowered: Lowered,
    runner: Stepper,
    reference: Run,
    feeds: Iterable[Feed],
    rows: int = 1,
    advance: Callable[[int], None] = lambda done: None,
    min_equal: float = 1.0,
) -> list[DriftCurve]:
    """Run artefact and original side by side, and return how errors grow.

    Args:
        lowered: the record of the artefact's graph.
        runner: a fresh runner of the artefact.
        reference: runs the original on one row.
        feeds: feeds of one row, in order.
        rows: number of rows of the artefact; all get the same feed.
        advance: called with the number of calls that have run.
        min_equal: the required share of equal classes; differences below it are no growth.
    """
    states = {state.output for state in lowered.states}
    tallies: dict[str, _Tally] = {}
    compared_feeds, sent = itertools.tee(feeds)
    for done, (feed, (outputs, new_states)) in enumerate(
        ahead(zip(compared_feeds, reference(sent), strict=True)), start=1
    ):
        got = runner.step({name: np.repeat(array, rows, axis=0) for name, array in feed.items()})
        expected = {name: array for name, array in outputs.items() if name in got and name not in states}
        for name, array in expected.items():
            tallies.setdefault(name, _Tally(is_state=False)).add(got[name][: len(array)], array)
        carried = states_in_numbers(lowered, runner.states)
        for name, array in expected_states(lowered, new_states).items():
            tallies.setdefault(name, _Tally(is_state=True)).add(carried[name][: len(array)], array)
        advance(done)
    warm = max((cache.calls_to_fill for cache in lowered.caches), default=0)
    return [tally.curve(name, warm, min_equal) for name, tally in tallies.items()]


class _Tally:
    """The error of one tensor, call by call: the root mean square, which is 1 of a class that differs."""

    def __init__(self, *, is_state: bool) -> None:
        self.is_state, self.of_classes = is_state, False
        self.errors: list[float] = []
        self.squares, self.elements = 0.0, 0

    def add(self, got: Array, expected: Array) -> None:
        if are_classes(expected):
            self.of_classes = True
            got, expected = np.asarray(got != expected), np.zeros(expected.shape)
        exact = expected.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            size = rms(got.astype(np.float64) - exact)
        self.errors.append(size if np.isfinite(size) else float("inf"))
        self.squares += float(np.sum(exact**2))
        self.elements += exact.size

    def curve(self, tensor: str, warm: int, min_equal: float) -> DriftCurve:
        judged = np.array(self.errors[warm:] or self.errors)
        half = max(len(judged) // 2, 1)
        early, late = judged[:half], judged[half:] if len(judged) > 1 else judged
        least = float(np.sqrt(1.0 - min_equal)) if self.of_classes else 0.0
        bins = np.array_split(np.array(self.errors), min(POINTS, len(self.errors)))
        return DriftCurve(
            tensor,
            self.is_state,
            len(self.errors),
            warm,
            float(np.sqrt(self.squares / self.elements)) if self.elements else 0.0,
            max(rms(early), least),
            max(rms(late), least),
            tuple(float(errors.max()) for errors in bins),
        )


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.gates.parity[graph].drift
    if gate is not None:
        yield Finding("parity.drift", graph, limit=gate.max_growth)


def drift_findings(graph: str, curves: Sequence[DriftCurve], gate: DriftGate, parts: Parts = NO_PARTS) -> list[Finding]:
    """Return findings on the growth of every output and state; packed states are named."""
    return [
        at_most(
            "parity.drift",
            graph,
            curve.tensor,
            limit=gate.max_growth,
            measured=curve.growth,
            detail=states_of(curve.tensor, parts).removesuffix("; "),
        )
        for curve in curves
    ]


def require_bounded(graph: str, curves: Sequence[DriftCurve], gate: DriftGate) -> DriftCurve:
    """Return the curve that grows most.

    Raises:
        GateFailed: a curve grows too much; the message names the states, or else the outputs.
    """
    growing = sorted((curve for curve in curves if not curve.growth <= gate.max_growth), key=lambda c: -c.growth)
    if not growing:
        return max(curves, key=lambda curve: curve.growth)
    named = [curve for curve in growing if curve.is_state] or growing
    first = named[0]
    others = f", and so do {', '.join(curve.tensor for curve in named[1:4])}" if len(named) > 1 else ""
    raise GateFailed(
        f"expected the error of {first.tensor} to stay within {gate.max_growth:g} times its first half over "
        f"{first.steps} chained steps, got {first.growth:.3g} times: it grows from {first.early:.3g} to "
        f"{first.late:.3g}{others}",
        cure="keep what computes the state in float32, or raise drift.max_growth if the growth is of the data",
        place=Location(stage="drift", graph=graph, tensor=first.tensor),
        findings=drift_findings(graph, curves, gate),
    )


def _check(shipped: Shipped, advance: Advance) -> Checked:
    gate = shipped.original.gate.drift
    assert gate is not None
    emitted, original = shipped.graph.built.artifacts[0], shipped.original
    artifacts = shipped.graph.built.artifacts
    runner = BucketRunners(shipped.graph.lowered, artifacts, lambda file: shipped.open(shipped.folder / file)).runner(
        emitted
    )
    feeds = chained_feeds(original.streams(), gate.steps)
    curves = measure_drift(
        runner.lowered,
        runner,
        original.run,
        feeds,
        runner.batch,
        lambda done: advance(done, gate.steps),
        shipped.graph.limits.min_equal,
    )
    worst = require_bounded(shipped.name, curves, gate)
    return Checked(
        drift_findings(shipped.name, curves, gate, emitted.lowered.parts),
        f"{gate.steps} chained steps; {worst.tensor} grows most, {worst.growth:.2f} times",
        {"drift": [curve.to_json() for curve in curves]},
    )


DRIFT = Gate("drift", _check, _promised)
