"""Serves the runs of one graph in a child process that `child.py` starts, with arrays in shared memory.

Parent and child compute the same positions of the arrays of a bucket, so that a request is just the name of a bucket
and an answer two letters; the answer for an error is JSON. The kernel ends the child when its parent ends, even if the
child hangs.
"""

import contextlib
import fcntl
import importlib
import json
import math
import mmap
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from runtime_lite.errors import BundleRefused, ExecutorFailed, InternalError, RuntimeLiteError, show
from runtime_lite.executors.executor import Executor
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Artifact, Graph, bucket_name, static_shape, tensor_bytes
from runtime_lite.format.reader import read_bundle

ALIGNMENT = 64
"""Alignment of arrays in bytes: a cache line, which also suits vector instructions."""

DONE = b"ok"
OUT_OF_MEMORY = "MemoryError"
MOST_BYTES = 2**16
"""Largest size of a message in bytes; an error is a sentence."""


class Order(NamedTuple):
    """The arguments of a child process.

    Attributes:
        control: descriptor of the socket that it inherits.
        path: the bundle, for messages.
        held: descriptor by which it opens the bundle, because the path may lead to another bundle by now.
        manifest_sha256: identity of the bundle.
        graph: graph name in it.
        threads: threads per session.
        executors: `module:function` of the factory of the executor.
    """

    control: int
    path: str
    held: int
    manifest_sha256: str
    graph: str
    threads: int
    executors: str


class BucketArrays(NamedTuple):
    """Every input and output of a bucket by name, as views into shared memory."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


def bytes_of_largest_bucket(graph: Graph) -> int:
    """Return the bytes of shared memory that one run of the largest bucket needs, at least 1."""
    return max((end for artifact in graph.runnable for *_, end in _places(graph, artifact)), default=0) or 1


def arrays_by_bucket(graph: Graph, memory: mmap.mmap) -> dict[str, BucketArrays]:
    """Return the arrays of every bucket by name; the arrays of all buckets use the same memory."""
    found = {}
    for artifact in graph.runnable:
        views = [
            np.frombuffer(memory, dtype, math.prod(shape), start).reshape(shape)
            for shape, dtype, start, _ in _places(graph, artifact)
        ]
        inputs = {tensor.name: view for tensor, view in zip(graph.inputs, views, strict=False)}
        outputs = {tensor.name: view for tensor, view in zip(graph.outputs, views[len(graph.inputs) :], strict=True)}
        found[bucket_name(artifact.sizes)] = BucketArrays(inputs, outputs)
    return found


def _places(graph: Graph, artifact: Artifact) -> Iterator[tuple[tuple[int, ...], str, int, int]]:
    """Yield shape, dtype, start and end in bytes of every input, then of every output."""
    start = 0
    for tensor in (*graph.inputs, *graph.outputs):
        shape = static_shape(tensor.shape, artifact.sizes)
        end = start + tensor_bytes(shape, tensor.dtype)
        yield shape, tensor.dtype, start, end
        start = -(-end // ALIGNMENT) * ALIGNMENT


def serve(text: str) -> None:
    """Make the executor, report that it is ready, and serve every lane that the parent opens.

    Args:
        text: an `Order` as JSON.
    """
    _end_with_parent()
    order = Order(*json.loads(text))
    with socket.socket(fileno=order.control) as control:
        try:
            graph, executor = _open(order)
        except (RuntimeLiteError, MemoryError) as error:
            control.send(_answer_of(error))
            return
        control.send(DONE)
        while True:
            _, handles, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
            if not handles:
                return
            lane, memory = socket.socket(fileno=handles[0]), mmap.mmap(handles[1], 0)
            os.close(handles[1])
            arrays = arrays_by_bucket(graph, memory)
            threading.Thread(target=_serve_lane, args=(lane, executor, graph, arrays), daemon=True).start()


def _end_with_parent() -> None:
    """Let the kernel end this process when the other end of its standard input is closed.

    The kernel sends SIGIO, whose default action ends the process; no thread has to run for it, so that a hang does not
    prevent it.
    """
    stdin = sys.stdin.fileno()
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(stdin, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(stdin, fcntl.F_SETFL, fcntl.fcntl(stdin, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):  # nothing to read is what an open end has
        os.read(stdin, 1)
        sys.exit()


def _open(order: Order) -> tuple[Graph, Executor]:
    bundle = replace(read_bundle(f"/proc/self/fd/{order.held}"), path=Path(order.path))
    os.close(order.held)
    if bundle.manifest_sha256 != order.manifest_sha256:
        raise BundleRefused(
            f"{order.path}: expected the bundle that was loaded, got another one at its place; load it again"
        )
    module, _, name = order.executors.partition(":")
    executor: Executor = getattr(importlib.import_module(module), name)(bundle, order.graph, order.threads)
    return bundle.manifest.graphs[order.graph], executor


def _serve_lane(lane: socket.socket, executor: Executor, graph: Graph, arrays: Mapping[str, BucketArrays]) -> None:
    """Run one request after the other until the lane is closed."""
    sizes = {bucket_name(artifact.sizes): artifact.sizes for artifact in graph.runnable}
    with lane:
        while bucket := lane.recv(MOST_BYTES).decode():
            answer = _run(executor, sizes[bucket], arrays[bucket])
            try:
                lane.send(answer)
            except OSError:  # nobody waits for it any more
                return


def _run(executor: Executor, sizes: Mapping[str, int], arrays: BucketArrays) -> bytes:
    try:
        executor.run(sizes, arrays.inputs, arrays.outputs)
    except Exception as error:  # noqa: BLE001 - the caller, in another process, must hear of it
        return _answer_of(error)
    return DONE


def _answer_of(error: Exception) -> bytes:
    """Return an error as JSON; an error of an unexpected type is reported as a bug."""
    if isinstance(error, MemoryError):
        kind, message = OUT_OF_MEMORY, show(str(error))
    elif isinstance(error, ExecutorFailed):
        kind, message = OUT_OF_MEMORY, show(error.reason)
    elif isinstance(error, RuntimeLiteError):
        kind, message = type(error).__name__, str(error)
    else:
        kind, message = InternalError.__name__, f"{type(error).__name__}: {show(str(error))}"
    answer: dict[str, Any] = {"error": kind, "message": message[: MOST_BYTES // 8]}
    return json.dumps(answer).encode()
