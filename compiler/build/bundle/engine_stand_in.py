"""Runs a bundle whose vendor engines are not built, by executing the graphs in ONNX Runtime instead.

The runtime pads inputs, cuts outputs and carries states; only the session that computes is the compiler's. Its inputs
are recorded, one call per bucket, so that the engines can be compared on their own machine without the
runtime.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from compiler.graph.runners.session import Session
from compiler.graph.stages import Array
from runtime_lite.format.arrays import npz_from_arrays
from runtime_lite.format.manifest import bucket_name
from runtime_lite.format.reader import Bundle

OpenArtifact = Callable[[Path], Session]


class EngineStandIns:
    """Makes stand-ins for `Runtime.load`, and records their feeds.

    Args:
        open_artifact: opens what stands for an artefact, by the path of its main file.
    """

    def __init__(self, open_artifact: OpenArtifact) -> None:
        self.open_artifact = open_artifact
        self.recorded: dict[str, dict[str, Array]] = {}

    def __call__(self, bundle: Bundle, name: str, threads: int) -> "EngineStandIn":
        return EngineStandIn(bundle, name, self.open_artifact, self.recorded.setdefault(name, {}))

    def feeds(self, tolerances: Mapping[str, float]) -> dict[str, bytes]:
        """Return the recorded calls of each graph as a file.

        Its arrays are `<bucket>/feed/<input>`, `<bucket>/output/<output>` and `tolerance`.

        Args:
            tolerances: largest accepted error by graph, relative to values above 1.
        """
        return {
            name: npz_from_arrays({**arrays, "tolerance": np.array(tolerances[name], np.float32)})
            for name, arrays in self.recorded.items()
        }


class EngineStandIn:
    """Sessions of one graph, by bucket."""

    def __init__(self, bundle: Bundle, name: str, open_artifact: OpenArtifact, recorded: dict[str, Array]) -> None:
        self._graph, self._folder = bundle.manifest.graphs[name], bundle.path
        self._open, self._recorded = open_artifact, recorded
        self._files = {bucket_name(artifact.sizes): artifact.file for artifact in self._graph.artifacts}
        self._sessions: dict[str, Session] = {}

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket, and keep a copy of its last call."""
        bucket = bucket_name(sizes)
        if bucket not in self._sessions:
            self._sessions[bucket] = self._open(self._folder / self._files[bucket])
        names = [tensor.name for tensor in self._graph.outputs]
        found = dict(zip(names, self._sessions[bucket].run(names, dict(inputs)), strict=True))
        self._recorded |= {f"{bucket}/feed/{name}": array.copy() for name, array in inputs.items()}
        self._recorded |= {f"{bucket}/output/{name}": array for name, array in found.items()}
        for name, place in outputs.items():
            np.copyto(place, found[name], casting="no")

    def close(self) -> None:
        """Drop the sessions."""
        self._sessions.clear()
