"""Runs the artefacts of a graph on whole utterances: every row alone, in larger buckets, and beside other rows.

What ships is compared with the original run on each utterance alone, at its true length; then every bucket with the
smallest one that fits; then nothing that lies in padded slots, in free rows or in other rows may change a single bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.base.records.findings import Finding
from compiler.build.verify.differences import Difference, Tally
from compiler.build.verify.edge_agreement import Disagreement, EdgeCase, first_disagreement
from compiler.build.verify.invariance_check import POISONS, Invariance
from compiler.build.verify.stream_artefacts import GOLDEN_STEPS
from compiler.errors import DataError, GateFailed, Location
from compiler.graph.runners.padded_rows import RowsRunner, Sizes
from compiler.graph.runners.session import Session
from compiler.graph.runners.stream import Advance, OriginalCall
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import Tolerance
from compiler.targets.base import Emitted
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import bucket_name

CALLS = 2
"""Calls per bucket with partners drawn anew."""


class UtteranceArtefacts:
    """The artefacts of one graph.

    Args:
        folder: where they lie.
        lowered: the graph before its axes were frozen: it has the formulas of output sizes.
        artifacts: in every combination of buckets.
        limits: of golden outputs.
        steps: utterances with the original's answers.
        open_artifact: opens what stands for an artefact, by the path of its main file.

    Raises:
        DataError: no utterance fits into the smallest bucket.
    """

    unit = "utterances"
    compared = ""

    def __init__(
        self,
        folder: Path,
        lowered: Lowered,
        artifacts: Sequence[Emitted],
        limits: Tolerance,
        steps: Sequence[OriginalCall],
        open_artifact: Callable[[Path], Session],
    ) -> None:
        self.open_artifact = open_artifact
        self.folder, self.lowered, self.artifacts, self.limits = folder, lowered, artifacts, limits
        self.runners: dict[str, RowsRunner] = {}
        self.steps = sorted(steps, key=self._size)
        self._answers: dict[int, dict[str, Array]] = {}
        for emitted in artifacts:
            if not self._fits(0, emitted):
                raise DataError(
                    f"expected an utterance that fits into {bucket_name(emitted.sizes)}, got "
                    f"{self._lengths(0)} as the shortest",
                    cure="yield a short one too, or drop the bucket",
                    place=Location(stage="verify", graph=lowered.graph),
                )

    def _size(self, step: OriginalCall) -> int:
        return sum(array.size for array in step.feed.values())

    def _runner(self, emitted: Emitted) -> RowsRunner:
        bucket = bucket_name(emitted.sizes)
        if bucket not in self.runners:
            rows = emitted.sizes.get(self.lowered.batch_axis or "", 1)
            session = self.open_artifact(self.folder / emitted.file)
            self.runners[bucket] = RowsRunner(self.lowered, session, Sizes(rows, emitted.sizes))
        return self.runners[bucket]

    def _lengths(self, index: int) -> dict[str, int]:
        return self._runner(self.artifacts[0]).lengths_of(self.steps[index].feed)

    def _fits(self, index: int, emitted: Emitted) -> bool:
        return Sizes(1, emitted.sizes).hold(self._lengths(index))

    def _alone(self, feed: Feed) -> dict[str, Array]:
        """Return the result of one utterance in the smallest artefact that holds it."""
        lengths = self._runner(self.artifacts[0]).lengths_of(feed)
        fitting = [emitted for emitted in self.artifacts if Sizes(1, emitted.sizes).hold(lengths)]
        smallest = min(fitting, key=lambda emitted: int(np.prod(list(emitted.sizes.values()))))
        return self._runner(smallest).step(feed)

    def answer(self, index: int) -> dict[str, Array]:
        """Return the result of one utterance alone, cached, as every bucket is compared with it."""
        if index not in self._answers:
            self._answers[index] = self._alone(self.steps[index].feed)
        return self._answers[index]

    def differences(self, advance: Advance, most: int | None = None) -> list[Difference]:
        """Return the differences from the original of utterances alone in their smallest bucket.

        Args:
            advance: called with progress.
            most: number of utterances to run, of all sizes; None for all.
        """
        tallies: dict[str, Tally] = {}
        chosen = range(len(self.steps)) if most is None else self._of_all_sizes(most)
        for done, index in enumerate(chosen, start=1):
            for name, array in self.answer(index).items():
                tallies.setdefault(name, Tally(name)).add(array, self.steps[index].outputs[name])
            advance(done, len(chosen))
        return [tally.difference() for tally in tallies.values()]

    def _of_all_sizes(self, most: int) -> list[int]:
        """Return indices of at most `most` utterances, including the shortest and the longest."""
        return sorted({*np.linspace(0, len(self.steps) - 1, most).astype(int).tolist()})

    def disagreement(self, cases: Sequence[EdgeCase], limits: Tolerance) -> Disagreement | None:
        """Return the first edge feed on which an artefact's results differ from the original's, or None."""
        return first_disagreement(self.lowered, lambda: _Alone(self._alone), cases, limits)

    def golden(self) -> bytes:
        """Return the golden file: utterances of all sizes, including the shortest, with the artefacts' results."""
        chosen = self._of_all_sizes(GOLDEN_STEPS)
        steps = tuple(GoldenStep(dict(self.steps[index].feed), self.answer(index)) for index in chosen)
        return npz_from_golden(Golden(steps, self.limits.max_abs, self.limits.min_equal))

    def apart(self) -> dict[str, list[Difference]]:
        """Return, by bucket, the differences of a row beside random rows of other lengths from that row alone."""
        return {bucket_name(emitted.sizes): self._apart_from_alone(emitted) for emitted in self.artifacts}

    def _apart_from_alone(self, emitted: Emitted) -> list[Difference]:
        tallies: dict[str, Tally] = {}
        for rows in self._draws(emitted):
            outputs = self._runner(emitted).run([self.steps[index].feed for index in rows])
            for index, answer in zip(rows, outputs, strict=True):
                for name, array in answer.items():
                    tallies.setdefault(name, Tally(name)).add(array, self.answer(index)[name])
        return [tally.difference() for tally in tallies.values()]

    def invariance(self) -> dict[str, Invariance]:
        """Require that the contents of padded slots, free rows and other rows change no bit of a valid output.

        Raises:
            GateFailed: an output changed; the message names bucket, tensor and content.
        """
        tried = {}
        for emitted in self.artifacts:
            runner, calls = self._runner(emitted), 0
            for rows in self._draws(emitted):
                feeds = [self.steps[index].feed for index in rows]
                feeds = feeds[:-1] or feeds  # one row stays free, where there are several
                clean = runner.run(feeds)
                for label, poison in POISONS.items():
                    self._require_same(emitted, clean, runner.run(feeds, poison), f"unchanged by {label} in padding")
                for row in (0, len(feeds) - 1) if len(feeds) > 1 else ():
                    others = [
                        feed if position == row else _spoiled(runner, feed) for position, feed in enumerate(feeds)
                    ]
                    got = runner.run(others, np.nan)[row]
                    self._require_same(emitted, [clean[row]], [got], "unchanged by NaN in other rows")
                calls += 1
            rows_of_bucket = emitted.sizes.get(self.lowered.batch_axis or "", 1)
            tried[bucket_name(emitted.sizes)] = Invariance(rows_of_bucket, calls, tuple(POISONS))
        return tried

    def _draws(self, emitted: Emitted) -> Iterator[list[int]]:
        """Yield full batches of utterances; those that cannot share a call with the longest are replaced by it."""
        rows = emitted.sizes.get(self.lowered.batch_axis or "", 1)
        fitting = [index for index in range(len(self.steps)) if self._fits(index, emitted)]
        rng = np.random.default_rng(rows)
        for _ in range(CALLS):
            drawn = rng.choice(fitting, rows).tolist()
            longest = max(drawn)  # as `steps` ascend in size
            feed = self.steps[longest].feed
            yield [each if self._runner(emitted).shares(self.steps[each].feed, feed) else longest for each in drawn]

    def _require_same(
        self, emitted: Emitted, clean: Sequence[Mapping[str, Any]], got: Sequence[Mapping[str, Any]], what: str
    ) -> None:
        for before, after in zip(clean, got, strict=True):
            for name, array in before.items():
                if np.ascontiguousarray(array).tobytes() != np.ascontiguousarray(after[name]).tobytes():
                    raise GateFailed(
                        f"expected {name} {what}, got other values",
                        cure="a row depends on its padding or its partners although the proof holds: report the graph",
                        place=Location(
                            stage=f"verify {bucket_name(emitted.sizes)}", graph=self.lowered.graph, tensor=name
                        ),
                        findings=[Finding("invariance", self.lowered.graph, name, holds=False)],
                    )


class _Alone:
    """Runs one utterance after the other, each in the bucket that fits."""

    def __init__(self, answer: Callable[[Feed], dict[str, Array]]) -> None:
        self.step = answer
        self.states: dict[str, Array] = {}


def _spoiled(runner: RowsRunner, feed: Feed) -> Feed:
    """Return a row of the same lengths that holds NaN; integers and shared inputs are unchanged."""
    return {
        name: np.full_like(array, np.nan) if array.dtype.kind == "f" and not runner.is_shared(name) else array
        for name, array in feed.items()
    }
