"""Measures, on this machine, the ratios that the source system reports: batches, a pool, states, shared weights.

Theirs, on an inference chip: batches give about 20 % more, a pool of sessions brings 249 ms to 30 ms at 400 streams,
the middle frame comes after 10 ms instead of 1200 at 128 streams, and one model in place of several takes 52.8 % of the
device's memory instead of 90 %.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import of_all_buckets_mb
from benchmarks.serving.driven import live_streams, serve
from benchmarks.serving.full_load import STREAMS_PER_ROW, pushed_per_s
from benchmarks.serving.rounds import in_turns, ratios, spread, times_us
from examples.streaming_asr.features import BINS, CALL_FRAMES, HOP_FRAMES
from runtime_lite import CHUNK, Model, Runtime
from runtime_lite.format.arrays import Array
from runtime_lite.load_test.arrivals import Traffic, arrivals_of
from runtime_lite.load_test.drive import Source
from runtime_lite.serving.ticket import Ticket

MIDDLE_STREAMS = 128
"""Live streams of the comparison of middle chunks, as many as theirs."""

POOL_LOAD = 1.3
"""Load of the pool, to what one lane carries: too much for it, and well below what two do."""

Row = dict[str, Any]


def measure_source_ratios(
    path: Path, offline: Path | None, name: str, lanes: int, period_s: float, rounds: int, seconds: float
) -> list[Row]:
    """Return a row for each ratio.

    Args:
        path: bundle of the trained recogniser.
        offline: its bundle for whole utterances; without one the comparison with recomputation is left out.
        name: graph with states.
        lanes: runs at once, of one thread each.
        period_s: audio of a chunk.
        rounds: turns.
        seconds: of each turn.
    """
    rows = [_batches(path, name, lanes, rounds, seconds)]
    rows.append(_pool(path, name, lanes, period_s, rounds, seconds))
    if offline is not None:
        rows += _states(path, offline, name, rounds)
        rows.append(_middle_chunks(path, offline, name, lanes, period_s, rounds, seconds))
    rows.append(_weights(path, min(rounds, 5)))
    return rows


def _row(ratio: str, source: str, unit: str, found: dict[str, list[float]], digits: int = 1) -> Row:
    """Return a row with both contenders and their ratio, the source system's own first."""
    (theirs, with_it), (plain, without) = found.items()
    return {
        "ratio": ratio,
        "source system": source,
        "with": f"{theirs}: {spread(with_it, digits)} {unit}",
        "without": f"{plain}: {spread(without, digits)} {unit}",
        "with to without": spread(ratios(with_it, without), 3),
    }


def _batches(path: Path, name: str, lanes: int, rounds: int, seconds: float) -> Row:
    """Measure the full load of many streams, and of one stream per lane, where every run has one row."""
    with Runtime(workers=lanes) as runtime:
        model = runtime.load(path, warm_up=True)
        many = STREAMS_PER_ROW * model.bundle.manifest.graphs[name].row_buckets[-1]
        found = in_turns(
            {
                f"{many} streams": lambda: pushed_per_s(model, name, many, seconds),
                f"{lanes} streams, one row a run": lambda: pushed_per_s(model, name, lanes, seconds),
            },
            rounds,
        )
    return _row("batches", "1.2", "rows per s", found)


def _pool(path: Path, name: str, lanes: int, period_s: float, rounds: int, seconds: float) -> Row:
    """Measure the median latency of live streams that are too many for one lane, with one lane and with all."""
    with Runtime() as runtime:
        model = runtime.load(path, warm_up=True)
        many = STREAMS_PER_ROW * model.bundle.manifest.graphs[name].row_buckets[-1]
        streams = int(POOL_LOAD * period_s * pushed_per_s(model, name, many, seconds))
    traffic = Traffic(seconds, streams, chunks=50, period_s=period_s)
    found = in_turns(
        {f"{count} lanes": _latency_ms(path, name, count, traffic) for count in (lanes, 1)},
        rounds,
    )
    return _row(f"pool, {streams} streams", "0.12 (30 of 249 ms)", "ms at p50", found)


def _latency_ms(path: Path, name: str, lanes: int, traffic: Traffic) -> Callable[[], float]:
    def measure() -> float:
        return _median_ms(path, lanes, traffic, lambda model: live_streams(model, name, CHUNK))

    return measure


def _median_ms(path: Path, lanes: int, traffic: Traffic, source_of: Callable[[Model], Source]) -> float:
    """Return the median latency of the chunks of live streams after the first of each."""
    served, _ = serve(path, lanes, arrivals_of(traffic, 0), "stream", source_of, 20 * traffic.seconds)
    return float(np.median([each.latency_ms for each in served if each.arrival.item]))


class _Recomputing:
    """A live stream without states: every chunk asks for the answer to all frames so far."""

    def __init__(self, model: Model, frames: Array) -> None:
        self._model, self._frames, self._chunks = model, frames, 0

    def submit(self, feeds: Mapping[str, Array]) -> Ticket[dict[str, Array]]:
        end = CALL_FRAMES + self._chunks * HOP_FRAMES
        self._chunks += 1
        return self._model.submit({"features": self._frames[:, :end]}, service=CHUNK)

    def close(self) -> None: ...


def _middle_chunks(
    path: Path, offline: Path, name: str, lanes: int, period_s: float, rounds: int, seconds: float
) -> Row:
    """Measure the median latency of chunks with states and by recomputation, of the longest streams."""
    with Runtime() as runtime:
        longest = max(sizes["time"] for sizes in _sizes(runtime.load(offline)))
    chunks = len(range(CALL_FRAMES, longest + 1, HOP_FRAMES))
    frames = np.sin(np.arange(longest * BINS, dtype=np.float32)).reshape(1, -1, BINS)
    traffic = Traffic(seconds, MIDDLE_STREAMS, chunks, period_s)

    def again(model: Model) -> Source:
        return Source([{}], lambda feeds: model.submit(feeds), lambda: _Recomputing(model, frames))

    found = in_turns(
        {
            "steps": lambda: _median_ms(path, lanes, traffic, lambda model: live_streams(model, name, CHUNK)),
            "recomputed": lambda: _median_ms(offline, lanes, traffic, again),
        },
        rounds,
    )
    return _row(f"states: {MIDDLE_STREAMS} live streams", "0.008 (10 of 1200 ms)", "ms at p50", found)


def _states(path: Path, offline: Path, name: str, rounds: int) -> list[Row]:
    """Measure an utterance answered chunk by chunk: by steps with states, and by recomputation."""
    with Runtime() as runtime:
        step, whole = (runtime.load(each, warm_up=True) for each in (path, offline))
        longest = max(sizes["time"] for sizes in _sizes(whole))
        lengths = range(CALL_FRAMES, longest + 1, HOP_FRAMES)
        frames = np.sin(np.arange(lengths[-1] * BINS, dtype=np.float32)).reshape(1, -1, BINS)
        turns = [
            (_steps_ms(step, name, frames, lengths), _recomputed_ms(whole, frames, lengths)) for _ in range(rounds)
        ]
    found = []
    for what, of in (("all answers", sum), ("the last answer", lambda times: times[-1])):
        contenders = {
            "steps": [float(of(steps)) for steps, _ in turns],
            "recomputed": [float(of(again)) for _, again in turns],
        }
        ratio = f"states: {what} of {len(lengths)} chunks"
        found.append(_row(ratio, "0.008 (10 of 1200 ms)", "ms", contenders))
    return found


def _sizes(model: Model) -> list[dict[str, int]]:
    (graph,) = model.bundle.manifest.graphs.values()
    return [dict(artifact.sizes) for artifact in graph.artifacts]


def _steps_ms(model: Model, name: str, frames: Array, lengths: range) -> list[float]:
    with model.open_stream(name) as stream:
        return [_ms(stream.push, frames[:, end - CALL_FRAMES : end]) for end in lengths]


def _recomputed_ms(model: Model, frames: Array, lengths: range) -> list[float]:
    return [_ms(model.run, frames[:, :end]) for end in lengths]


def _ms(call: Callable[[dict[str, Array]], object], frames: Array) -> float:
    (us,) = times_us(lambda: call({"features": frames}), 1)
    return us / 1e3


def _weights(path: Path, rounds: int) -> Row:
    """Measure the memory with every bucket open: one session for all, and bare sessions, one each."""
    found: dict[str, list[float]] = {"runtime_lite": [], "sessions of fixed rows": []}
    for _ in range(rounds):
        megabytes = of_all_buckets_mb(path)
        for contender, values in found.items():
            values.append(megabytes[contender])
    return _row("weights of all buckets", "0.59 (52.8 of 90 %)", "MB", found, 0)
