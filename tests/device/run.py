"""Runs a bundle for a CUDA device on it, in minutes, and writes what it found as JSON.

    python -m tests.device.run BUNDLE [--out FILE.json]

The bundle is built where there is no device (targets `onnx_cuda`, `tensorrt_rtx`, or a finished `tensorrt`); nothing is
built here. With CUDA graphs and without: the golden feeds in every bucket, 1000 chained calls and 16 streams that join
and leave beside the same graphs on the CPU, NaN in padded places, latency and bytes that cross per bucket. If PyTorch
has CUDA, the model's own step is timed beside them, eager, as a CUDA graph and compiled. Exit codes: 0 every step held,
4 one did not, 5 there is no device.
"""

import argparse
import dataclasses
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import Runtime
from runtime_lite.bench import bench_model
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import RuntimeLiteError
from runtime_lite.executors.device_run import GRAPHS_SWITCH
from runtime_lite.executors.executor import Executor
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.golden import golden_from_npz
from runtime_lite.format.reader import Bundle
from runtime_lite.model import Model
from runtime_lite.verify import verify_model
from tests.device.peers import peer_steps

LEAST_DB = 30.0
"""Least signal to noise of outputs beside the same graphs on the CPU."""

CHAINED, STREAMS, TURNS, RUNS = 1000, 16, 200, 200

Step = dict[str, Any]


def on_cpu(bundle: Bundle, name: str, threads: int) -> Executor:
    """What runs the same graph files on the CPU."""
    return OnnxExecutor(bundle, name, threads)


class Beside:
    """One graph on the device and on the CPU, fed alike."""

    def __init__(self, device: Model, host: Model, name: str) -> None:
        self.runners = device.runner(name), host.runner(name)
        graph = self.runners[0].graph
        golden = golden_from_npz(device.bundle.read_file(graph.golden), graph.golden, graph)
        self.feeds: Iterator[Mapping[str, Array]] = itertools.cycle([step.feeds for step in golden.steps])
        self.signal = self.noise = 0.0

    def opened(self) -> list[StreamState]:
        return [runner.initial_state(1) for runner in self.runners]

    def step(self, states: Sequence[list[StreamState]]) -> list[list[StreamState]]:
        """One call of some streams, on both; what their answers differ by is added up."""
        arrays = [next(self.feeds) for _ in states]
        answers = [self._stepped(runner, side, arrays, states) for side, runner in enumerate(self.runners)]
        for got, wanted in zip(*answers, strict=True):
            for name, array in wanted[0].items():
                expected = array.astype(np.float64)
                self.signal += float(np.square(expected).sum())
                self.noise += float(np.square(got[0][name].astype(np.float64) - expected).sum())
        return [[got[1], wanted[1]] for got, wanted in zip(*answers, strict=True)]

    def _stepped(
        self, runner: GraphRunner, side: int, arrays: Sequence[Mapping[str, Array]], states: Sequence[list[StreamState]]
    ) -> list[tuple[dict[str, Array], StreamState]]:
        feeds = [runner.check("device", each) for each in arrays]
        rows = next(rows for rows in runner.graph.row_buckets if rows >= len(feeds))
        sizes = dict(feeds[0].sizes)
        if runner.graph.batch_axis is not None:
            sizes[runner.graph.batch_axis] = rows
        return runner.step_streams(feeds, [pair[side] for pair in states], sizes)

    def found(self) -> Step:
        """The signal to noise so far, which has to be enough."""
        noise_db = 10 * np.log10(self.signal / self.noise) if self.noise else np.inf
        if not noise_db >= LEAST_DB:
            raise ValueError(f"expected at least {LEAST_DB} dB beside the CPU, got {noise_db:.1f}")
        return {"sqnr_db": min(float(noise_db), 999.0)}


def golden(model: Model) -> Step:
    """The recorded outputs, in every bucket."""
    comparisons = list(verify_model(model))
    if failed := [each for each in comparisons if not each.holds]:
        raise ValueError(f"expected the recorded outputs, got {failed[0]}")
    return {"comparisons": len(comparisons), "worst": max(each.max_abs_error / each.limit for each in comparisons)}


def chained(beside: Beside, calls: int) -> Step:
    """One stream, call after call."""
    states = [beside.opened()]
    for _ in range(calls):
        states = beside.step(states)
    return {"calls": calls, **beside.found()}


def joins(beside: Beside, turns: int) -> Step:
    """Streams that come, go on in changing company, and leave."""
    rng = np.random.default_rng(0)
    streams = [beside.opened() for _ in range(STREAMS)]
    most = min(STREAMS, beside.runners[0].most_rows)
    for _ in range(turns):
        streams[int(rng.integers(STREAMS))] = beside.opened()
        chosen = [int(each) for each in rng.permutation(STREAMS)[: int(rng.integers(1, most + 1))]]
        for number, state in zip(chosen, beside.step([streams[each] for each in chosen]), strict=True):
            streams[number] = state
    return {"turns": turns, "streams": STREAMS, **beside.found()}


def poison(beside: Beside) -> Step:
    """What padded places and free rows hold changes no bit of an answer."""
    runner, states = beside.runners[0], [beside.opened()[0] for _ in range(2)]
    rows = runner.most_rows
    for call in range(20):
        feed = runner.check("device", next(beside.feeds))
        sizes = dict(feed.sizes) | ({} if runner.graph.batch_axis is None else {runner.graph.batch_axis: rows})
        steps = [runner.step_streams([feed], [states[at]], sizes, fill)[0] for at, fill in enumerate((0.0, np.nan))]
        for name, array in steps[0][0].items():
            if array.tobytes() != steps[1][0][name].tobytes():
                raise ValueError(f"expected equal bits of {name} with NaN in padded places, got others in call {call}")
        states = [state for _, state in steps]
    return {"calls": 20, "rows": rows}


def speed(model: Model, runs: int) -> Step:
    """Times and bytes that cross per bucket, in runs that fill it."""
    return {"buckets": [dataclasses.asdict(timing) for timing in bench_model(model, runs, 20)]}


class Report:
    """What each step found; what it raises is found, too."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def add(self, name: str, about: Mapping[str, Any], work: Callable[[], Step]) -> None:
        started = time.perf_counter()
        step: Step = {"step": name, **about}
        try:
            step |= {"ok": True, **work()}
        except Exception as error:  # noqa: BLE001 - a report of what fails is what this is for
            step |= {"ok": False, "error": f"{type(error).__name__}: {error}"}
        self.steps.append(step | {"seconds": round(time.perf_counter() - started, 2)})
        print(json.dumps(self.steps[-1]), flush=True)


def run(bundle: Path, calls: int = CHAINED, turns: int = TURNS, runs: int = RUNS) -> list[Step]:
    """Run every step, with CUDA graphs and without.

    Raises:
        RuntimeLiteError: there is no device, or the bundle is not for one.
    """
    report = Report()
    for switch in ("1", "0"):
        os.environ[GRAPHS_SWITCH] = switch
        about = {"cuda_graphs": switch == "1"}
        with Runtime() as runtime:
            device, host = runtime.load(bundle), runtime.load(bundle, on_cpu)
            report.add("golden", about, partial(golden, device))
            for name in device.bundle.manifest.graphs:
                where, both = {**about, "graph": name}, partial(Beside, device, host, name)
                report.add("chained", where, partial(_of, both, partial(chained, calls=calls)))
                report.add("joins", where, partial(_of, both, partial(joins, turns=turns)))
                report.add("poison", where, partial(_of, both, poison))
            report.add("speed", about, partial(speed, device, runs))
    for name, work in peer_steps(bundle, runs):
        report.add(name, {}, work)
    return report.steps


def _of(both: Callable[[], Beside], work: Callable[[Beside], Step]) -> Step:
    """What a step finds of a graph that is fed anew on both."""
    return work(both())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description="Run a bundle on this machine's CUDA device.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--out", type=Path, default=Path("device.json"))
    options = parser.parse_args(arguments)
    try:
        steps = run(options.bundle)
    except RuntimeLiteError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    with replace_file(options.out) as file:
        file.write(json.dumps({"bundle": str(options.bundle), "steps": steps}, indent=1).encode() + b"\n")
    failed = [step for step in steps if not step["ok"]]
    print(f"{len(steps) - len(failed)} of {len(steps)} steps held; report: {options.out}")
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
