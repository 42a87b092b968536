"""What a runtime feeds to a graph, for contenders that are to be fed the same."""

from collections.abc import Mapping

import numpy as np

from runtime_lite.executors.executor import Executor
from runtime_lite.format.arrays import Array


class Recorder:
    """An executor that keeps every call's inputs."""

    def __init__(self, executor: Executor) -> None:
        """Begin with nothing fed."""
        self._executor = executor
        self.fed: list[dict[str, Array]] = []

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        self.fed.append({name: np.array(array) for name, array in inputs.items()})
        self._executor.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._executor.close()
