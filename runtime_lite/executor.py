"""What runs the artifacts of one graph, and which of our executors that is for a bundle."""

from collections.abc import Callable, Mapping
from typing import Protocol

from runtime_lite.arrays import Array
from runtime_lite.bundle import Bundle
from runtime_lite.errors import EngineAbsent
from runtime_lite.executor_onnx import OnnxExecutor
from runtime_lite.executor_tensorrt import TensorrtExecutor


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


def make_executor(bundle: Bundle, name: str, threads: int) -> Executor:
    """Return what runs a graph of a bundle as it was built.

    Raises:
        EngineAbsent: its engine is not built, or what runs it is not on this machine.
    """
    engine = bundle.manifest.graphs[name].engine
    if engine is None:
        return OnnxExecutor(bundle, name, threads)
    if engine.status != "built":
        raise EngineAbsent(
            f"{bundle.path}: graph {name!r}: expected an engine, got none, {engine.reason}; "
            f"run `python build.py finish {bundle.path}` on the machine with the device"
        )
    return TensorrtExecutor(bundle, name)
