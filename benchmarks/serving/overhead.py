"""Measures the overhead of a call with a graph that does nothing, in this process and in a child."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from benchmarks.serving.no_op import write_no_op
from benchmarks.serving.rounds import spread, times_us
from runtime_lite import Runtime, in_child

WIDTHS = (4, 65536)
"""Numbers in a row: of a request that is all overhead, and of 256 KiB, where copies count."""


def measure_overhead(rounds: int, calls: int) -> list[dict[str, Any]]:
    """Return microseconds of a call by contender, and the difference to ONNX Runtime alone, one row each."""
    return [row for width in WIDTHS for row in _of_width(width, rounds, calls)]


def _of_width(width: int, rounds: int, calls: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as scratch, Runtime() as runtime:
        plain = write_no_op(Path(scratch, "plain"), width=width, stream=False)
        step = write_no_op(Path(scratch, "step"), width=width, stream=True)
        feed = {"x": np.zeros((1, width), np.float32)}
        session, stepping = (bare_session(path / "graphs/no_op.batch1.onnx") for path in (plain, step))
        model, child = runtime.load(plain), runtime.load(plain, executors=in_child())
        streams = runtime.load(step).open_stream(), runtime.load(step, executors=in_child()).open_stream()
        contenders: dict[str, Callable[[], object]] = {
            "ONNX Runtime": lambda: session.run(["y"], feed),
            "run": lambda: model.run(feed),
            "run, in a child": lambda: child.run(feed),
            "ONNX Runtime, with a state": lambda: stepping.run(["y", "next"], feed | {"past": feed["x"]}),
            "push": lambda: streams[0].push(feed),
            "push, in a child": lambda: streams[1].push(feed),
        }
        found: dict[str, list[list[float]]] = {name: [] for name in contenders}
        for call in contenders.values():
            times_us(call, calls)
        for _ in range(rounds):
            for name, call in contenders.items():
                found[name].append(times_us(call, calls))
    return [
        {
            "numbers": width,
            "contender": name,
            "p50 us": spread([float(np.percentile(times, 50)) for times in each], 1),
            "p99 us": spread([float(np.percentile(times, 99)) for times in each], 1),
            "p50 over ONNX Runtime": spread(
                [
                    float(np.percentile(times, 50) - np.percentile(base, 50))
                    for times, base in zip(each, found[_base_of(name)], strict=True)
                ],
                1,
            ),
        }
        for name, each in found.items()
    ]


def bare_session(path: Path) -> Any:
    """Return a session of ONNX Runtime with the options that the runtime uses."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _base_of(name: str) -> str:
    return "ONNX Runtime, with a state" if "push" in name or "state" in name else "ONNX Runtime"
