"""A stream starts from its initial states and counts its valid frames."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest

from runtime_lite.calls.graph_runner import next_states
from runtime_lite.calls.state import StreamState, check_lengths, check_state, initial_state, longest
from runtime_lite.errors import BadInput
from runtime_lite.format.manifest import Axis
from tests.runtime_lite.bundles import streaming_graph

GRAPH = streaming_graph()


def test_a_new_stream_holds_the_initial_states_for_every_row() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=-7.5)
    state = initial_state(dataclasses.replace(GRAPH, states=(keys,)), 2)
    assert (state.rows, state.lengths["cache"].tolist()) == (2, [0, 0])
    assert state.values["keys"].shape == (2, 5, 2)
    assert state.values["keys"].dtype == np.float32
    assert (state.values["keys"] == -7.5).all()


def test_a_new_stream_holds_initial_values_that_differ_along_axes() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=(((-7.5, 1.5),),))
    values = initial_state(dataclasses.replace(GRAPH, states=(keys,)), 2).values["keys"]
    assert values.shape == (2, 5, 2)
    assert values.dtype == np.float32
    assert (values == [-7.5, 1.5]).all()


def test_the_count_stops_when_all_slots_are_valid() -> None:
    state = initial_state(GRAPH, 1)
    lengths = []
    for _ in range(4):
        (state,) = next_states(GRAPH, [state], [{"keys": np.zeros((1, 5, 2), np.float32)}], [{}])
        lengths += state.lengths["cache"].tolist()
    assert lengths == [3, 5, 5, 5]


def test_a_stream_has_one_length_along_an_axis_along_which_states_lie() -> None:
    graph = dataclasses.replace(GRAPH, axes={**GRAPH.axes, "text": Axis((4, 8), "text_length", is_held=True)})
    assert longest(graph) == {"cache": 5, "text": 8}
    state = initial_state(graph, 1)
    check_lengths("net.push", graph, [{"text": 3}], [state])
    (state,) = next_states(graph, [state], [{}], [{"text": 3}])
    assert state.lengths["text"].tolist() == [3]
    check_lengths("net.push", graph, [{"text": 3}], [state])
    with pytest.raises(BadInput, match=r"net.push: expected length 3 along 'text', .* got 4; states lie along it"):
        check_lengths("net.push", graph, [{"text": 4}], [state])


KEYS, LENGTH = np.zeros((1, 5, 2), np.float32), np.array([3])
FORGED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "the state of a stream, got None"),
    "rows as text": (StreamState("1", {}, {}), "the state of a stream, got '1'"),  # type: ignore[arg-type]
    "other rows": (StreamState(2, {}, {}), "a state of 1 rows, got 2"),
    "no lengths": (StreamState(1, {}, {"keys": KEYS}), "lengths of cache, got {}"),
    "no values": (StreamState(1, {"cache": LENGTH}, {}), "values of keys, got {}"),
    "values as a list": (StreamState(1, {"cache": LENGTH}, [KEYS]), "values of keys, got"),  # type: ignore[arg-type]
    "one value more": (StreamState(1, {"cache": LENGTH}, {"keys": KEYS, "x": KEYS}), "values of keys, got"),
    "frames cut off": (StreamState(1, {"cache": LENGTH}, {"keys": KEYS[:, :4]}), r"float32 \[1, 5, 2\], got 'float32"),
    "one frame for all": (StreamState(1, {"cache": LENGTH}, {"keys": KEYS[:, :1]}), r"\[1, 5, 2\], got 'float32"),
    "doubles": (StreamState(1, {"cache": LENGTH}, {"keys": KEYS.astype(float)}), "got 'float64"),
    "a list": (StreamState(1, {"cache": LENGTH}, {"keys": KEYS.tolist()}), "got \\[\\[\\["),  # type: ignore[dict-item]
    "a length for two": (StreamState(1, {"cache": np.array([3, 3])}, {"keys": KEYS}), r"int64 \[1\], got 'int64 \[2\]"),
    "half a frame": (StreamState(1, {"cache": np.array([1.5])}, {"keys": KEYS}), "int64"),
    "less than none": (StreamState(1, {"cache": np.array([-3])}, {"keys": KEYS}), r"lengths from 0 to 5, got \[-3\]"),
    "more than all": (StreamState(1, {"cache": np.array([6])}, {"keys": KEYS}), r"lengths from 0 to 5, got \[6\]"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_state_is_refused(name: str) -> None:
    state, message = FORGED[name]
    with pytest.raises(BadInput, match=f"here.*: expected .*{message}"):
        check_state("here", state, initial_state(GRAPH, 1), {"cache": 5})


def test_a_state_that_was_stored_is_one() -> None:
    state = StreamState(1, {"cache": LENGTH}, {"keys": KEYS * np.float32(np.nan)})
    check_state("here", copy.deepcopy(state), initial_state(GRAPH, 1), {"cache": 5})
