"""Measures the error of each subgraph on correct inputs, and how much of this error rounding explains."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.build.culprits.records import LocalError
from compiler.build.verify.explained_rounding import ExplainedError, Rounding, is_counted
from compiler.calib.noise import rms
from compiler.graph.runners.forced_values import TeacherForcedRun, TeacherForcedRuns
from compiler.graph.runners.stream import OriginalCall

FIRST_NOISE = 2
"""The explained error is measured in calls up to this one, and in the last."""

USUAL = 8
"""Number of sections that show what is usual."""


def local_errors(
    forced_runs: TeacherForcedRuns,
    steps: Sequence[OriginalCall],
    roundings: Mapping[str, Rounding],
    advance: Callable[[], None],
) -> list[LocalError]:
    """Run all calls, and return the error of every section.

    Args:
        forced_runs: runs of the graphs before and after a pass.
        steps: the original's calls.
        roundings: rounding of every section, by the value that it ends in, in graph order.
        advance: called after every call.
    """
    explained = ExplainedError(forced_runs.before, roundings, forced_runs.names)
    tallies = {name: _Tally() for name in roundings}
    for forced_run in forced_runs.run(steps):
        for name, tally in tallies.items():
            tally.add(forced_run, name)
        if forced_run.step <= FIRST_NOISE or forced_run.step == len(steps) - 1:
            explained.measure(forced_run)
        advance()
    errors = [tally.error(name, explained.of(name, tally.signal)) for name, tally in tallies.items() if tally.errors]
    return with_usual(errors, roundings)


def with_usual(errors: Sequence[LocalError], roundings: Mapping[str, Rounding]) -> list[LocalError]:
    """Count the median error of sections of one type as explained, as their weights may be rounded, too."""
    extended = list(errors)
    for rounding in Rounding:
        relative = [local.relative for local in errors if roundings[local.tensor] is rounding and local.error]
        if len(relative) >= USUAL:
            usual = float(np.median(relative))
            extended = [
                dataclasses.replace(local, explained=max(local.explained, usual * local.signal))
                if roundings[local.tensor] is rounding and np.isfinite(usual)
                else local
                for local in extended
            ]
    return extended


class _Tally:
    """Local errors of one section, call by call."""

    def __init__(self) -> None:
        self.errors: list[tuple[float, int]] = []
        self.squares, self.elements = 0.0, 0

    def add(self, forced_run: TeacherForcedRun, name: str) -> None:
        expected, got = forced_run.expected(name), forced_run.got(name)
        counted, fine = is_counted(expected), is_counted(got)
        with np.errstate(invalid="ignore"):
            alike = (got == expected) | (np.sign(got) == np.sign(expected)) | (np.isnan(got) & np.isnan(expected))
        broken = bool(
            np.any(counted & ~fine) or np.any(~counted & (fine | ~alike))
        )  # a filling is a filling of its sign
        both = counted & fine
        self.errors.append((float("inf") if broken else rms(got[both] - expected[both]), forced_run.step))
        self.squares += float(np.sum(expected[counted] ** 2))
        self.elements += int(counted.sum())

    @property
    def signal(self) -> float:
        return float(np.sqrt(self.squares / self.elements)) if self.elements else 0.0

    def error(self, name: str, explained: float) -> LocalError:
        error, step = max(self.errors, key=lambda each: (each[0], -each[1]))
        return LocalError(name, error, self.signal, explained, step)
