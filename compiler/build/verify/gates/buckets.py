"""Checks that every bucket gives each row the results of the smallest bucket, beside random other rows."""

from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.differences import Difference, class_words, percent, worst_of
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.gates.parity import class_cure
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.gates import Tolerance

SAME_ROWS = "a row depends on its partners or its padding although the proof holds: report the graph"


def _check(shipped: Shipped, advance: Advance) -> Checked:
    name, limits = shipped.name, shipped.graph.limits.model_copy(update={"sqnr_db": None})
    apart = {bucket: worst_of(worst, limits) for bucket, worst in shipped.graph.artefacts.apart().items()}
    findings = [_finding(name, bucket, worst, limits) for bucket, worst in apart.items()]
    for finding in findings:
        if not finding.holds:
            worst = apart[finding.subject]
            expected = (
                f"within {limits.max_abs:.3g}, got {worst.relative:.3g}"
                if worst.classes is None
                else f"in {percent(limits.min_equal)} of its entries, got {class_words(worst.classes, in_order=False)}"
            )
            raise GateFailed(
                f"expected {worst.tensor} of every row as alone {expected}",
                cure=SAME_ROWS if worst.classes is None else f"{class_cure(name, limits)}; otherwise {SAME_ROWS}",
                place=Location(stage=f"verify {finding.subject}", graph=name, tensor=worst.tensor),
                findings=findings,
            )
    return Checked(findings, receipt={"buckets": {bucket: _far(worst) for bucket, worst in apart.items()}})


def _far(worst: Difference) -> float:
    """Return the largest relative difference; for classes the share of different entries."""
    return worst.relative if worst.classes is None else 1.0 - worst.classes.equal


def _finding(graph: str, bucket: str, worst: Difference, limits: Tolerance) -> Finding:
    if worst.classes is None:
        return at_most("buckets", graph, bucket, limit=limits.max_abs, measured=worst.relative)
    return Finding(
        "buckets",
        graph,
        bucket,
        worst.classes.equal,
        limits.min_equal,
        worst.classes.holds(limits.min_equal),
        f"{worst.tensor} {class_words(worst.classes, in_order=False)}",
        is_least=True,
    )


BUCKETS = Gate("buckets", _check, stage="verify")
