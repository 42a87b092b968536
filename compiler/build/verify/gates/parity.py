"""Checks that outputs and states agree with the original's, over chained calls or whole utterances."""

import dataclasses
from collections.abc import Iterator, Sequence

from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.differences import NO_PARTS, Difference, Parts, class_words, states_of, worst_of
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.gates import LossyTolerance, Tolerance
from compiler.recipe.record import Recipe

CURE = "every pass held its own parity, so this is the runtime's optimiser or rounding: compare with a looser max_abs"

LOSSY_CURE = (
    "every pass held its own parity on fewer calls: keep more in float with keep_float or sqnr_db of the pass that "
    "rounds, or allow more under gates.parity.<graph>.lossy"
)


def class_cure(graph: str, limits: Tolerance) -> str:
    """Return the cure for different classes, which rounding decides between nearly tied ones."""
    if isinstance(limits, LossyTolerance):
        return (
            "rounding decides between classes that are nearly tied: keep what computes them in float with keep_float, "
            f"float32 or a larger sqnr_db, or allow more with gates.parity.{graph}.lossy.min_equal; whole numbers that "
            "are samples and no classes are compared by their distance where the model gives them as real ones"
        )
    return (
        "sums in another order decide between classes that are nearly tied; if that is all, as real outputs beside "
        f"them show, allow it with gates.parity.{graph}.min_equal"
    )


def parity_findings(
    graph: str, differences: Sequence[Difference], limits: Tolerance, parts: Parts = NO_PARTS
) -> Iterator[Finding]:
    """Yield findings for both limits of every float tensor and the one of classes, with the names of packed states."""
    for difference in differences:
        if difference.classes is not None:
            yield _class_finding(graph, difference, limits, parts)
            continue
        noise = "" if difference.sqnr_db is None else f", SQNR {difference.sqnr_db:.1f} dB"
        figures = f"{difference.steps} steps, reference up to {difference.reference_max:.3g}{noise}"
        yield at_most(
            "parity.max_abs",
            graph,
            difference.tensor,
            limit=difference.limit(limits),
            measured=difference.max_abs,
            detail=f"{states_of(difference.tensor, parts)}{figures}",
            figures={
                "steps": difference.steps,
                "reference_max": difference.reference_max,
                "sqnr_db": difference.sqnr_db,
            },
        )
        if limits.sqnr_db is not None:
            holds = difference.sqnr_db is None or difference.sqnr_db >= limits.sqnr_db
            detail = "" if difference.sqnr_db is not None else "nothing differs"
            yield Finding(
                "parity.sqnr_db",
                graph,
                difference.tensor,
                difference.sqnr_db,
                limits.sqnr_db,
                holds,
                detail,
                is_least=True,
            )


def _class_finding(graph: str, difference: Difference, limits: Tolerance, parts: Parts) -> Finding:
    classes = difference.classes
    assert classes is not None
    return Finding(
        "parity.min_equal",
        graph,
        difference.tensor,
        classes.equal,
        limits.min_equal,
        classes.holds(limits.min_equal),
        f"{states_of(difference.tensor, parts)}{difference.steps} steps, {class_words(classes)}",
        {"steps": difference.steps, "compared": classes.compared, "differing": classes.differing},
        is_least=True,
    )


def require_parity(
    graph: str, stage: str, differences: Sequence[Difference], limits: Tolerance, cure: str, parts: Parts = NO_PARTS
) -> None:
    """Raise if a tensor differs by more than the gate allows.

    Raises:
        GateFailed: a tensor does; the message names tensor, step, difference and limit.
    """
    worst = worst_of(differences, limits)
    if worst.holds(limits):
        return
    states = states_of(worst.tensor, parts).removesuffix("; ")
    raise GateFailed(
        f"expected {worst.tensor}{f' ({states})' if states else ''} {worst.exceeded(limits)}",
        cure=cure if worst.classes is None else class_cure(graph, limits),
        place=Location(stage=stage, graph=graph, tensor=worst.tensor),
        findings=parity_findings(graph, differences, limits, parts),
    )


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.gates.parity[graph]
    yield Finding("parity.max_abs", graph, limit=gate.max_abs)
    if gate.sqnr_db is not None:
        yield Finding("parity.sqnr_db", graph, limit=gate.sqnr_db, is_least=True)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    name, graph = shipped.name, shipped.graph
    differences = graph.artefacts.differences(advance)
    stage = f"verify {graph.artefacts.compared}".strip()
    try:
        cure = LOSSY_CURE if graph.is_rounded else CURE
        require_parity(name, stage, differences, graph.limits, cure, graph.lowered.parts)
    except GateFailed as error:
        raise graph.explain(error, graph.steps, graph.limits, advance) from None
    findings = list(parity_findings(name, differences, graph.limits, graph.lowered.parts))
    worst = worst_of(differences, graph.limits)
    classes = "" if worst.classes is None else f"; {worst.tensor} {class_words(worst.classes)}"
    return Checked(
        findings,
        f"{worst.steps} {graph.artefacts.unit}{classes}",
        {"compared": [dataclasses.asdict(difference) for difference in differences], "limit": graph.limits.max_abs},
        None if classes else next(finding for finding in findings if finding.subject == worst.tensor),
    )


PARITY = Gate("parity", _check, _promised, stage="verify")
