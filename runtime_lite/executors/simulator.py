"""Runs a graph in a vendor's simulator, with an executor in a process of the vendor's Python environment."""

from pathlib import Path

from runtime_lite.executors.child import ChildExecutor
from runtime_lite.format.reader import Bundle

RUN_S, OPEN_S = 600.0, 600.0
"""Seconds of one run, and of the start: a simulator takes a second for a chunk of a small model, on an idle machine."""


class SimulatorExecutor(ChildExecutor):
    """An executor in another interpreter.

    Args:
        bundle: an open bundle.
        name: graph name in it.
        threads: threads per session.
        executors: `module:function` of what makes the executor there.
        python: the interpreter of the vendor's environment.

    Attributes:
        simulates: that no device computes.

    Raises:
        BundleRefused, EngineAbsent, InternalError: what the executor raised when it was made.
        ExecutorFailed: the process did not come up.
    """

    simulates = True

    def __init__(self, bundle: Bundle, name: str, threads: int, executors: str, python: Path) -> None:
        """Start the process and wait until it is ready."""
        super().__init__(bundle, name, threads, executors, RUN_S, OPEN_S, python)
