"""distillation: a graph is trained to answer what another one answers, call after call of a stream."""

import dataclasses

import numpy as np
import pytest

from compiler.calib.watched_streams import noise_between
from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Array, Lowered
from compiler.passes.freeze_axes import FreezeAxes
from compiler.rewriting.pruning.distillation import Distilled, Schedule, distill, trained_constants
from tests.kit.graphs import BATCH, copy_of, feeds_of
from tests.kit.quantization import speech

SCHEDULE = Schedule(seconds=600.0, updates=40, rate=2e-3, seed=1, classes=False)


def frozen(lowered: Lowered, rows: int) -> Lowered:
    return FreezeAxes(((BATCH, rows),)).apply(copy_of(lowered)).lowered


def streams() -> list[list[dict[str, Array]]]:
    return [[dict(feed) for feed in feeds_of(speech(), 8, seed=seed)] for seed in range(6)]


def disturbed() -> Lowered:
    """The graph with the weights of a product a little off."""
    reduce = np.array(graphs.array_of(speech().model.graph.initializers["reduce"]))
    noise = 0.2 * np.random.default_rng(4).standard_normal(reduce.shape)
    return speech({"reduce": (reduce + noise).astype(np.float32)})


def written(lowered: Lowered, distilled: Distilled) -> Lowered:
    copied = copy_of(lowered)
    insert = graphs.Inserter(copied.model, "test")
    for name, array in distilled.weights.items():
        graphs.take_over(copied.model, copied.model.graph.initializers[name], insert.constant(array, f"{name}_trained"))
    return copied


@pytest.mark.parametrize("classes", [False, True])
def test_answers_come_nearer_to_the_original_on_streams_that_nothing_was_trained_on(*, classes: bool) -> None:
    teacher, student = speech(), disturbed()
    before = graphs.serialized(student.model)
    distilled = distill(teacher, student, frozen, streams(), dataclasses.replace(SCHEDULE, classes=classes))
    updates, distances = zip(*distilled.curve, strict=True)
    assert updates[0] == 0 and updates[-1] == 40 and len(updates) > 4
    assert min(distances) < 0.5 * distances[0]
    assert graphs.serialized(student.model) == before
    fresh = [[dict(feed) for feed in feeds_of(teacher, 8, seed=99)]]
    off = [noise_between(teacher, each, fresh)["y"] for each in (student, written(student, distilled))]
    assert off[1] < 0.7 * off[0]


def test_a_training_that_ends_by_its_updates_comes_again_to_the_same() -> None:
    once, again = (distill(speech(), disturbed(), frozen, streams(), SCHEDULE) for _ in range(2))
    assert once.curve == again.curve
    assert all(np.array_equal(array, again.weights[name]) for name, array in once.weights.items())


def test_a_training_that_runs_away_leaves_the_weights_as_they_were() -> None:
    student = disturbed()
    distilled = distill(speech(), student, frozen, streams(), dataclasses.replace(SCHEDULE, rate=50.0, updates=60))
    assert distilled.curve[-1][1] > distilled.curve[0][1]
    for name, array in distilled.weights.items():
        np.testing.assert_array_equal(array, graphs.array_of(student.model.graph.initializers[name]))


def test_what_is_trained_are_weights_biases_and_normalisations() -> None:
    assert {"front", "front_b", "project", "gamma", "expand", "expand_b", "reduce", "wq", "kernel", "output"} <= set(
        trained_constants(speech().model)
    )
    assert "mask" not in trained_constants(speech().model)


def test_too_few_streams_are_refused() -> None:
    with pytest.raises(Refused, match="expected two streams of calibration data"):
        distill(speech(), disturbed(), frozen, streams()[:1], SCHEDULE)
