"""States that stay on the device, through the runtime, on doubles of CUDA and TensorRT: answers, bytes, faults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import ExecutorFailed, InternalError, Runtime
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, copy_of_state
from runtime_lite.executors.cuda import CudaPython
from runtime_lite.executors.device_memory import DeviceMemory
from runtime_lite.format.arrays import Array
from tests.kit import vendor
from tests.runtime_lite.bundles import STEP, WIDTH, WINDOW, write_streaming_bundle
from tests.runtime_lite.engines import use_doubles, write_engine_bundle

STREAMS = 16
FAULTS = ("cudaMalloc", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaStreamSynchronize", "cudaMallocHost")


class Pair:
    """The same streams on the device and on the host; what they answer has to be the same."""

    def __init__(self, device: GraphRunner, host: GraphRunner, rng: np.random.Generator) -> None:
        self.device, self.host, self.rng = device, host, rng
        self.streams: list[tuple[StreamState, StreamState]] = []

    def open(self) -> None:
        self.streams.append((self.device.initial_state(1), self.host.initial_state(1)))

    def step(self, numbers: list[int]) -> None:
        """One call of some streams; they change only if it succeeds."""
        chunks = [self.rng.standard_normal((1, STEP, WIDTH)).astype(np.float32) for _ in numbers]
        sizes = {"batch": 1 if len(numbers) == 1 else 4}
        after = [self._stepped(runner, side, numbers, chunks, sizes)
                 for side, runner in enumerate((self.device, self.host))]  # fmt: skip
        for number, got, wanted in zip(numbers, *after, strict=True):
            np.testing.assert_array_equal(got[0]["y"], wanted[0]["y"])
            self.streams[number] = got[1], wanted[1]

    def _stepped(
        self, runner: GraphRunner, side: int, numbers: list[int], chunks: list[Array], sizes: dict[str, int]
    ) -> list[tuple[dict[str, Array], StreamState]]:
        feeds = [runner.check("test", {"x": chunk}) for chunk in chunks]
        return runner.step_streams(feeds, [self.streams[number][side] for number in numbers], sizes)

    def compare(self) -> None:
        for got, wanted in self.streams:
            np.testing.assert_array_equal(got.values["keys"], wanted.values["keys"])

    def turn(self) -> None:
        """Streams leave and others come; some go on, together or alone."""
        if self.streams and self.rng.random() < 0.1:
            self.streams.pop(int(self.rng.integers(len(self.streams))))
        if len(self.streams) < STREAMS and self.rng.random() < 0.3:
            self.open()
        if self.streams:
            count = min(int(self.rng.choice([1, 2, 4, 4])), len(self.streams))
            self.step([int(each) for each in self.rng.permutation(len(self.streams))[:count]])
        if self.streams and self.rng.random() < 0.05:  # a snapshot is stored and comes back
            number = int(self.rng.integers(len(self.streams)))
            got, wanted = self.streams[number]
            self.streams[number] = copy_of_state(got), wanted


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device, of which nothing is left at the end."""
    use_doubles(monkeypatch)
    found: Any = CudaPython()
    monkeypatch.setattr("runtime_lite.executors.tensorrt.open_cuda", lambda: found)
    before = dict(vendor.MEMORY.blocks)
    yield found._cuda
    assert vendor.MEMORY.blocks == before
    assert (found._cuda.live, found._cuda.host) == ([], {})


@pytest.fixture
def pair(cuda: Any, tmp_path: Path) -> Iterator[Pair]:
    engines, files = (
        write_engine_bundle(tmp_path / "device", name="streaming"),
        write_streaming_bundle(tmp_path / "host"),
    )
    with Runtime() as runtime:
        device, host = (runtime.load(path).runner("streaming") for path in (engines, files))
        yield Pair(device, host, np.random.default_rng(0))


def memory_of(pair: Pair) -> DeviceMemory:
    memory: Any = pair.device.executor.memory  # type: ignore[attr-defined]
    assert isinstance(memory, DeviceMemory)
    return memory


def test_streams_that_join_and_leave_answer_as_on_the_host(pair: Pair) -> None:
    for call in range(1000):
        pair.turn()
        if call % 100 == 0:
            pair.compare()
    pair.compare()
    assert len(pair.streams) > 8
    assert 0 < len(memory_of(pair)._reserved) < 8 * STREAMS
    pair.streams.clear()
    pair.device.trim()
    assert not memory_of(pair)._reserved, "memory that nobody uses goes back to the device"


@pytest.mark.parametrize("rows", [1, 4])
def test_features_and_answers_alone_cross(pair: Pair, rows: int) -> None:
    for _ in range(rows):
        pair.open()
    pair.step(list(range(rows)))
    memory = memory_of(pair)
    before = memory.to_device, memory.to_host
    calls = 5
    for _ in range(calls):
        pair.step(list(range(rows)))
    fed = rows * (4 * STEP * WIDTH + 8 + 4 * (WINDOW + STEP))  # the chunk, its length and its mask
    assert memory.to_device - before[0] == calls * fed
    assert memory.to_host - before[1] == calls * rows * 4 * STEP * WIDTH


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_device_changes_no_stream(pair: Pair, cuda: Any, fault: str) -> None:
    failed = 0
    for call in range(150):
        if call < 9 or call % 3 == 0:
            cuda.fail.add(fault)
        before = list(pair.streams)
        try:
            pair.turn()
        except (InternalError, ExecutorFailed):
            failed += 1
            pair.streams = before
        finally:
            cuda.fail.clear()
    pair.compare()
    assert failed > (0 if fault == "cudaMallocHost" else 10), "staging is reserved once"


def test_a_snapshot_crosses_and_goes_on_elsewhere(pair: Pair) -> None:
    pair.open()
    for _ in range(3):
        pair.step([0])
    stored = copy_of_state(pair.streams[0][0])
    assert isinstance(stored.values["keys"], np.ndarray)
    pair.step([0])
    pair.streams.append((stored, pair.host.initial_state(1)))
    with pytest.raises(AssertionError):  # it is as old as the one that it was taken from
        pair.compare()
