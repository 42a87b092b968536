"""What every run on a device has in common, with work that notes where it is told to read and write."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from runtime_lite.errors import InternalError
from runtime_lite.executors.cuda import CudaPython, DeviceArray
from runtime_lite.executors.device_run import DeviceRun, DeviceTensor, Staging
from tests.kit import vendor
from tests.runtime_lite.engines import use_doubles

FLOAT = np.dtype(np.float32)
TENSORS = (DeviceTensor("x", (4,), FLOAT, True), DeviceTensor("y", (4,), FLOAT, False))


class Doubling(DeviceRun):
    """Writes twice what it reads; a graph does so at the addresses that it was captured with."""

    def __init__(self, cuda: CudaPython, captures: bool) -> None:
        self.done, self.graphs = list[str](), list[tuple[int, ...]]()
        super().__init__(cuda, TENSORS, None, captures)

    def _enqueue(self, addresses: tuple[int, ...]) -> None:
        self.done.append("plain")
        self._double(addresses)

    def _capture(self, addresses: tuple[int, ...]) -> int | None:
        self.graphs.append(addresses)
        return len(self.graphs) - 1 if len(self.graphs) < 3 else None

    def _launch(self, graph: int) -> None:
        self.done.append(f"graph {graph}")
        if "fails" in self.done:
            raise RuntimeError
        self._double(self.graphs[graph])

    def _drop(self, graph: int) -> None:
        self.done.append(f"drop {graph}")

    def _double(self, addresses: tuple[int, ...]) -> None:
        vendor.QUEUES_OF[self._stream].give(self._stream, lambda: self._doubles(addresses))

    def _doubles(self, addresses: tuple[int, ...]) -> None:
        x = np.frombuffer(vendor.MEMORY.read(addresses[0], 16), FLOAT)
        vendor.MEMORY.write(addresses[1], (2 * x).tobytes())


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaPython]:
    """The device, of which nothing is left at the end."""
    use_doubles(monkeypatch)
    found, before = CudaPython(), dict(vendor.MEMORY.blocks)
    yield found
    assert not any(found._cuda.queues._given.values())
    assert vendor.MEMORY.blocks == before
    assert (found._cuda.live, found._cuda.host) == ([], {})


def test_what_lies_on_the_device_stays_there_and_all_else_is_copied(cuda: CudaPython) -> None:
    run = Doubling(cuda, captures=False)
    x = np.arange(4, dtype=np.float32)
    there = cuda.alloc(16)
    assert run.run({"x": x}, {"y": DeviceArray(None, there, x)})[0] == {}
    outputs, elapsed_ms = run.run({"x": DeviceArray(None, there, x)})
    np.testing.assert_array_equal(outputs["y"], 4 * x)
    assert elapsed_ms == 0.25
    assert vendor.MEMORY.log[-2:] == ["to device", "to host"]
    assert run.done == ["plain"] * 2
    run.close()
    run.close()
    cuda.free(there)


def test_a_graph_that_fails_is_dropped_and_its_run_is_captured_again(cuda: CudaPython) -> None:
    run, x = Doubling(cuda, captures=True), np.ones(4, np.float32)
    for _ in range(2):
        run.run({"x": x})
    run.done.append("fails")
    with pytest.raises(RuntimeError):
        run.run({"x": x})
    run.done.clear()
    for _ in range(3):
        np.testing.assert_array_equal(run.run({"x": x})[0]["y"], 2 * x)
    assert run.done == ["plain", "graph 1", "graph 1"]
    run.close()
    assert run.done[-1] == "drop 1"


def test_runs_go_on_plainly_where_there_can_be_no_more_graphs(cuda: CudaPython) -> None:
    run, x = Doubling(cuda, captures=True), np.ones(4, np.float32)
    run.graphs = [(), (), ()]
    for _ in range(4):
        np.testing.assert_array_equal(run.run({"x": x})[0]["y"], 2 * x)
    assert run.done == ["plain"] * 4
    run.close()


def test_answers_are_right_in_whatever_order_runs_are_uploaded_started_and_answered(cuda: CudaPython) -> None:
    """Up to three at once; the double lets the queue of each go on when it likes."""
    run, rng = Doubling(cuda, captures=True), np.random.default_rng(0)
    uploaded, started = list[tuple[Staging, int]](), list[tuple[Staging, int]]()
    for number in range(300):
        choice = int(rng.integers(3))
        if choice == 0 and len(uploaded) + len(started) < 3:
            x = np.full(4, number, np.float32)
            uploaded.append((run.upload({"x": x}), number))
            x[:] = -1  # it is the caller's again
        elif choice == 1 and uploaded:
            started.append(uploaded.pop(int(rng.integers(len(uploaded)))))
            run.start(started[-1][0])
        elif choice == 2 and started:
            staging, value = started.pop(int(rng.integers(len(started))))
            assert (run.answer(staging)[0]["y"] == 2 * value).all()
    assert 2 <= len(run._stagings) <= 3
    assert len(run.graphs) >= 2, "each staging has addresses of its own"
    for staging, _ in uploaded:
        run.start(staging)
    for staging, value in started + uploaded:
        assert (run.answer(staging)[0]["y"] == 2 * value).all()
    run.close()


def test_a_run_is_uploaded_while_another_is_at_work(cuda: CudaPython) -> None:
    run, may_end = Doubling(cuda, captures=False), threading.Event()
    vendor.MEMORY.log.clear()
    first = run.upload({"x": np.ones(4, np.float32)})
    cuda._cuda.queues._add(run._stream, may_end.is_set)
    run.start(first)
    second = run.upload({"x": np.full(4, 2, np.float32)})
    cuda.synchronize(second.queue)
    assert vendor.MEMORY.log.count("to device") == 2
    run.start(second)
    may_end.set()
    assert (run.answer(second)[0]["y"] == 4).all()
    assert (run.answer(first)[0]["y"] == 2).all()
    run.close()


def test_a_staging_of_a_run_that_failed_is_not_overwritten_before_its_copies_have_ended(
    cuda: CudaPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda._cuda.queues, "hurries", lambda: False)
    run, there = Doubling(cuda, captures=False), cuda.alloc(16)
    staging = run.upload({"x": np.ones(4, np.float32)}, {"y": DeviceArray(None, there, np.empty(4, np.float32))})

    def fails_behind(addresses: tuple[int, ...]) -> None:
        run._double(addresses)
        cuda._cuda.fail.add("cudaEventRecord")

    with monkeypatch.context() as patched:
        patched.setattr(run, "_enqueue", fails_behind)
        with pytest.raises(InternalError):
            run.start(staging)
    cuda._cuda.fail = {"cudaStreamSynchronize"}
    with pytest.raises(InternalError):
        run.run({"x": np.zeros(4, np.float32)})
    cuda._cuda.fail.clear()
    assert staging not in run._free
    run.run({"x": np.zeros(4, np.float32)})
    assert run._free == run._stagings == [staging], "it is used again"
    assert (np.frombuffer(vendor.MEMORY.read(there, 16), FLOAT) == 2).all(), "what was at work read its own feed"
    run.close()
    cuda.free(there)
