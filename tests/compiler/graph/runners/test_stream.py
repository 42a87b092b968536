"""Streams run call after call: states, lengths and masks as the graph has them."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from compiler.build.verify.differences import max_abs_difference
from compiler.errors import DataError
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.stream import OriginalCall, chained_steps, expected_states, mapped
from compiler.graph.stages import Array, StateMap
from tests.kit.growing_stream import padded, steps_of
from tests.kit.models.tiny_graph import step_by_hand
from tests.kit.models.tiny_task import one_recording


class Added(StateMap):
    """A state map that counts how often it is asked."""

    def __init__(self, number: float) -> None:
        self.number, self.calls = number, 0

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        self.calls += 1
        return {name: 2 * array + self.number for name, array in states.items()}


def test_growing_graph_answers_as_by_hand_until_the_window_overflows() -> None:
    feeds = one_recording(1, 6)
    for step, expected in zip(steps_of(feeds), step_by_hand(feeds), strict=True):
        assert max_abs_difference(step.outputs["logits"], expected.astype(np.float32)) < 1e-5
        assert step.states["keys"].shape[1] <= 8


def test_original_that_answers_nan_is_the_users_fault() -> None:
    def run(feeds: object) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
        yield {"y": np.zeros(2, np.float32)}, {}
        yield {"y": np.full(2, np.nan, np.float32)}, {}

    with pytest.raises(DataError, match="NaN or infinity in y at chained step 1"):
        chained_steps(run, [{}, {}], 2)


def test_states_are_carried_through_the_maps_of_the_passes() -> None:
    lowered = padded()
    short = {"keys": np.ones((1, 3, 8), np.float32)}
    assert expected_states(lowered, short)["keys"].shape == (1, 8, 8)
    assert expected_states(dataclasses.replace(lowered, state_maps=()), short) == short


def test_states_of_a_step_are_mapped_once_as_passes_follow_each_other() -> None:
    first, second, other = Added(1), Added(2), Added(3)
    step = OriginalCall({}, {}, {"s": np.zeros(1)})
    asked = [(), (first,), (first,), (first, second), (first, second), (other,), (first,), ()]
    for maps in asked:
        assert step.states_after(maps)["s"] == mapped(maps, step.states)["s"]
    assert (first.calls, second.calls) == (2 + 5, 1 + 2), "twice for the step: it was asked for less in between"


def test_states_that_are_not_given_are_those_of_a_first_call() -> None:
    lowered = padded()
    runner = runner_of(lowered)
    first = dict(runner.states)
    runner.step(one_recording(1, 1)[0])
    runner.reset({}, dict(runner.lengths))
    assert runner.states.keys() == first.keys()
    assert all(np.array_equal(runner.states[name], array) for name, array in first.items())
