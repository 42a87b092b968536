"""Defines memory in which states lie from call to call: that of the host here, that of a device in `device_memory.py`.

A buffer is an array of NumPy, or one of a device (`device_memory.DeviceArray`). Both have a shape and a dtype and are
indexed alike; all else that is done with a buffer is asked of the memory that it lies in.
"""

import mmap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from runtime_lite.format.arrays import Array

ALIGNMENT = 64
"""Where arrays begin: a cache line, which vector instructions want too."""

OWN_MAPPING = 2**16
"""Memory of at least so many bytes is mapped by itself and goes back to the system when it is let go of."""


class Place(NamedTuple):
    """An array in a memory.

    Attributes:
        name: of the array.
        shape: of the array.
        dtype: of an entry.
        start: its first byte.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int


class Holder(Protocol):
    """What arrays hold as long as they lie in some bytes; NumPy takes those of the host from it as an array."""

    @property
    def content(self) -> Any:
        """The bytes, as the memory gave them."""
        ...


class Memory(Protocol):
    """Memory of the machine, or of a device. Any thread may use it."""

    def reserve(self, size: int) -> Any:
        """Return aligned memory of some bytes, which holds anything; weak references to it are possible.

        Raises:
            ExecutorFailed: there is too little.
        """
        ...

    def release(self, content: Any) -> None:
        """Let go of memory in which no array lies."""
        ...

    def arrays(self, holder: Holder, places: Sequence[Place]) -> dict[str, Any]:
        """Return arrays, by name, that lie in what a holder holds, and hold it."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy a buffer of this memory or an array of the host, of the same shape and dtype, into a buffer of this."""
        ...

    def join(self, target: Any, parts: Sequence[Any], axis: int) -> None:
        """Copy buffers of this memory, or arrays of the host, into one of this, one behind the other along an axis."""
        ...

    def is_read(self, buffer: Any) -> bool:
        """Whether a run reads a buffer of this memory, or an array of the host, as it lies."""
        ...

    def read(self, buffer: Any) -> Array:
        """Return what a buffer of this memory holds; the array may share the memory."""
        ...

    def close(self) -> None:
        """Release everything; what was reserved is not read any more."""
        ...


class HostBytes:
    """Memory of this process, and how NumPy wants to be told of it."""

    __slots__ = ("__weakref__", "array", "interface")

    def __init__(self, array: Array) -> None:
        """Hold it."""
        self.array, self.interface = array, array.__array_interface__


class HostMemory:
    """Memory of this process, whose buffers are arrays of NumPy."""

    def reserve(self, size: int) -> HostBytes:
        if size >= OWN_MAPPING:
            memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared with no fork
            mapped: Array = np.frombuffer(memory, np.uint8)
            return HostBytes(mapped)
        content = np.empty(size + ALIGNMENT, np.uint8)
        start = -content.ctypes.data % ALIGNMENT
        return HostBytes(content[start : start + size])

    def release(self, content: HostBytes) -> None:
        """Nothing is to be done: the bytes go with the last reference."""

    def arrays(self, holder: Holder, places: Sequence[Place]) -> dict[str, Array]:
        lies_in = np.asarray(holder)
        return {name: np.ndarray(shape, dtype, lies_in, start) for name, shape, dtype, start in places}

    def copy(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    def join(self, target: Array, parts: Sequence[Array], axis: int) -> None:
        np.concatenate(parts, axis, out=target)

    def is_read(self, buffer: Array) -> bool:
        return True

    def read(self, buffer: Array) -> Array:
        return buffer

    def close(self) -> None:
        """Nothing is to be done: arrays keep what they lie in."""


HOST = HostMemory()
"""The memory of this process."""


def memory_of(executor: object) -> Memory:
    """Return the memory in which an executor takes and leaves states: that of the host unless it has one of its own."""
    found: Memory = getattr(executor, "memory", HOST)
    return found


def bytes_of(buffers: Mapping[str, Any]) -> int:
    """Return the bytes of all arrays of the host among some buffers."""
    return sum(each.nbytes for each in buffers.values() if isinstance(each, np.ndarray))
