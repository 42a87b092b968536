"""Runs an executor in a child process, so that a crash, a hang or lack of memory fails only the runs in it.

    runtime.load("dist/recogniser-cpu", executors=in_child())

Arrays are passed through shared memory, one block per run in flight, in anonymous files, so that none is left behind
however the processes end. A child that crashes or hangs is replaced at once; its run ends in `ExecutorFailed`, and so
do the other runs in it. One executor in the child serves all runs in flight, and its weights are not in this process.
The child ends with this process, even if this process is killed. Linux only.
"""

import contextlib
import fcntl
import json
import math
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from runtime_lite.errors import (
    BadInput,
    BundleRefused,
    EngineAbsent,
    ExecutorFailed,
    InternalError,
    RuntimeLiteError,
    show,
)
from runtime_lite.executors.child_main import (
    DONE,
    MOST_BYTES,
    OUT_OF_MEMORY,
    Order,
    arrays_by_bucket,
    bytes_of_largest_bucket,
)
from runtime_lite.executors.cuda import signal_name
from runtime_lite.executors.executor import Executor, ExecutorFactory, make_executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.format.reader import Bundle

FORKED = "the child of another process, of which this one is a fork"

REAP_S = 1.0
"""Seconds after which a process whose sockets are closed is killed, if it has not ended."""

ERRORS = {kind.__name__: kind for kind in (BadInput, BundleRefused, EngineAbsent, InternalError)}
"""Errors that the executor in the child may raise, by name."""

_CHILD = """
import importlib, json, sys
sys.path[:] = json.loads(sys.argv[1])
importlib.import_module(sys.argv[2]).serve(sys.argv[3])
"""

_CHILD_ELSEWHERE = _CHILD.replace("sys.path[:] =", "sys.path +=")
"""In another environment, whose packages come first: they are those that its executor needs."""


def in_child(
    executors: ExecutorFactory = make_executor, limit_s: float = 30.0, open_s: float = 60.0
) -> ExecutorFactory:
    """Return a factory of executors that run in processes of their own, one process per graph.

    Args:
        executors: makes the executor in the child, which imports it: a function of a module.
        limit_s: seconds after which a run counts as hung.
        open_s: seconds in addition, for the start and for the first run of a bucket.

    Raises:
        BadInput: the child could not import the function, or a limit is not a positive number.
        EngineAbsent: the system is not Linux.
    """
    if sys.platform != "linux":
        raise EngineAbsent(f"in_child: expected Linux, got {sys.platform}; load the bundle without executors=")
    for name, value in (("limit_s", limit_s), ("open_s", open_s)):
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise BadInput(f"in_child: expected {name} as positive seconds, got {show(value)}; correct it")
    reference = _reference_of(executors)

    def make(bundle: Bundle, name: str, threads: int) -> Executor:
        return ChildExecutor(bundle, name, threads, reference, limit_s, open_s)

    return make


def _reference_of(executors: ExecutorFactory) -> str:
    """Return a factory as `module:function`.

    Raises:
        BadInput: another process could not import it.
    """
    module, name = getattr(executors, "__module__", None), getattr(executors, "__qualname__", None)
    if module in (None, "__main__") or getattr(sys.modules.get(str(module)), str(name), None) is not executors:
        raise BadInput(
            f"in_child: expected a function at the top of a module that a new process can import, got "
            f"{show(executors)}; move it into a file of its own"
        )
    return f"{module}:{name}"


class ChildExecutor:
    """The executor of one graph, in a process of its own.

    Args:
        bundle: an open bundle; the child opens it again by its path.
        name: graph name in it.
        threads: threads per session.
        executors: `module:function` of the factory of the executor in the child.
        limit_s: seconds after which a run counts as hung.
        open_s: seconds in addition, for the start and for the first run of a bucket.
        python: an interpreter with packages of its own, this runtime not among them; None for this one.

    Raises:
        BundleRefused, EngineAbsent, InternalError: the executor raised it when it was made.
        ExecutorFailed: the process did not start.
    """

    def __init__(
        self,
        bundle: Bundle,
        name: str,
        threads: int,
        executors: str,
        limit_s: float,
        open_s: float,
        python: Path | None = None,
    ) -> None:
        """Start the process and wait until it is ready."""
        self._python = python
        self._graph: Graph = bundle.manifest.graphs[name]
        self._where = f"{bundle.path}: graph {name!r}"
        self._bundle = bundle
        self._order = Order(-1, str(bundle.path), -1, bundle.manifest_sha256, name, threads, executors)
        self._limit_s, self._open_s = limit_s, open_s
        self._lock = threading.Lock()
        self._closed = False
        self._child: _Child | None = None
        with self._lock:
            self._ready_child()

    def run(self, sizes: Mapping[str, int], inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Run one bucket; several threads may call this at the same time.

        Args:
            sizes: bucket of every axis.
            inputs: every input of the graph, in exactly the bucket's static shape.
            outputs: an array for every output, which is copied there once the child has answered.

        Raises:
            BadInput, BundleRefused, EngineAbsent, InternalError: the executor raised it.
            ExecutorFailed: the child crashed, hung or ran out of memory, or was closed.
        """
        bucket = bucket_name(sizes)
        with self._lock:
            child = self._ready_child()
            with self._named():
                lane = child.free_lanes.pop() if child.free_lanes else _Lane(child.control, self._graph)
        limit_s = self._limit_s if bucket in child.warm else self._limit_s + self._open_s
        until = time.monotonic() + limit_s
        try:
            answer = lane.ask(bucket, inputs, limit_s)
            if answer == DONE:
                lane.take(bucket, outputs)
        except TimeoutError:
            lane.close()
            if time.monotonic() < until:  # of a signal handler: an interruption
                raise
            raise self._replace(child, "hang", f"no answer within {limit_s:g} s") from None
        except OSError:
            lane.close()
            raise self._replace(child, "crash") from None
        except BaseException:  # an interruption: the child may still write there
            lane.close()
            raise
        with self._lock:
            child.keep(bucket, lane)
        if answer != DONE:
            raise self._error_of(answer)

    def close(self) -> None:
        """End the child; a second call does nothing."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.end("closed")
                self._child = None

    def _ready_child(self) -> "_Child":
        """Return the child for runs, after waiting until it is ready; called with the lock.

        Raises:
            BundleRefused, EngineAbsent, InternalError: the executor raised it when it was made.
            ExecutorFailed: the child did not start, or this executor is closed.
        """
        if self._closed:
            raise self._failed("crash", "a closed one")
        if self._child is None or self._child.is_another_ones:
            self._child = self._start()
        child = self._child
        if not child.ready:
            try:
                answer = _receive(child.control, self._open_s)
            except OSError as error:
                hung = isinstance(error, TimeoutError)
                self._child = None
                got = child.end(f"none within {self._open_s:g} s" if hung else None)
                raise self._failed("hang" if hung else "crash", got) from None
            except BaseException:  # an interruption
                self._child = None
                child.end("interrupted")
                raise
            if answer != DONE:
                self._child = None
                child.end("not made")
                raise self._error_of(answer)
            child.ready = True
        return child

    def _start(self) -> "_Child":
        """Start a new process and return it without waiting until it is ready.

        Raises:
            ExecutorFailed: the system gives no more processes or descriptors.
        """
        with self._named():
            return _Child(self._order._replace(held=self._bundle.fileno()), self._python)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._failed("limit", f"none, as the system gives no more: {error.strerror}") from error

    def _replace(self, child: "_Child", reason: str, cause: str | None = None) -> ExecutorFailed:
        """End a child, start the next one, and return the error for the caller.

        Args:
            child: the child in which a run failed.
            reason: `crash` or `hang`.
            cause: what was observed; None to use the exit status of the process.
        """
        with self._lock:
            first = self._child is child
            got = child.end(cause)
            if first:
                self._child = None
                if not self._closed:
                    with contextlib.suppress(
                        ExecutorFailed
                    ):  # no more processes: the next run says so, if it is so yet
                        self._child = self._start()
        return self._failed(reason, got if first else f"one that was ended beside this run ({got})")

    def _error_of(self, answer: bytes) -> RuntimeLiteError:
        found = json.loads(answer)
        if found["error"] == OUT_OF_MEMORY:
            return self._failed("memory", f"too little memory ({found['message']})")
        return ERRORS.get(found["error"], InternalError)(found["message"])

    def _failed(self, reason: str, got: str) -> ExecutorFailed:
        return ExecutorFailed(
            f"{self._where}: expected an answer of its process, got {got}; nothing has changed, run it again",
            reason,
        )


_starting = threading.Lock()
"""Held while a child is started and while this process is forked, so that a fork inherits no unknown descriptors."""

_children: "weakref.WeakSet[_Child]" = weakref.WeakSet()


def _forget_children() -> None:
    """In a forked child of this process: drop the executors' processes, which belong to the parent."""
    _starting.release()
    for child in list(_children):
        child.forget()


os.register_at_fork(
    before=lambda: _starting.acquire(), after_in_parent=_starting.release, after_in_child=_forget_children
)


class _Child:
    """One process and the lanes to it; whether it can run graphs is known once it is ready."""

    def __init__(self, order: Order, python: Path | None) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ready = False
        self.warm: set[str] = set()
        self.free_lanes: list[_Lane] = []
        self._ended: str | None = None
        with theirs, _starting, _closed_on_error(self.control):
            text = json.dumps(order._replace(control=theirs.fileno()))
            command = [*_start_of(python), Order.__module__, text]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), order.held],
                process_group=0,  # Ctrl-C is for the parent
            )
            _children.add(self)

    def keep(self, bucket: str, lane: "_Lane") -> None:
        """Return a lane for reuse, after a run of a bucket."""
        self.warm.add(bucket)
        if self._ended is None:
            self.free_lanes.append(lane)
        else:
            lane.close()

    def end(self, cause: str | None) -> str:
        """End the process if it has not ended yet.

        Args:
            cause: why it is ended; None if it has ended by itself, or is about to.

        Returns:
            Why it ended, for messages; later calls return the first cause.
        """
        if self._ended is None:
            if cause is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(REAP_S)
            code = self._process.poll()
            self._process.kill()
            self._process.wait()
            self._ended = cause or _how_it_ended(code)
            self._let_go()
        return self._ended

    @property
    def is_another_ones(self) -> bool:
        """Whether it was started by the parent process, before this process was forked."""
        return self._ended == FORKED

    def forget(self) -> None:
        """Drop a process that belongs to another process, without ending it."""
        if self._ended is None:
            self._ended = FORKED
            self._process.returncode = 0  # nobody here waits for it
            self._let_go()

    def _let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.control.close()
        while self.free_lanes:
            self.free_lanes.pop().close()


def _start_of(python: Path | None) -> list[str]:
    """Return the command that starts an interpreter in which this runtime can be imported."""
    if python is None:
        return [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
    return [str(python), "-E", "-s", "-c", _CHILD_ELSEWHERE, json.dumps([str(Path(__file__).parents[2])])]


@contextlib.contextmanager
def _closed_on_error(end: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        end.close()
        raise


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "a run that ended without an answer"
    return f"a process ended by {signal_name(code)}" if code < 0 else f"a process that ended with exit code {code}"


class _Lane:
    """Shared memory for one run in flight, and the socket for its messages."""

    def __init__(self, control: socket.socket, graph: Graph) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        size = bytes_of_largest_bucket(graph)
        with theirs, _closed_on_error(self._socket), _anonymous_file(size) as handle:
            self._arrays = arrays_by_bucket(graph, mmap.mmap(handle, size))
            with contextlib.suppress(OSError):  # the child is gone: the first request says so
                socket.send_fds(control, [b"lane"], [theirs.fileno(), handle])

    def ask(self, bucket: str, inputs: Mapping[str, Array], limit_s: float) -> bytes:
        """Run a bucket in the child and return its answer.

        Raises:
            TimeoutError: there was none in time.
            OSError: the child has ended.
        """
        for name, place in self._arrays[bucket].inputs.items():
            np.copyto(place, inputs[name], casting="no")
        self._socket.send(bucket.encode())
        return _receive(self._socket, limit_s)

    def take(self, bucket: str, outputs: Mapping[str, Array]) -> None:
        """Copy the outputs of the last run into arrays."""
        for name, place in self._arrays[bucket].outputs.items():
            np.copyto(outputs[name], place, casting="no")

    def close(self) -> None:
        """Close the lane; the child then frees its part, too."""
        self._socket.close()


@contextlib.contextmanager
def _anonymous_file(size: int) -> Iterator[int]:
    """Yield the descriptor of memory as a file without a name, which no process can make smaller."""
    handle = os.memfd_create("executor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(handle, size)
        fcntl.fcntl(handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        yield handle
    finally:
        os.close(handle)


def _receive(end: socket.socket, limit_s: float) -> bytes:
    """Receive and return one message.

    Raises:
        TimeoutError: there was none in time.
        OSError: the other side has closed the connection.
    """
    end.settimeout(limit_s)
    message = end.recv(MOST_BYTES)
    if not message:
        raise ConnectionResetError
    return message
