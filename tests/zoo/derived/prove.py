"""Derives the steps of a decoder as a build does, runs the passes, and holds what comes out to the module itself.

Three rows decode greedily, each from a prompt of its own length; the module is then asked once about every whole
sequence, so that the token of every step is compared. The same sequences go through in chunks of random lengths, and
copies of calls with other frames behind a chunk's end, and NaN, infinities and huge numbers in free slots and free
rows, must answer the same bits.
"""

import dataclasses
from collections.abc import Mapping
from unittest import mock

import numpy as np
import torch

from compiler.build.capture import torch_module
from compiler.build.capture.derived_steps import DerivedModel, derived_model, with_caches
from compiler.build.capture.initial_graph import initial_graph
from compiler.build.capture.onnx_source.onnx_file import require_runnable
from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import Runner, poisoned
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Array, Lowered
from compiler.passes import make_pass
from compiler.passes.merge_kv_heads import MergeKvHeads
from tests.kit.calibration import with_streams
from tests.zoo.derived.family import BATCH, CHUNK, LETTERS, MOST_LETTERS, TIME, WholeFamily

ROWS = 3
POISONS = ((np.nan, np.inf, -np.inf), (1e30, -1e30, np.nan))
TOLERANCE = 1e-4
LONGEST = {BATCH: 4, TIME: CHUNK, LETTERS: MOST_LETTERS}


class Differs(AssertionError):
    """What was derived is not the module, or poison shows."""


@dataclasses.dataclass(frozen=True)
class Followed:
    """What came of a decoder.

    Attributes:
        caches: that were found.
        nodes: of what is built.
        replayed: steps of certificates that the checker made again, the derivation's among them.
        error: the largest difference of scores to the module, relative to the largest score.
        tokens: that were compared.
        ties: tokens that differ where the module's two best scores are nearer than the error.
    """

    caches: int
    nodes: int
    replayed: int
    error: float
    tokens: int
    ties: int


def follow(family: WholeFamily, steps: int) -> Followed:
    """Derive steps and follow them.

    Raises:
        Differs: they are not the module.
        SlipwayError: they are refused, or the checker rejects a proof.
    """
    module, made, lowered = derived(family, steps)
    if family.groups is not None:
        lowered = _merged(family, lowered)
    replayed = made.steps
    for each in family.spec.passes:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        outcome = make_pass(each.name, {}).apply(lowered)
        check_between_passes(outcome.lowered)
        replayed += replay_certificates(before, outcome)
        lowered = outcome.lowered
    graphs.infer_shapes(lowered.model)
    trial = _Trial(family, module, lowered)
    sequences = trial.decoded(steps)
    trial.in_chunks(sequences)
    nodes = sum(1 for _ in lowered.model.graph)
    return Followed(len(made.certificate["caches"]), nodes, replayed, trial.error, trial.tokens, trial.ties)


def derived(family: WholeFamily, steps: int) -> tuple[torch.nn.Module, DerivedModel, Lowered]:
    """The module of a family with random weights, its steps, and their graph as a build has it before the first pass.

    Raises:
        SlipwayError: it is refused, or the checker rejects the proof of the steps.
    """
    torch.manual_seed(0)
    module, spec = family.build().eval(), family.spec
    model = torch_module.capture_module(module, family.name, spec, list(spec.inputs))
    require_runnable(model, family.name, Location(stage="capture", graph=family.name))
    made = derived_model(model, family.name, spec)
    spec = with_caches(spec, made.model, made.certificate)
    return module, made, initial_graph(mock.Mock(), family.name, spec, (made.model, None), steps, LONGEST)


def _merged(family: WholeFamily, steps: Lowered) -> Lowered:
    """Steps in which heads of attention share keys and values, measured on streams at random."""
    rng = np.random.default_rng(1)
    streams = [
        [{name: given.drawn(rng, frames) for name, given in family.inputs.items()} for frames in (CHUNK, 1, 1, CHUNK)]
        for _ in range(5)
    ]
    assert family.groups is not None
    outcome = MergeKvHeads(family.groups).apply(with_streams(steps, *streams))
    if outcome.refused or not outcome.rewritten:
        raise Differs(f"heads are not merged: {outcome.refused}")
    return dataclasses.replace(outcome.lowered, calibration=None)


class _Trial:
    def __init__(self, family: WholeFamily, module: torch.nn.Module, lowered: Lowered) -> None:
        self.family, self.module, self.lowered = family, module, lowered
        self.session: Session = session_of(lowered.model)
        self.rng = np.random.default_rng(0)
        self.fed, *self.others = family.inputs
        self.same = {name: [family.inputs[name].drawn(self.rng, 1) for _ in range(ROWS)] for name in self.others}
        self.error, self.tokens, self.ties = 0.0, 0, 0

    @staticmethod
    def _rows(arrays: list[Array]) -> Array:
        return np.concatenate(arrays)

    def _axis(self) -> int:
        return self.family.inputs[self.fed].shape.index(TIME)

    def _feed(self, chunks: list[Array]) -> dict[str, Array]:
        """A call with a chunk and a text per row, padded with zeros."""
        feed = {}
        for name, rows in {self.fed: chunks, **self.same}.items():
            for at, dim in enumerate(self.family.inputs[name].shape):
                if dim in (TIME, LETTERS):
                    feed[f"{dim}_length"] = np.array([each.shape[at] for each in rows], np.int64)
            most = np.max([each.shape for each in rows], axis=0)
            feed[name] = self._rows(
                [np.pad(each, [(0, size) for size in most - np.array(each.shape)]) for each in rows]
            )
        return feed

    def decoded(self, steps: int) -> list[Array]:
        """Sequences that the steps decode greedily, compared with the module."""
        given = self.family.inputs[self.fed]
        rows = [given.drawn(self.rng, int(self.rng.integers(1, CHUNK + 1))) for _ in range(ROWS)]
        runner = Runner(self.lowered, self.session, ROWS)
        chunks, answers = rows, [[] for _ in range(ROWS)]  # type: list[Array], list[list[Array]]
        for _ in range(steps):
            scores = runner.step(self._feed(chunks))["scores"]
            for row, chunk in enumerate(chunks):
                answers[row].append(scores[row : row + 1, : chunk.shape[self._axis()]])
            chunks = [self._next(each[-1], chunks[row]) for row, each in enumerate(answers)]
            rows = [np.concatenate([row, chunk], self._axis()) for row, chunk in zip(rows, chunks, strict=True)]
        rows = [row.take(range(row.shape[self._axis()] - 1), self._axis()) for row in rows]
        for number, (sequence, parts) in enumerate(zip(rows, answers, strict=True)):
            self._compare(number, sequence, np.concatenate(parts, axis=1))
        return rows

    def _next(self, scores: Array, chunk: Array) -> Array:
        """The next frame: the best token, of every codebook; of a model that takes frames, numbers at random."""
        given = self.family.inputs[self.fed]
        if not given.below:
            return given.drawn(self.rng, 1)
        best = scores[:, -1].argmax(-1)
        shape = [1 if dim in (BATCH, TIME) else int(dim) for dim in given.shape]
        return np.asarray(best.reshape(shape), chunk.dtype)

    def _original(self, number: int, row: Array) -> Array:
        with torch.no_grad():
            others = [torch.from_numpy(self.same[name][number]) for name in self.others]
            found: Array = self.module(torch.from_numpy(row), *others).numpy()
        return found

    def _compare(self, number: int, row: Array, got: Array) -> None:
        expected = self._original(number, row)
        if got.shape != expected.shape:
            raise Differs(f"expected scores of shape {expected.shape}, got {got.shape}")
        difference = float(np.abs(got - expected).max())
        error = difference / float(np.abs(expected).max())
        if not error <= TOLERANCE:
            raise Differs(f"row {number} differs by {error:.2g} of the largest score")
        self.error = max(self.error, error)
        if self.family.inputs[self.fed].below:
            others = got.argmax(-1) != expected.argmax(-1)
            best = np.sort(expected, axis=-1)
            near = best[..., -1] - best[..., -2] <= 2 * difference
            if bool((others & ~near).any()):
                raise Differs(f"row {number} decodes other tokens, and no two scores are near")
            self.tokens, self.ties = self.tokens + others.size, self.ties + int(others.sum())

    def in_chunks(self, rows: list[Array]) -> None:
        """The same sequences in chunks of random lengths of their own, with poison in copies of the calls."""
        axis = self._axis()
        runner = Runner(self.lowered, self.session, ROWS)
        at, answers = [0] * ROWS, [[] for _ in range(ROWS)]  # type: list[int], list[list[Array]]
        call = 0
        while all(start < row.shape[axis] for start, row in zip(at, rows, strict=True)):
            ends = [min(start + int(self.rng.integers(1, CHUNK + 1)), row.shape[axis])
                    for start, row in zip(at, rows, strict=True)]  # fmt: skip
            chunks = [row.take(range(start, end), axis) for row, start, end in zip(rows, at, ends, strict=True)]
            feed = self._feed(chunks)
            full = runner.full_feed(feed)
            scores = runner.step(feed)["scores"]
            if call % 4 == 0:
                self._require_same_bits(full, chunks)
            for row in range(ROWS):
                answers[row].append(scores[row : row + 1, : ends[row] - at[row]])
            at, call = ends, call + 1
        for number, (sequence, parts) in enumerate(zip(rows, answers, strict=True)):
            self._compare(number, sequence.take(range(at[number]), axis), np.concatenate(parts, axis=1))

    def _require_same_bits(self, full: Mapping[str, Array], chunks: list[Array]) -> None:
        names = [state.output for state in self.lowered.states]
        active = np.arange(ROWS) != 1
        plain = self.session.run(["scores", *names], dict(full))
        for poisons in POISONS:
            feed = poisoned(self.lowered, full, active, poisons)
            feed[self.fed] = self._other_future(feed[self.fed], chunks)
            for name, one, other in zip(
                ["scores", *names], plain, self.session.run(["scores", *names], feed), strict=True
            ):
                for row in np.flatnonzero(active):
                    valid = chunks[row].shape[self._axis()] if name == "scores" else None
                    kept = (slice(row, row + 1), slice(valid)) if one.ndim > 1 else slice(row, row + 1)
                    if not np.array_equal(one[kept], other[kept], equal_nan=True):
                        raise Differs(f"{name}: what lies in free slots, free rows or later frames changes an answer")

    def _other_future(self, array: Array, chunks: list[Array]) -> Array:
        """Other frames behind the true end of every chunk."""
        given, axis = self.family.inputs[self.fed], self._axis()
        drawn = np.concatenate([given.drawn(self.rng, array.shape[axis]) for _ in range(ROWS)])
        places = np.arange(array.shape[axis]).reshape([-1 if at == axis else 1 for at in range(array.ndim)])
        lengths = np.array([each.shape[axis] for each in chunks]).reshape([-1, *[1] * (array.ndim - 1)])
        return np.where(places < lengths, array, drawn.astype(array.dtype))
