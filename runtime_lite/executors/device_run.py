"""Executes work of fixed shapes on a CUDA device: copies to and from the host, and launches CUDA graphs.

What does the work is a subclass: an engine, or a session of ONNX Runtime.
"""

import abc
import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from runtime_lite.executors.cuda import Array, Cuda, DeviceArray

MOST_GRAPHS = 8
"""CUDA graphs that are kept, each for the addresses of one run. Streams that go on together take turns between two
blocks of states; of others, as many sets of addresses are worth the memory that their graphs take."""

GRAPHS_SWITCH = "RUNTIME_LITE_CUDA_GRAPHS"
"""The variable of the environment that says `0` for no CUDA graphs."""


@dataclass(frozen=True)
class DeviceTensor:
    """An input or output of work on a device.

    Attributes:
        name: as in the graph.
        shape: fixed.
        dtype: as NumPy has it.
        is_input: whether it is fed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_input: bool


class Staging:
    """Buffers of both sides for what one run takes from the host and gives to it; several runs have several.

    Its uploads have a queue of their own, so that they go on beside the runs of others.

    Args:
        cuda: the device, active in this thread.

    Attributes:
        queue: of the uploads.
        uploaded: the moment behind them.
        before: the moment before the work.
        after: the moment behind it.
        answered: the moment behind the copies to the host.
        given: names of the outputs that go to the host.
        addresses: of all tensors, in order.
    """

    def __init__(self, cuda: Cuda) -> None:
        """Reserve the queue and the events; buffers are reserved when a tensor first crosses."""
        self._cuda = cuda
        self._buffers: dict[str, tuple[int, Array]] = {}
        self.given: list[str] = []
        self.addresses: tuple[int, ...] = ()
        with contextlib.ExitStack() as owned:
            self.queue = cuda.stream()
            owned.callback(cuda.free_stream, self.queue)
            self.uploaded, self.before, self.after, self.answered = (self._event(owned) for _ in range(4))
            self._owned = owned.pop_all()

    def _event(self, owned: contextlib.ExitStack) -> int:
        event = self._cuda.event()
        owned.callback(self._cuda.free_event, event)
        return event

    def buffers(self, tensor: DeviceTensor) -> tuple[int, Array]:
        """Return an address of the device, and the array that it is copied from or to."""
        if tensor.name not in self._buffers:
            size_bytes = int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize
            with contextlib.ExitStack() as owned:
                pointer = self._cuda.alloc(max(size_bytes, 1))
                owned.callback(self._cuda.free, pointer)
                array = self._cuda.pinned(tensor.shape, tensor.dtype)
                owned.callback(self._cuda.free_pinned, array)
                self._owned.push(owned.pop_all())
            self._buffers[tensor.name] = pointer, array
        return self._buffers[tensor.name]

    def close(self) -> None:
        """Wait for the uploads and free everything, in reverse order."""
        self._cuda.synchronize(self.queue)
        self._owned.close()


class DeviceRun(abc.ABC):
    """Work of fixed shapes, run by run.

    What a run takes from the host, or gives to it, goes through a staging of its own; a staging is used again when the
    run before has been answered. What lies on the device already is read and written there. All work is in one queue,
    where a run waits for its uploads, so that the next run may be uploaded while one is at work.

    With CUDA graphs the second run at the same addresses is captured, and it and later ones at these addresses are
    launched as one. A graph is never launched at other addresses than it was captured with: a run at others is queued
    as the first was, and the graphs that were used longest ago are dropped.

    Args:
        cuda: the device, active in this thread.
        tensors: of the work, in its order.
        stream: the queue of all work; None for one of its own.
        captures: whether runs are captured as CUDA graphs.
        lock: held while something is put into the queue of all work; None for one of its own.

    Attributes:
        tensors: of the work, in its order.
    """

    def __init__(
        self,
        cuda: Cuda,
        tensors: Sequence[DeviceTensor],
        stream: int | None = None,
        captures: bool = False,
        lock: "threading.RLock | None" = None,
    ) -> None:
        """Reserve the queue."""
        self._lock = threading.RLock() if lock is None else lock
        self._cuda, self.tensors, self._captures = cuda, tuple(tensors), captures
        self._graphs: dict[tuple[int, ...], int] = {}
        self._plain = deque[tuple[int, ...]](maxlen=MOST_GRAPHS)
        self._stagings: list[Staging] = []
        self._free: list[Staging] = []
        self._failed: list[Staging] = []
        self._owned = contextlib.ExitStack()
        self._stream = cuda.stream() if stream is None else stream
        if stream is None:
            self._owned.callback(cuda.free_stream, self._stream)

    @abc.abstractmethod
    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        """Queue the work, whose tensors lie at some addresses, in order."""

    @abc.abstractmethod
    def _capture(self, addresses: tuple[int, ...]) -> int | None:
        """A graph of the work at some addresses; None where there can be no more of them."""

    @abc.abstractmethod
    def _launch(self, graph: int) -> None:
        """Queue a graph."""

    @abc.abstractmethod
    def _drop(self, graph: int) -> None:
        """Let go of a graph."""

    def run(
        self, feeds: Mapping[str, Array | DeviceArray], places: Mapping[str, DeviceArray] = MappingProxyType({})
    ) -> tuple[dict[str, Array], float]:
        """Run once and wait; the device must be active in this thread.

        Args:
            feeds: every input, of exactly the shape and dtype of its tensor.
            places: outputs that stay on the device, and where they are written.

        Returns:
            Every other output by name, and the milliseconds that the device worked on it, copies aside.
        """
        staging = self.upload(feeds, places)
        self.start(staging)
        return self.answer(staging)

    def upload(
        self, feeds: Mapping[str, Array | DeviceArray], places: Mapping[str, DeviceArray] = MappingProxyType({})
    ) -> Staging:
        """Queue the copies to the device for one run, beside whatever runs; any thread may do so at any time.

        Args:
            feeds: every input; they may change when this returns.
            places: outputs that stay on the device, and where they are written.

        Returns:
            What `start` and then `answer` take.
        """
        staging = self._staging()
        with self._using(staging):
            staging.given, addresses = [], list[int]()
            for tensor in self.tensors:
                lies = feeds[tensor.name] if tensor.is_input else places.get(tensor.name)
                if isinstance(lies, DeviceArray):
                    addresses.append(lies.address)
                    continue
                pointer, array = staging.buffers(tensor)
                addresses.append(pointer)
                if lies is None:
                    staging.given.append(tensor.name)
                else:
                    np.copyto(array, lies, casting="no")
                    self._cuda.copy_to_device(pointer, array, staging.queue)
            staging.addresses = tuple(addresses)
            self._cuda.record(staging.uploaded, staging.queue)
        return staging

    def start(self, staging: Staging) -> None:
        """Queue the work and the copies to the host of a run that is uploaded; any thread may do so."""
        with self._lock, self._using(staging):
            self._cuda.wait_for(staging.uploaded, self._stream)
            self._cuda.record(staging.before, self._stream)
            self._work(staging.addresses)
            self._cuda.record(staging.after, self._stream)
            for tensor in self.tensors:
                if tensor.name in staging.given:
                    pointer, array = staging.buffers(tensor)
                    self._cuda.copy_to_host(array, pointer, self._stream)
            self._cuda.record(staging.answered, self._stream)

    def answer(self, staging: Staging) -> tuple[dict[str, Array], float]:
        """Wait for a run that is queued, and for no other; any thread may do so. What `run` returns."""
        with self._using(staging):
            self._cuda.synchronize_event(staging.answered)
            elapsed_ms = self._cuda.elapsed_ms(staging.before, staging.after)
            answers = {
                each.name: staging.buffers(each)[1].copy() for each in self.tensors if each.name in staging.given
            }
        self._free.append(staging)
        return answers, elapsed_ms

    def _staging(self) -> Staging:
        """A staging that no run uses, the one that was used last if there are several."""
        while self._failed and not self._free:
            with self._lock:  # no queue is captured meanwhile
                self._take_back_failed()
        try:
            return self._free.pop()
        except IndexError:
            staging = Staging(self._cuda)
            self._stagings.append(staging)
            return staging

    @contextlib.contextmanager
    def _using(self, staging: Staging) -> Iterator[None]:
        """Set a staging aside if what is done with it fails: some of its copies may be under way."""
        try:
            yield
        except BaseException:
            self._failed.append(staging)
            raise

    def _take_back_failed(self) -> None:
        """Wait for the copies of a staging that was set aside, if there is one, which is then used again."""
        if self._failed:
            staging = self._failed.pop()
            with self._using(staging):
                self._cuda.synchronize(staging.queue)
                self._cuda.synchronize(self._stream)
            self._free.append(staging)

    def _work(self, addresses: tuple[int, ...]) -> None:
        """Queue the work of a run whose tensors lie at some addresses, in order."""
        graph = self._graphs.pop(addresses, None)
        if graph is None and addresses in self._plain:
            graph = self._captured(addresses)
        if graph is None:
            self._enqueue(addresses)
            if self._captures and addresses not in self._plain:
                self._plain.append(addresses)
            return
        try:
            self._launch(graph)
        except BaseException:
            self._drop(graph)
            raise
        self._graphs[addresses] = graph  # behind all others: the first was used longest ago

    def _captured(self, addresses: tuple[int, ...]) -> int | None:
        """A graph of the work at some addresses; it takes the place of another where there are too many."""
        if len(self._graphs) == MOST_GRAPHS:
            self._drop(self._graphs.pop(next(iter(self._graphs))))
        graph = self._capture(addresses)
        if graph is not None:
            self._plain.remove(addresses)
        return graph

    def close(self) -> None:
        """Wait for what is queued, drop the graphs and free the buffers; a second call does nothing."""
        if self._stagings:
            self._cuda.synchronize(self._stream)
        while self._graphs:
            self._drop(self._graphs.popitem()[1])
        self._free.clear()
        self._failed.clear()
        while self._stagings:
            self._stagings.pop().close()
        self._owned.close()
