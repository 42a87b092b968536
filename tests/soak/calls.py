"""Rows 19, 24 and 25: what a call costs besides its model, cold and warm, with one thread and with many."""

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir
import onnxruntime

from benchmarks.serving.rounds import times_us
from runtime_lite import Model, Runtime
from runtime_lite.format.arrays import Array
from runtime_lite.format.golden import Golden, GoldenStep, npz_from_golden
from runtime_lite.format.manifest import Artifact, Axis, Graph, Tensor
from tests.runtime_lite.bundles import write_bundle
from tests.soak.adder import ROWS, fed, is_sum
from tests.soak.lives import LIMIT_S, counted_sessions, together
from tests.soak.puppet import adder
from tests.soak.row import Figures

SIDE, LAYERS, BATCH = 512, 64, (1, 8)
"""A run takes as long as a small step of a stream, 1 to 3 ms: of a shorter one mostly calls would be measured."""

MATMULS = """
<ir_version: 10, opset_import: ["" : 20]>
matmuls (float[{n},{side}] x) => (float[{n},{side}] y) <int64[2] shape = {{{side}, {side}}}, float tiny = {{0.001}}>
{{
    weight = ConstantOfShape<value = float[1] {{0.002}}>(shape)
    {steps}
    y = Mul(x{layers}, tiny)
}}
"""


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="matmuls")


@cache
def matmuls() -> Path:
    """A bundle whose run is a few products of matrices: work for threads."""
    shape = ("batch", SIDE)
    graph = Graph(
        target="onnx_static",
        opset=20,
        ir_version=10,
        inputs=(Tensor("x", shape, "float32", "data"),),
        outputs=(Tensor("y", shape, "float32", "data"),),
        axes={"batch": Axis(BATCH)},
        states=(),
        caches=(),
        artifacts=tuple(Artifact({"batch": rows}, f"graphs/matmuls.batch{rows}.onnx", ()) for rows in BATCH),
        golden="golden/matmuls.npz",
        rows_independent=True,
        certificate="certificates/matmuls.json",
        batch_axis="batch",
    )
    zeros = np.zeros((1, SIDE), np.float32)
    files = {
        graph.certificate: b"{}\n",
        graph.golden: npz_from_golden(Golden((GoldenStep({"x": zeros}, {"y": zeros}),), 1e-6)),
    }
    steps = "\n    ".join(f"x{at + 1} = MatMul(x{at or ''}, weight)" for at in range(LAYERS))
    for rows in BATCH:
        text = MATMULS.format(n=rows, side=SIDE, steps=steps, layers=LAYERS)
        files[f"graphs/matmuls.batch{rows}.onnx"] = bytes(ir.to_proto(ir.from_onnx_text(text)).SerializeToString())
    return write_bundle(Path(_folder().name), {"matmuls": graph}, files)


def cold_and_warm(size: int, timed: bool) -> Figures:
    """Row 19: the first request of every shape after `load(warm_up=True)`, beside those that follow, `size` loads."""
    wrong, opened = 0, 0
    with Runtime() as runtime, counted_sessions() as sessions:
        for _ in range(size):
            model = runtime.load(adder(), warm_up=True)
            before = len(sessions)
            for rows in ROWS:
                wrong += not np.array_equal(model.run(fed(3, rows))["y"], fed(3, rows)["x"])
            with model.open_stream() as stream:
                wrong += not is_sum(stream.push(fed(3)), 3)
            opened += len(sessions) - before
            model.close()
    found: dict[str, float] = {"sessions opened by requests": opened, "wrong answers": wrong}
    return found | ({"first / steady": max(_first_over_steady(size, rows) for rows in BATCH)} if timed else {})


def _first_over_steady(loads: int, rows: int) -> float:
    """Median over loads of the first request's time, over the median of those that follow."""
    x, ratios = {"x": np.ones((rows, SIDE), np.float32)}, []
    with Runtime() as runtime:
        for _ in range(loads):
            model = runtime.load(matmuls(), warm_up=True)
            times = times_us(lambda model=model: model.run(x), 21)  # type: ignore[misc]
            ratios.append(times[0] / statistics.median(times[1:]))
            model.close()
    return statistics.median(ratios)


def overhead(size: int, timed: bool) -> Figures:
    """Row 24: `size` requests and chunks of a model that adds four numbers: calls of functions, time, rate."""
    with Runtime() as runtime:
        model = runtime.load(adder(), warm_up=True)
        with model.open_stream() as stream:
            feed = fed(0)
            calls: dict[str, Callable[[], object]] = {
                "a request": lambda: model.run(feed),
                "a chunk": lambda: stream.push(feed),
            }
            found: dict[str, float] = {}
            for name, call in calls.items():
                call()
                found[f"function calls of {name}"] = _function_calls(call)
            if timed:
                for name, call in calls.items():
                    times = times_us(call, size)
                    found[f"{name}, p50 us"], found[f"{name}, p99 us"] = np.percentile(times, (50, 99))
                found["requests per s of one core"] = _rate(model, size)
    return found


def _function_calls(call: Callable[[], object]) -> int:
    """How many functions a call enters, those of libraries included."""
    count = 0

    def hear(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # what it frees may call functions of its own
    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def _rate(model: Model, size: int) -> float:
    """Answers per second of processor time, 64 in flight."""
    begin = time.process_time()
    for _ in range(size // 64):
        for ticket in [model.submit(fed(0)) for _ in range(64)]:
            ticket.result(LIMIT_S)
    return size // 64 * 64 / (time.process_time() - begin)


def thread_pools(size: int, timed: bool) -> Figures:
    """Row 25: lanes with a thread each start no thread that a caller did not ask for; `size` runs on all cores."""
    cores = os.cpu_count() or 1
    before = _native_threads()
    with Runtime(workers=cores, threads=1) as runtime:
        model = runtime.load(adder(), warm_up=True)
        threads = max(_native_threads() - before, 0)  # one that has just ended may still have been there before
        wrong = sum(not is_sum(model.run(fed(number)), number) for number in range(size))
    found: dict[str, float] = {"threads started by loading": threads, "wrong answers": wrong}
    if timed:
        found["slow-down against the best single pool"] = _against_one_pool(size, cores)
    return found


def _native_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _against_one_pool(size: int, cores: int) -> float:
    """Time of the same runs in the runtime, over that of the best bare session, with one lane or as many as cores."""
    x = np.ones((BATCH[-1], SIDE), np.float32)
    with _lanes(1, cores) as one, _lanes(cores, 1) as many:
        ways = [(many.run, cores), (one.run, 1)]
        bare = [(_bare(cores // callers), callers) for callers in (1, cores)]
        rounds = [[[_share(run, x, size, callers) for run, callers in each] for each in (ways, bare)] for _ in range(7)]
    return statistics.median(min(ours) / min(theirs) for ours, theirs in rounds)


@contextmanager
def _lanes(workers: int, threads: int) -> Iterator[Model]:
    with Runtime(workers=workers, threads=threads) as runtime:
        yield runtime.load(matmuls(), warm_up=True)


def _bare(threads: int) -> Callable[[dict[str, Array]], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    path = matmuls() / f"graphs/matmuls.batch{BATCH[-1]}.onnx"
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(["y"], feed)


def _share(run: Callable[[dict[str, Array]], object], x: Array, size: int, callers: int) -> float:
    """Seconds of `size` runs by `callers` callers."""
    begin = time.perf_counter()
    together(callers, lambda _: [run({"x": x}) for _ in range(size // callers)])
    return time.perf_counter() - begin
