"""Fills in keys that were added to manifests of schema 4 later, and leaves them out at their defaults.

An older reader refuses a bundle with a key that it does not know, and names the key.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from runtime_lite.format.checked_json import JsonValue

OF_MANIFEST: Mapping[str, Any] = {"voice": None}
"""Defaults of the keys of a manifest."""

OF_GRAPH: Mapping[str, Any] = {"flush": {}, "flush_values": {}, "options": {}, "latency": None}
"""Defaults of the keys of a graph."""

OF_TENSOR: Mapping[str, Any] = {"range": None}
"""Defaults of the keys of an input or output."""

OF_AXIS: Mapping[str, Any] = {"is_held": False}
"""Defaults of the keys of an axis."""

OF_CACHE: Mapping[str, Any] = {"added": None, "is_whole": False, "chunk": 1}
"""Defaults of the keys of a cache axis."""


def filled(value: JsonValue, later: Mapping[str, Any]) -> JsonValue:
    """Return an object with the defaults of keys that it lacks; any other value unchanged, to be refused later."""
    if not isinstance(value.value, dict):
        return value
    return dataclasses.replace(value, value={**later, **value.value})


def trimmed_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain form of a manifest without later keys at their defaults, in it and in its graphs."""
    graphs = {name: trimmed(graph) for name, graph in manifest["graphs"].items()}
    return _without({**manifest, "graphs": graphs}, OF_MANIFEST)


def trimmed(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain form of a graph, or of the contract in a graph file, without later keys at their defaults."""
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
