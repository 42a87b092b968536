"""Records the feeds of the runtime to a graph, for contenders that get the same ones."""

from collections.abc import Mapping

import numpy as np

from runtime_lite.bench import bucket_call
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.executors.executor import Executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Artifact, Graph


class Recorder:
    """An executor that records the inputs of every call.

    Args:
        executor: runs the calls; without one nothing runs, and outputs are undefined.
    """

    def __init__(self, executor: Executor | None) -> None:
        """Start without records."""
        self._executor = executor
        self.fed: list[dict[str, Array]] = []

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self.fed.append({name: np.array(array) for name, array in inputs.items()})
        if self._executor is not None:
            self._executor.run(sizes, inputs, outputs)

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()


def full_feed(name: str, graph: Graph, artifact: Artifact) -> dict[str, Array]:
    """Return every input of a full bucket: all rows in use, each as long as the bucket, caches full."""
    recorder = Recorder(None)
    bucket_call(GraphRunner(name, graph, recorder, check_finite=False), artifact)()
    return recorder.fed[-1]
