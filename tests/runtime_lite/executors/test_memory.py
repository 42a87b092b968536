"""Memory of the host: aligned, mapped by itself where it is large, kept by what lies in it."""

import numpy as np
import pytest

from runtime_lite.executors.memory import ALIGNMENT, HOST, OWN_MAPPING, HostBytes, Place, bytes_of, memory_of


class Held:
    """Holds bytes, as blocks do."""

    def __init__(self, content: HostBytes) -> None:
        self.content = content

    @property
    def __array_interface__(self) -> object:
        return self.content.interface


@pytest.mark.parametrize("size", [256, OWN_MAPPING])
def test_arrays_lie_in_what_was_reserved_one_behind_the_other(size: int) -> None:
    held = Held(HOST.reserve(size))
    places = [Place("a", (2, 3), np.dtype(np.float32), 0), Place("b", (4,), np.dtype(np.int64), ALIGNMENT)]
    arrays = HOST.arrays(held, places)
    assert arrays["a"].ctypes.data % ALIGNMENT == 0
    assert arrays["b"].ctypes.data - arrays["a"].ctypes.data == ALIGNMENT
    HOST.copy(arrays["a"], np.float32(3))
    HOST.join(arrays["b"], [np.arange(3), np.arange(1)], 0)
    assert HOST.is_read(arrays["a"])
    assert HOST.read(arrays["a"]).tolist() == [[3] * 3] * 2
    assert HOST.read(arrays["b"]).tolist() == [0, 1, 2, 0]
    HOST.release(held.content)
    HOST.close()


def test_an_executor_without_memory_of_its_own_takes_states_from_the_host() -> None:
    assert memory_of(object()) is HOST


def test_bytes_of_the_host_are_counted_alone() -> None:
    assert bytes_of({"a": np.zeros((2, 3), np.float32), "b": object()}) == 24
