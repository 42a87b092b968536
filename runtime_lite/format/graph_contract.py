"""Compares the contract in a graph file's metadata with the manifest when a bundle is loaded.

Frames per push, the true lengths that are proved, whether rows are independent, formulas and initial states decide
answers and cannot all be read off a graph. So every graph file carries them, in its metadata, beside the computation
they belong to: a manifest that says anything else is refused before a session is opened. A changed manifest with new
hashes does not pass; whoever changes the graph files as well can change their weights, too, which nothing here can
notice.
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
"""Of `Graph`: what decides answers. Versions are checked by the executor, files by their hashes."""


def contract_of(
    name: str,
    graph: Graph,
    artifact: Artifact,
    front_end: Mapping[str, Scalar],
    certificate: str,
    schema_version: int = SCHEMA_VERSION,
) -> dict[str, Any]:
    """Return what a graph file says: how the graph is fed and read, and what the caller does before.

    Args:
        name: graph name.
        graph: its record.
        artifact: one whose file it is.
        front_end: of the manifest.
        certificate: SHA-256 of the graph's certificate.
        schema_version: of the manifest, in whose words it is said.
    """
    is_older = schema_version == schema_3.VERSION
    plain = schema_3.contract_fields(graph) if is_older else {field: getattr(graph, field) for field in _FIELDS}
    fixed = graph.sizes_in_file(artifact)
    sizes = {axis: fixed.get(axis) for axis in artifact.sizes}  # null where the file leaves the rows open
    told = {"graph": name, "sizes": sizes, "front_end": dict(front_end), "certificate": certificate, **plain}
    return trimmed(json.loads(json.dumps(told, default=dataclasses.asdict, sort_keys=True)))


def with_contract(content: bytes, contract: Mapping[str, Any]) -> bytes:
    """Return a graph file that carries its contract."""
    return with_metadata(content, KEY, json.dumps(contract, sort_keys=True, separators=(",", ":")))


def without_contract(content: bytes) -> bytes:
    """Return a graph file as it was before `with_contract`."""
    text = metadata_of(content, "graph").get(KEY, b"").decode("utf-8", "replace")
    return content.removesuffix(with_metadata(b"", KEY, text))


def check_contracts(bundle: Bundle) -> None:
    """Check that every graph file was written for exactly what the manifest says of it.

    Raises:
        BundleRefused: names the file and the first value that differs.
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
    """Equal for values that are the same: 1, 1.0 and True are not, an object in another order is."""
    return json.dumps(value, sort_keys=True)


def _leaves(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Dotted places and values."""
    if isinstance(value, dict) and value:
        return [leaf for key in value for leaf in _leaves(value[key], f"{place}.{key}" if place else str(key))]
    if isinstance(value, list) and value:
        return [leaf for at, each in enumerate(value) for leaf in _leaves(each, f"{place}[{at}]")]
    return [(place, value)]
