"""Captures a step as a build does, runs the passes of a build, and follows rows of different ages call by call.

Every row is compared with the module itself, run alone; and a poisoned copy of every call, with NaN, infinities and
huge numbers in the free slots and in rows that have not begun, must answer the same bits.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from unittest import mock

import numpy as np
import torch

from compiler.build.capture import torch_module
from compiler.build.capture.counts import frames_counted
from compiler.build.capture.initial_graph import added_by_call, initial_graph, states_of
from compiler.build.capture.onnx_source.onnx_file import require_runnable
from compiler.build.lowering.certificates import replay_certificates
from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.runners.padded_chunks import side_by_side
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import OriginalCall, Runner, chained_steps, expected_of, poisoned
from compiler.graph.spec import check_between_passes
from compiler.graph.stages import Array, Lowered
from compiler.passes import make_pass
from tests.kit.numerics import relative_difference
from tests.zoo.streams.family import BATCH, StepFamily

AGES = (0, 5, 11)
"""The call with which each row begins."""

POISONS = ((np.nan, np.inf, -np.inf), (1e30, -1e30, np.nan))
TOLERANCE = 1e-5


class Differs(AssertionError):
    """A row is not the row alone, or poison shows."""


@dataclasses.dataclass(frozen=True)
class Followed:
    """What came of a step.

    Attributes:
        nodes: of what is built.
        replayed: steps of certificates that the checker made again.
        error: the largest difference to the module, relative to values above 1.
    """

    nodes: int
    replayed: int
    error: float


def follow(family: StepFamily, calls: int) -> Followed:
    """Build a step and follow it.

    Raises:
        Differs: what is built is not the module.
        SlipwayError: it is refused, or the checker rejects a proof.
    """
    spec = family.spec
    module, start = captured(family, calls)
    places = start.row_axes
    lowered, replayed = start, 0
    for each in spec.passes:
        before = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
        outcome = make_pass(each.name, {}).apply(lowered)
        check_between_passes(outcome.lowered)
        replayed += replay_certificates(before, outcome)
        lowered = outcome.lowered
    counted = frames_counted(spec, {cache.axis: added_by_call(cache) for cache in start.caches})
    reference = torch_module.TorchReference(module, None, spec, states_of(spec), places, counted)
    streams = [list(family.feeds(np.random.default_rng(row), calls)) for row in range(len(AGES))]
    alone = [chained_steps(reference.run, stream, calls) for stream in streams]
    graphs.infer_shapes(lowered.model)
    return Followed(sum(1 for _ in lowered.model.graph), replayed, _compare(lowered, alone, calls))


def captured(family: StepFamily, calls: int) -> tuple[torch.nn.Module, Lowered]:
    """The module of a family with random weights, and its graph as a build has it before the first pass.

    Raises:
        SlipwayError: it is refused.
    """
    torch.manual_seed(0)
    module, spec = family.build().eval(), family.spec
    model = torch_module.capture_module(module, family.name, spec, list(spec.inputs))
    require_runnable(model, family.name, Location(stage="capture", graph=family.name))
    return module, initial_graph(mock.Mock(), family.name, spec, (model, None), calls, {BATCH: 4})


def _compare(lowered: Lowered, alone: Sequence[Sequence[OriginalCall]], calls: int) -> float:
    """The largest difference over all rows and calls."""
    session = session_of(lowered.model)
    runner = Runner(lowered, session, len(AGES))
    worst = 0.0
    for call in range(calls):
        for row in [row for row, age in enumerate(AGES) if age == call]:
            for state in lowered.states:
                array = runner.states[state.input]
                runner.states[state.input] = np.where(_row(row, array), runner.initial(state), array)
            for axis, lengths in list(runner.lengths.items()):
                runner.lengths[axis] = np.where(_row(row, lengths), 0, lengths)
        ages = [call - age for age in AGES]
        feed = side_by_side(lowered, [alone[row][max(age, 0)].feed for row, age in enumerate(ages)])
        full = runner.full_feed(feed)
        outputs = runner.step(feed)
        active = np.array([age >= 0 for age in ages])
        _require_same_bits(lowered, session, full, active, outputs)
        for row in map(int, np.flatnonzero(active)):
            expected = expected_of(lowered, alone[row][ages[row]])
            got = {name: outputs[name] for name in lowered.data_outputs} | runner.states
            worst = max([worst, *(_difference(name, array[row], expected[name][0]) for name, array in got.items())])
    return worst


def _row(row: int, array: Array) -> Array:
    """Where an array holds a row."""
    place: Array = np.arange(array.shape[0]) == row
    return place.reshape(-1, *[1] * (array.ndim - 1))


def _require_same_bits(
    lowered: Lowered, session: Session, full: Mapping[str, Array], active: Array, outputs: Mapping[str, Array]
) -> None:
    names = list(outputs)
    for poisons in POISONS:
        results = session.run(names, poisoned(lowered, full, active, poisons))
        for name, array in zip(names, results, strict=True):
            if not np.array_equal(array[active], outputs[name][active], equal_nan=True):
                raise Differs(f"{name}: what lies in free slots or free rows changes an answer")


def _difference(name: str, got: Array, expected: Array) -> float:
    if got.shape != expected.shape:
        raise Differs(f"{name}: expected shape {expected.shape}, got {got.shape}")
    found = relative_difference(got, expected)
    if not found <= TOLERANCE:
        raise Differs(f"{name}: differs by {found:.2g}")
    return found
