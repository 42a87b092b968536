"""The record of a graph that gives new frames alone, for caches to which its calls append."""

import dataclasses

from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from tests.runtime_lite.bundles import streaming_graph

SLOTS, WIDTH = 12, 2


def appending_graph(buckets: tuple[int, ...] = (1, 2, 4), slots: int = SLOTS) -> Graph:
    """A graph that adds to every new frame the sum of all frames before its call, and gives new frames alone."""
    inputs = (
        Tensor("x", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("time_length", ("batch",), "int64", "length"),
        Tensor("past_length", ("batch",), "int64", "length"),
        Tensor("keys", ("batch", slots, WIDTH), "float32", "state"),
        Tensor("values", ("batch", WIDTH, slots), "float32", "state"),
    )
    outputs = (
        Tensor("y", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("new_keys", ("batch", "time", WIDTH), "float32", "state"),
        Tensor("new_values", ("batch", WIDTH, "time"), "float32", "state"),
    )
    return dataclasses.replace(
        streaming_graph(),
        inputs=inputs,
        outputs=outputs,
        axes={"batch": Axis(buckets), "time": Axis((1, 4), "time_length")},
        states=(
            State("keys", "keys", "new_keys", ("batch", slots, WIDTH), "float32", 0.0, 1, "past", ("keys",)),
            State("values", "values", "new_values", ("batch", WIDTH, slots), "float32", 0.0, 2, "past", ("values",)),
        ),
        caches=(CacheAxis("past", slots, 1, "past_length", None, "left", "append", added="time", is_whole=True),),
        artifacts=tuple(
            Artifact({"batch": rows, "time": time}, f"g{rows}.{time}.onnx", ()) for rows in buckets for time in (1, 4)
        ),
        batch_axis="batch",
    )
