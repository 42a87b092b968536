"""A set of buffers is with one run at a time, and is used again."""

import dataclasses

import numpy as np

from runtime_lite.calls.bucket import Bucket
from tests.runtime_lite.bundles import ragged_graph, streaming_graph

STREAMING = Bucket(streaming_graph(), {"batch": 4})
RAGGED = Bucket(ragged_graph(), {"batch": 4, "time": 8})


def test_the_set_that_was_used_last_goes_out_first_and_never_twice() -> None:
    bucket = Bucket(streaming_graph(), {"batch": 4})
    first, second = bucket.take(), bucket.take()
    assert first is not second and bucket.made == 2
    bucket.give_back(first)
    bucket.give_back(second)
    assert bucket.take() is second and bucket.take() is first
    assert bucket.take() not in (first, second) and bucket.made == 3


def test_a_set_that_is_lost_is_not_counted_as_one_of_a_run_beside_others() -> None:
    bucket = Bucket(streaming_graph(), {"batch": 4})
    for _ in range(3):
        lost = bucket.take()
        assert bucket.made == 1
        bucket.lose()
    assert bucket.take() is not lost and bucket.made == 1


def test_a_trimmed_bucket_keeps_the_sets_that_runs_have_and_no_others() -> None:
    bucket = Bucket(streaming_graph(), {"batch": 4})
    running, ended = bucket.take(), bucket.take()
    bucket.give_back(ended)
    bucket.trim()
    assert bucket.made == 1
    bucket.give_back(running)
    assert bucket.take() is running and bucket.take() is not ended and bucket.made == 2


def test_an_array_is_made_when_it_is_first_asked_for() -> None:
    buffers = Bucket(streaming_graph(), {"batch": 4}).take()
    assert not buffers.inputs and not buffers.outputs
    keys = buffers.inputs["keys"]
    assert buffers.inputs["keys"] is keys and (keys.shape, keys.dtype) == ((4, 5, 2), np.dtype("float32"))
    assert buffers.outputs["y"].shape == (4, 3, 2)


def test_what_a_run_needs_is_known_before_it() -> None:
    assert (STREAMING.rows, STREAMING.shapes["mask"]) == (4, (4, 8))
    assert [(tensor.name, axis) for tensor, axis in STREAMING.joined] == [("x", 0)]
    assert [(tensor.name, shape) for tensor, shape in RAGGED.answered] == [("y", (4, 4, 2)), ("mean", (4, 2))]
    assert [(tensor.name, axis, rows_at) for tensor, axis, rows_at in RAGGED.counted] == [("time_length", "time", 0)]
    assert ("tokens", 0) in [(tensor.name, axis) for tensor, axis in RAGGED.joined]


def test_a_graph_without_an_axis_of_rows_has_one_row() -> None:
    graph = streaming_graph()
    inputs, outputs = (
        tuple(dataclasses.replace(tensor, shape=(2, *tensor.shape[1:])) for tensor in tensors)
        for tensors in (graph.inputs, graph.outputs)
    )
    assert Bucket(dataclasses.replace(graph, axes={}, batch_axis=None, inputs=inputs, outputs=outputs), {}).rows == 1


def test_a_run_of_fewer_rows_lies_in_the_memory_of_the_bucket_that_was_built() -> None:
    built = Bucket(streaming_graph(), {"batch": 4})
    between = Bucket(streaming_graph(), {"batch": 3}, built)
    assert between.rows == 3
    buffers = between.take()
    keys = buffers.inputs["keys"]
    assert keys.shape == (3, 5, 2) and keys.flags.c_contiguous and built.made == between.made == 1
    between.give_back(buffers)
    assert np.shares_memory(built.take().inputs["keys"], keys)
    between.take()
    assert built.made == 2
    between.lose()
    assert built.made == between.made == 1
