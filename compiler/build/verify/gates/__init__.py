"""Lists all gates in the order in which they run, and runs the gates of a phase."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.base.records.findings import Finding
from compiler.build.report.progress import Progress, StageHandle
from compiler.build.verify.blamed_form import run_blaming
from compiler.build.verify.gate import Gate, Phase, Shipped
from compiler.build.verify.gates.against_float import AGAINST_FLOAT
from compiler.build.verify.gates.buckets import BUCKETS
from compiler.build.verify.gates.budget import BUDGET
from compiler.build.verify.gates.chunks import CHUNKS
from compiler.build.verify.gates.closed_loop import CLOSED_LOOP
from compiler.build.verify.gates.drift import DRIFT
from compiler.build.verify.gates.edges import EDGES
from compiler.build.verify.gates.engine_layers import ENGINE_LAYERS
from compiler.build.verify.gates.forms import FORMS
from compiler.build.verify.gates.golden import REPLAY
from compiler.build.verify.gates.integer_kernels import INTEGER_KERNELS
from compiler.build.verify.gates.invariance import INVARIANCE
from compiler.build.verify.gates.parity import PARITY
from compiler.build.verify.gates.pipeline import PIPELINE
from compiler.build.verify.gates.stream_length import STREAM_LENGTH
from compiler.build.verify.gates.task import TASK
from compiler.graph.runners.mapped_weights import unload_weights
from compiler.recipe.record import Recipe

GATES: tuple[Gate, ...] = (
    ENGINE_LAYERS,
    PARITY,
    EDGES,
    BUCKETS,
    FORMS,
    CHUNKS,
    DRIFT,
    STREAM_LENGTH,
    INVARIANCE,
    REPLAY,
    PIPELINE,
    CLOSED_LOOP,
    TASK,
    INTEGER_KERNELS,
    AGAINST_FLOAT,
    BUDGET,
)


def promises(recipe: Recipe) -> list[Finding]:
    """Return all findings that a recipe requires of a build, by graph and then of the bundle, without measurements."""
    asked = [
        finding
        for graph in (*recipe.graphs, "")
        for gate in GATES
        if gate.each_graph == bool(graph)
        for finding in gate.promises(recipe, graph)
    ]
    return list({finding.thing: finding for finding in asked}.values())


def run_gates(
    phase: Phase,
    shipped: Shipped,
    progress: Progress,
    findings: list[Finding],
    receipts: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Run every wanted gate of a phase, and return the receipts of all phases up to it.

    Args:
        phase: phase of the build.
        shipped: graphs and bundle to check.
        progress: shows progress lines.
        findings: list to which findings are added, also where a later gate fails.
        receipts: those of the phases before, under the graph's name, or an empty one for the bundle.

    Raises:
        GateFailed: a promise does not hold.
    """
    of_phase = [gate for gate in GATES if phase in gate.phases]
    extended = {name: dict(receipt) for name, receipt in receipts.items()}
    for each_graph, group in itertools.groupby(of_phase, lambda gate: gate.each_graph):
        alike = list(group)
        for looked_at in shipped.alone() if each_graph else [shipped]:
            wanted = [gate for gate in alike if gate.is_wanted(shipped.loaded.recipe, looked_at)]
            receipt = extended.setdefault(looked_at.name, {})
            for line, on_line in itertools.groupby(wanted, lambda gate: gate.line):
                with progress.stage(looked_at.name, line) as handle:
                    _run_line(list(on_line), looked_at, handle, findings, receipt)
                unload_weights()
    return extended


def _run_line(
    on_line: Sequence[Gate],
    shipped: Shipped,
    handle: StageHandle,
    findings: list[Finding],
    receipt: dict[str, Any],
) -> None:
    """Run the gates that share a progress line; their findings and the receipt are added to."""
    details, shown = [], dict[str, Any]()
    for gate in on_line:
        is_emitted = shipped.name in shipped.graphs and "graphs" in gate.phases
        checked = run_blaming(gate, shipped, handle.advance) if is_emitted else gate.run(shipped, handle.advance)
        findings += checked.findings
        receipt.update(checked.receipt)
        details += [checked.detail] if checked.detail else []
        if checked.worst is not None:
            worst = checked.worst
            shown = {"max_abs": worst.measured, "limit": worst.limit, "sqnr_db": worst.figures.get("sqnr_db")}
    handle.end(detail="; ".join(details), **shown)
