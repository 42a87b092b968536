"""Keeps states in the memory of a CUDA device from call to call, and copies rows of them on the device.

States cross to the host when somebody reads them, and from it when they come from there, as those of a snapshot do.
All copies are in one queue of the device, that of the runs: what a copy reads is there, and nothing waits for it.
"""

import contextlib
import functools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from runtime_lite.errors import ExecutorFailed, InternalError
from runtime_lite.executors.cuda import Cuda, DeviceArray
from runtime_lite.executors.memory import Crossed, Holder, Layout, Place
from runtime_lite.format.arrays import Array


class DeviceBytes:
    """Memory of the device.

    Args:
        pointer: its first byte.
        memory: what copies to and from it.

    Attributes:
        interface: what NumPy would be told of it; None, as it cannot read it.
    """

    __slots__ = ("__weakref__", "interface", "memory", "pointer")

    def __init__(self, pointer: int, memory: "DeviceMemory") -> None:
        """Hold it."""
        self.pointer, self.memory, self.interface = pointer, memory, None


class _Lent:
    """What arrays hold that `empty` gave; its bytes are used again when nobody holds it any more."""

    __slots__ = ("__weakref__", "content")

    def __init__(self, content: DeviceBytes) -> None:
        self.content = content


def _host_bytes(buffers: Iterable[Any]) -> int:
    return sum(each.nbytes for each in buffers if isinstance(each, np.ndarray))


@functools.cache
def _layout(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A contiguous layout; one entry of memory stands for all of them."""
    strides = [int(np.prod(shape[at + 1 :], dtype=np.int64)) * dtype.itemsize for at in range(len(shape))]
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, strides, writeable=False)


class Plane(NamedTuple):
    """Rows of bytes to be copied, each as far from the one before as a pitch says.

    Attributes:
        to: first byte that is written, from the first of the target.
        source: first byte that is read, from the first of the source.
        to_pitch: bytes from row to row of the target.
        source_pitch: the same of the source.
        width: bytes of a row.
        height: rows.
    """

    to: int
    source: int
    to_pitch: int
    source_pitch: int
    width: int
    height: int


def planes(target: Array, source: Array) -> Iterator[Plane]:
    """Yield what has to be copied from one layout to another of the same shape, in as few planes as hold it."""
    axes = [
        (size, to, of) for size, to, of in zip(target.shape, target.strides, source.strides, strict=True) if size != 1
    ]
    if any(size == 0 for size, _, _ in axes):
        return
    width = target.itemsize
    while axes and axes[-1][1] == axes[-1][2] == width:
        width *= axes.pop()[0]
    height, to_pitch, source_pitch = axes.pop() if axes else (1, width, width)
    while axes and axes[-1][1] == to_pitch * height and axes[-1][2] == source_pitch * height:
        height *= axes.pop()[0]
    for at in np.ndindex(*(size for size, _, _ in axes)):
        to = sum(number * each[1] for number, each in zip(at, axes, strict=True))
        of = sum(number * each[2] for number, each in zip(at, axes, strict=True))
        yield Plane(to, of, to_pitch, source_pitch, width, height)


class DeviceMemory:
    """Memory of a device that is opened at the first use.

    Args:
        device: opens the device, or returns it where it is open; may be called by any thread.
        lock: held while something is queued.
    """

    def __init__(self, device: Callable[[], Cuda], lock: "threading.RLock") -> None:
        """Reserve nothing yet."""
        self._device, self._lock = device, lock
        self._cuda: Cuda | None = None
        self._stream = 0
        self._reserved = dict[int, int]()
        self._leaving = list[int]()
        self._lent = dict[weakref.ref[_Lent], tuple[int, DeviceBytes]]()
        self._back = deque[weakref.ref[_Lent]]()
        self._kept = dict[int, list[DeviceBytes]]()
        self._counts = threading.local()

    @property
    def crossed(self) -> Crossed:
        """What has crossed in what this thread asked for: threads run beside each other, and each has its own runs."""
        return getattr(self._counts, "crossed", Crossed(0, 0))

    def count(self, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        """Count the arrays of the host among what a run of this thread takes and gives."""
        to_device, to_host = self.crossed
        self._counts.crossed = Crossed(to_device + _host_bytes(inputs), to_host + _host_bytes(outputs))

    @property
    def stream(self) -> int:
        """The queue of everything; the device is opened if it is not."""
        with self._active():
            return self._stream

    @contextlib.contextmanager
    def _active(self) -> Iterator[Cuda]:
        """Hold the lock, with the device current in this thread."""
        with self._lock:
            cuda = self._device()
            with cuda.active():
                if cuda is not self._cuda:
                    self._cuda, self._stream = cuda, cuda.stream()
                yield cuda

    def reserve(self, size: int) -> DeviceBytes:
        with self._active() as cuda:
            try:
                pointer = cuda.alloc(size)
            except InternalError as error:
                raise ExecutorFailed(
                    f"device memory: expected {size} bytes for states, got none ({error}); close streams, or build "
                    "smaller buckets",
                    "memory",
                ) from error
            self._reserved[pointer] = size
        return DeviceBytes(pointer, self)

    def release(self, content: DeviceBytes) -> None:
        with self._lock:
            self._leaving.append(content.pointer)
            self._free_leaving()

    def _free_leaving(self) -> None:
        """Free what nobody uses any more; what a fault of the device leaves is freed with the next."""
        if not self._reserved.keys().isdisjoint(self._leaving):
            with self._active() as cuda:
                cuda.synchronize(self._stream)  # copies from it or to it may be queued
                while self._leaving:
                    pointer = self._leaving.pop()
                    if self._reserved.pop(pointer, None) is not None:
                        cuda.free(pointer)

    def arrays(self, holder: Holder, places: Sequence[Place]) -> dict[str, DeviceArray]:
        pointer = holder.content.pointer
        return {
            name: DeviceArray(holder, pointer + start, _layout(shape, dtype)) for name, shape, dtype, start in places
        }

    def empty(self, layout: Layout) -> dict[str, DeviceArray]:
        with self._lock:
            self._take_back()
            kept = self._kept.get(layout.end)
            lent = _Lent(kept.pop() if kept else self.reserve(layout.end))
            # no line of Python runs when nobody holds it any more: what is raised in a finalizer is lost
            self._lent[weakref.ref(lent, self._back.append)] = layout.end, lent.content
        return self.arrays(lent, layout.places)

    def _take_back(self) -> None:
        """Keep what nobody holds any more, by size."""
        while self._back:
            size, content = self._lent.pop(self._back.popleft())
            self._kept.setdefault(size, []).append(content)

    def copy(self, target: DeviceArray, source: "DeviceArray | Array") -> None:
        with self._active() as cuda:
            if isinstance(source, DeviceArray):
                self.require(source)
                self._copy(cuda, target, source)
            else:
                self._write(cuda, target, source)

    def copy_of(self, buffer: DeviceArray) -> DeviceArray:
        copied = self._empty_as(buffer)
        self.copy(copied, buffer)
        return copied

    def join(self, target: DeviceArray, parts: Sequence["DeviceArray | Array"], axis: int) -> None:
        start, front = 0, (slice(None),) * axis
        for part in parts:
            self.copy(target[(*front, slice(start, start + part.shape[axis]))], part)
            start += part.shape[axis]

    def is_read(self, buffer: "DeviceArray | Array") -> bool:
        return isinstance(buffer, DeviceArray) and buffer.is_contiguous

    def read(self, buffer: DeviceArray) -> Array:
        with self._active() as cuda:
            self.require(buffer)
            array = np.empty(buffer.shape, buffer.dtype)
            flat = self._contiguous(buffer)
            if flat is not buffer:
                self._copy(cuda, flat, buffer)
            cuda.copy_to_host(array, flat.address, self._stream)
            cuda.synchronize(self._stream)
        self.count((), (array,))
        return array

    def trim(self) -> None:
        with self._lock:
            self._take_back()
            self._leaving += [content.pointer for contents in self._kept.values() for content in contents]
            self._kept.clear()
            self._free_leaving()

    def close(self) -> None:
        with self._lock:
            self._kept.clear()
            self._leaving.clear()
            cuda, self._cuda = self._cuda, None
            reserved, self._reserved = self._reserved, {}  # at once: of a device that is gone nothing can be freed
            if cuda is not None:
                with cuda.active():
                    cuda.synchronize(self._stream)
                    while reserved:
                        cuda.free(reserved.popitem()[0])
                    cuda.free_stream(self._stream)

    def _write(self, cuda: Cuda, target: DeviceArray, source: Array) -> None:
        """Copy an array of the host, and wait: it may be written by whoever has it."""
        array = np.ascontiguousarray(np.broadcast_to(source, target.shape), target.dtype)
        flat = self._contiguous(target)
        cuda.copy_to_device(flat.address, array, self._stream)
        if flat is not target:
            self._copy(cuda, target, flat)
        cuda.synchronize(self._stream)
        self.count((array,), ())

    def _copy(self, cuda: Cuda, target: DeviceArray, source: DeviceArray) -> None:
        for plane in planes(target.layout, source.layout):
            cuda.copy_on_device(
                target.address + plane.to,
                source.address + plane.source,
                plane.to_pitch,
                plane.source_pitch,
                plane.width,
                plane.height,
                self._stream,
            )

    def _contiguous(self, array: DeviceArray) -> DeviceArray:
        """An array whose entries lie one after the other: the same, or one that holds anything."""
        return array if array.is_contiguous else self._empty_as(array)

    def _empty_as(self, array: DeviceArray) -> DeviceArray:
        place = Place("", array.shape, array.dtype, 0)
        return self.empty(Layout((place,), max(array.nbytes, 1)))[place.name]

    def require(self, array: DeviceArray) -> None:
        """Refuse an array whose memory is gone, or another's.

        Raises:
            ExecutorFailed: the device was closed, or the array lies in what another graph or process opened.
        """
        content = array.holder.content
        if content.memory is not self:
            raise ExecutorFailed(
                "device memory: expected states of this graph on this device, got those of another; take a snapshot "
                "there, and restore it here",
                "crash",
            )
        if content.pointer not in self._reserved:
            raise ExecutorFailed(
                "device memory: expected states of this device, got those of one that was closed; take a snapshot "
                "before, and restore it in the new one",
                "crash",
            )
