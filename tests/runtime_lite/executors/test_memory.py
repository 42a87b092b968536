"""What is asked of an executor and of buffers about memory."""

import types

import numpy as np

from runtime_lite.calls.blocks import HOST
from runtime_lite.executors.memory import bytes_of, memory_of


def test_an_executor_may_have_memory_of_its_own() -> None:
    assert memory_of(object()) is None
    assert memory_of(types.SimpleNamespace(memory=HOST)) is HOST


def test_bytes_of_the_host_are_counted_alone() -> None:
    assert bytes_of({"a": np.zeros((2, 3), np.float32), "b": object()}) == 24
