"""Runs the buckets of one graph on the machine's CUDA device; subclasses define what a bucket executes.

A bucket is opened at its first use. Runs follow each other on the device, and what a run takes from the host is copied
there while others run. States that lie on the device are read and written there; everything else is copied from the
caller's arrays and into them. Runs at the same addresses are launched as CUDA graphs, unless the environment says
`RUNTIME_LITE_CUDA_GRAPHS=0`; pycuda has none.
"""

import abc
import contextlib
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from runtime_lite.errors import ExecutorFailed, show
from runtime_lite.executors.cuda import Cuda, DeviceArray, open_cuda
from runtime_lite.executors.device_memory import DeviceMemory
from runtime_lite.executors.device_run import GRAPHS_SWITCH, DeviceRun, DeviceTensor
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph, bucket_name, static_shape
from runtime_lite.format.reader import Bundle


class DeviceExecutor(abc.ABC):
    """The buckets of one graph.

    Args:
        bundle: an open bundle.
        name: graph name in it.

    Attributes:
        memory: in which states lie.
    """

    def __init__(self, bundle: Bundle, name: str) -> None:
        """Open nothing yet."""
        self._bundle = bundle
        self._graph: Graph = bundle.manifest.graphs[name]
        self._where = f"{bundle.path}: graph {name!r}"
        self._artifacts = {bucket_name(artifact.sizes): artifact for artifact in self._graph.artifacts}
        self._opened: dict[str, DeviceRun] = {}
        self._lock = threading.RLock()
        self._cuda: Cuda | None = None
        self.memory = DeviceMemory(self._opened_device, self._lock)

    @abc.abstractmethod
    def _start_library(self) -> None:
        """Import what runs the buckets, before the device is opened."""

    @abc.abstractmethod
    def _open(self, artifact: Artifact, cuda: Cuda, captures: bool) -> DeviceRun:
        """Open a bucket on the device, which is active; it shares the queue and the lock of all work.

        Raises:
            EngineAbsent: it cannot be opened on this machine.
            BundleRefused: it is not what the manifest says.
        """

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: what every output is written to, in the bucket's static shape.

        Raises:
            EngineAbsent: the bucket cannot be opened on this machine.
            BundleRefused: its inputs and outputs are not what the manifest says.
            ExecutorFailed: there was too little memory, the device is gone, or a state lies in another one.
            InternalError: the device failed.
        """
        on_device = {name: place for name, place in outputs.items() if isinstance(place, DeviceArray)}
        for array in inputs.values():
            if isinstance(array, DeviceArray):
                self.memory.require(array)
        cuda, run = self._opened_run(bucket_name(sizes))
        with cuda.active():
            found, _ = run.run(inputs, on_device)
        self.memory.count(inputs.values(), outputs.values())
        for name, array in found.items():
            np.copyto(outputs[name], array, casting="no")

    def _opened_run(self, bucket: str) -> tuple[Cuda, DeviceRun]:
        """The device and what a bucket runs there, opened at the first use; else no other run is waited for."""
        cuda, run = self._cuda, self._opened.get(bucket)
        if cuda is None or run is None:
            with self._lock:
                cuda = self._opened_device()
                with cuda.active():
                    if bucket not in self._opened:
                        captures = cuda.captures and os.environ.get(GRAPHS_SWITCH) != "0"
                        self._opened[bucket] = self._open(self._artifacts[bucket], cuda, captures)
                    run = self._opened[bucket]
        return cuda, run

    def close(self) -> None:
        """Close all buckets, then the device; a second call does nothing. A device that is gone has nothing to free."""
        with self._lock:
            cuda, self._cuda = self._cuda, None
            gone = contextlib.suppress(ExecutorFailed)
            if cuda is not None:
                with gone, cuda.active():
                    while self._opened:
                        self._opened.popitem()[1].close()
            with gone:
                self.memory.close()
            if cuda is not None:
                with gone:
                    cuda.close()

    def _opened_device(self) -> Cuda:
        """The device, opened with the library at the first use; the lock is held."""
        if self._cuda is None:
            self._start_library()
            self._cuda = open_cuda()
        return self._cuda


def check_tensors(where: str, found: tuple[DeviceTensor, ...], graph: Graph, artifact: Artifact) -> None:
    """Refuse a bucket whose inputs and outputs are not those of the manifest.

    Raises:
        BundleRefused: names the first that differs.
    """
    wanted = {
        tensor.name: (static_shape(tensor.shape, artifact.sizes), np.dtype(tensor.dtype), tensor in graph.inputs)
        for tensor in graph.inputs + graph.outputs
    }
    got = {tensor.name: (tensor.shape, tensor.dtype, tensor.is_input) for tensor in found}
    if got != wanted:
        name = next(name for name in sorted({*got, *wanted}) if got.get(name) != wanted.get(name))
        refuse(where, f"{name!r} as the manifest lists it ({show(wanted.get(name))})", show(got.get(name)))
