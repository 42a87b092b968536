"""Defines the interface of memory that keeps states from call to call, on the host or on a device.

A buffer is an array of NumPy, or one of a device (`cuda.DeviceArray`). Both have a shape and a dtype; parts of both are
indexed and assigned alike, from buffers of the same memory. All else that is done with a buffer is asked of the memory
that it lies in.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from runtime_lite.format.arrays import Array


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


class Layout(NamedTuple):
    """Where some arrays lie beside each other in one memory.

    Attributes:
        places: of the arrays.
        end: of all, in bytes.
    """

    places: tuple[Place, ...]
    end: int


class Crossed(NamedTuple):
    """Bytes that crossed between the host and a device.

    Attributes:
        to_device: from the host.
        to_host: from the device.
    """

    to_device: int
    to_host: int

    def since(self, before: "Crossed") -> "Crossed":
        """Return what has crossed from a count to this one."""
        return Crossed(self.to_device - before.to_device, self.to_host - before.to_host)


class Holder(Protocol):
    """What arrays hold as long as they lie in some bytes; NumPy takes those of the host from it as an array."""

    @property
    def content(self) -> Any:
        """The bytes, as the memory gave them."""
        ...


class Memory(Protocol):
    """Memory of the machine, or of a device. Any thread may use it."""

    @property
    def crossed(self) -> Crossed | None:
        """What has crossed so far in what the calling thread asked for, runs included; None where nothing does."""
        ...

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

    def empty(self, layout: Layout) -> dict[str, Any]:
        """Return arrays, by name, which hold anything; their memory comes back with the last of them.

        Raises:
            ExecutorFailed: there is too little.
        """
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy a buffer of this memory or an array of the host, of the same shape and dtype, into a buffer of this."""
        ...

    def copy_of(self, buffer: Any) -> Any:
        """Return a copy of a buffer of this memory, in memory as `empty` gives it.

        Raises:
            ExecutorFailed: there is too little.
        """
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

    def trim(self) -> None:
        """Let go of memory that has come back and is kept."""
        ...

    def close(self) -> None:
        """Release everything; what was reserved is not read any more."""
        ...


def memory_of(executor: object) -> Memory | None:
    """Return the memory in which an executor takes and leaves states; None where that is the host's."""
    found: Memory | None = getattr(executor, "memory", None)
    return found
