"""Executors that crash, hang or lack memory when any row of a run says so."""

import os
import signal
import threading
from collections.abc import Mapping

import numpy as np

from runtime_lite import Bundle
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array

KILL, HANG, ALLOCATE = 9001, 9002, 9003


class Faulty:
    """Runs a graph well unless the first number of some row is one of the above."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        said = inputs["x"][:, 0]
        if (said == KILL).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (said == HANG).any():
            threading.Event().wait()
        if (said == ALLOCATE).any():
            np.empty(2**62, np.uint8)
        self._inner.run(sizes, inputs, outputs)

    def close(self) -> None:
        self._inner.close()


def faulty(bundle: Bundle, name: str, threads: int) -> Executor:
    """What `in_child` starts there."""
    return Faulty(make_executor(bundle, name, threads))
