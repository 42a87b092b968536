"""Times are what the clock says, per bucket, after the warm-up."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime_lite import Runtime
from runtime_lite.bench import bench_model
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.format.arrays import Array
from tests.runtime_lite.bundles import write_double_bundle, write_ragged_bundle


def test_times_come_from_the_clock_without_first_run_and_warm_up(tmp_path: Path) -> None:
    lengths_ms = itertools.cycle([100, 50, 50, 1, 2, 3, 4])  # first, two for warm-up, four timed
    now_ns = 0

    def clock_ns() -> int:
        nonlocal now_ns
        reads.append(now_ns)
        if len(reads) % 2 == 0:
            now_ns += next(lengths_ms) * 10**6
        return now_ns

    reads: list[int] = []
    with Runtime() as runtime:
        model = runtime.load(write_double_bundle(tmp_path / "bundle"))
        timings = list(bench_model(model, runs=4, warm_up_runs=2, clock_ns=clock_ns))
    buckets = [("plain", f"batch={n},frames={f}") for n in (1, 4) for f in (2, 3)]
    buckets += [("streaming", f"batch={n}") for n in (1, 4)]
    assert [(timing.graph, timing.bucket) for timing in timings] == buckets
    for timing in timings:
        assert (timing.first_ms, timing.p50_ms) == (100.0, 2.5)
        assert timing.p95_ms == pytest.approx(3.85)
        assert timing.p99_ms == pytest.approx(3.97)


def test_a_bucket_is_timed_with_rows_as_long_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[tuple[str, list[int]]] = []
    run = OnnxExecutor.run

    def note(self: OnnxExecutor, sizes: Mapping[str, int], *arrays: Mapping[str, Array]) -> None:
        fed.append((f"{sizes['batch']}x{sizes['time']}", arrays[0]["time_length"].tolist()))
        run(self, sizes, *arrays)

    monkeypatch.setattr(OnnxExecutor, "run", note)
    with Runtime() as runtime:
        timings = list(bench_model(runtime.load(write_ragged_bundle(tmp_path / "bundle")), runs=1, warm_up_runs=0))
    assert [timing.bucket for timing in timings] == [f"batch={n},time={t}" for n in (1, 4) for t in (4, 8)]
    assert fed[::2] == fed[1::2] == [("1x4", [4]), ("1x8", [8]), ("4x4", [4] * 4), ("4x8", [8] * 4)]
