"""Counts what a call moves between host and device, with its states on the device and with states of the host.

    python -m tests.device.crossing BUNDLE [...]

No device is needed: the double of CUDA counts every copy that it is asked for, and the provider for CPUs runs
the graph files in ONNX Runtime. Bundles are those of targets that write static graphs, one per number of rows.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import Runtime
from runtime_lite.calls.blocks import rows_of
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.executors.cuda import CudaPython
from runtime_lite.executors.memory import Crossed
from runtime_lite.executors.onnx_cuda import OnnxCudaExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Tensor, bucket_name, static_shape
from tests.runtime_lite.engines import use_cpu_for_cuda, use_doubles


@dataclasses.dataclass(frozen=True)
class Moved:
    """Bytes of a call that fills a bucket.

    Attributes:
        bucket: its sizes.
        by_host: where states come from the host and go back.
        on_device: where they stay on the device.
        data: inputs and outputs that are no states, masks and lengths among them.
    """

    bucket: str
    by_host: Crossed
    on_device: Crossed
    data: Crossed


def crossing(bundle: Path, cuda: Any) -> Iterator[Moved]:
    """Yield what calls move in every bucket of every graph with states, as the double of CUDA counts it."""
    with Runtime() as runtime:
        model = runtime.load(bundle, OnnxCudaExecutor)
        for name, graph in model.bundle.manifest.graphs.items():
            for artifact in graph.artifacts if graph.states else ():
                yield _moved(model.runner(name), artifact.sizes, cuda)


def _moved(runner: GraphRunner, sizes: Mapping[str, int], cuda: Any) -> Moved:
    graph = runner.graph
    inputs = {tensor.name: np.zeros(static_shape(tensor.shape, sizes), tensor.dtype) for tensor in graph.inputs}
    outputs = {tensor.name: np.empty(static_shape(tensor.shape, sizes), tensor.dtype) for tensor in graph.outputs}
    rows = 1 if graph.batch_axis is None else sizes[graph.batch_axis]
    fed = {
        name: inputs[name] if axis is None else rows_of(inputs[name], axis, 0, 1) for name, axis in runner.fed.items()
    }
    feeds, states = [runner.check("crossing", fed)] * rows, [runner.initial_state(1) for _ in range(rows)]

    def with_states_on_device() -> None:
        states[:] = [state for _, state in runner.step_streams(feeds, states, sizes)]

    return Moved(
        bucket_name(sizes),
        _counted(partial(runner.executor.run, sizes, inputs, outputs), cuda),
        _counted(with_states_on_device, cuda),
        Crossed(_data_bytes(graph.inputs, inputs), _data_bytes(graph.outputs, outputs)),
    )


def _data_bytes(tensors: Sequence[Tensor], arrays: Mapping[str, Array]) -> int:
    """The bytes of what is no state."""
    return sum(arrays[tensor.name].nbytes for tensor in tensors if tensor.role != "state")


def _counted(call: Callable[[], None], cuda: Any) -> Crossed:
    """The bytes of one call, when another has taken the states to the device."""
    call()
    cuda.crossed.clear()
    call()
    return Crossed(cuda.crossed["cudaMemcpyHostToDevice"], cuda.crossed["cudaMemcpyDeviceToHost"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Count the bytes that a call moves between host and device.")
    parser.add_argument("bundles", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    with pytest.MonkeyPatch.context() as patched:
        use_doubles(patched)
        use_cpu_for_cuda(patched)
        cuda: Any = CudaPython()._cuda
        print("| bucket | states by the host: to device | to host | states on the device: to device | to host |")
        print("|---|---|---|---|---|")
        for bundle in options.bundles:
            for moved in crossing(bundle, cuda):
                figures = (*moved.by_host, *moved.on_device)
                print(f"| {moved.bucket} | " + " | ".join(f"{figure:,}" for figure in figures) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
