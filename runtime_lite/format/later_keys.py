"""Keys that schema 4 got after its first bundles: left out where they say nothing, so that those read as before.

A reader from before refuses a bundle that says more than it knows, by the name of the key.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from runtime_lite.format.checked_json import JsonValue

OF_GRAPH: Mapping[str, Any] = {"flush": {}, "flush_values": {}, "options": {}, "latency": None}
"""What a graph without the key means."""

OF_TENSOR: Mapping[str, Any] = {"range": None}
"""What an input or output without the key means."""

OF_AXIS: Mapping[str, Any] = {"is_held": False}
"""What an axis without the key means."""

OF_CACHE: Mapping[str, Any] = {"added": None, "is_whole": False, "chunk": 1}
"""What a cache axis without the key means."""


def filled(value: JsonValue, later: Mapping[str, Any]) -> JsonValue:
    """Return an object with the keys that it leaves out; anything else as it is, to be refused where it is read."""
    if not isinstance(value.value, dict):
        return value
    return dataclasses.replace(value, value={**later, **value.value})


def trimmed(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain form of a graph, or of what a graph file says of it, without later keys that say nothing."""
    parts: dict[str, Any] = {}
    if "axes" in graph:
        parts["axes"] = {name: _without(axis, OF_AXIS) for name, axis in graph["axes"].items()}
    for side in ("inputs", "outputs"):
        if side in graph:
            parts[side] = [_without(tensor, OF_TENSOR) for tensor in graph[side]]
    if "caches" in graph:
        parts["caches"] = [_without(cache, OF_CACHE) for cache in graph["caches"]]
    return _without({**graph, **parts}, OF_GRAPH)


def _without(plain: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key not in later or value != later[key]}
