"""What gates have in common: parity rows, the task on real recordings, speed and budget."""

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

import runtime_lite
from compiler.errors import DataError, GateFailed, Place
from compiler.recipe.callables import call, function_name, importable, resolve
from compiler.recipe.gates import BudgetGate, Limits, TaskGate
from compiler.recipe.graph import Graph
from compiler.recipe.load import LoadedRecipe, RecipePlaces
from compiler.recipe.streams import check_stream
from compiler.records.build_report import ParityRow, SpeedRow, TaskRow
from compiler.records.gate_rows import GateRow, at_most
from compiler.runners.ahead import ahead
from compiler.runners.session import open_session
from compiler.stages import Array, Feed
from compiler.targets.base import Emitted
from compiler.verify.differences import Difference, worst_of
from runtime_lite.executors.executor import ExecutorFactory, make_executor
from runtime_lite.format.manifest import BATCH_AXIS, bucket_name

GOLDEN_STEPS = 12
"""Recorded calls: enough to overflow a window of 128 frames by chunks of 16."""

TYPES = {"float": "float32", "double": "float64"}
"""Names of ONNX Runtime that NumPy has others for."""

SPEED_CALLS = 40
SPEED_WARM_UP = 5
SPEED_LEAST_CALLS = 10
SPEED_LIMIT_S = 2.0
"""A bucket whose calls are slow is timed for so long, by the least number of calls at least."""

Reference = Callable[[Iterable[Feed]], Iterator[tuple[dict[str, Array], dict[str, Array]]]]
Advance = Callable[[int, int], None]


def parity_rows(graph: str, differences: Sequence[Difference], limits: Limits) -> tuple[ParityRow, ...]:
    """Rows of the parity table."""
    return tuple(
        ParityRow(
            graph, d.tensor, d.steps, d.max_abs, d.reference_max, d.limit(limits), d.sqnr_db, limits.sqnr_db,
        )
        for d in differences
    )  # fmt: skip


def parity_gates(graph: str, differences: Sequence[Difference], limits: Limits) -> list[GateRow]:
    """Both limits of every tensor."""
    rows = []
    for each in differences:
        rows.append(at_most("parity.max_abs", graph, each.tensor, each.limit(limits), each.max_abs))
        if limits.sqnr_db is not None:
            holds = each.sqnr_db is None or each.sqnr_db >= limits.sqnr_db
            rows.append(GateRow("parity.sqnr_db", graph, each.tensor, limits.sqnr_db, each.sqnr_db, holds))
    return rows


def require_parity(graph: str, stage: str, differences: Sequence[Difference], limits: Limits, cure: str) -> None:
    """Raise if a tensor differs by more than the gate allows.

    Raises:
        GateFailed: names tensor, step, difference and limit.
    """
    worst = worst_of(differences, limits)
    if worst.holds(limits):
        return
    raise GateFailed(
        f"expected {worst.tensor} {worst.exceeded(limits)}",
        cure=cure,
        place=Place(stage=stage, graph=graph, tensor=worst.tensor),
        rows=parity_gates(graph, differences, limits),
    )


def measure_speed(folder: Path, artifacts: Sequence[Emitted], graph: str) -> list[SpeedRow]:
    """Time of one call per bucket on one thread, on full windows of random numbers."""
    found = []
    for emitted in artifacts:
        session = open_session(str(folder / emitted.file), optimize=True)
        feed = {value.name: full_feed(value, emitted) for value in session.get_inputs()}
        times_ms = _timed_calls(functools.partial(session.run, None, feed))
        p95 = statistics.quantiles(times_ms, n=20)[-1]
        found.append(SpeedRow(graph, bucket_name(emitted.sizes), statistics.median(times_ms), p95, 1))
    return found


def _timed_calls(call: Callable[[], object]) -> list[float]:
    """Times of single calls in ms, those of the warm-up left out."""
    times_ms: list[float] = []
    for _ in range(SPEED_WARM_UP):
        call()
    began = time.perf_counter()
    while len(times_ms) < SPEED_LEAST_CALLS or (
        len(times_ms) < SPEED_CALLS and time.perf_counter() - began < SPEED_LIMIT_S
    ):
        started = time.perf_counter()
        call()
        times_ms.append(1e3 * (time.perf_counter() - started))
    return times_ms


def full_feed(value: Any, emitted: Emitted) -> Array:
    """An input of one bucket: random numbers; lengths and masks of places that are all valid."""
    shape = tuple(value.shape)
    for each in emitted.lowered.padded_axes:
        if value.name == each.length_input:
            return np.full(shape, emitted.sizes[each.axis], np.int64 if "64" in value.type else np.int32)
    for cache in emitted.lowered.caches:
        if value.name == cache.length_input:
            return np.full(shape, cache.slots, np.int64)
        if value.name == cache.mask_input:
            return np.ones(shape, np.float32)
    dtype = np.dtype(TYPES.get(value.type[7:-1], value.type[7:-1]))
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return np.random.default_rng(0).random(shape).astype(dtype)


def check_budget(gate: BudgetGate | None, size_bytes: int, speed: Sequence[SpeedRow]) -> list[GateRow]:
    """Size of the bundle and time of the slowest single-row call; both as rows.

    Raises:
        GateFailed: a budget is exceeded.
    """
    rows = [] if gate is None else list(_budget_gates(gate, size_bytes / 1e6, speed))
    for row in rows:
        if row.holds:
            continue
        if row.gate == "budget.size_mb":
            message, cure = (
                f"a bundle of at most {row.bound:g} MB, got {row.value:.1f} MB",
                "or drop buckets or precision",
            )
        else:
            message = f"a call within {row.bound:g} ms (p95), got {row.value:.2f} ms at {row.subject}"
            cure = "or build on a quiet machine"
        raise GateFailed(
            f"expected {message}", cure=f"raise gates.{row.gate}, {cure}", place=Place(stage="budget", graph=row.graph),
            rows=rows,
        )  # fmt: skip
    return rows


def _budget_gates(gate: BudgetGate, size_mb: float, speed: Sequence[SpeedRow]) -> Iterator[GateRow]:
    if gate.size_mb is not None:
        yield at_most("budget.size_mb", "", "", gate.size_mb, size_mb)
    smallest = {row.graph: row for row in reversed(speed)}
    for row in smallest.values() if gate.p95_ms is not None else ():
        yield at_most("budget.p95_ms", row.graph, row.sizes, gate.p95_ms or 0.0, row.p95_ms)


def task_functions(places: RecipePlaces, gate: TaskGate) -> dict[str, Callable[..., Any]]:
    """The functions that a task gate names.

    Raises:
        RecipeError: one of them does not exist.
    """
    folders = places.search_path()
    return {
        key: resolve(getattr(gate, key), folders, places.where("gates", "task", key))
        for key in ("recordings", "decode", "metric")
    }


def run_task(
    loaded: LoadedRecipe,
    gate: TaskGate,
    bundle: Path,
    graph: str,
    reference: Reference,
    advance: Advance,
    inspect: Callable[[Sequence[Sequence[Feed]]], None] = lambda _: None,
    executors: ExecutorFactory = make_executor,
) -> TaskRow:
    """Decode every recording with the original and with the bundle, and compare metric and text.

    Args:
        loaded: the recipe.
        gate: its task gate.
        bundle: the folder of the bundle.
        graph: the graph that hears the recordings.
        reference: runs the original.
        advance: called with the number of recordings that are done, and of all.
        executors: makes what runs the bundle's graphs.
        inspect: called with the chunks of all recordings before they are run; raises what it finds wrong with them.

    Raises:
        RecipeError: a function of the gate does not exist.
        DataError: it raises, or there are no recordings.
        GateFailed: the metric rose by more than allowed, or a text differs where identity is asked for.
    """
    folders = loaded.search_path()
    functions = task_functions(loaded, gate)
    where = loaded.where("gates", "task")
    texts: dict[str, list[str]] = {"original": [], "bundle": []}
    references: list[str] = []
    names: list[str] = []
    with importable(folders), runtime_lite.Runtime() as runtime:
        recordings = _draw_recordings(functions["recordings"], loaded.recipe.graphs[graph], where)
        inspect([recording.chunks for recording in recordings])
        model = runtime.load(bundle, executors)
        originals = ahead([outputs for outputs, _ in reference(recording.chunks)] for recording in recordings)
        for count, (recording, original) in enumerate(zip(recordings, originals, strict=True), start=1):
            names.append(recording.name)
            references.append(recording.reference)
            shipped = _shipped(model, graph, recording.chunks)
            for key, outputs in (("original", original), ("bundle", shipped)):
                texts[key].append(decoded(functions["decode"], outputs, where))
            advance(count, len(recordings))
        together = set()
        if loaded.recipe.graphs[graph].padded:
            for number, outputs in _in_batches(model, graph, [list(recording.chunks) for recording in recordings]):
                if decoded(functions["decode"], outputs, where) != texts["bundle"][number]:
                    together.add(names[number])
        values = {key: measured(functions["metric"], references, said, where) for key, said in texts.items()}
    texts_of = zip(names, texts["original"], texts["bundle"], strict=True)
    differing = [name for name, a, b in texts_of if a != b or name in together]
    increase = values["bundle"] - values["original"]
    row = TaskRow(
        metric=function_name(functions["metric"]).split(":")[-1],
        reference=values["original"],
        bundle=values["bundle"],
        increase=increase,
        limit=gate.max_increase,
        recordings=len(names),
        identical=len(names) - len(differing),
    )
    _require_task(row, gate, differing)
    return row


def _shipped(model: runtime_lite.Model, graph: str, chunks: Sequence[Feed]) -> list[dict[str, Array]]:
    """The bundle's outputs of one recording, as a user has them."""
    if not model.runner(graph).graph.states:
        return [model.run(chunk, graph) for chunk in chunks]
    with model.open_stream(graph) as stream:
        return [stream.push(chunk) for chunk in chunks]


def _in_batches(
    model: runtime_lite.Model, graph: str, recordings: Sequence[Sequence[Feed]]
) -> Iterator[tuple[int, list[dict[str, Array]]]]:
    """Every recording once per batch bucket, beside random partners: its number and its outputs."""
    chunks = [(number, chunk) for number, recording in enumerate(recordings) for chunk in recording]
    buckets = model.runner(graph).graph.axes
    for rows in buckets[BATCH_AXIS].buckets if BATCH_AXIS in buckets else ():
        order = np.random.default_rng(rows).permutation(len(chunks))
        answers: list[dict[str, Array]] = [{} for _ in chunks]
        for start in range(0, len(chunks), rows):
            group = order[start : start + rows]
            found = model.run_many([chunks[index][1] for index in group], graph)
            for index, outputs in zip(group, found, strict=True):
                answers[index] = outputs
        for number in range(len(recordings)):
            yield number, [answer for (owner, _), answer in zip(chunks, answers, strict=True) if owner == number]


def _draw_recordings(function: Callable[..., Any], spec: Graph, where: str) -> list[Any]:
    """All recordings, each with a name, chunks that fit the graph, and a reference text."""
    name = function_name(function)
    drawn: list[Any] = call(lambda: list(function()), where, DataError, named=function)
    if not drawn:
        raise DataError(f"{where}: expected recordings from {name}, got none", cure="yield recordings")
    for index, recording in enumerate(drawn):
        missing = [key for key in ("name", "chunks", "reference") if not hasattr(recording, key)]
        if missing:
            raise DataError(
                f"{where}: expected recordings of {name} to have name, chunks and reference, got no {missing[0]} in "
                f"number {index}, {type(recording).__name__}",
                cure="yield records with the three attributes",
            )
        check_stream(recording.chunks, spec, f"{where}: recording {recording.name} of {name}")
    return drawn


def decoded(function: Callable[..., Any], outputs: Sequence[Mapping[str, Array]], where: str) -> str:
    """What the task's decoder makes of a recording's outputs.

    Raises:
        DataError: it raises, or returns no text.
    """
    said = call(function, where, DataError, outputs)
    if not isinstance(said, str):
        kind = type(said).__name__
        raise DataError(f"{where}: expected {function_name(function)} to return text, got {kind}", cure="return a str")
    return said


def measured(function: Callable[..., Any], references: Sequence[str], said: Sequence[str], where: str) -> float:
    """The task's metric.

    Raises:
        DataError: it raises, or returns no finite number.
    """
    value = call(function, where, DataError, references, said)
    if isinstance(value, bool | str) or not isinstance(value, SupportsFloat) or not np.isfinite(float(value)):
        raise DataError(
            f"{where}: expected {function_name(function)} to return a finite number, got {value!r}",
            cure="return a float, smaller is better",
        )
    return float(value)


def task_gates(row: TaskRow, gate: TaskGate) -> list[GateRow]:
    """What the recipe asks of the task."""
    rows = [at_most("task.max_increase", "", row.metric, gate.max_increase, row.increase)]
    if gate.identical:
        same = row.identical == row.recordings
        rows.append(GateRow("task.identical", "", row.metric, row.recordings, row.identical, same))
    return rows


def _require_task(row: TaskRow, gate: TaskGate, differing: Sequence[str]) -> None:
    place = Place(stage="task")
    if not row.holds:
        raise GateFailed(
            f"expected {row.metric} to rise by at most {gate.max_increase:g}, got {row.increase:g} "
            f"({row.reference:.4f} to {row.bundle:.4f})",
            cure="see the parity table for the tensor that differs most", place=place, rows=task_gates(row, gate),
        )  # fmt: skip
    if gate.identical and differing:
        raise GateFailed(
            f"expected {row.recordings} identical results, got {len(differing)} others: {differing[:3]}",
            cure="see the parity table for the tensor that differs most", place=place, rows=task_gates(row, gate),
        )  # fmt: skip
