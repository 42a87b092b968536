"""The gate on the error of a stream, which must not grow over many chained calls of the smallest artefact."""

from collections.abc import Iterator, Sequence

from compiler.errors import GateFailed, Place
from compiler.recipe.gates import DriftGate
from compiler.recipe.record import Recipe
from compiler.records.drift_curves import DriftCurve
from compiler.records.findings import Finding, at_most
from compiler.runners.stream import Advance, Runner
from compiler.verify.drift import chained_feeds, measure_drift
from compiler.verify.gate import Checked, Gate, Shipped


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.gates.parity[graph].drift
    if gate is not None:
        yield Finding("parity.drift", graph, limit=gate.max_growth)


def drift_findings(graph: str, curves: Sequence[DriftCurve], gate: DriftGate) -> list[Finding]:
    """The growth of every output and state."""
    return [at_most("parity.drift", graph, each.tensor, limit=gate.max_growth, measured=each.growth) for each in curves]


def require_bounded(graph: str, curves: Sequence[DriftCurve], gate: DriftGate) -> DriftCurve:
    """The curve that grows most; raises if it grows too much.

    Raises:
        GateFailed: names the states, or else the outputs, whose errors grow.
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
        place=Place(stage="drift", graph=graph, tensor=first.tensor),
        findings=drift_findings(graph, curves, gate),
    )


def _check(shipped: Shipped, advance: Advance) -> Checked:
    gate = shipped.original.gate.drift
    assert gate is not None
    emitted, original = shipped.graph.built.artifacts[0], shipped.original
    rows = emitted.sizes.get(emitted.lowered.batch_axis or "", 1)
    runner = Runner(emitted.lowered, shipped.open(shipped.folder / emitted.file), rows)
    feeds = chained_feeds(original.streams(), gate.steps)
    curves = measure_drift(emitted.lowered, runner, original.run, feeds, rows, lambda done: advance(done, gate.steps))
    worst = require_bounded(shipped.name, curves, gate)
    return Checked(
        drift_findings(shipped.name, curves, gate),
        f"{gate.steps} chained steps; {worst.tensor} grows most, {worst.growth:.2f} times",
        {"drift": [curve.to_json() for curve in curves]},
    )


DRIFT = Gate("drift", _check, _promised)
