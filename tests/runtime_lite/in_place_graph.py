"""The record of a graph that gives new frames alone, for caches that are written in place, and a state beside them."""

import dataclasses

from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.format.manifest import Artifact, Axis, Graph, State, Tensor
from runtime_lite.states import APPENDED, KINDS
from runtime_lite.states.kind import StateKind
from tests.runtime_lite.bundles import streaming_graph

SLOTS, WIDTH = 12, 2

WRITTEN_IN_PLACE = [kind for kind in KINDS if not kind.is_given_whole]


def in_place_graph(buckets: tuple[int, ...] = (1, 2, 4), slots: int = SLOTS, kind: StateKind = APPENDED) -> Graph:
    """A graph that adds to every new frame the sum of what it has cached, and of all frames before its call."""
    cache = CacheAxis("past", slots, 1, "past_length", None, added="time", is_whole=kind.needs_whole).as_kind(kind)
    states = (
        State("keys", "keys", "new_keys", ("batch", slots, WIDTH), "float32", 0.0, 1, "past", ("keys",)),
        State("values", "values", "new_values", ("batch", WIDTH, slots), "float32", 0.0, 2, "past", ("values",)),
        State("total", "total", "new_total", ("batch", 1), "float32", 0.0, None, None, ("total",)),
    )
    inputs = (
        Tensor("x", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("time_length", ("batch",), "int64", "length"),
        Tensor("past_length", ("batch",), "int64", "length"),
        *(Tensor(each.input, each.shape, "float32", "state") for each in states),
    )
    outputs = (
        Tensor("y", ("batch", "time", WIDTH), "float32", "data"),
        Tensor("new_keys", ("batch", "time", WIDTH), "float32", "state"),
        Tensor("new_values", ("batch", WIDTH, "time"), "float32", "state"),
        Tensor("new_total", ("batch", 1), "float32", "state"),
    )
    return dataclasses.replace(
        streaming_graph(),
        inputs=inputs,
        outputs=outputs,
        axes={"batch": Axis(buckets), "time": Axis((1, 4), "time_length")},
        states=states,
        caches=(cache,),
        artifacts=tuple(
            Artifact({"batch": rows, "time": time}, f"g{rows}.{time}.onnx", ()) for rows in buckets for time in (1, 4)
        ),
        batch_axis="batch",
    )
