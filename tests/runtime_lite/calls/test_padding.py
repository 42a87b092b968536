"""What a graph is fed besides the caller's data, in padded places and free rows too, and what is cut off again."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from runtime_lite import BundleRefused
from runtime_lite.calls.blocks import BlockPool, joined
from runtime_lite.calls.bucket import Bucket, Places, cut_outputs, full_feed, places_of_outputs
from runtime_lite.calls.feeds import Feed, check_feed
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph
from tests.runtime_lite.bundles import CACHE, SHORTEST, ragged_graph, random_chunks, random_row, streaming_graph

GRAPH = streaming_graph()
RAGGED = ragged_graph()


def chunk(rows: int = 1, graph: Graph = GRAPH) -> list[Feed]:
    return [check_feed("test", graph, {"x": random_chunks(1, rows)[0]}, True)]


def row(length: int) -> Feed:
    return check_feed("test", RAGGED, random_row(length), True)


def poisoned(places: Places) -> Places:
    """Buffers in which the run before left something in every place."""
    for tensor in places._tensors:
        places[tensor.name].fill(np.nan if tensor.dtype.startswith("float") else 99)
    return places


def fed(
    graph: Graph, feeds: list[Feed], states: list[StreamState], sizes: Mapping[str, int], fill: float = 0.0
) -> dict[str, Array]:
    bucket, pool = Bucket(graph, sizes), BlockPool(graph)
    carried = joined(pool, [state.values for state in states], bucket.rows) if graph.states else {}
    found = full_feed(bucket, feeds, states, carried, poisoned(bucket.take().inputs), fill)
    return {tensor.name: found[tensor.name] for tensor in graph.inputs}


def mask_of(real_length: int) -> list[int]:
    """Return the mask as the contract words it: slot s is 1 iff s >= window - real_length."""
    return [1 if slot >= 5 - real_length else 0 for slot in range(8)]


@pytest.mark.parametrize("real_length", [0, 1, 3, 5])
def test_length_and_mask_come_from_one_count_and_free_rows_are_as_full(real_length: int) -> None:
    state = dataclasses.replace(initial_state(GRAPH, 3), lengths={"cache": np.full(3, real_length)})
    feed = fed(GRAPH, chunk(3), [state], {"batch": 4})
    assert feed["real_length"].tolist() == [real_length] * 4
    assert feed["mask"].tolist() == [mask_of(real_length)] * 4
    assert (feed["x"][3] == 0).all()
    for tensor in GRAPH.inputs:
        assert feed[tensor.name].dtype == np.dtype(tensor.dtype)


def test_rows_of_one_call_may_be_streams_of_different_ages_and_free_rows_are_as_the_youngest() -> None:
    state = dataclasses.replace(initial_state(GRAPH, 3), lengths={"cache": np.array([5, 1, 3])})
    feed = fed(GRAPH, chunk(3), [state], {"batch": 4})
    assert feed["real_length"].tolist() == [5, 1, 3, 1]
    assert feed["mask"].tolist() == [mask_of(5), mask_of(1), mask_of(3), mask_of(1)]


def test_free_rows_hold_the_initial_state() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=-7.5)
    graph = dataclasses.replace(GRAPH, states=(keys,))
    state = initial_state(graph, 2)
    assert (state.values["keys"] == -7.5).all()
    values = {"keys": np.ones((2, 5, 2), np.float32)}
    feed = fed(graph, chunk(2), [StreamState(2, {"cache": np.array([3, 3])}, values)], {"batch": 4})
    assert (feed["keys"][:2] == 1).all()
    assert (feed["keys"][2:] == -7.5).all()


def test_free_rows_hold_initial_values_that_differ_along_axes() -> None:
    keys = dataclasses.replace(GRAPH.states[0], initial=(((-7.5, 1.5),),))
    graph = dataclasses.replace(GRAPH, states=(keys,))
    feed = fed(graph, chunk(2), [initial_state(graph, 2)], {"batch": 4})
    assert (feed["keys"] == [-7.5, 1.5]).all()


def test_a_graph_that_computes_its_mask_is_fed_the_length_only() -> None:
    inputs = tuple(tensor for tensor in GRAPH.inputs if tensor.role != "mask")
    graph = dataclasses.replace(GRAPH, inputs=inputs, caches=(dataclasses.replace(CACHE, mask_input=None),))
    assert list(fed(graph, chunk(), [initial_state(graph, 1)], {"batch": 1})) == [
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
        batch_axis=None,
        inputs=tuple(dataclasses.replace(tensor, shape=fix(tensor.shape)) for tensor in GRAPH.inputs),
        outputs=tuple(dataclasses.replace(tensor, shape=fix(tensor.shape)) for tensor in GRAPH.outputs),
        states=tuple(dataclasses.replace(state, shape=fix(state.shape)) for state in GRAPH.states),
    )
    state = dataclasses.replace(initial_state(graph, 1), lengths={"cache": np.array([3])})
    feed = fed(graph, chunk(2, graph), [state], {})
    assert feed["real_length"].tolist() == [3, 3]
    assert feed["mask"].tolist() == [mask_of(3)] * 2
    assert feed["keys"].shape == (2, 5, 2)


def full(feeds: list[Feed], batch: int, time: int, **options: Any) -> dict[str, Array]:
    states = [initial_state(RAGGED, feed.rows) for feed in feeds]
    return fed(RAGGED, feeds, states, {"batch": batch, "time": time}, **options)


def test_rows_of_several_lengths_lie_one_after_the_other_with_zeros_behind_them() -> None:
    feeds = [row(5), row(3), row(8)]
    found = full(feeds, 4, 8)
    assert list(found) == ["x", "tokens", "time_length"]
    assert found["time_length"].tolist() == [5, 3, 8, SHORTEST], "free rows have the smallest length that is proved"
    for name in ("x", "tokens"):
        assert found[name].dtype == np.dtype(feeds[0].arrays[name].dtype)
        for number, feed in enumerate(feeds):
            length = feed.sizes["time"]
            np.testing.assert_array_equal(found[name][number, :length], feed.arrays[name][0])
            assert not found[name][number, length:].any()
        assert not found[name][3].any()


@pytest.mark.parametrize("fill", [np.nan, np.inf, -1e30])
def test_another_filler_lies_in_every_padded_place_and_free_row_of_floating_inputs(fill: float) -> None:
    found = full([row(5), row(3)], 4, 8, fill=fill)
    for places in (found["x"][0, 5:], found["x"][1, 3:], found["x"][2:]):
        np.testing.assert_array_equal(places, np.full_like(places, fill))
    assert np.isfinite(found["x"][0, :5]).all()
    assert not found["tokens"][0, 5:].any() and not found["tokens"][2:].any(), "an index must stay within its table"


def test_an_array_that_fills_its_bucket_is_not_copied() -> None:
    feed = row(8)
    found = full([feed], 1, 8)
    assert all(found[name] is feed.arrays[name] for name in ("x", "tokens"))


def test_a_graph_with_a_fixed_batch_has_one_length_for_all_rows() -> None:
    def fix(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return tuple(2 if size == "batch" else size for size in shape)

    inputs = tuple(dataclasses.replace(tensor, shape=fix(tensor.shape)) for tensor in RAGGED.inputs)
    outputs = tuple(dataclasses.replace(tensor, shape=fix(tensor.shape)) for tensor in RAGGED.outputs)
    graph = dataclasses.replace(
        RAGGED, axes={"time": RAGGED.axes["time"]}, batch_axis=None, inputs=inputs, outputs=outputs
    )
    feed = check_feed("test", graph, {name: np.repeat(array, 2, 0) for name, array in random_row(5).items()}, True)
    found = fed(graph, [feed], [initial_state(graph, 1)], {"time": 8})
    assert found["time_length"].tolist() == [5, 5]
    assert found["x"].shape == (2, 8, 2)


def test_outputs_are_cut_to_the_value_of_their_formula() -> None:
    places = np.arange(4 * 4 * 2, dtype=np.float32).reshape(4, 4, 2)
    outputs = {"y": places, "mean": places[:, 0]}
    cut = cut_outputs("test", Bucket(RAGGED, {"batch": 4, "time": 8}), outputs, [row(5), row(3), row(8)])
    assert [answer["y"].shape for answer in cut] == [(1, 3, 2), (1, 2, 2), (1, 4, 2)]
    for number, answer in enumerate(cut):
        np.testing.assert_array_equal(answer["y"][0], places[number, : answer["y"].shape[1]])
        np.testing.assert_array_equal(answer["mean"], places[number : number + 1, 0])
        assert answer["y"].base is None, "a view would keep the whole bucket alive"
    one = Bucket(RAGGED, {"batch": 1, "time": 8})
    (whole,) = cut_outputs("test", one, {"y": places[:1], "mean": places[:1, 0]}, [row(8)])
    assert whole["y"].shape == (1, 4, 2)


@pytest.mark.parametrize(("size", "slots"), [("20 - 3 * time", 5), ("time * time - 36", -11)])
def test_a_formula_that_counts_more_than_there_is_or_less_than_nothing_is_refused(size: str, slots: int) -> None:
    output = dataclasses.replace(RAGGED.outputs[0], shape=("batch", size, 2))
    graph = dataclasses.replace(RAGGED, outputs=(output,))
    with pytest.raises(BundleRefused) as refusal:
        cut_outputs("ragged", Bucket(graph, {"batch": 1, "time": 8}), {"y": np.zeros((1, 4, 2), np.float32)}, [row(5)])
    assert str(refusal.value) == (
        f"ragged: 'y': expected from 0 to 4 valid places for {size!r} at sizes {{'batch': 1, 'time': 5}}, got {slots}; "
        "rebuild the bundle"
    )


def test_what_a_feed_gets_as_it_is_is_its_own_and_what_is_cut_is_not() -> None:
    bucket = Bucket(RAGGED, {"batch": 1, "time": 8})
    buffers = bucket.take().outputs
    first, second = (places_of_outputs(bucket, [row(8)], buffers) for _ in range(2))
    assert not buffers and not any(np.shares_memory(first[name], second[name]) for name in ("y", "mean"))
    cut = places_of_outputs(bucket, [row(5)], buffers)
    assert all(cut[name] is buffers[name] for name in ("y", "mean"))


@pytest.mark.parametrize("rows", [(1, 1, 1, 1), (2, 2), (1, 2), (3,)])
def test_states_of_any_axis_of_rows_are_gathered_in_order_with_initial_states_behind_them(
    rows: tuple[int, ...],
) -> None:
    shape = (2, "batch", 3)
    inputs = tuple(dataclasses.replace(t, shape=shape) if t.name == "keys" else t for t in GRAPH.inputs)
    keys = dataclasses.replace(GRAPH.states[0], shape=shape, initial=-7.5)
    graph = dataclasses.replace(GRAPH, inputs=inputs, states=(keys,))
    random = np.random.default_rng(0)
    values = [random.random((2, count, 3), np.float32) for count in rows]
    states = [
        StreamState(count, {"cache": np.zeros(count, np.int64)}, {"keys": value})
        for count, value in zip(rows, values, strict=True)
    ]
    found = fed(graph, [chunk(count)[0] for count in rows], states, {"batch": 4})["keys"]
    np.testing.assert_array_equal(found[:, : sum(rows)], np.concatenate(values, 1))
    assert (found[:, sum(rows) :] == -7.5).all()
