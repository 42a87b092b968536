"""Runs the artefacts of a graph call after call: chained beside the original, row beside row, and full of poison.

Rows of one batch are at the same step of different streams; what is padded are caches that are not full yet, and rows
that nobody uses.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from compiler.recipe.gates import Tolerance
from compiler.runners.ahead import on_all_cores
from compiler.runners.session import Session
from compiler.runners.stream import Advance, OriginalCall, Runner
from compiler.stages import Array, Feed, Lowered
from compiler.targets.base import Emitted
from compiler.verify.differences import Difference, compare, max_abs_difference
from compiler.verify.edge_agreement import Disagreement, EdgeCase, first_disagreement
from compiler.verify.invariance_check import Invariance, check_invariance
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import bucket_name

T = TypeVar("T")

GOLDEN_STEPS = 12
"""Recorded calls: enough to overflow a window of 128 frames by chunks of 16."""


class StreamArtefacts:
    """The artefacts of one graph.

    Args:
        folder: where they lie.
        artifacts: one per bucket, the smallest first.
        tolerance: of golden outputs.
        steps: the original's calls on one stream.
        streams: feeds to draw partners from.
        open_artifact: opens what stands for an artefact, by the path of its main file.
    """

    unit = "chained steps"

    def __init__(
        self,
        folder: Path,
        artifacts: Sequence[Emitted],
        tolerance: float,
        steps: Sequence[OriginalCall],
        streams: Sequence[Sequence[Feed]],
        open_artifact: Callable[[Path], Session],
    ) -> None:
        self.folder, self.artifacts, self.tolerance = folder, artifacts, tolerance
        self.steps, self.streams, self.open_artifact = steps, streams, open_artifact

    @property
    def compared(self) -> str:
        """The smallest bucket."""
        return _name(self.artifacts[0])

    def differences(self, advance: Advance) -> list[Difference]:
        """From the original, of the smallest artefact over chained steps, with the runtime's own optimisations."""
        emitted, steps = self.artifacts[0], self._repeated(self.steps)
        return compare(emitted.lowered, self._runner(emitted), steps, lambda done: advance(done, len(steps)))

    def disagreement(self, cases: Sequence[EdgeCase], limits: Tolerance) -> Disagreement | None:
        """The first edge feed that the smallest artefact answers otherwise than the original."""
        emitted = self.artifacts[0]
        rows, session = _rows(emitted), self._session(emitted)
        repeated = [case.with_rows(rows) for case in cases] if rows != 1 else cases
        return first_disagreement(emitted.lowered, lambda: Runner(emitted.lowered, session, rows), repeated, limits)

    def golden(self) -> bytes:
        """The golden file: the first calls as the smallest artefact answers them, and the states of the last."""
        emitted = self.artifacts[0]
        runner, lowered = self._runner(emitted), emitted.lowered
        states = {state.output for state in lowered.states}
        calls = self._repeated(self.steps[:GOLDEN_STEPS])
        recorded = []
        for index, step in enumerate(calls):
            outputs = _first_row(lowered, runner.step(step.feed))
            kept = {name: array for name, array in outputs.items() if index == len(calls) - 1 or name not in states}
            recorded.append(GoldenStep(_first_row(lowered, step.feed), kept))
        return npz_from_golden(Golden(tuple(recorded), self.tolerance))

    def apart(self) -> dict[str, tuple[str, float]]:
        """By bucket the output that is furthest from the same row in the smallest one, beside other streams."""
        alone = [list(self._run_alone(stream[:GOLDEN_STEPS])) for stream in self.streams]
        return self._of_every_bucket(lambda emitted: self._apart_from_alone(emitted, alone))

    def _apart_from_alone(self, emitted: Emitted, alone: Sequence[Sequence[Mapping[str, Array]]]) -> tuple[str, float]:
        """The output of a bucket that is furthest off, relative to values above 1."""
        rows = _rows(emitted)
        order = np.random.default_rng(rows).integers(0, len(self.streams), rows)
        count = min(len(alone[index]) for index in order)
        runner = self._runner(emitted)
        worst = ("", 0.0)
        for step in range(count):
            feeds = [self.streams[index][step] for index in order]
            outputs = runner.step({name: _side_by_side([feed[name] for feed in feeds]) for name in feeds[0]})
            for name, array in outputs.items():
                expected = _side_by_side([alone[index][step][name] for index in order])
                scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
                worst = max(worst, (name, max_abs_difference(array, expected) / scale), key=lambda each: each[1])
        return worst

    def invariance(self) -> dict[str, Invariance]:
        """Poison every padded place of every bucket; what was tried.

        Raises:
            GateFailed: an output changed by a bit.
        """
        feeds = self.streams[0][:GOLDEN_STEPS]
        return self._of_every_bucket(
            lambda emitted: check_invariance(emitted.lowered, self._session(emitted), _rows(emitted), feeds)
        )

    def _of_every_bucket(self, measure: Callable[[Emitted], T]) -> dict[str, T]:
        """What is measured of each bucket; the largest, which takes longest, begins."""
        largest_first = self.artifacts[::-1]
        found = dict(zip(map(_name, largest_first), on_all_cores(measure, largest_first), strict=True))
        return {_name(emitted): found[_name(emitted)] for emitted in self.artifacts}

    def _session(self, emitted: Emitted) -> Session:
        return self.open_artifact(self.folder / emitted.file)

    def _runner(self, emitted: Emitted) -> Runner:
        return Runner(emitted.lowered, self._session(emitted), _rows(emitted))

    def _repeated(self, steps: Sequence[OriginalCall]) -> Sequence[OriginalCall]:
        """For every row of the smallest artefact."""
        rows = _rows(self.artifacts[0])
        return steps if rows == 1 else [step.repeated(rows) for step in steps]

    def _run_alone(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        emitted = self.artifacts[0]
        runner = self._runner(emitted)
        for feed in feeds:
            repeated = {name: np.repeat(array, _rows(emitted), axis=0) for name, array in feed.items()}
            yield _first_row(emitted.lowered, runner.step(repeated))


def _name(emitted: Emitted) -> str:
    return bucket_name(emitted.sizes)


def _rows(emitted: Emitted) -> int:
    return emitted.sizes.get(emitted.lowered.batch_axis or "", 1)


def _first_row(lowered: Lowered, arrays: Mapping[str, Array]) -> dict[str, Array]:
    if lowered.batch_axis is None:
        return dict(arrays)
    return {name: np.ascontiguousarray(array[:1]) for name, array in arrays.items()}


def _side_by_side(rows: Sequence[Array]) -> Array:
    return rows[0] if len(rows) == 1 else np.concatenate(rows)
