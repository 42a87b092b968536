"""Compares 8-bit integers: the passes of a recipe, scales per token, and onnxruntime.quantization.

    python -m benchmarks.quantization --recipe edge.yaml --task
    python -m benchmarks.quantization --recipe full_edge.yaml --rows 1 16

All contenders get the float32 graph that the passes up to the first that rounds make, and the same calibration data.
SQNR is that of the data outputs over verification streams, which none has seen; each contender carries its own caches.
Times are those of one call on full windows, of one thread while it computes, all contenders in one process, in turns;
ratios to the float32 graph and to the other side are per round: median (10th..90th percentile). Each time is also given
as a multiple of the floor of its own graph (`floor.py`). `--task` decodes all recordings of the task.

- static: `quantize_static` as the recipe has it.
- static, random states: the same, calibrated on the same features beside caches drawn at random.
- per token: `quantize_dynamic` with the recipe's pins.
- ONNX Runtime static: `onnxruntime.quantization.quantize_static`, its defaults, Q/DQ, fed with the chained calls.
"""

import argparse
import dataclasses
import functools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import onnxruntime.quantization as peer  # noqa: TID251 - the other side of the comparison
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, to_floor, work_of
from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.build.verify.gates.task import task_functions
from compiler.calib.watched_streams import noise_between
from compiler.errors import DataError, RecipeError
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Array, Feed, Lowered
from compiler.passes import make_pass
from compiler.passes.freeze_axes import FreezeAxes
from compiler.passes.quantize_dynamic import QuantizeDynamic
from compiler.passes.quantize_static import QuantizeStatic
from compiler.recipe.load import LoadedRecipe, load_recipe
from compiler.recipe.user_code.callables import importable
from compiler.targets import placements

ROUND_S = 0.05

PEER = "ONNX Runtime static"


def main() -> None:
    """Compare, print a table, and with `--json` keep the numbers."""
    options = _parse()
    loaded = load_recipe(options.recipe)
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory() as scratch:
        name, spec = next(iter(loaded.recipe.graphs.items()))
        cache = StageCache(options.cache or Path(scratch))
        original = original_of(loaded, name, spec, cache, Progress(Console(quiet=True)))
        plain = dataclasses.replace(original.start(), calibration=original.calibration())
        passes = [make_pass(each.name, each.options, placements()) for each in spec.passes]
        exact = plain
        for made in passes:
            if made.lossy:
                break
            exact = made.apply(exact).lowered
        static = next((made for made in passes if isinstance(made, QuantizeStatic)), QuantizeStatic())
        if exact.calibration is None:
            raise DataError(f"{options.recipe}: expected data.calibration, got none", cure="give the recipe some")
        graphs: dict[str, Callable[[int], onnx.ModelProto]] = {"float32": functools.partial(frozen, exact)}
        rows: dict[str, dict[str, Any]] = {"float32": {}}
        verification = [stream[: options.calls] for stream in original.streams()[: options.streams]]
        for label, lowered, seconds in _contenders(exact, static):
            graphs[label] = functools.partial(frozen, lowered)
            rows[label] = {"sqnr_db": _sqnr(exact, lowered, verification), "seconds": seconds}
            rows[label] |= _task(loaded, lowered) if options.task else {}
            console.print(label, rows[label])
        graphs[PEER] = lambda rows: quantized_by_peer(exact, rows, Path(scratch))
        started = time.perf_counter()
        theirs = _carried(exact, graphs[PEER](1))
        rows[PEER] = {"seconds": time.perf_counter() - started, "sqnr_db": _sqnr(exact, theirs, verification)}
        if options.task:
            rows[PEER] |= _task(loaded, theirs)
            rows["float32"] |= _task(loaded, exact)
        for count in options.rows:
            for label, found in _timed(
                exact, {label: make(count) for label, make in graphs.items()}, count, options.rounds
            ):
                rows[label][f"rows {count}"] = found
    console.print(_table(options.recipe, rows, options.rows))
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="8-bit integers side by side.")
    parser.add_argument("--recipe", default="edge.yaml")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", type=int, default=4, help="verification streams that SQNR is measured on")
    parser.add_argument("--calls", type=int, default=60, help="calls of each")
    parser.add_argument("--task", action="store_true", help="decode all recordings with every contender")
    parser.add_argument("--cache", type=Path, help="captured graphs of earlier builds")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _contenders(exact: Lowered, static: QuantizeStatic) -> Iterator[tuple[str, Lowered, float]]:
    """Yield each quantised graph and the seconds that it took."""

    def copy(**changes: Any) -> Lowered:
        return dataclasses.replace(exact, model=graphs.clone(exact.model), **changes)

    started = time.perf_counter()
    yield "static", static.apply(copy()).lowered, time.perf_counter() - started
    started = time.perf_counter()
    alone = static.apply(copy(states=(), caches=(), calibration=_RandomStates(exact))).lowered
    back = dataclasses.replace(alone, states=exact.states, caches=exact.caches, calibration=exact.calibration)
    yield "static, random states", back, time.perf_counter() - started
    started = time.perf_counter()
    tokens = QuantizeDynamic(static.placement, static.pins, static.keep_float)
    yield "per token", tokens.apply(copy()).lowered, time.perf_counter() - started


class _RandomStates:
    """The calibration features, each call with full caches of normal random numbers."""

    def __init__(self, exact: Lowered) -> None:
        assert exact.calibration is not None
        generator = np.random.default_rng(0)
        runner = Runner(exact, _Nothing())
        fixed: dict[str, Array] = {}
        for cache in exact.caches:
            fixed[cache.length_input] = np.array([cache.slots])
            if cache.mask_input is not None:
                fixed[cache.mask_input] = np.ones((1, cache.slots + cache.step), np.float32)
        known = {str(value.name) for value in exact.model.graph.inputs}
        fixed = {name: array for name, array in fixed.items() if name in known}
        self.streams = [
            [
                {**feed, **fixed}
                | {
                    name: generator.standard_normal(state.shape).astype(state.dtype)
                    for name, state in runner.states.items()
                }
                for feed in stream
            ]
            for stream in exact.calibration.streams
        ]

    def task_distance(self, lowered: Lowered) -> float | None:
        return None


class _Nothing:
    """A session that is never run."""

    def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
        raise NotImplementedError


def frozen(lowered: Lowered, rows: int) -> onnx.ModelProto:
    """Return the graph for a fixed number of rows."""
    copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
    sizes = () if lowered.batch_axis is None else ((lowered.batch_axis, rows),)
    return ir.serde.serialize_model(FreezeAxes(sizes).apply(copy).lowered.model)


class Calls(peer.CalibrationDataReader):  # type: ignore[misc]
    """Chained calls over the calibration streams, in the form that the graph takes."""

    def __init__(self, exact: Lowered, rows: int) -> None:
        assert exact.calibration is not None
        session = open_session(frozen(exact, rows).SerializeToString(), optimize=True)
        self.feeds: list[dict[str, Array]] = []
        for stream in exact.calibration.streams:
            runner = Runner(exact, session, rows)
            for feed in stream:
                many = {name: np.repeat(array, rows, axis=0) for name, array in feed.items()}
                self.feeds.append(runner.full_feed(many))
                runner.step(many)
        self.left = iter(self.feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self.left, None)


def quantized_by_peer(exact: Lowered, rows: int, scratch: Path) -> onnx.ModelProto:
    """Return the float32 graph quantised by `onnxruntime.quantization`."""
    source, made = scratch / f"float{rows}.onnx", scratch / f"peer{rows}.onnx"
    onnx.save(frozen(exact, rows), source)
    calls = Calls(exact, rows)
    if rows > 1:  # ranges are the same; every tensor of every call is kept in memory
        calls.left = iter(calls.feeds[:8])
    peer.quantize_static(source, made, calls, quant_format=peer.QuantFormat.QDQ)
    return onnx.load(made)


def _carried(exact: Lowered, model: onnx.ModelProto) -> Lowered:
    """Return the same record with another graph."""
    return dataclasses.replace(exact, model=ir.from_proto(model), row_axes=())


def _sqnr(exact: Lowered, rounded: Lowered, streams: Sequence[Sequence[Feed]]) -> float:
    noise = noise_between(exact, rounded, streams)
    return -10 * math.log10(max(noise[name] for name in exact.data_outputs))


def _task(loaded: LoadedRecipe, lowered: Lowered) -> dict[str, Any]:
    return {"metric": task_metric(loaded, lowered, open_session(graphs.serialized(lowered.model), optimize=True))}


def task_metric(loaded: LoadedRecipe, lowered: Lowered, session: Session) -> Any:
    """Return the task's metric over all recordings, each decoded alone with a session of one row."""
    gate = loaded.recipe.gates.task
    if gate is None:
        raise RecipeError(f"{loaded.where('gates')}: expected `task`, got none", cure="leave --task out")
    functions = task_functions(loaded, gate)
    with importable(loaded.search_path()):
        references, texts = [], []
        for recording in functions["recordings"]():
            runner = Runner(lowered, session)
            texts.append(functions["decode"]([runner.step(chunk) for chunk in recording.chunks]))
            references.append(recording.reference)
        return functions["metric"](references, texts)


def _timed(
    exact: Lowered, models: Mapping[str, onnx.ModelProto], rows: int, rounds: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield milliseconds per contender, and ratios per round to float32 and to the other side."""
    sessions: dict[str, onnxruntime.InferenceSession] = {}
    calls, machine = dict.fromkeys(models, 1), Machine()
    for label, model in models.items():
        with command.contender(label):
            session = sessions[label] = open_session(model.SerializeToString(), optimize=True)
            feed = _full_feed(exact, sessions["float32"], rows)
            for _ in range(3):
                started = time.thread_time()
                session.run(None, feed)
                calls[label] = max(1, round(ROUND_S / (time.thread_time() - started)))
    times: dict[str, list[float]] = {label: [] for label in sessions}
    for index in range(rounds):
        for label in list(sessions) if index % 2 else list(sessions)[::-1]:
            started = time.thread_time()
            for _ in range(calls[label]):
                sessions[label].run(None, feed)
            times[label].append((time.thread_time() - started) / calls[label])
    for label, each in times.items():
        yield (
            label,
            {
                "ms": 1e3 * statistics.median(each),
                "to its floor": to_floor(each, machine.floor_s(work_of(ir.from_proto(models[label]), {}))),
                "to float32": _ratios(each, times["float32"]),
                "to the other side": _ratios(each, times[PEER]),
            },
        )


def _ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    ratios = [a / b for a, b in zip(times, others, strict=True)]
    tenths = statistics.quantiles(ratios, n=10, method="inclusive")
    return [statistics.median(ratios), tenths[0], tenths[-1]]


def _full_feed(exact: Lowered, session: onnxruntime.InferenceSession, rows: int) -> dict[str, Array]:
    generator = np.random.default_rng(0)
    lengths = {cache.length_input: cache.slots for cache in exact.caches}
    masks = {cache.mask_input for cache in exact.caches}
    feed: dict[str, Array] = {}
    for value in session.get_inputs():
        if value.name in lengths:
            feed[value.name] = np.full(rows, lengths[value.name])
        elif value.name in masks:
            feed[value.name] = np.ones(value.shape, np.float32)
        else:
            feed[value.name] = generator.standard_normal(value.shape).astype(np.float32)
    return feed


def _table(recipe: str, rows: Mapping[str, Mapping[str, Any]], counts: Sequence[int]) -> Table:
    table = Table(title=f"{recipe}: 8-bit integers, one thread; SQNR on data that none has seen")
    columns = ["contender", "SQNR, dB", "task metric"]
    for count in counts:
        columns += [f"{count} rows, ms", "to its floor", "to float32", f"to {PEER}"]
    for column in columns:
        table.add_column(column, justify="left" if column == "contender" else "right")
    for label, row in rows.items():
        cells = [
            label,
            f"{row['sqnr_db']:.1f}" if "sqnr_db" in row else "",
            f"{row['metric']:.5f}" if "metric" in row else "",
        ]
        for count in counts:
            found = row[f"rows {count}"]
            ratios = (_spread(found[key]) for key in ("to float32", "to the other side"))
            cells += [f"{found['ms']:.2f}", found["to its floor"], *ratios]
        table.add_row(*cells)
    return table


def _spread(ratio: Sequence[float]) -> str:
    return f"{ratio[0]:.3f} ({ratio[1]:.3f}..{ratio[2]:.3f})"


if __name__ == "__main__":
    command.run(main)
