"""Runs the artefacts of a streaming graph: chained beside the original, row beside row, and with poisoned padding.

Rows of one batch are at the same step of different streams; what is padded are caches that are not full yet, chunks
that are shorter than their slots, and rows that nobody uses. A chunk runs in the smallest graph that holds it.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from compiler.build.verify.bucket_runner import BucketRunners
from compiler.build.verify.chunk_lengths import Flush, chunk_axis, varied
from compiler.build.verify.differences import Difference, Tally, compare
from compiler.build.verify.edge_agreement import Disagreement, EdgeCase, first_disagreement
from compiler.build.verify.invariance_check import Invariance, check_invariance
from compiler.graph.runners.ahead import on_all_cores
from compiler.graph.runners.padded_chunks import rows_of, side_by_side
from compiler.graph.runners.session import Session
from compiler.graph.runners.stream import Advance, OriginalCall
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import Tolerance
from compiler.targets.base import Emitted
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import bucket_name

T = TypeVar("T")

GOLDEN_STEPS = 12
"""Recorded calls: enough to overflow a window of 128 frames by chunks of 16."""


class StreamArtefacts:
    """The artefacts of one graph.

    Args:
        folder: where they lie.
        lowered: the graph before its axes were frozen.
        artifacts: one per combination of buckets, the smallest first.
        limits: of golden outputs.
        steps: the original's calls on one stream.
        streams: feeds to draw partners from.
        open_artifact: opens what stands for an artefact, by the path of its main file.
        flush: what completes a stream whose outputs lag.
    """

    unit = "chained steps"

    def __init__(
        self,
        folder: Path,
        lowered: Lowered,
        artifacts: Sequence[Emitted],
        limits: Tolerance,
        steps: Sequence[OriginalCall],
        streams: Sequence[Sequence[Feed]],
        open_artifact: Callable[[Path], Session],
        flush: Flush,
    ) -> None:
        self.flush = flush
        self.artifacts, self.limits, self.steps, self.streams = artifacts, limits, steps, streams
        self.runners = BucketRunners(lowered, artifacts, lambda file: open_artifact(folder / file))

    @property
    def compared(self) -> str:
        """Return the name of the smallest bucket."""
        return _name(self.artifacts[0])

    def differences(self, advance: Advance, most: int | None = None) -> list[Difference]:
        """Return the differences of the smallest artefact from the original over chained steps, as the runtime runs it.

        Args:
            advance: called with progress.
            most: number of first steps to run; None for all.
        """
        emitted, steps = self.artifacts[0], self._repeated(self.steps[:most])
        return compare(
            self.runners.record(emitted), self.runners.runner(emitted), steps, lambda done: advance(done, len(steps))
        )

    def disagreement(self, cases: Sequence[EdgeCase], limits: Tolerance) -> Disagreement | None:
        """Return the first edge feed on which the smallest artefact's results differ from the original's; else None."""
        emitted = self.artifacts[0]
        rows, session = self.runners.rows(emitted), self.runners.session(emitted)
        repeated = [case.with_rows(rows) for case in cases] if rows != 1 else cases
        return first_disagreement(
            self.runners.record(emitted), lambda: self.runners.runner(emitted, session), repeated, limits
        )

    def golden(self) -> bytes:
        """Return the golden file: first calls with the smallest artefact's results, and the states of the last.

        The last one is the call that completes a stream, where the recipe declares one.
        """
        emitted = self.artifacts[0]
        runner, lowered = self.runners.runner(emitted), self.runners.record(emitted)
        states = {state.output: state.input for state in lowered.states}
        calls = varied(lowered, [step.feed for step in self._repeated(self.steps[:GOLDEN_STEPS])])
        axis = chunk_axis(lowered)
        if axis is not None:
            calls = [*calls, *self.flush.feeds(lowered, calls[-1], axis)]
        recorded = []
        for index, feed in enumerate(calls):
            outputs = {name: array for name, array in runner.step(feed).items() if name not in states}
            if index == len(calls) - 1:
                outputs |= {output: runner.states[fed] for output, fed in states.items()}
            recorded.append(GoldenStep(_first_row(lowered, feed), _first_row(lowered, outputs)))
        return npz_from_golden(Golden(tuple(recorded), self.limits.max_abs, self.limits.min_equal))

    @functools.cached_property
    def _varied(self) -> list[Sequence[Feed]]:
        """Return the beginning of every stream, with chunks of different lengths where a graph accepts them."""
        return [varied(self.runners.lowered, each[:GOLDEN_STEPS], turn) for turn, each in enumerate(self.streams)]

    def apart(self) -> dict[str, list[Difference]]:
        """Return, by bucket, the differences of a row beside other streams from the same row in the smallest one."""
        alone = [list(self._run_alone(stream)) for stream in self._varied]
        return self._of_every_bucket(lambda emitted: self._apart_from_alone(emitted, alone))

    def _apart_from_alone(self, emitted: Emitted, alone: Sequence[Sequence[Mapping[str, Array]]]) -> list[Difference]:
        rows = self.runners.rows(emitted)
        order = np.random.default_rng(rows).integers(0, len(self.streams), rows)
        count = min(len(alone[index]) for index in order)
        runner = self.runners.runner(emitted)
        tallies: dict[str, Tally] = {}
        for step in range(count):
            outputs = runner.step(side_by_side(runner.lowered, [self._varied[index][step] for index in order]))
            for name, array in outputs.items():
                expected = [alone[index][step][name] for index in order]
                got = rows_of(array, expected, has_rows=runner.lowered.batch_axis is not None)
                for row, right in zip(got, expected, strict=True):
                    tallies.setdefault(name, Tally(name)).add(row, right)
        return [tally.difference() for tally in tallies.values()]

    def invariance(self) -> dict[str, Invariance]:
        """Poison every padded slot of every bucket, and return the findings.

        Raises:
            GateFailed: an output changed by a bit.
        """
        feeds = varied(self.runners.lowered, self.streams[0][:GOLDEN_STEPS])
        return self._of_every_bucket(lambda emitted: check_invariance(self.runners.runner(emitted), feeds))

    def _of_every_bucket(self, measure: Callable[[Emitted], T]) -> dict[str, T]:
        """Return a measurement of each bucket; the largest, which takes longest, starts first."""
        largest_first = self.artifacts[::-1]
        found = dict(zip(map(_name, largest_first), on_all_cores(measure, largest_first), strict=True))
        return {_name(emitted): found[_name(emitted)] for emitted in self.artifacts}

    def _repeated(self, steps: Sequence[OriginalCall]) -> Sequence[OriginalCall]:
        """Return steps with the feed repeated for every row of the smallest artefact."""
        rows = self.runners.rows(self.artifacts[0])
        return steps if rows == 1 else [step.repeated(rows) for step in steps]

    def _run_alone(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        emitted = self.artifacts[0]
        runner = self.runners.runner(emitted)
        for feed in feeds:
            repeated = {name: np.repeat(array, self.runners.rows(emitted), axis=0) for name, array in feed.items()}
            yield _first_row(self.runners.record(emitted), runner.step(repeated))


def _name(emitted: Emitted) -> str:
    return bucket_name(emitted.sizes)


def _first_row(lowered: Lowered, arrays: Mapping[str, Array]) -> dict[str, Array]:
    if lowered.batch_axis is None:
        return dict(arrays)
    return {name: np.ascontiguousarray(array[:1]) for name, array in arrays.items()}
