"""Runs work of fixed shapes on a device: what crosses, where everything else lies, and which runs are CUDA graphs.

What does the work is a subclass: an engine, or a session of ONNX Runtime.
"""

import abc
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
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


class DeviceRun(abc.ABC):
    """Work of fixed shapes, run by run.

    What a run takes from the host, or gives to it, goes through buffers of both sides, which are reserved when a tensor
    is first taken or given so; what lies on the device already is read and written there.

    With CUDA graphs the second run at the same addresses is captured, and it and later ones at these addresses are
    launched as one. A graph is never launched at other addresses than it was captured with: a run at others is queued
    as the first was, and the graphs that were used longest ago are dropped.

    Args:
        cuda: the device, active in this thread.
        tensors: of the work, in its order.
        stream: the queue of all copies; None for one of its own.
        captures: whether runs are captured as CUDA graphs.
    """

    def __init__(
        self, cuda: Cuda, tensors: Sequence[DeviceTensor], stream: int | None = None, captures: bool = False
    ) -> None:
        """Reserve the queue and what measures a run."""
        self._cuda, self._tensors, self._captures = cuda, tuple(tensors), captures
        self._graphs: dict[tuple[int, ...], int] = {}
        self._plain = deque[tuple[int, ...]](maxlen=MOST_GRAPHS)
        self._staged: dict[str, tuple[int, Array]] = {}
        self._given: list[str] = []
        with contextlib.ExitStack() as owned:
            self._stream = cuda.stream() if stream is None else stream
            if stream is None:
                owned.callback(cuda.free_stream, self._stream)
            self._before, self._after = cuda.event(), cuda.event()
            owned.callback(cuda.free_event, self._before)
            owned.callback(cuda.free_event, self._after)
            self._owned = owned.pop_all()

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

    def _stage(self, tensor: DeviceTensor) -> tuple[int, Array]:
        """Buffers of a tensor on both sides: an address of the device, and an array that it is copied from or to."""
        if tensor.name not in self._staged:
            size_bytes = int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize
            with contextlib.ExitStack() as owned:
                pointer = self._cuda.alloc(max(size_bytes, 1))
                owned.callback(self._cuda.free, pointer)
                array = self._cuda.pinned(tensor.shape, tensor.dtype)
                owned.callback(self._cuda.free_pinned, array)
                self._owned.push(owned.pop_all())
            self._staged[tensor.name] = pointer, array
        return self._staged[tensor.name]

    def run(
        self, feeds: Mapping[str, Array | DeviceArray], places: Mapping[str, DeviceArray] = MappingProxyType({})
    ) -> tuple[dict[str, Array], float]:
        """Run once and wait; the device must be active in this thread, and runs may not overlap.

        Args:
            feeds: every input, of exactly the shape and dtype of its tensor.
            places: outputs that stay on the device, and where they are written.

        Returns:
            Every other output by name, and the milliseconds that the device worked on it, copies aside.
        """
        self.queue(feeds, places)
        return self.answer()

    def queue(
        self, feeds: Mapping[str, Array | DeviceArray], places: Mapping[str, DeviceArray] = MappingProxyType({})
    ) -> None:
        """Queue copies and work of one run, and do not wait."""
        self._given = []
        addresses = list[int]()
        for tensor in self._tensors:
            lies = feeds[tensor.name] if tensor.is_input else places.get(tensor.name)
            if isinstance(lies, DeviceArray):
                addresses.append(lies.address)
                continue
            pointer, array = self._stage(tensor)
            addresses.append(pointer)
            if lies is None:
                self._given.append(tensor.name)
            else:
                np.copyto(array, lies, casting="no")
                self._cuda.copy_to_device(pointer, array, self._stream)
        self._cuda.record(self._before, self._stream)
        self._start(tuple(addresses))
        self._cuda.record(self._after, self._stream)
        for name in self._given:
            pointer, array = self._staged[name]
            self._cuda.copy_to_host(array, pointer, self._stream)

    def _start(self, addresses: tuple[int, ...]) -> None:
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
        graph = self._capture(addresses)
        if graph is not None:
            self._plain.remove(addresses)
            if len(self._graphs) == MOST_GRAPHS:
                self._drop(self._graphs.pop(next(iter(self._graphs))))
        return graph

    def answer(self) -> tuple[dict[str, Array], float]:
        """Wait for the run that is queued; what `run` returns."""
        self._cuda.synchronize(self._stream)
        elapsed_ms = self._cuda.elapsed_ms(self._before, self._after)
        return {name: self._staged[name][1].copy() for name in self._given}, elapsed_ms

    def close(self) -> None:
        """Drop the graphs and free the buffers, in reverse order; a second call does nothing."""
        while self._graphs:
            self._drop(self._graphs.popitem()[1])
        self._staged.clear()
        self._owned.close()
