"""The gate on edge feeds, which every graph is to answer as the original does, with the same NaN and infinities."""

from compiler.records.findings import Finding
from compiler.runners.stream import Advance
from compiler.verify.edge_agreement import EDGE_CURE, agreement_words, limits_at_edges
from compiler.verify.gate import Checked, Gate, Shipped


def _check(shipped: Shipped, advance: Advance) -> Checked:
    name, graph = shipped.name, shipped.graph
    cases = shipped.original.edges()
    limits = limits_at_edges(shipped.original.gate, lossy=graph.lowered.lossy)
    found = graph.artefacts.disagreement(cases, limits)
    if found is not None:
        cure = f"every pass held, so this is the runtime's optimiser: report it; {EDGE_CURE}"
        error = found.failure(name, "verify", cure)
        raise graph.explain(error, found.case.steps, limits, advance)
    return Checked(
        [Finding("edges", name, case.kind, holds=True, detail=case.unanswered) for case in cases],
        agreement_words(cases),
        {"edges": {case.kind: case.unanswered or len(case.steps) for case in cases}},
    )


EDGES = Gate("edges", _check, stage="verify")
