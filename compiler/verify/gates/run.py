"""Runs the gates of one phase, one graph after the other; every gate has its line, and what it found is taken down."""

import itertools
from collections.abc import Sequence
from typing import Any

from compiler.records.findings import Finding
from compiler.report.progress import Progress, StageHandle
from compiler.verify import gates
from compiler.verify.gate import Gate, Phase, Shipped


def run_gates(
    phase: Phase, shipped: Shipped, progress: Progress, findings: list[Finding], receipts: dict[str, Any]
) -> None:
    """Every gate of a phase that is wanted.

    Args:
        phase: what there is by now.
        shipped: what is to be checked.
        progress: shows the lines.
        findings: takes in those of every gate that holds.
        receipts: takes in what the bundle keeps: of a graph under its name, of the whole under an empty one.

    Raises:
        GateFailed: a promise does not hold.
    """
    of_phase = [gate for gate in gates.GATES if phase in gate.phases]
    for each_graph, group in itertools.groupby(of_phase, lambda gate: gate.each_graph):
        alike = list(group)
        for looked_at in shipped.alone() if each_graph else [shipped]:
            wanted = [gate for gate in alike if gate.is_wanted(shipped.loaded.recipe, looked_at)]
            kept = receipts.setdefault(looked_at.name, {})
            for line, on_line in itertools.groupby(wanted, lambda gate: gate.line):
                with progress.stage(looked_at.name, line) as handle:
                    _run_line(list(on_line), looked_at, handle, findings, kept)


def _run_line(
    on_line: Sequence[Gate],
    shipped: Shipped,
    handle: StageHandle,
    findings: list[Finding],
    receipts: dict[str, Any],
) -> None:
    """The gates that share a line."""
    details, shown = [], dict[str, Any]()
    for gate in on_line:
        checked = gate.run(shipped, handle.advance)
        findings += checked.findings
        receipts.update(checked.receipt)
        details += [checked.detail] if checked.detail else []
        if checked.worst is not None:
            worst = checked.worst
            shown = {"max_abs": worst.measured, "limit": worst.limit, "sqnr_db": worst.figures.get("sqnr_db")}
    handle.end(detail="; ".join(details), **shown)
