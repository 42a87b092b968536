"""Memory of a device on a double of CUDA: views, copies of rows, what crosses, what is left behind."""

import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from runtime_lite.errors import ExecutorFailed
from runtime_lite.executors.cuda import CudaPython, DeviceArray
from runtime_lite.executors.device_memory import DeviceMemory, planes
from runtime_lite.executors.memory import Crossed, Layout, Place
from tests.kit import vendor

FLOAT = np.dtype(np.float32)


class Held:
    """Holds bytes, as blocks do."""

    def __init__(self, content: Any) -> None:
        self.content = content


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> vendor.CudaRuntime:
    found = vendor.CudaRuntime(vendor.Memory())
    bindings = types.ModuleType("cuda.bindings")
    vars(bindings).update(runtime=found, utils=types.SimpleNamespace(get_cuda_native_handle=int))
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    return found


@pytest.fixture
def memory(runtime: vendor.CudaRuntime) -> Iterator[DeviceMemory]:
    cuda = CudaPython()
    made = DeviceMemory(lambda: cuda, threading.RLock())
    yield made
    made.close()
    made.close()
    cuda.close()
    assert (runtime.memory.blocks, runtime.live) == ({}, [])


def array(memory: DeviceMemory, *shape: int) -> DeviceArray:
    content = memory.reserve(4 * int(np.prod(shape)) + 64)
    return memory.arrays(Held(content), [Place("a", shape, FLOAT, 64)])["a"]


def drawn(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape and slices of it."""
    shape = tuple(int(size) for size in rng.integers(1, 5, rng.integers(1, 5)))
    starts = [int(rng.integers(0, size)) for size in shape]
    return shape, tuple(slice(at, int(rng.integers(at + 1, size + 1))) for at, size in zip(starts, shape, strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_any_part_is_copied_to_any_other_in_planes(seed: int) -> None:
    """Bytes are moved as the planes say, and compared with what NumPy assigns."""
    rng = np.random.default_rng(seed)
    shape, part = drawn(rng)
    source = rng.standard_normal(shape).astype(FLOAT)
    sizes = source[part].shape
    target = np.zeros(
        [size + int(extra) for size, extra in zip(sizes, rng.integers(0, 3, len(sizes)), strict=True)], FLOAT
    )
    into = tuple(slice(whole - size, whole) for size, whole in zip(sizes, target.shape, strict=True))
    wanted = target.copy()
    wanted[into] = source[part]
    to, of = target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)
    first = target[into].ctypes.data - target.ctypes.data, source[part].ctypes.data - source.ctypes.data
    for plane in planes(target[into], source[part]):
        assert plane.width <= min(plane.to_pitch, plane.source_pitch)
        for row in range(plane.height):
            begin = first[0] + plane.to + row * plane.to_pitch, first[1] + plane.source + row * plane.source_pitch
            to[begin[0] : begin[0] + plane.width] = of[begin[1] : begin[1] + plane.width]
    np.testing.assert_array_equal(target, wanted)


def test_rows_that_lie_one_after_the_other_are_one_row_of_bytes() -> None:
    whole = np.zeros((8, 3, 4), FLOAT)
    (plane,) = planes(whole[2:6], whole[:4])
    assert (plane.width, plane.height) == (4 * 3 * 4 * 4, 1)
    (plane,) = planes(whole[:, :, 1:3], whole[:, :, :2])
    assert (plane.width, plane.height, plane.to_pitch) == (8, 24, 16)
    assert not list(planes(whole[:0], whole[:0]))


def test_views_copies_and_joins_are_those_of_numpy(memory: DeviceMemory) -> None:
    here, there = array(memory, 4, 3, 2), array(memory, 4, 3, 2)
    numbers = np.arange(24, dtype=FLOAT).reshape(4, 3, 2)
    memory.copy(here, numbers)
    memory.copy(there, np.array(-1, FLOAT))
    memory.copy(there[1:3, :, 1], here[2:4, :, 0])
    memory.copy(there[0, 1:], numbers[3, 1:])
    wanted = np.full((4, 3, 2), -1, FLOAT)
    wanted[1:3, :, 1], wanted[0, 1:] = numbers[2:4, :, 0], numbers[3, 1:]
    np.testing.assert_array_equal(memory.read(there), wanted)
    memory.join(there, [here[:, :1], numbers[:, 1:]], 1)
    np.testing.assert_array_equal(memory.read(there[1:, 1:]), numbers[1:, 1:])
    assert (here[1].shape, here.nbytes, here.dtype) == ((3, 2), 96, FLOAT)
    assert memory.is_read(here[1:3])
    assert not memory.is_read(here[:, :1])
    assert not memory.is_read(numbers)


def test_what_crosses_is_counted_and_copies_on_the_device_cross_nothing(memory: DeviceMemory) -> None:
    here, there = array(memory, 4, 2), array(memory, 4, 2)
    memory.copy(here, np.zeros((4, 2), FLOAT))
    memory.copy(there, here)
    before = memory.crossed
    assert before == (32, 0)
    memory.read(there[:1])
    assert memory.crossed.since(before) == (0, 8)
    seen = list[Crossed]()
    other = threading.Thread(target=lambda: seen.append(memory.crossed))
    other.start()
    other.join()
    assert seen == [(0, 0)], "what other threads ask for is theirs"


def test_memory_that_comes_back_is_given_out_again_until_it_is_trimmed(
    memory: DeviceMemory, runtime: vendor.CudaRuntime
) -> None:
    layout = Layout((Place("a", (4,), FLOAT, 0), Place("b", (2,), FLOAT, 64)), 128)
    first, second = memory.empty(layout), memory.empty(layout)
    assert first["b"].address - first["a"].address == 64
    memory.copy(second["a"], np.arange(4, dtype=FLOAT))
    addresses = {first["a"].address, second["a"].address}
    copied = memory.copy_of(second["a"][1:3])
    np.testing.assert_array_equal(memory.read(copied), [1, 2])
    del first["a"], second["a"]
    memory.empty(layout)  # nobody holds it: its memory comes back at once
    assert len(runtime.memory.blocks) == 4, "what one array of them holds is held"
    del first, second
    assert {memory.empty(layout)["a"].address for _ in range(3)} <= {*runtime.memory.blocks}
    again = memory.empty(layout), memory.empty(layout), memory.empty(layout)
    assert addresses < {each["a"].address for each in again}
    assert len(runtime.memory.blocks) == 4
    del again, copied
    memory.trim()
    assert not runtime.memory.blocks


def test_too_little_memory_is_named_and_what_is_released_is_given_out_again(
    memory: DeviceMemory, runtime: vendor.CudaRuntime
) -> None:
    content = memory.reserve(64)
    runtime.fail.add("cudaMalloc")
    with pytest.raises(ExecutorFailed, match=r"expected 64 bytes for states, got none .*; close streams") as caught:
        memory.reserve(64)
    assert caught.value.reason == "memory"
    runtime.fail.clear()
    memory.release(content)
    memory.release(content)
    assert runtime.memory.blocks == {}


def test_states_of_a_device_that_was_closed_are_refused(memory: DeviceMemory) -> None:
    held = array(memory, 4)
    memory.close()
    with pytest.raises(ExecutorFailed, match=r"got those of one that was closed; take a snapshot"):
        memory.read(held)
    with pytest.raises(ExecutorFailed, match="got those of one that was closed"):
        memory.copy(array(memory, 4), held)
