"""Reads manifests of schema 3 as schema 4, and checks them against the contracts in their graph files.

Schema 3 has one cache axis, without a name, right-aligned and replaced, in `stream`; each state repeats its size and
update; and the batch axis is the axis named `batch`.
"""

import dataclasses
from typing import Any

from runtime_lite.format.checked_json import JsonValue
from runtime_lite.format.later_keys import OF_GRAPH
from runtime_lite.format.manifest import Graph, State
from runtime_lite.format.manifest_check import MAX_DIMENSION

VERSION = 3

_BATCH_AXIS = "batch"
_CACHE_AXIS = "cache"  # schema 3 does not say what it is called
_STREAM = ("length_input", "mask_input", "window", "step_frames", "alignment")
_STATE = {field.name for field in dataclasses.fields(State)} - {"cache"} | {"update", "window"}
_GRAPH = {field.name for field in dataclasses.fields(Graph)} - {"caches", "batch_axis", *OF_GRAPH} | {"stream"}
_CONTRACT = ("inputs", "outputs", "axes", "rows_independent")


def upgraded(top: JsonValue) -> JsonValue:
    """Return a manifest of schema 3 with the keys of schema 4; values are checked later.

    Raises:
        BundleRefused: a part whose keys have changed does not follow schema 3.
    """
    if top.key("wiring").items():
        top.key("wiring").refuse("an empty list", "wired graphs")
    graphs = top.key("graphs").table(_graph, keys=JsonValue.identifier)
    return dataclasses.replace(top, value={**top.value, "graphs": graphs})


def _graph(value: JsonValue) -> dict[str, Any]:
    value.keys_are(_GRAPH)
    stream, axes = value.key("stream"), value.key("axes").table(lambda axis: axis.value)
    cache = _name_beside(axes)
    states = [_state(item, stream, cache) for item in value.key("states").items()]
    kept = {key: each for key, each in value.value.items() if key != "stream"}
    return {
        **kept,
        "states": states,
        "caches": [] if stream.value is None else [_cache(stream, cache)],
        "batch_axis": _BATCH_AXIS if _BATCH_AXIS in axes else None,
    }


def _cache(stream: JsonValue, name: str) -> dict[str, Any]:
    stream.keys_are(_STREAM)
    stream.key("alignment").one_of(("right",))
    return {
        "axis": name,
        "slots": stream.value["window"],
        "step": stream.value["step_frames"],
        "length_input": stream.value["length_input"],
        "mask_input": stream.value["mask_input"],
        "side": "right",
        "update": "replace",
    }


def _state(value: JsonValue, stream: JsonValue, cache: str) -> dict[str, Any]:
    value.keys_are(_STATE).key("update").one_of(("replace",))
    window = value.key("window")
    if window.value is not None:
        size = window.integer(1, MAX_DIMENSION)
        if stream.value is None or size != stream.key("window").value:
            window.refuse("the window of the stream, or null")
    kept = {key: each for key, each in value.value.items() if key not in ("update", "window")}
    return {**kept, "cache": None if window.value is None else cache}


def _name_beside(axes: dict[str, Any]) -> str:
    """Return a name for the cache axis that no other axis has."""
    name = _CACHE_AXIS
    while name in axes:
        name += "_"
    return name


def contract_fields(graph: Graph) -> dict[str, Any]:
    """Return the contract of a graph of schema 3 with the keys of schema 3, as its graph files contain it."""
    (cache,) = graph.caches or (None,)
    states = []
    for state in graph.states:
        fields = {key: field_value for key, field_value in dataclasses.asdict(state).items() if key != "cache"}
        window = None if state.cache is None or cache is None else cache.slots
        states.append({**fields, "update": "replace", "window": window})
    stream = None
    if cache is not None:
        told = (cache.length_input, cache.mask_input, cache.slots, cache.step, cache.side)
        stream = dict(zip(_STREAM, told, strict=True))
    return {**{key: getattr(graph, key) for key in _CONTRACT}, "states": states, "stream": stream}
