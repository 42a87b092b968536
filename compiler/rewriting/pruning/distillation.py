"""Trains the weights of a graph to answer what another graph answers, call after call of a stream, as it is served.

The changed graph is computed by operators of torch (compiler/graph/torch_graphs); its states, masks and lengths are fed
by the runner that every other measurement uses, so that each call sees the caches that it left itself, of the sizes and
with the padding that it ships with. Gradients end where a call begins. The original answers beside it, in ONNX Runtime.

Streams are taken in turns, several as rows of one call; every fifth is not trained on, and the weights that are nearest
to the original's answers there are the result: those at the start if none is nearer.

Source: distillation by the divergence of the answers (Hinton et al. 2015, arXiv 1503.02531, at temperature 1); AdamW
(Loshchilov and Hutter 2019).
"""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.runners.choose import runner_of, runner_on
from compiler.graph.runners.stream import CallRunner
from compiler.graph.stages import Array, Feed, Lowered
from compiler.graph.torch_graphs.distance import divergence, noise_share
from compiler.graph.torch_graphs.module import GraphModule

APART = 5
"""One stream in this many is not trained on."""

MOST_ROWS = 8
"""Streams side by side in one call."""

LARGEST_NORM = 1.0
"""Gradients are clipped to this norm."""

WARM_UP = 50
"""Updates in which the learning rate rises."""

LOOKS = 8
"""How often the streams that are kept apart are looked at, the start and the end included."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How to train.

    Attributes:
        seconds: of training, by the clock.
        updates: most updates.
        rate: highest learning rate.
        seed: of the order of the streams.
        classes: whether the answers are scores of classes along their last axis; numbers otherwise.
    """

    seconds: float
    updates: int
    rate: float
    seed: int
    classes: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Distilled:
    """What a training has come to.

    Attributes:
        weights: by name of the constant; those that were nearest on the streams that are kept apart.
        curve: updates made, and the distance on those streams: nats for classes, share of power for numbers.
        seconds: that it took.
    """

    weights: Mapping[str, Array]
    curve: tuple[tuple[int, float], ...]
    seconds: float


def distill(
    teacher: Lowered, student: Lowered, frozen: Callable[[Lowered, int], Lowered],
    streams: Sequence[Sequence[Feed]], schedule: Schedule,
) -> Distilled:  # fmt: skip
    """Train the weights of a graph: those of products, convolutions and normalisations, and their biases.

    Args:
        teacher: the graph whose answers are learned.
        student: the graph that learns; its model is not changed.
        frozen: returns a copy of a graph for a number of rows, without any size that is open.
        streams: feeds of one row each.
        schedule: how long and how fast.

    Raises:
        Refused: there are fewer than two streams, a size is open, or torch has no counterpart of an operator.
    """
    taught, apart = _parted(streams)
    if not taught or not apart:
        raise Refused(
            f"expected two streams of calibration data to train on one and look at the other, got {len(streams)}",
            cure="raise data.calibration.count",
        )
    run = _Run(teacher, student, frozen, len(taught[0]), schedule)
    return run.train(taught, apart)


Rows = Sequence[Sequence[Feed]]
"""Streams that are rows of the same calls."""


def _parted(streams: Sequence[Sequence[Feed]]) -> tuple[list[Rows], list[Rows]]:
    """Return streams to train on and streams to look at, in rows of equal number; what is over is left out."""
    taught = [stream for at, stream in enumerate(streams) if at % APART != APART - 1]
    apart = [stream for at, stream in enumerate(streams) if at % APART == APART - 1]
    if not apart and len(streams) > 1:
        taught, apart = list(streams[:-1]), [streams[-1]]
    rows = min(MOST_ROWS, len(taught), len(apart)) if apart else 0
    if not rows:
        return [], []
    return _in_rows(taught, rows), _in_rows(apart, rows)


def _in_rows(streams: Sequence[Sequence[Feed]], rows: int) -> list[Rows]:
    """Return groups of streams whose feeds have equal sizes, the longest together."""
    alike: dict[object, list[Sequence[Feed]]] = {}
    for stream in sorted(streams, key=len, reverse=True):
        alike.setdefault(tuple((name, array.shape) for name, array in stream[0].items()), []).append(stream)
    return [group[at : at + rows] for group in alike.values() for at in range(0, len(group) - rows + 1, rows)]


def _calls(rows: Rows) -> Iterator[Feed]:
    """Yield the calls of streams side by side, until the first ends."""
    for feeds in zip(*rows, strict=False):
        yield {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


class _TorchSession:
    """A session that computes a graph in torch and keeps its results with their gradients."""

    def __init__(self, module: GraphModule, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.module, self.inputs, self.outputs = module, inputs, outputs
        self.results: dict[str, Tensor] = {}

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        tensors = [torch.from_numpy(np.ascontiguousarray(feeds[name])) for name in self.inputs]
        self.results = dict(zip(self.outputs, self.module(*tensors), strict=True))
        return [self.results[name].detach().numpy() for name in names or self.outputs]


class _Run:
    """One training."""

    def __init__(
        self, teacher: Lowered, student: Lowered, frozen: Callable[[Lowered, int], Lowered], rows: int,
        schedule: Schedule,
    ) -> None:  # fmt: skip
        fixed = frozen(student, rows)
        names = [name for name in trained_constants(student.model) if name in fixed.model.graph.initializers]
        self.module = GraphModule(fixed.model, student.graph, trained=names)
        inputs = [str(value.name) for value in fixed.model.graph.inputs]
        self.session = _TorchSession(self.module, inputs, list(graphs.outputs_named(fixed.model)))
        self.teacher, self.student, self.rows, self.schedule = teacher, student, rows, schedule
        self.parameters = dict(self.module.trained)
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=schedule.rate, betas=(0.9, 0.98), weight_decay=0
        )

    def train(self, taught: Sequence[Rows], apart: Sequence[Rows]) -> Distilled:
        """Train, and return the weights that were nearest on the streams that are kept apart."""
        started = time.monotonic()
        best: Mapping[str, Array] = self._weights()
        curve = [(0, self._look(apart))]
        nearest, looked, update = curve[0][1], 0.0, 0
        for feed, teacher, student in self._endless(taught):
            done = max((time.monotonic() - started) / self.schedule.seconds, update / self.schedule.updates)
            if done >= 1:
                break
            self.optimizer.param_groups[0]["lr"] = self.schedule.rate * min(
                max(0.5 * (1 + math.cos(math.pi * done)), 0.02), (update + 1) / WARM_UP
            )
            right = teacher.step(feed)
            student.step(feed)
            self.optimizer.zero_grad()
            self._distance(right).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), LARGEST_NORM)
            self.optimizer.step()
            update += 1
            if done - looked >= 1 / (LOOKS - 1):
                looked = done
                nearest, best = self._nearer(apart, update, curve, nearest, best)
        nearest, best = self._nearer(apart, update, curve, nearest, best)
        return Distilled(best, tuple(curve), time.monotonic() - started)

    def _nearer(
        self, apart: Sequence[Rows], update: int, curve: list[tuple[int, float]], nearest: float,
        best: Mapping[str, Array],
    ) -> tuple[float, Mapping[str, Array]]:  # fmt: skip
        curve.append((update, self._look(apart)))
        return (curve[-1][1], self._weights()) if curve[-1][1] < nearest else (nearest, best)

    def _weights(self) -> dict[str, Array]:
        return {name: parameter.detach().numpy().copy() for name, parameter in self.parameters.items()}

    def _endless(self, taught: Sequence[Rows]) -> Iterator[tuple[Feed, CallRunner, CallRunner]]:
        """Yield calls of streams in an order that the seed draws, with both runners in the state before each."""
        chance = np.random.default_rng(self.schedule.seed)
        teacher, student = self._runners()
        for _ in itertools.count():
            for at in chance.permutation(len(taught)).tolist():
                teacher.reset()
                student.reset()
                for feed in _calls(taught[at]):
                    yield feed, teacher, student

    def _runners(self) -> tuple[CallRunner, CallRunner]:
        return runner_of(self.teacher, self.rows, optimize=True), runner_on(self.session, self.student, batch=self.rows)

    def _look(self, apart: Sequence[Rows]) -> float:
        """Return the mean distance over streams that are not trained on."""
        teacher, student = self._runners()
        distances = []
        with torch.no_grad():
            for rows in apart:
                teacher.reset()
                student.reset()
                for feed in _calls(rows):
                    right = teacher.step(feed)
                    student.step(feed)
                    distances.append(float(self._distance(right)))
        return float(np.mean(distances))

    def _distance(self, right: Mapping[str, Array]) -> Tensor:
        """Return the distance of the last call's answers from the original's, summed over the data outputs."""
        total = torch.zeros(())
        for name in self.student.data_outputs:
            got, wanted = self.session.results[name], torch.from_numpy(np.ascontiguousarray(right[name]))
            total = total + (divergence(got, wanted).mean() if self.schedule.classes else noise_share(got, wanted))
        return total


def trained_constants(model: ir.Model) -> list[str]:
    """Return the names of the constants that are trained: of products and convolutions, biases and normalisations."""
    found = dict[str, None]()
    for node in model.graph:
        operands: Sequence[ir.Value | None] = ()
        if graphs.is_op(node, "MatMul", "Gemm"):
            behind = graphs.bias_behind(node)
            arrays = [(value, graphs.array_of(value)) for value in node.inputs[1:]]
            operands = [value for value, array in arrays if array is not None and array.ndim == 2]
            operands = [*operands, *(() if behind is None else (behind[0].inputs[behind[1]],))]
        elif graphs.is_op(node, "Conv", "LayerNormalization", "RMSNormalization"):
            operands = node.inputs[1:]
        for value in operands:
            array = graphs.array_of(value)
            if value is not None and array is not None and value.is_initializer() and array.dtype == np.float32:
                found[str(value.name)] = None
    return list(found)
