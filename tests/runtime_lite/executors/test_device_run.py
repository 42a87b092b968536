"""What every run on a device has in common, with work that notes where it is told to read and write."""

from collections.abc import Iterator

import numpy as np
import pytest

from runtime_lite.executors.cuda import CudaPython, DeviceArray
from runtime_lite.executors.device_run import DeviceRun, DeviceTensor
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
        x = np.frombuffer(vendor.MEMORY.read(addresses[0], 16), FLOAT)
        vendor.MEMORY.write(addresses[1], (2 * x).tobytes())


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaPython]:
    """The device, of which nothing is left at the end."""
    use_doubles(monkeypatch)
    found, before = CudaPython(), dict(vendor.MEMORY.blocks)
    yield found
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
