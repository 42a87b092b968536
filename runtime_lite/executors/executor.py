"""Defines what an executor of one graph does, and chooses the executor for a bundle."""

import importlib
from collections.abc import Callable, Mapping
from typing import Protocol

from runtime_lite.errors import FRONT_DOOR, EngineAbsent, show
from runtime_lite.executors.openvino import OpenvinoExecutor
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.executors.tensorrt_rtx import TensorrtRtxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle


class Executor(Protocol):
    """Runs the buckets of one graph, several at once; feeds are checked and padded before they get here.

    One with an attribute `memory` (`memory.py`) takes and leaves states there: inputs and outputs of role state are
    its buffers then, where a caller has them so. The arrays of all others are the host's.
    """

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph by name, in exactly the bucket's static shape; of any memory layout. They
                are read while this lasts, and never written.
            outputs: an array for every output of the graph by name, in exactly the bucket's static shape, contiguous;
                none shares memory with an input or another one. Every number of them is written; where something is
                raised they hold anything, and nothing is written to them later.
        """
        ...

    def close(self) -> None:
        """Release everything."""
        ...


ExecutorFactory = Callable[[Bundle, str, int], Executor]
"""Makes an executor from a bundle, a graph name and a number of threads."""


def _onnx_runtime(bundle: Bundle, name: str, threads: int) -> Executor:
    try:
        found = importlib.import_module("runtime_lite.executors.onnx")
    except ImportError as error:
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected the package onnxruntime, got {show(str(error))}; "
            "pip install onnxruntime"
        ) from error
    made: Executor = found.OnnxExecutor(bundle, name, threads)
    return made


def _tensorrt_rtx(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    return TensorrtRtxExecutor(bundle, name)


def _tensorrt(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    return TensorrtExecutor(bundle, name, allow_host_code)


EXECUTORS: Mapping[str, Callable[[Bundle, str, int, bool], Executor]] = {
    "tensorrt": _tensorrt,
    "tensorrt_rtx": _tensorrt_rtx,
}
"""What runs the engines of a target, by its name.

Each imports only what it needs: a machine with engines needs no ONNX Runtime, and the other way round.
"""

RUNTIMES: Mapping[str, ExecutorFactory] = {"openvino": OpenvinoExecutor}
"""What runs the graph files of a target without engines, by its name; those of any other ONNX Runtime does."""


def make_executor(bundle: Bundle, name: str, threads: int, allow_host_code: bool = False) -> Executor:
    """Return what runs a graph of a bundle as it was built.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session.
        allow_host_code: whether engines may run code that they carry; only for a bundle whose maker is trusted.

    Raises:
        EngineAbsent: its engine is not built, or what runs it is not on this machine.
        BundleRefused: its engines carry code, and that is not allowed.
    """
    graph = bundle.manifest.graphs[name]
    if graph.engine is not None and graph.engine.status != "built":
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected an engine, got none, {graph.engine.reason}; "
            f"run `{FRONT_DOOR} finish {bundle.path}` on the machine with the device"
        )
    if graph.engine is None:
        return RUNTIMES.get(graph.target, _onnx_runtime)(bundle, name, threads)
    if graph.target not in EXECUTORS:
        known = ", ".join(sorted(EXECUTORS))
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected engines that this runtime runs ({known}), got those of "
            f"{show(graph.target)}; run it with its vendor's runtime"
        )
    return EXECUTORS[graph.target](bundle, name, threads, allow_host_code)


def make_trusted_executor(bundle: Bundle, name: str, threads: int) -> Executor:
    """What `make_executor` returns, for engines that the caller has built itself: they may run code that they carry."""
    return make_executor(bundle, name, threads, allow_host_code=True)
