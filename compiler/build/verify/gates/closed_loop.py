"""Runs an artefact in its vendor's simulator, chunk by chunk until past full caches, and compares it with the original.

The artefact is what ships, executed by the executor of the runtime: its states go into its next call. The first and the
last chunk are held to the limits of parity, because a stream may begin well and drift, and the other way round. Where
places are hidden in a call, it runs again with poison in them, each in turn. A simulator takes seconds for a call, so
the smallest artefact alone runs, and no longer than that.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler.base.records.findings import Finding, at_most
from compiler.build.verify.bucket_runner import BucketRunners
from compiler.build.verify.differences import Difference, Tally
from compiler.build.verify.gate import Checked, Gate, Shipped
from compiler.build.verify.invariance_check import POISONS, changed_output
from compiler.calib.noise import Noise
from compiler.errors import GateFailed, Location
from compiler.graph.runners.coded_states import states_in_numbers
from compiler.graph.runners.stream import Advance, OriginalCall, Runner, expected_of, poisoned
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.gates import Tolerance
from compiler.recipe.record import Recipe
from runtime_lite.executors.executor import Executor
from runtime_lite.format.manifest import Artifact, Graph, static_shape
from runtime_lite.format.reader import read_bundle

LEAST_CHUNKS = 8
"""Fewer do not show a drift. Source: closed loops of ten chunks, in which faults of calibration became visible."""

BEHIND_THE_WINDOW = 4
"""Chunks that follow when every cache is full."""


@dataclasses.dataclass(frozen=True)
class ExecutorSession:
    """One bucket of an executor of the runtime, as gates call graphs.

    Attributes:
        executor: runs it.
        graph: the manifest's record.
        artifact: the bucket.
    """

    executor: Executor
    graph: Graph
    artifact: Artifact

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        """Return outputs in the order of `names`; all outputs where it is None."""
        found = {
            each.name: np.empty(static_shape(each.shape, self.artifact.sizes), each.dtype)
            for each in self.graph.outputs
        }
        self.executor.run(self.artifact.sizes, feeds, found)
        return [found[name] for name in names or found]


class TensorInLoop:
    """Errors of one output or state, chunk by chunk.

    Args:
        tensor: its name.
    """

    def __init__(self, tensor: str) -> None:
        self.tally = Tally(tensor)
        self.sqnr_db: list[float | None] = []
        self.same = self.rows = 0

    def add(self, got: Array, expected: Array, *, has_classes: bool) -> None:
        """Compare a chunk; where an output has classes along its last axis, the largest of each row as well."""
        self.tally.add(got, expected)
        noise = Noise()
        noise.add(got, expected)
        self.sqnr_db.append(noise.sqnr_db)
        if has_classes:
            same = got.argmax(-1) == expected.argmax(-1)
            self.same, self.rows = self.same + int(np.count_nonzero(same)), self.rows + same.size

    def findings(self, graph: str, limits: Tolerance) -> list[Finding]:
        """Return what is promised of the tensor, with what was measured."""
        difference, ends = self.tally.difference(), (self.sqnr_db[0], self.sqnr_db[-1])
        said = f"SQNR of the first chunk {_decibels(ends[0])}, of the last {_decibels(ends[1])}"
        steps = f"{difference.steps} chunks, reference up to {difference.reference_max:.3g}"
        worst = min((each for each in ends if each is not None), default=None)
        found = [_of_distance(graph, difference, limits, f"{steps}, {said}", worst)]
        if limits.sqnr_db is not None:
            holds = worst is None or worst >= limits.sqnr_db
            tensor = difference.tensor
            found.append(Finding("simulator.sqnr_db", graph, tensor, worst, limits.sqnr_db, holds, said, is_least=True))
        if self.rows:
            share = self.same / self.rows
            detail = f"{self.same} of {self.rows} rows have their largest entry at the same place"
            found.append(Finding("simulator.argmax", graph, difference.tensor, share, holds=True, detail=detail))
        return found


def _decibels(sqnr_db: float | None) -> str:
    return "without a difference" if sqnr_db is None else f"{sqnr_db:.1f} dB"


def _of_distance(graph: str, difference: Difference, limits: Tolerance, detail: str, sqnr_db: float | None) -> Finding:
    return at_most(
        "simulator.max_abs",
        graph,
        difference.tensor,
        limit=difference.limit(limits),
        measured=difference.max_abs,
        detail=detail,
        figures={"sqnr_db": sqnr_db},
    )


def chunks_needed(lowered: Lowered) -> int:
    """Return how many chunks show a stream from its start until some chunks after its caches have overflowed."""
    full = max((cache.calls_to_fill for cache in lowered.caches), default=0)
    return max(LEAST_CHUNKS, full + BEHIND_THE_WINDOW)


def run_loop(
    runner: Runner, record: Lowered, steps: Sequence[OriginalCall], advance: Advance
) -> tuple[dict[str, TensorInLoop], int]:
    """Run chunks in a closed loop; return the errors by tensor, and how many calls ran again with poison.

    Args:
        runner: a fresh runner of the artefact.
        record: the record of its graph.
        steps: the original's calls, in order.
        advance: called with progress.

    Raises:
        GateFailed: poison in a hidden place changes an output.
    """
    found: dict[str, TensorInLoop] = {}
    states = {state.input for state in record.states}
    active, calls = np.ones(runner.batch, np.bool_), 0
    for position, step in enumerate(steps):
        full = runner.full_feed(step.feed)
        clean = runner.step(step.feed)
        got = {**clean, **states_in_numbers(record, runner.states)}
        for name, expected in expected_of(record, step).items():
            if name in got:
                has_classes = name not in states and expected.dtype.kind == "f" and expected.ndim > 1
                found.setdefault(name, TensorInLoop(name)).add(got[name], expected, has_classes=has_classes)
        label = list(POISONS)[position % len(POISONS)]
        if _hides(record, full, active, POISONS[label]):
            calls += 1
            changed = changed_output(runner, full, clean, active, [label] * runner.batch)
            if changed is not None:
                raise GateFailed(
                    f"expected {changed} unchanged by {label} in hidden places, got other values at chunk {position}: "
                    "the simulator computes with what the graph hides",
                    cure="hide it with other operators in the model, or build for another target",
                    place=Location(stage=CLOSED_LOOP.name, graph=record.graph, tensor=changed),
                    findings=[Finding("simulator.poison", record.graph, changed, holds=False)],
                )
        advance(position + 1, len(steps))
    return found, calls


def _hides(record: Lowered, full: Feed, active: Array, poison: float) -> bool:
    """Whether a call has places that its results do not depend on."""
    spoiled = poisoned(record, full, active, [poison] * len(active))
    return any(array.tobytes() != full[name].tobytes() for name, array in spoiled.items())


def _check(shipped: Shipped, advance: Advance) -> Checked:
    graph, name = shipped.graph, shipped.name
    needed = chunks_needed(graph.lowered)
    if len(graph.steps) < needed:
        raise GateFailed(
            f"expected {needed} chunks of one stream, so that every cache overflows in the simulator, got "
            f"{len(graph.steps)}",
            cure=f"set gates.parity.{name}.chained_steps to {needed} at least, and verify on longer streams",
            place=Location(stage=CLOSED_LOOP.name, graph=name),
        )
    with read_bundle(shipped.folder) as bundle:
        manifest_graph = bundle.manifest.graphs[name]
        artifacts = {each.file: each for each in manifest_graph.artifacts}
        executor = shipped.executors(bundle, name, 1)
        try:
            runners = BucketRunners(
                graph.lowered,
                graph.built.artifacts,
                lambda file: ExecutorSession(executor, manifest_graph, artifacts[file]),
            )
            emitted = graph.built.artifacts[0]
            rows = runners.rows(emitted)
            steps = [step if rows == 1 else step.repeated(rows) for step in graph.steps[:needed]]
            tensors, calls = run_loop(runners.runner(emitted), runners.record(emitted), steps, advance)
        finally:
            executor.close()
    findings = [each for tensor in tensors.values() for each in tensor.findings(name, graph.limits)]
    poison = f"{calls} calls again with {', '.join(POISONS)} in hidden places, no bit changed"
    findings.append(Finding("simulator.poison", name, holds=True, detail=poison))
    return Checked(
        findings, f"{len(steps)} chunks, {poison}", {"closed_loop": _receipt(shipped.simulated, tensors, calls)}
    )


def _receipt(words: str, tensors: Mapping[str, TensorInLoop], calls: int) -> dict[str, Any]:
    return {
        "words": words,
        "chunks": max((len(each.sqnr_db) for each in tensors.values()), default=0),
        "poisoned_calls": calls,
        "tensors": {
            name: {
                "first_sqnr_db": each.sqnr_db[0],
                "last_sqnr_db": each.sqnr_db[-1],
                "max_abs": each.tally.difference().max_abs,
                "argmax": each.same / each.rows if each.rows else None,
            }
            for name, each in tensors.items()
        },
    }


def _wanted(recipe: Recipe, shipped: Shipped) -> bool:
    return bool(shipped.simulated and shipped.graph.lowered.states)


CLOSED_LOOP = Gate(
    "closed loop",
    _check,
    lambda recipe, graph: (),
    _wanted,
    phases=("engines",),
    cure="allow more under gates.parity.<graph>.lossy if the figures allow it, or keep the graph off this device",
)
