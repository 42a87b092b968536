"""Executors that a process of its own has to survive: what the first number of a feed says, happens."""

import ctypes
import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping

import numpy as np

from runtime_lite import Bundle, EngineAbsent
from runtime_lite.executors.executor import Executor, make_executor
from runtime_lite.format.arrays import Array

WELL, KILL, HANG, DEAF_HANG, ALLOCATE, RAISE, LEAVE, MEET, MEET_AND_HANG, MEET_AND_KILL, WRONG_SHAPE = (
    float(number) for number in range(11)
)


class Faulty:
    """Runs a graph well unless it is told otherwise."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self._meeting = threading.Barrier(2)

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        what = inputs["x"].flat[0]
        if what in (MEET, MEET_AND_HANG, MEET_AND_KILL):
            self._meeting.wait()
        if what in (KILL, MEET_AND_KILL):
            os.kill(os.getpid(), signal.SIGKILL)
        if what in (HANG, MEET_AND_HANG):
            threading.Event().wait()
        if what == DEAF_HANG:
            ctypes.PyDLL(None).sleep(1000)  # no other thread of the process runs meanwhile
        if what == ALLOCATE:
            resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
            np.ones(2**33, np.uint8)
        if what == RAISE:
            raise ZeroDivisionError("by zero")
        if what == LEAVE:
            sys.exit(3)
        self._inner.run(sizes, inputs, outputs)
        if what == WRONG_SHAPE:
            np.copyto(outputs["y"], np.zeros((0, 7)))

    def close(self) -> None:
        self._inner.close()


def faulty(bundle: Bundle, name: str, threads: int) -> Executor:
    return Faulty(make_executor(bundle, name, threads))


def scarce(bundle: Bundle, name: str, threads: int) -> Executor:
    """An executor in a process that may have 4 GiB."""
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))
    return make_executor(bundle, name, threads)


def dead_at_birth(bundle: Bundle, name: str, threads: int) -> Executor:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def late(bundle: Bundle, name: str, threads: int) -> Executor:
    threading.Event().wait()
    raise AssertionError


def absent(bundle: Bundle, name: str, threads: int) -> Executor:
    raise EngineAbsent("the abacus has no beads")
