"""Compares the targets of a build: makes one table row per target from the report of that target."""

import dataclasses

from compiler.base.records.build_report import BuildReport
from compiler.base.records.findings import Finding

NATIVE = "executed natively"
"""What is said of a target whose artefact the machine of the build executes itself."""

COLUMNS = (
    "target",
    "verified",
    "[least SQNR dB]",
    "of",
    "[largest entry]",
    "[task]",
    "[bytes per call]",
    "[MB]",
    "ended",
    "refused",
)
"""Titles of the columns; those in brackets hold numbers."""


@dataclasses.dataclass(frozen=True)
class TargetRow:
    """One target.

    Attributes:
        target: its name.
        verified: how the artefact was executed, in the words of the verdict; empty without a bundle.
        sqnr_db: smallest ratio of signal to quantisation noise of an output or state; in a simulator the smaller one of
            the first and the last chunk; None where nothing was compared, or nothing differs.
        tensor: whose ratio it is.
        argmax: least share of rows whose largest entry is at the same place, in a simulator; None elsewhere.
        task: what the metric of the task is, original and artefact; empty where no task runs, or where it ran on graphs
            in the place of the artefact.
        call_bytes: bytes that go into one call of every graph and come out of it, at the smallest bucket.
        size_bytes: of all files of the bundle.
        ended: how the build for the target ended.
        refused: operator and node for which a target has refused a graph; empty for others.
    """

    target: str
    verified: str
    sqnr_db: float | None
    tensor: str
    argmax: float | None
    task: str
    call_bytes: int
    size_bytes: int
    ended: str
    refused: str

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts, in the order of `COLUMNS`."""
        return (
            self.target,
            self.verified,
            "" if self.sqnr_db is None else f"{self.sqnr_db:.1f}",
            self.tensor,
            "" if self.argmax is None else f"{100 * self.argmax:.1f} %",
            self.task,
            f"{self.call_bytes:,}" if self.call_bytes else "",
            f"{self.size_bytes / 1e6:.1f}" if self.size_bytes else "",
            self.ended,
            self.refused,
        )


def target_rows(report: BuildReport) -> tuple[TargetRow, ...]:
    """Return a row for every target of a build that has several, in the order of the recipe."""
    return tuple(_row(each) for each in report.targets)


def _row(report: BuildReport) -> TargetRow:
    worst = _worst(report)
    shares = [each.measured for each in report.gates if each.gate == "simulator.argmax" and each.measured is not None]
    has_run = all(row.reached == "run" for row in report.engines)
    tasks = [each.detail for each in report.gates if each.gate == "task.max_increase" and each.measured is not None]
    has_bundle = report.failure is None
    return TargetRow(
        target=report.target,
        verified=_verified(report) if has_bundle else "",
        sqnr_db=None if worst is None else worst.figures["sqnr_db"],
        tensor="" if worst is None else worst.subject,
        argmax=min(shares, default=None),
        task="; ".join(tasks) if has_run else "",
        call_bytes=sum(report.call_bytes.values()) if has_bundle else 0,
        size_bytes=sum(report.sizes.values()) if has_bundle else 0,
        ended="all gates hold" if has_bundle else report.verdict,
        refused=_refused(report),
    )


def _verified(report: BuildReport) -> str:
    words = dict.fromkeys(row.words for row in report.engines)
    return "; ".join(words) or NATIVE


def _worst(report: BuildReport) -> Finding | None:
    """Return the finding with the smallest ratio, of those in the simulator where the artefact ran in one."""
    with_ratio = [each for each in report.gates if each.figures.get("sqnr_db") is not None]
    in_simulator = [each for each in with_ratio if each.gate == "simulator.max_abs"]
    alike = in_simulator or [each for each in with_ratio if each.gate == "parity.max_abs"]
    return min(alike, key=lambda each: each.figures["sqnr_db"] or 0.0, default=None)


def _refused(report: BuildReport) -> str:
    place = {} if report.failure is None else report.failure.place
    return " ".join(place[key] for key in ("op", "node") if key in place)
