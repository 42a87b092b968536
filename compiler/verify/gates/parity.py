"""The gate on outputs and states beside the original's, over chained calls or whole utterances."""

import dataclasses
from collections.abc import Iterator, Sequence

from compiler.errors import GateFailed, Place
from compiler.recipe.gates import Tolerance
from compiler.recipe.record import Recipe
from compiler.records.findings import Finding, at_most
from compiler.runners.stream import Advance
from compiler.verify.differences import Difference, worst_of
from compiler.verify.gate import Checked, Gate, Shipped

CURE = "every pass held its own parity, so this is the runtime's optimiser or rounding: compare with a looser max_abs"


def parity_findings(graph: str, differences: Sequence[Difference], limits: Tolerance) -> Iterator[Finding]:
    """Both limits of every tensor."""
    for each in differences:
        noise = "" if each.sqnr_db is None else f", SQNR {each.sqnr_db:.1f} dB"
        yield at_most(
            "parity.max_abs",
            graph,
            each.tensor,
            limit=each.limit(limits),
            measured=each.max_abs,
            detail=f"{each.steps} steps, reference up to {each.reference_max:.3g}{noise}",
            figures={"steps": each.steps, "reference_max": each.reference_max, "sqnr_db": each.sqnr_db},
        )
        if limits.sqnr_db is not None:
            holds = each.sqnr_db is None or each.sqnr_db >= limits.sqnr_db
            detail = "" if each.sqnr_db is not None else "nothing differs"
            yield Finding(
                "parity.sqnr_db", graph, each.tensor, each.sqnr_db, limits.sqnr_db, holds, detail, is_least=True
            )


def require_parity(graph: str, stage: str, differences: Sequence[Difference], limits: Tolerance, cure: str) -> None:
    """Raise if a tensor differs by more than the gate allows.

    Raises:
        GateFailed: names tensor, step, difference and limit.
    """
    worst = worst_of(differences, limits)
    if worst.holds(limits):
        return
    raise GateFailed(
        f"expected {worst.tensor} {worst.exceeded(limits)}",
        cure=cure,
        place=Place(stage=stage, graph=graph, tensor=worst.tensor),
        findings=parity_findings(graph, differences, limits),
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
        require_parity(name, stage, differences, graph.limits, CURE)
    except GateFailed as error:
        raise graph.explain(error, graph.steps, graph.limits, advance) from None
    findings, worst = list(parity_findings(name, differences, graph.limits)), worst_of(differences, graph.limits)
    return Checked(
        findings,
        f"{worst.steps} {graph.artefacts.unit}",
        {"compared": [dataclasses.asdict(each) for each in differences], "limit": graph.limits.max_abs},
        next(each for each in findings if each.subject == worst.tensor),
    )


PARITY = Gate("parity", _check, _promised, stage="verify")
