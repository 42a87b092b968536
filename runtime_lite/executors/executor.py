"""Defines the interface of executors, and makes the one that runs a graph of a bundle as it was built."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from runtime_lite.errors import FRONT_DOOR, EngineAbsent, show
from runtime_lite.executors import ethos_u, qnn
from runtime_lite.executors.openvino import OpenvinoExecutor
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.executors.tensorrt_rtx import TensorrtRtxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle


class Executor(Protocol):
    """Runs the buckets of one graph, several at the same time; feeds are checked and padded before.

    An executor that computes in a vendor's simulator in the place of the device has an attribute `simulates`, which is
    true. An executor with an attribute `memory` (`memory.py`) can read and write states there: the caller may then pass
    buffers of that memory as inputs and outputs of role state. All other arrays are those of the host.
    """

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket.

        Args:
            sizes: bucket of every axis.
            inputs: an array for every input of the graph by name, in exactly the bucket's static shape, of any memory
                layout. They are read during the call only, and never written.
            outputs: an array for every output of the graph by name, in exactly the bucket's static shape, contiguous;
                none shares memory with an input or another output. Every entry is written. After an error their values
                are undefined, and nothing is written to them later.
        """
        ...

    def close(self) -> None:
        """Release all resources."""
        ...


def is_simulated(executor: object) -> bool:
    """Whether an executor computes in a vendor's simulator: its numbers are those of the device, its times are not."""
    return bool(getattr(executor, "simulates", False))


ExecutorFactory = Callable[[Bundle, str, int], Executor]
"""Makes an executor from a bundle, a graph name and a number of threads."""


def _onnx_runtime(bundle: Bundle, name: str, threads: int) -> Executor:
    made: Executor = _with_onnx_runtime("onnx", "onnxruntime", bundle, name).OnnxExecutor(bundle, name, threads)
    return made


def _onnx_cuda(bundle: Bundle, name: str, threads: int) -> Executor:
    module = _with_onnx_runtime("onnx_cuda", "onnxruntime-gpu", bundle, name)
    made: Executor = module.OnnxCudaExecutor(bundle, name, threads)
    return made


def _with_onnx_runtime(module: str, package: str, bundle: Bundle, name: str) -> Any:
    """A module beside this one that imports onnxruntime.

    Raises:
        EngineAbsent: that is not installed.
    """
    try:
        return importlib.import_module(f"runtime_lite.executors.{module}")
    except ImportError as error:
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected the package onnxruntime, got {show(str(error))}; "
            f"pip install {package}"
        ) from error


def _tensorrt_rtx(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    return TensorrtRtxExecutor(bundle, name)


def _tensorrt(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    return TensorrtExecutor(bundle, name, allow_host_code)


def _qnn(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    """Return the device's executor where its provider is installed, else that of the simulator.

    Raises:
        EngineAbsent: this machine has neither.
    """
    if qnn.has_provider():
        return qnn.QnnExecutor(bundle, name, threads)
    python = qnn.toolchain_python()
    if not python.exists():
        raise qnn.absent(f"{bundle.path}: graph {name!r}")
    return _in_simulator(bundle, name, threads, f"{qnn.__name__}:QnnExecutor", python)


def _ethos_u(bundle: Bundle, name: str, threads: int, allow_host_code: bool) -> Executor:
    """Return the executor of the vendor's reference model.

    Raises:
        EngineAbsent: it is not on this machine.
    """
    python = ethos_u.toolchain_python()
    if not python.exists():
        raise ethos_u.absent(f"{bundle.path}: graph {name!r}")
    return _in_simulator(bundle, name, threads, f"{ethos_u.__name__}:EthosUExecutor", python)


def _in_simulator(bundle: Bundle, name: str, threads: int, executors: str, python: Path) -> Executor:
    found = importlib.import_module("runtime_lite.executors.simulator")  # it has executors of this module
    made: Executor = found.SimulatorExecutor(bundle, name, threads, executors, python)
    return made


EXECUTORS: Mapping[str, Callable[[Bundle, str, int, bool], Executor]] = {
    "ethos_u": _ethos_u,
    "qnn": _qnn,
    "tensorrt": _tensorrt,
    "tensorrt_rtx": _tensorrt_rtx,
}
"""Executors of targets with engines, by name of the target.

Each imports only its own backend: a machine with engines needs no ONNX Runtime, and vice versa.
"""

RUNTIMES: Mapping[str, ExecutorFactory] = {"onnx_cuda": _onnx_cuda, "openvino": OpenvinoExecutor}
"""Executors of targets without engines, by name of the target; ONNX Runtime runs the files of all others."""


def make_executor(bundle: Bundle, name: str, threads: int, allow_host_code: bool = False) -> Executor:
    """Return the executor of a graph, as the graph was built.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session.
        allow_host_code: whether engines may run the code that they contain; only for a bundle from a trusted source.

    Raises:
        EngineAbsent: its engine is not built, or what runs it is not on this machine.
        BundleRefused: its engines contain code, and this is not allowed.
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
    """Return the executor of a graph whose engines may run the code that they contain."""
    return make_executor(bundle, name, threads, allow_host_code=True)
