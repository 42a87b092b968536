"""The gates on graphs that run call after call: parity over chained calls, agreement of buckets, invariance to padding.

Rows of one batch are at the same step of different streams; what is padded are caches that are not full yet, and rows
that nobody uses.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from compiler.errors import GateFailed, Place
from compiler.recipe.gates import DriftGate, Limits
from compiler.records.drift_curves import DriftCurve
from compiler.records.gate_rows import at_most
from compiler.runners.ahead import on_all_cores
from compiler.runners.session import Session
from compiler.runners.stream import Runner, Step
from compiler.stages import Array, Feed, Lowered
from compiler.targets.base import Emitted
from compiler.verify.differences import Difference, compare, max_abs_difference
from compiler.verify.drift import Run, chained_feeds, measure_drift, require_bounded
from compiler.verify.edges import Disagreement, EdgeCase, first_disagreement
from compiler.verify.gates import GOLDEN_STEPS, Advance, require_parity
from compiler.verify.invariance import check_invariance
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import bucket_name

T = TypeVar("T")


class StreamGates:
    """The gates on the artefacts of one graph.

    Args:
        folder: where they lie.
        graph: its name.
        artifacts: one per bucket, the smallest first.
        limits: what is allowed.
        steps: the original's calls on one stream.
        streams: feeds to draw partners from.
        open_artifact: opens what stands for an artefact, by the path of its main file.
    """

    unit = "chained steps"

    def __init__(
        self,
        folder: Path,
        graph: str,
        artifacts: Sequence[Emitted],
        limits: Limits,
        steps: Sequence[Step],
        streams: Sequence[Sequence[Feed]],
        open_artifact: Callable[[Path], Session],
    ) -> None:
        self.folder, self.graph, self.artifacts, self.limits = folder, graph, artifacts, limits
        self.steps, self.streams, self.open_artifact = steps, streams, open_artifact
        self.recorded: tuple[GoldenStep, ...] = ()

    def check_parity(self, advance: Advance) -> list[Difference]:
        """Parity of the smallest artefact over chained steps, as it ships and with the runtime's own optimisations.

        Raises:
            GateFailed: a tensor differs by more than the gate allows.
        """
        emitted, steps = self.artifacts[0], self.steps
        rows = _rows(emitted)
        if rows != 1:
            steps = [step.repeated(rows) for step in steps]
        runner = _Recording(emitted.lowered, self._session(emitted), rows)
        differences = compare(emitted.lowered, runner, steps, lambda done: advance(done, len(steps)))
        require_parity(
            self.graph, f"verify {bucket_name(emitted.sizes)}", differences, self.limits,
            "every pass held its own parity, so this is the runtime's optimiser or rounding: compare with a looser "
            "max_abs",
        )  # fmt: skip
        self.recorded = tuple(runner.golden())
        return differences

    def disagreement(self, cases: Sequence[EdgeCase], limits: Limits) -> Disagreement | None:
        """The first edge feed that the smallest artefact answers otherwise than the original."""
        emitted = self.artifacts[0]
        rows, session = _rows(emitted), self._session(emitted)
        repeated = [case.with_rows(rows) for case in cases] if rows != 1 else cases
        return first_disagreement(emitted.lowered, lambda: Runner(emitted.lowered, session, rows), repeated, limits)

    def check_drift(self, gate: DriftGate, reference: Run, advance: Advance) -> list[DriftCurve]:
        """Whether the error of the smallest artefact stays bounded over many chained steps.

        Raises:
            GateFailed: it grows; names the state.
        """
        emitted = self.artifacts[0]
        rows = _rows(emitted)
        runner = Runner(emitted.lowered, self._session(emitted), rows)
        feeds = chained_feeds(self.streams, gate.steps)
        curves = measure_drift(
            emitted.lowered, runner, reference, feeds, rows, lambda done: advance(done, gate.steps)
        )  # fmt: skip
        require_bounded(self.graph, curves, gate)
        return curves

    def golden(self) -> bytes:
        """The golden file: the first calls as the smallest artefact answers them."""
        return npz_from_golden(Golden(self.recorded, self.limits.max_abs))

    def check_buckets(self) -> dict[str, float]:
        """Every bucket answers each row as the smallest one does, with other streams as random partners.

        Returns:
            Largest difference per bucket.

        Raises:
            GateFailed: names bucket and tensor.
        """
        alone = [list(self._run_alone(stream[:GOLDEN_STEPS])) for stream in self.streams]
        return self._of_every_bucket(lambda emitted: self._apart_from_alone(emitted, alone))

    def _apart_from_alone(self, emitted: Emitted, alone: Sequence[Sequence[Mapping[str, Array]]]) -> float:
        """The largest difference of a bucket, relative to values above 1."""
        rows = _rows(emitted)
        order = np.random.default_rng(rows).integers(0, len(self.streams), rows)
        count = min(len(alone[index]) for index in order)
        runner = Runner(emitted.lowered, self._session(emitted), rows)
        worst = 0.0
        for step in range(count):
            feeds = [self.streams[index][step] for index in order]
            outputs = runner.step({name: _side_by_side([feed[name] for feed in feeds]) for name in feeds[0]})
            for name, array in outputs.items():
                expected = _side_by_side([alone[index][step][name] for index in order])
                scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
                difference = max_abs_difference(array, expected) / scale
                worst = max(worst, difference)
                if not difference <= self.limits.max_abs:
                    raise GateFailed(
                        f"expected {name} of every row as alone within {self.limits.max_abs:.3g}, got {difference:.3g}",
                        cure="a row depends on its partners: report the graph",
                        place=Place(stage=f"verify {bucket_name(emitted.sizes)}", graph=self.graph, tensor=name),
                        rows=[at_most("buckets", self.graph, name, self.limits.max_abs, difference)],
                    )
        return worst

    def check_invariance(self) -> dict[str, Any]:
        """Poison every padded place of every bucket; what was tried.

        Raises:
            GateFailed: an output changed by a bit.
        """
        feeds = self.streams[0][:GOLDEN_STEPS]
        return self._of_every_bucket(
            lambda emitted: dataclasses.asdict(
                check_invariance(emitted.lowered, self._session(emitted), _rows(emitted), feeds)
            )
        )

    def _of_every_bucket(self, measure: Callable[[Emitted], T]) -> dict[str, T]:
        """What is measured of each bucket; the largest, which takes longest, begins."""
        largest_first = self.artifacts[::-1]
        found = dict(zip(map(_name, largest_first), on_all_cores(measure, largest_first), strict=True))
        return {_name(emitted): found[_name(emitted)] for emitted in self.artifacts}

    def _session(self, emitted: Emitted) -> Session:
        return self.open_artifact(self.folder / emitted.file)

    def _run_alone(self, feeds: Sequence[Feed]) -> Iterator[dict[str, Array]]:
        emitted = self.artifacts[0]
        rows = _rows(emitted)
        runner = Runner(emitted.lowered, self._session(emitted), rows)
        for feed in feeds:
            repeated = {name: np.repeat(array, rows, axis=0) for name, array in feed.items()}
            yield _first_row(emitted.lowered, runner.step(repeated))


def _name(emitted: Emitted) -> str:
    return bucket_name(emitted.sizes)


def _rows(emitted: Emitted) -> int:
    return emitted.sizes.get(emitted.lowered.batch_axis or "", 1)


class _Recording(Runner):
    """A runner that keeps its first calls for the golden file."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.recorded: list[GoldenStep] = []

    def step(self, feed: Feed, more: Feed | None = None) -> dict[str, Array]:
        outputs = super().step(feed, more)
        if len(self.recorded) < GOLDEN_STEPS:
            self.recorded.append(GoldenStep(_first_row(self.lowered, feed), _first_row(self.lowered, outputs)))
        return outputs

    def golden(self) -> Iterator[GoldenStep]:
        """Data of every step, and the states of the last."""
        states = {state.output for state in self.lowered.states}
        for index, step in enumerate(self.recorded):
            last = index == len(self.recorded) - 1
            kept = {name: array for name, array in step.outputs.items() if last or name not in states}
            yield GoldenStep(step.feeds, kept)


def _first_row(lowered: Lowered, arrays: Mapping[str, Array]) -> dict[str, Array]:
    if lowered.batch_axis is None:
        return dict(arrays)
    return {name: np.ascontiguousarray(array[:1]) for name, array in arrays.items()}


def _side_by_side(rows: Sequence[Array]) -> Array:
    return rows[0] if len(rows) == 1 else np.concatenate(rows)
