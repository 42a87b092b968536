"""The gate on buckets: each answers every row as the smallest one does, beside random partners."""

from compiler.errors import GateFailed, Place
from compiler.records.findings import at_most
from compiler.runners.stream import Advance
from compiler.verify.gate import Checked, Gate, Shipped


def _check(shipped: Shipped, advance: Advance) -> Checked:
    name, limit = shipped.name, shipped.graph.limits.max_abs
    apart = shipped.graph.artefacts.apart()
    findings = [at_most("buckets", name, bucket, limit=limit, measured=far) for bucket, (_, far) in apart.items()]
    for finding in findings:
        if not finding.holds:
            tensor, far = apart[finding.subject]
            raise GateFailed(
                f"expected {tensor} of every row as alone within {limit:.3g}, got {far:.3g}",
                cure="a row depends on its partners or its padding although the proof holds: report the graph",
                place=Place(stage=f"verify {finding.subject}", graph=name, tensor=tensor),
                findings=findings,
            )
    return Checked(findings, receipt={"buckets": {bucket: far for bucket, (_, far) in apart.items()}})


BUCKETS = Gate("buckets", _check, stage="verify")
