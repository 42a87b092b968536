"""States that stay on the device, through the runtime, on doubles of CUDA and TensorRT: answers, bytes, faults."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime_lite import ExecutorFailed, InternalError, Runtime
from runtime_lite.__main__ import main
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, copy_of_state
from runtime_lite.executors.cuda import CudaPython
from runtime_lite.executors.device_memory import DeviceMemory
from runtime_lite.executors.device_run import GRAPHS_SWITCH
from runtime_lite.executors.onnx_cuda import SessionRun
from runtime_lite.format.arrays import Array
from runtime_lite.model import Model
from runtime_lite.serving.trace import Trace
from tests.kit import vendor
from tests.runtime_lite.bundles import STEP, WIDTH, WINDOW, write_streaming_bundle
from tests.runtime_lite.engines import use_cpu_for_cuda, use_doubles, write_cuda_bundle, write_engine_bundle
from tests.runtime_lite.in_place_graph import TIMES, WRITTEN_IN_PLACE, write_in_place_bundle

STREAMS = 16
FAULTS = {
    "cudaEventCreate": 3,
    "cudaEventElapsedTime": 10,
    "cudaEventRecord": 10,
    "cudaEventSynchronize": 10,
    "cudaMalloc": 10,
    "cudaMallocHost": 1,
    "cudaMemcpy2DAsync": 10,
    "cudaMemcpyAsync": 10,
    "cudaSetDevice": 10,
    "cudaStreamCreate": 3,
    "cudaStreamSynchronize": 2,
    "cudaStreamWaitEvent": 10,
}
"""Calls of CUDA that may fail, and how often a test meets them at least."""

FAULTS_OF_GRAPHS = {
    "cudaStreamBeginCapture": 3,
    "cudaStreamEndCapture": 3,
    "cudaGraphInstantiate": 3,
    "cudaGraphLaunch": 10,
}
"""The same of CUDA graphs that this code captures itself: ONNX Runtime captures its own."""
IN_PLACE = {kind.update: kind for kind in WRITTEN_IN_PLACE}
CALL_BYTES = {
    "streaming": (4 * STEP * WIDTH + 8 + 4 * (WINDOW + STEP), 4 * STEP * WIDTH),  # chunk, length, mask; answer
    **dict.fromkeys(IN_PLACE, (4 * TIMES[-1] * WIDTH + 8 + 8, 4 * TIMES[-1] * WIDTH)),  # chunk and two lengths; answer
}
"""Bytes of a row that a call takes from the host, and gives to it, by graph."""


class Pair:
    """The same streams on the device and on the host; what they answer has to be the same."""

    def __init__(self, device: GraphRunner, host: GraphRunner, rng: np.random.Generator) -> None:
        self.device, self.host, self.rng = device, host, rng
        self.streams: list[tuple[StreamState, StreamState]] = []
        (self.cache,), self.has_time = host.graph.caches, "time" in host.graph.axes

    def opened(self) -> tuple[StreamState, StreamState]:
        return self.device.initial_state(1), self.host.initial_state(1)

    def step(self, numbers: list[int], frames: int | None = None) -> None:
        """One call of some streams; they change only if it succeeds."""
        drawn = [frames or (int(self.rng.integers(1, TIMES[-1] + 1)) if self.has_time else STEP) for _ in numbers]
        chunks = [self.rng.standard_normal((1, count, WIDTH)).astype(np.float32) for count in drawn]
        for number, count in zip(numbers, drawn, strict=True):
            if self.cache.is_whole and self.streams[number][1].lengths[self.cache.axis][0] + count > self.cache.slots:
                self.streams[number] = self.opened()  # its caches are full
        rows = next(rows for rows in self.host.graph.row_buckets if rows >= len(numbers))
        sizes = {"batch": rows} | ({"time": TIMES[-1]} if self.has_time else {})
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
            for name in wanted.values:
                np.testing.assert_array_equal(got.values[name], wanted.values[name])

    def turn(self) -> None:
        """Streams leave and others come; some go on, together or alone."""
        if self.streams and self.rng.random() < 0.1:
            self.streams.pop(int(self.rng.integers(len(self.streams))))
        if len(self.streams) < STREAMS and self.rng.random() < 0.3:
            self.streams.append(self.opened())
        if self.streams:
            count = min(int(self.rng.choice([1, 2, 4, 4])), len(self.streams))
            self.step([int(each) for each in self.rng.permutation(len(self.streams))[:count]])
        if self.streams and self.rng.random() < 0.05:  # a snapshot is stored and comes back
            number = int(self.rng.integers(len(self.streams)))
            got, wanted = self.streams[number]
            self.streams[number] = copy_of_state(got), wanted
        if self.streams and self.rng.random() < 0.1:  # one is gone on from twice
            self.streams[int(self.rng.integers(len(self.streams)))] = self.streams[0]


@pytest.fixture(params=["tensorrt", "onnx_cuda"])
def target(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device, of which nothing is left at the end."""
    use_doubles(monkeypatch)
    use_cpu_for_cuda(monkeypatch)
    found: Any = CudaPython()
    monkeypatch.setattr("runtime_lite.executors.device_executor.open_cuda", CudaPython)
    before = dict(vendor.MEMORY.blocks)
    yield found._cuda
    assert vendor.MEMORY.blocks == before
    assert (found._cuda.live, found._cuda.host) == ([], {})


@pytest.fixture(params=["streaming", *IN_PLACE])
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def device(tmp_path: Path, name: str, target: str) -> Path:
    """A bundle for the device."""
    if target == "tensorrt":
        return write_engine_bundle(tmp_path / "device", name=name)
    return write_cuda_bundle(tmp_path / "device", name)


@pytest.fixture
def host(tmp_path: Path, name: str) -> Path:
    """A bundle of the same graph for the host."""
    if name in IN_PLACE:
        return write_in_place_bundle(tmp_path / "host", IN_PLACE[name])
    return write_streaming_bundle(tmp_path / "host")


@pytest.fixture
def pair(cuda: Any, device: Path, host: Path, name: str) -> Iterator[Pair]:
    with Runtime() as runtime:
        yield Pair(runtime.load(device).runner(name), runtime.load(host).runner("streaming"), np.random.default_rng(0))


def memory_of(pair: Pair) -> DeviceMemory:
    memory: Any = pair.device.executor.memory  # type: ignore[attr-defined]
    assert isinstance(memory, DeviceMemory)
    return memory


@pytest.mark.slow
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
def test_features_and_answers_alone_cross(pair: Pair, name: str, rows: int) -> None:
    calls, memory = 2, memory_of(pair)
    pair.streams = [pair.opened() for _ in range(rows)]
    pair.step(list(range(rows)), None if name == "streaming" else TIMES[-1])
    before = memory.crossed
    for _ in range(calls):
        pair.step(list(range(rows)), None if name == "streaming" else TIMES[-1])
    fed, answered = CALL_BYTES[name]
    assert memory.crossed.since(before) == (calls * rows * fed, calls * rows * answered)


def test_bytes_that_cross_are_in_the_trace_and_in_times_of_a_device_alone(
    cuda: Any, name: str, device: Path, host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fed, answered = CALL_BYTES[name]
    frames = STEP if name == "streaming" else TIMES[-1]
    traces = Trace(), Trace()
    for bundle, trace in zip((device, host), traces, strict=True):
        with Runtime(observers=[trace]) as runtime, runtime.load(bundle).open_stream() as stream:
            for _ in range(2):  # the first takes its initial states to the device, where it finds none
                stream.push({"x": np.ones((1, frames, WIDTH), np.float32)})
    *_, last = (each["args"] for each in traces[0].events() if "bucket" in each.get("args", ()))
    assert (last["bytes_to_device"], last["bytes_to_host"]) == (fed, answered)
    assert not [each for each in traces[1].events() if "bytes_to_device" in each.get("args", ())]
    assert main(["bench", str(device), "--runs", "1", "--warm-up", "1"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()[1:]
    assert heads.endswith("bytes to device  bytes to host")
    assert rows[-1].split()[-2:] == [str(4 * fed), str(4 * answered)]
    assert main(["bench", str(host), "--runs", "1", "--warm-up", "1"]) == 0
    assert "bytes" not in capsys.readouterr().out


@pytest.mark.parametrize("switch", ["1", "0"])
def test_runs_of_streams_that_go_on_are_launched_as_graphs_unless_the_environment_forbids_it(
    pair: Pair, switch: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GRAPHS_SWITCH, switch)
    pair.streams = [pair.opened() for _ in range(4)]
    vendor.MEMORY.log.clear()
    run, numbers = SessionRun._run, list[str]()

    def note(self: SessionRun, binding: Any, number: str) -> None:
        numbers.append(number)
        run(self, binding, number)

    monkeypatch.setattr(SessionRun, "_run", note)
    for _ in range(10):
        pair.step([0, 1, 2, 3], 1 if pair.has_time else None)
    launched = vendor.MEMORY.log.count("launch") if target == "tensorrt" else 10 - numbers.count("-1")
    assert launched >= 4 if switch == "1" else launched == 0
    pair.compare()


@pytest.mark.parametrize(
    ("target", "fault", "least"),
    [
        *(("tensorrt", fault, least) for fault, least in {**FAULTS, **FAULTS_OF_GRAPHS}.items()),
        *(("onnx_cuda", fault, least) for fault, least in FAULTS.items()),
    ],
    indirect=["target"],
)
def test_a_fault_of_the_device_changes_no_stream(pair: Pair, cuda: Any, fault: str, least: int) -> None:
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
    assert failed >= least


@pytest.mark.parametrize("target", ["tensorrt", "onnx_cuda"], indirect=True)
def test_streams_of_runs_that_overlap_answer_as_on_the_host(cuda: Any, device: Path, host: Path, name: str) -> None:
    """Four threads, three runs in flight: a run is uploaded while others are at work."""
    rng, frames = np.random.default_rng(0), STEP if name == "streaming" else 1
    chunks = rng.standard_normal((4, 6, 1, frames, WIDTH)).astype(np.float32)

    def lives(model: Model, chunks: Array) -> list[Array]:
        answers = []
        for _ in range(3):
            with model.open_stream() as stream:
                answers += [stream.push({"x": chunk})["y"] for chunk in chunks]
        return answers

    answers = []
    for bundle in (device, host):
        with Runtime(workers=3) as runtime, ThreadPoolExecutor(4) as threads:
            answers.append(list(threads.map(lives, [runtime.load(bundle)] * 4, chunks)))
    on_device, on_host = answers
    np.testing.assert_array_equal(on_device, on_host)


def test_every_call_of_cuda_has_its_fault() -> None:
    assert {*FAULTS, *FAULTS_OF_GRAPHS, *vendor.CudaRuntime.RELEASES} == set(vendor.CudaRuntime.calls())


@pytest.mark.slow
def test_faults_at_any_call_change_no_stream_and_leave_nothing(pair: Pair, cuda: Any, target: str) -> None:
    never = {"cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy"}  # at the end alone
    once = {"cudaEventCreate", "cudaMallocHost", "cudaStreamCreate"}  # at the first run of a bucket
    seldom = {"cudaGraphDestroy", "cudaGraphExecDestroy"}
    of_graphs = (
        set[str]() if target == "tensorrt" else {name for name in cuda.calls() if "Graph" in name or "Capture" in name}
    )
    named = sorted(set(cuda.calls()) - never - once - seldom - of_graphs)
    faults, failed = np.random.default_rng(1), 0
    for call in range(1000):
        kind = faults.choice(["any call", "the call that failed least", "no call"], p=[0.25, 0.25, 0.5])
        if kind == "any call":
            cuda.calls_to_fault = int(faults.integers(1, 40))
        elif kind == "the call that failed least":
            cuda.fail.add(min(named, key=lambda name: cuda.failed[name]))
        before = list(pair.streams)
        try:
            pair.turn()
            if call % 20 == 0:
                pair.device.trim()
        except (InternalError, ExecutorFailed):
            failed += 1
            pair.streams = before
        finally:
            cuda.calls_to_fault = 0
            cuda.fail.clear()
        if call % 100 == 0:
            pair.compare()
    pair.compare()
    assert failed > 100
    assert set(cuda.failed) >= set(named)
    pair.streams.clear()
    before.clear()
    pair.device.trim()
    assert not memory_of(pair)._reserved


@pytest.mark.parametrize("name", ["streaming"], indirect=True)
def test_a_fault_at_any_call_of_the_first_push_is_over_with_the_next(cuda: Any, device: Path) -> None:
    chunk = {"x": np.ones((1, STEP, WIDTH), np.float32)}
    number = failed = 0
    while failed == number:
        number += 1
        with Runtime() as runtime, runtime.load(device).open_stream() as stream:
            cuda.calls_to_fault = number
            try:
                stream.push(chunk)
            except (InternalError, ExecutorFailed):
                failed += 1
            cuda.calls_to_fault = 0
            stream.push(chunk)
    assert number > 25


def test_a_snapshot_crosses_and_goes_on_elsewhere(pair: Pair) -> None:
    pair.streams = [pair.opened()]
    for _ in range(3):
        pair.step([0], 1 if pair.has_time else None)
    stored = copy_of_state(pair.streams[0][0])
    assert all(isinstance(array, np.ndarray) for array in stored.values.values())
    pair.step([0], 1 if pair.has_time else None)
    pair.streams.append((stored, pair.host.initial_state(1)))
    with pytest.raises(AssertionError):  # it is as old as the one that it was taken from
        pair.compare()


def test_a_device_that_is_taken_away_ends_every_call_with_a_sentence_and_closes_well(
    cuda: Any, device: Path, name: str
) -> None:
    chunk = {"x": np.ones((1, STEP if name == "streaming" else TIMES[-1], WIDTH), np.float32)}
    before = dict(vendor.MEMORY.blocks), list(cuda.live), dict(cuda.host)
    with Runtime() as runtime:
        stream = runtime.load(device).open_stream()
        stream.push(chunk)
        cuda.gone = True
        for _ in range(2):
            with pytest.raises(ExecutorFailed, match=r"expected the device, got cudaErrorLaunchFailure: .*snapshots"):
                stream.push(chunk)
    vendor.MEMORY.blocks, cuda.live, cuda.host = before  # nothing can be freed there


def test_states_that_are_larger_than_the_device_are_named_and_leave_nothing(
    cuda: Any, device: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor.MEMORY, "most", sum(map(len, vendor.MEMORY.blocks.values())) + 8)
    with (
        Runtime() as runtime,
        pytest.raises(ExecutorFailed, match=r"expected \d+ bytes for states, got none") as caught,
    ):
        runtime.load(device).open_stream().push(
            {"x": np.ones((1, STEP if name == "streaming" else 4, WIDTH), np.float32)}
        )
    assert caught.value.reason == "memory"


def test_streams_go_on_where_there_is_no_memory_for_them_together(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = 1 if pair.has_time else None
    pair.streams = [pair.opened() for _ in range(2)]
    for number in (0, 1, 0, 1):
        pair.step([number], frames)
    with monkeypatch.context() as patched:
        patched.setattr(vendor.MEMORY, "most", sum(map(len, vendor.MEMORY.blocks.values())))
        with pytest.raises(ExecutorFailed, match="close streams, or build smaller buckets"):
            pair.step([0, 1], frames)
        for number in (0, 1):
            pair.step([number], frames)
    pair.step([0, 1], frames)
    pair.compare()


def test_a_stream_of_another_device_is_refused_with_the_way_to_move_it(pair: Pair, device: Path, name: str) -> None:
    pair.streams = [pair.opened()]
    for _ in range(2):
        pair.step([0], 1 if pair.has_time else None)
    with Runtime() as elsewhere:
        other = elsewhere.load(device).runner(name)
        state = other.initial_state(1)
        mine = pair.streams[0]
        pair.streams[0] = state, mine[1]
        with pytest.raises(ExecutorFailed, match="got those of another; take a snapshot there, and restore it here"):
            pair.step([0], 1 if pair.has_time else None)
        pair.streams[0] = copy_of_state(state), pair.host.initial_state(1)
        pair.step([0], 1 if pair.has_time else None)
        pair.streams[0] = mine
        pair.step([0], 1 if pair.has_time else None)
