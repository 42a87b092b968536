"""Checks the size of the whole bundle and the time of a call against the recipe's budget."""

from collections.abc import Iterator, Sequence

from compiler.base.records.build_report import SpeedRow
from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.errors import GateFailed, Location
from compiler.graph.runners.stream import Advance
from compiler.recipe.gates import BudgetGate
from compiler.recipe.record import Recipe

SIZE, TIME = "budget.size_mb", "budget.p95_ms"


def check_budget(gate: BudgetGate | None, size_bytes: int, speed: Sequence[SpeedRow]) -> list[Finding]:
    """Check the size of a bundle and the time of the slowest single-row call against the recipe's bounds.

    Raises:
        GateFailed: a budget is exceeded.
    """
    findings = [] if gate is None else list(_findings(gate, size_bytes / 1e6, speed))
    for finding in findings:
        if finding.holds:
            continue
        if finding.gate == SIZE:
            message, cure = (
                f"a bundle of at most {finding.limit:g} MB, got {finding.measured:.1f} MB",
                "or drop buckets or precision",
            )
        else:
            message = f"a call within {finding.limit:g} ms (p95), got {finding.measured:.2f} ms at {finding.subject}"
            cure = "or build on a quiet machine"
        raise GateFailed(
            f"expected {message}",
            cure=f"raise gates.{finding.gate}, {cure}",
            place=Location(stage="budget", graph=finding.graph),
            findings=findings,
        )
    return findings


def _findings(gate: BudgetGate, size_mb: float, speed: Sequence[SpeedRow]) -> Iterator[Finding]:
    if gate.size_mb is not None:
        yield at_most(SIZE, limit=gate.size_mb, measured=size_mb)
    smallest = {row.graph: row for row in reversed(speed)}
    for row in smallest.values() if gate.p95_ms is not None else ():
        yield at_most(TIME, row.graph, row.sizes, limit=gate.p95_ms or 0.0, measured=row.p95_ms)


def _promised(recipe: Recipe, graph: str) -> Iterator[Finding]:
    gate = recipe.gates.budget or BudgetGate()
    if gate.size_mb is not None:
        yield Finding(SIZE, limit=gate.size_mb)
    if gate.p95_ms is not None:
        yield from (Finding(TIME, name, limit=gate.p95_ms) for name in recipe.graphs)


def _check(shipped: Shipped, advance: Advance) -> Checked:
    files = (path for path in shipped.folder.rglob("*") if path.is_file())
    size_bytes = sum(path.stat().st_size for path in files)
    return Checked(check_budget(shipped.loaded.recipe.gates.budget, size_bytes, shipped.speed))


BUDGET = Gate("budget", _check, _promised, phases=("end",), each_graph=False)
