"""Checks that every graph gives the original's results on edge feeds, with the same NaN and infinities."""

from compiler.base.records.findings import Finding
from compiler.build.verify.edge_agreement import EDGE_CURE, EdgeCase, agreement_words, limits_at_edges
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.graph.runners.stream import Advance


def _check(shipped: Shipped, advance: Advance) -> Checked:
    name, graph = shipped.name, shipped.graph
    cases = shipped.original.edges()
    limits = limits_at_edges(shipped.original.gate, lossy=graph.is_rounded)
    disagreement = graph.artefacts.disagreement(cases, limits)
    if disagreement is not None:
        cure = f"every pass held, so this is ONNX Runtime's optimiser, whose kernels answer otherwise here; {EDGE_CURE}"
        error = disagreement.failure(name, "verify", cure)
        raise graph.explain(error, disagreement.case.steps, limits, advance)
    return Checked(
        [_finding(name, case) for case in cases],
        agreement_words(cases),
        {"edges": {case.kind: case.unanswered or len(case.steps) for case in cases}},
    )


def _finding(graph: str, case: EdgeCase) -> Finding:
    """Return the finding for an edge feed, without a result where the original fails on it."""
    if case.unanswered:
        return Finding("edges", graph, case.kind, detail=f"the original does not answer: {case.unanswered}")
    return Finding("edges", graph, case.kind, holds=True)


EDGES = Gate("edges", _check, stage="verify")
