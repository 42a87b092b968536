"""Runs an executor into arrays that hold poison, so that an output that is not written is seen."""

from collections.abc import Mapping

import numpy as np

from runtime_lite.executors.executor import Executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, static_shape


def poisoned_outputs(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Array]:
    """An array for every output: NaN, or the largest number of a dtype that has none."""
    return {tensor.name: _poisoned(static_shape(tensor.shape, sizes), tensor.dtype) for tensor in graph.outputs}


def run_fresh(
    executor: Executor, graph: Graph, sizes: Mapping[str, int], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """What a run writes."""
    outputs = poisoned_outputs(graph, sizes)
    executor.run(sizes, inputs, outputs)
    return outputs


def _poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    kind = np.dtype(dtype)
    return np.full(shape, True if kind.kind == "b" else np.nan if kind.kind == "f" else np.iinfo(kind).max, kind)
