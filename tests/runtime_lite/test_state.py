"""What a graph is fed besides the caller's data: states, lengths and masks, in free rows too."""

import dataclasses

import numpy as np
import pytest

from runtime_lite.manifest import StreamSpec
from runtime_lite.state import StreamState, cut_rows, full_feed, initial_state, next_state, pad_rows
from tests.runtime_lite.bundles import random_chunks, streaming_graph

GRAPH = streaming_graph()


def mask_of(real_length: int) -> list[int]:
    """Return the mask as the contract words it: slot s is 1 iff s >= window - real_length."""
    return [1 if slot >= 5 - real_length else 0 for slot in range(8)]


@pytest.mark.parametrize("real_length", [0, 1, 3, 5])
def test_length_and_mask_come_from_one_count_and_free_rows_have_none(real_length: int) -> None:
    state = dataclasses.replace(initial_state(GRAPH, 3), real_length=real_length)
    feed = full_feed(GRAPH, {"x": random_chunks(1, 3)[0]}, state, 4)
    assert feed["real_length"].tolist() == [real_length] * 3 + [0]
    assert feed["mask"].tolist() == [mask_of(real_length)] * 3 + [mask_of(0)]
    assert (feed["x"][3] == 0).all()
    assert list(feed) == ["x", "real_length", "mask", "keys"]
    for tensor in GRAPH.inputs:
        assert feed[tensor.name].dtype == np.dtype(tensor.dtype)


def test_free_rows_hold_the_initial_state() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=-7.5)
    graph = dataclasses.replace(GRAPH, states=(keys,))
    state = initial_state(graph, 2)
    assert (state.values["keys"] == -7.5).all()
    values = {"keys": np.ones((2, 5, 2), np.float32)}
    feed = full_feed(graph, {"x": random_chunks(1, 2)[0]}, StreamState(2, 3, values), 4)
    assert (feed["keys"][:2] == 1).all()
    assert (feed["keys"][2:] == -7.5).all()


def test_the_count_stops_at_the_window() -> None:
    state = initial_state(GRAPH, 1)
    lengths = []
    for _ in range(4):
        state = next_state(GRAPH, state, {"next_keys": np.zeros((1, 5, 2), np.float32)})
        lengths.append(state.real_length)
    assert lengths == [3, 5, 5, 5]


def test_a_graph_that_computes_its_mask_is_fed_the_length_only() -> None:
    inputs = tuple(tensor for tensor in GRAPH.inputs if tensor.role != "mask")
    graph = dataclasses.replace(GRAPH, inputs=inputs, stream=StreamSpec("real_length", None, 5, 3, "right"))
    assert list(full_feed(graph, {"x": random_chunks(1)[0]}, initial_state(graph, 1), 1)) == [
        "x",
        "real_length",
        "keys",
    ]


def test_a_graph_with_a_fixed_batch_is_fed_whole() -> None:
    def fix(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return tuple(2 if size == "batch" else size for size in shape)

    graph = dataclasses.replace(
        GRAPH,
        axes={},
        inputs=tuple(dataclasses.replace(tensor, shape=fix(tensor.shape)) for tensor in GRAPH.inputs),
        states=tuple(dataclasses.replace(state, shape=fix(state.shape)) for state in GRAPH.states),
    )
    state = dataclasses.replace(initial_state(graph, 1), real_length=3)
    feed = full_feed(graph, {"x": random_chunks(1, 2)[0]}, state, 1)
    assert feed["real_length"].tolist() == [3, 3]
    assert feed["mask"].tolist() == [mask_of(3)] * 2
    assert feed["keys"].shape == (2, 5, 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_padding_and_cutting_work_on_any_axis(axis: int) -> None:
    array = random_chunks(2, 3)[:, :, 0, :]
    rows = array.shape[axis]
    padded = pad_rows(array, axis, rows + 2, 9)
    assert padded.shape[axis] == rows + 2
    assert (np.take(padded, range(rows, rows + 2), axis) == 9).all()
    cut = cut_rows(padded, axis, rows)
    np.testing.assert_array_equal(cut, array)
    assert cut.base is None, "a view would keep the whole bucket alive"
    assert pad_rows(array, axis, rows, 9) is array
    assert cut_rows(array, axis, rows) is array
