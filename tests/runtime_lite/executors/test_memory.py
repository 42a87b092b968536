"""What is asked of an executor and of buffers about memory."""

import types

from runtime_lite.calls.blocks import HOST
from runtime_lite.executors.memory import Crossed, memory_of


def test_an_executor_may_have_memory_of_its_own() -> None:
    assert memory_of(object()) is None
    assert memory_of(types.SimpleNamespace(memory=HOST)) is HOST


def test_bytes_are_counted_from_a_count_to_a_later_one() -> None:
    assert Crossed(24, 7).since(Crossed(20, 7)) == Crossed(4, 0)
