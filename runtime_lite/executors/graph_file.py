"""Reads a graph file of a bundle, with its external files, as bytes whose hashes were checked.

A graph whose versions or external files differ from the manifest is refused before a backend opens it.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from runtime_lite.errors import show
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph
from runtime_lite.format.onnx_file import scan_onnx
from runtime_lite.format.reader import Bundle


@dataclass(frozen=True)
class GraphFile:
    """A graph file and its weights.

    Attributes:
        where: bundle and file, for messages.
        content: content of the ONNX file.
        data: content of every external file, by location as the ONNX file states it.
    """

    where: str
    content: bytes
    data: Mapping[str, bytes]


def read_graph_file(bundle: Bundle, graph: Graph, artifact: Artifact) -> GraphFile:
    """Read the file of an artifact and its external files.

    Raises:
        BundleRefused: a file has changed since the bundle was opened, or the graph has other versions than the manifest
            or external data that the manifest does not list.
    """
    where, content = f"{bundle.path}: {artifact.file}", bundle.read_file(artifact.file)
    facts = scan_onnx(content, where)
    if (facts.ir_version, facts.opset) != (graph.ir_version, graph.opset):
        expected = f"IR version {graph.ir_version} and opset {graph.opset}, as the manifest says"
        refuse(where, expected, f"{facts.ir_version} and {facts.opset}")
    folder = posixpath.dirname(artifact.file)
    allowed = {posixpath.relpath(path, folder or "."): path for path in artifact.files}
    locations: dict[str, str] = {}
    for external in facts.external:
        if external.location not in allowed:
            refuse(where, f"external data in {sorted(allowed)}", show(external.location))
        path = allowed[external.location]
        size = bundle.manifest.files[path].bytes
        if external.end > size:
            refuse(where, f"external data within the {size} bytes of {path!r}", f"data up to byte {external.end}")
        locations[external.location] = path
    return GraphFile(where, content, {location: bundle.read_file(path) for location, path in locations.items()})
