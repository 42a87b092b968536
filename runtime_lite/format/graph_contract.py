"""Checks, when a bundle is loaded, that its manifest agrees with the metadata in each graph file.

Frames per push, proved true lengths, independence of rows, formulas and initial states decide answers and cannot all be
read from a graph. So every graph file contains them in its metadata, and a manifest that differs is refused before a
session is opened. So a changed manifest is noticed even if its hashes are right; a change of the graph files themselves
is not.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from runtime_lite.errors import show
from runtime_lite.format import schema_3
from runtime_lite.format.checked_json import JsonValue, refuse
from runtime_lite.format.later_keys import trimmed
from runtime_lite.format.manifest import SCHEMA_VERSION, Artifact, Graph, Scalar
from runtime_lite.format.onnx_file import metadata_of, with_metadata
from runtime_lite.format.reader import Bundle

KEY = "slipway.contract"

_FIELDS = (
    "inputs", "outputs", "axes", "states", "caches", "batch_axis", "rows_independent",
    "flush", "flush_values", "options",
)  # fmt: skip
"""Fields of `Graph` that decide answers. The executor checks versions; hashes protect files."""


def contract_of(
    name: str,
    graph: Graph,
    artifact: Artifact,
    front_end: Mapping[str, Scalar],
    certificate: str,
    schema_version: int = SCHEMA_VERSION,
) -> dict[str, Any]:
    """Return the contract of a graph file: how its graph is fed, and how its outputs are read.

    Args:
        name: graph name.
        graph: the graph's record in the manifest.
        artifact: an artifact of the file.
        front_end: the front end of the manifest.
        certificate: SHA-256 of the graph's certificate.
        schema_version: schema of the manifest, which determines the keys.
    """
    is_older = schema_version == schema_3.VERSION
    plain = schema_3.contract_fields(graph) if is_older else {field: getattr(graph, field) for field in _FIELDS}
    fixed = graph.sizes_in_file(artifact)
    sizes = {axis: fixed.get(axis) for axis in artifact.sizes}  # null where the file leaves the rows open
    told = {"graph": name, "sizes": sizes, "front_end": dict(front_end), "certificate": certificate, **plain}
    return trimmed(json.loads(json.dumps(told, default=dataclasses.asdict, sort_keys=True)))


def with_contract(content: bytes, contract: Mapping[str, Any]) -> bytes:
    """Return a graph file with a contract added to its metadata."""
    return with_metadata(content, KEY, json.dumps(contract, sort_keys=True, separators=(",", ":")))


def without_contract(content: bytes) -> bytes:
    """Return a graph file without the contract that `with_contract` added."""
    text = metadata_of(content, "graph").get(KEY, b"").decode("utf-8", "replace")
    return content.removesuffix(with_metadata(b"", KEY, text))


def check_contracts(bundle: Bundle) -> None:
    """Check that the contract of every graph file equals the manifest.

    Raises:
        BundleRefused: they differ; the message has the file and the first value that differs.
    """
    for name, graph in bundle.manifest.graphs.items():
        for artifact in {artifact.file: artifact for artifact in graph.artifacts}.values():
            _check(bundle, name, graph, artifact)


def _check(bundle: Bundle, name: str, graph: Graph, artifact: Artifact) -> None:
    where = f"{bundle.path}: {artifact.file}"
    text = metadata_of(bundle.read_file(artifact.file), where).get(KEY)
    if text is None:
        refuse(where, f"what the graph was built for under {KEY!r} in its metadata", "nothing")
    told = JsonValue.parse(text, f"{where}: {KEY}").value
    certificate = bundle.manifest.files[graph.certificate].sha256
    manifest = bundle.manifest
    said = contract_of(name, graph, artifact, manifest.front_end, certificate, manifest.schema_version)
    if told == said and _types(told) == _types(said):
        return
    theirs, ours = dict(_leaves(told)), dict(_leaves(said))
    key = next(key for key in [*ours, *theirs] if repr(ours.get(key, "nothing")) != repr(theirs.get(key, "nothing")))
    refuse(
        where,
        f"a manifest that says what the graph was built for ({key} is {show(theirs.get(key, 'nothing'))})",
        f"{show(ours.get(key, 'nothing'))}",
    )


def _types(value: Any) -> str:
    """Return a text that is equal for equal values of equal types; it distinguishes 1, 1.0 and True."""
    return json.dumps(value, sort_keys=True)


def _leaves(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Return the leaves of a nested value with their dotted paths."""
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _leaves(value[key], f"{place}.{key}" if place else str(key))]
    if isinstance(value, list) and value:
        return [leaf for at, each in enumerate(value) for leaf in _leaves(each, f"{place}[{at}]")]
    return [(place, value)]
