"""What runs the artifacts of one graph, and which of our executors that is for a bundle."""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Protocol

from runtime_lite.errors import EngineAbsent, show
from runtime_lite.executors.tensorrt import TensorrtExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.reader import Bundle


class Executor(Protocol):
    """Runs the buckets of one graph; feeds are checked and padded before they get here."""

    def run(self, sizes: Mapping[str, int], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run one bucket: every input in exactly its static shape; every output by name."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


ExecutorFactory = Callable[[Bundle, str, int], Executor]
"""Makes an executor from a bundle, a graph name and a number of threads."""


def make_executor(bundle: Bundle, name: str, threads: int, allow_host_code: bool = False) -> Executor:
    """Return what runs a graph of a bundle as it was built.

    Only what the graph needs is imported: a machine with engines needs no ONNX Runtime, and the other way round.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session.
        allow_host_code: whether engines may run code that they carry; only for a bundle whose maker is trusted.

    Raises:
        EngineAbsent: its engine is not built, or what runs it is not on this machine.
        BundleRefused: its engines carry code, and that is not allowed.
    """
    engine = bundle.manifest.graphs[name].engine
    if engine is None:
        return _onnx_executor(bundle, name, threads)
    if engine.status != "built":
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected an engine, got none, {engine.reason}; "
            f"run `python build.py finish {bundle.path}` on the machine with the device"
        )
    return TensorrtExecutor(bundle, name, allow_host_code)


make_trusted_executor: ExecutorFactory = functools.partial(make_executor, allow_host_code=True)
"""For engines that the caller has built itself."""


def _onnx_executor(bundle: Bundle, name: str, threads: int) -> Executor:
    try:
        found = importlib.import_module("runtime_lite.executors.onnx")
    except ImportError as error:
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected the package onnxruntime, got {show(str(error))}; "
            "pip install onnxruntime"
        ) from error
    made: Executor = found.OnnxExecutor(bundle, name, threads)
    return made
