"""The original answers as it was handed over, in its own framework or as an ONNX file."""

import numpy as np
import pytest

from compiler.build.capture.reference import OnnxReference
from compiler.errors import RecipeError
from tests.kit.graphs import feeds_of, streaming
from tests.kit.models.project import Project, answers, largest_difference
from tests.kit.models.tiny_graph import step_by_hand
from tests.kit.models.tiny_task import one_recording


def test_onnx_file_is_its_own_original(shared: Project) -> None:
    chunks = one_recording(3, 9)
    assert largest_difference(answers(shared.folder / "stream", "net", chunks), step_by_hand(chunks)) < 1e-5


def test_an_onnx_file_hands_on_states_that_are_cut_to_their_slots() -> None:
    lowered = streaming()
    slots = {cache.axis: cache.slots for cache in lowered.caches}
    for outputs, states in OnnxReference(lowered).run(feeds_of(lowered, 9)):
        assert {state.output for state in lowered.states} <= set(outputs) and set(states) == {
            state.input for state in lowered.states
        }
        assert all(
            states[state.input].shape[state.frames_axis] <= slots[state.cache]
            for state in lowered.states
            if state.cache is not None and state.frames_axis is not None
        )


def test_an_onnx_file_that_does_not_run_is_answered_with_the_step() -> None:
    lowered = streaming()
    feeds = [{name: np.zeros((1, 3), array.dtype) for name, array in feeds_of(lowered, 1)[0].items()}]
    with pytest.raises(RecipeError, match="the ONNX file does not run at chained step 0"):
        list(OnnxReference(lowered).run(feeds))
