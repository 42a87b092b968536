"""A stream starts from its initial states and counts its valid frames."""

import dataclasses

import numpy as np

from runtime_lite.calls.state import initial_state, next_states
from tests.runtime_lite.bundles import streaming_graph

GRAPH = streaming_graph()


def test_a_new_stream_holds_the_initial_states_for_every_row() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=-7.5)
    state = initial_state(dataclasses.replace(GRAPH, states=(keys,)), 2)
    assert (state.rows, state.lengths["cache"].tolist()) == (2, [0, 0])
    assert state.values["keys"].shape == (2, 5, 2)
    assert state.values["keys"].dtype == np.float32
    assert (state.values["keys"] == -7.5).all()


def test_the_count_stops_when_all_slots_are_valid() -> None:
    state = initial_state(GRAPH, 1)
    lengths = []
    for _ in range(4):
        (state,) = next_states(GRAPH, [state], [{"keys": np.zeros((1, 5, 2), np.float32)}], [{}])
        lengths += state.lengths["cache"].tolist()
    assert lengths == [3, 5, 5, 5]
