"""What is asked of an executor and of buffers about memory."""

import types

import numpy as np

from runtime_lite.calls.blocks import HOST, layout_of
from runtime_lite.executors.memory import Crossed, memory_of


def test_an_executor_may_have_memory_of_its_own() -> None:
    assert memory_of(object()) is None
    assert memory_of(types.SimpleNamespace(memory=HOST)) is HOST


def test_bytes_are_counted_from_a_count_to_a_later_one() -> None:
    assert Crossed(24, 7).since(Crossed(20, 7)) == Crossed(4, 0)


def test_memory_of_the_host_gives_arrays_of_their_own() -> None:
    assert HOST.crossed is None
    arrays = HOST.empty(layout_of([("a", (2, 3), "float32"), ("b", (), "int64")]))
    shapes = {name: (array.shape, array.dtype.name) for name, array in arrays.items()}
    assert shapes == {"a": ((2, 3), "float32"), "b": ((), "int64")}
    assert not np.shares_memory(HOST.copy_of(arrays["a"]), arrays["a"])
    HOST.trim()
