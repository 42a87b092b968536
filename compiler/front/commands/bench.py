"""Implements `build.py bench FILE.onnx|BUNDLE`: times the calls of a model, alone or alternating with another model.

Calls of both are timed in turns, in alternating order, so that what else the machine does falls on both; beside their
times stands the ratio of rounds of them, which a busy machine disturbs least. All of a call is in use: rows are as long
as they may be, and caches full, in a file of a bundle too.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from compiler.base.did_you_mean import did_you_mean
from compiler.base.records.timings import Ratio
from compiler.errors import RecipeError
from compiler.front.commands.example_feeds import OPTION, random_feeds, require_sizes, unanswered
from compiler.front.commands.file_of_bundle import counts_in_use
from compiler.front.commands.onnx_signature import open_file, read_file
from compiler.front.commands.shared_axes import axes_that_meet
from compiler.front.commands.subjects import named_graph
from compiler.graph.runners.paired_rounds import Call, Clock, time_ratio
from compiler.recipe.user_code.callables import shown_path
from runtime_lite.bench import bucket_call
from runtime_lite.format.manifest import bucket_name
from runtime_lite.runtime import Runtime

STAGE = "bench"

WARM_UP = 10
"""Calls that are not timed."""


@dataclasses.dataclass(frozen=True)
class Timed:
    """One call of one thing, over many.

    Attributes:
        what: file or graph, with its sizes.
        p50_ms: median.
        p99_ms: 99th percentile.
        low_ms: 10th percentile.
        high_ms: 90th percentile.
    """

    what: str
    p50_ms: float
    p99_ms: float
    low_ms: float
    high_ms: float


@dataclasses.dataclass(frozen=True)
class Benched:
    """The measured times.

    Attributes:
        rows: in the order in which they were named.
        ratio: time of the first over that of the second, where there are two.
    """

    rows: tuple[Timed, ...]
    ratio: Ratio | None


def bench(
    what: str,
    against: str | None,
    sizes: Mapping[str, int],
    threads: int,
    calls: int,
    clock: Clock = time.perf_counter,
) -> Benched:
    """Time one or two models.

    Args:
        what: `FILE.onnx`, `BUNDLE` or `BUNDLE:GRAPH`.
        against: a second model, timed in turns with the first; None for none.
        sizes: sizes of axes, which choose the bucket of a bundle.
        threads: threads of one call.
        calls: number of timed calls.
        clock: returns seconds.

    Raises:
        SlipwayError: a model cannot be opened, an axis has no size, or two bundles with several buckets are compared.
    """
    names = [what] if against is None else [what, against]
    known: set[str] = set()
    with Runtime(threads=threads) as runtime:
        calls_of = [_calls(name, sizes, threads, runtime, known) for name in names]
        for name in sizes:
            if name not in known:
                cure = did_you_mean(name, known)
                raise RecipeError(f"{OPTION} {name}: expected an axis of {' or '.join(names)}, got {name!r}", cure=cure)
        if against is None:
            return Benched(tuple(row for named_call in calls_of[0] for row in _timed([named_call], calls, clock)), None)
        first, second = (_only(name, calls_of_file) for name, calls_of_file in zip(names, calls_of, strict=True))
        rows = _timed([first, second], calls, clock)
        ratio_clock = time.thread_time if threads == 1 and clock is time.perf_counter else clock
        return Benched(rows, time_ratio("", first[1], second[1], clock=ratio_clock))


def _calls(
    text: str, sizes: Mapping[str, int], threads: int, runtime: Runtime, known: set[str]
) -> list[tuple[str, Call]]:
    """Return the calls of a model with a label each; the names of its axes are added to `known`."""
    if text.endswith(".onnx"):
        return [_file_call(Path(text), sizes, threads, known)]
    path, graph = named_graph(text)
    if Path(path).is_dir() or path.endswith(".tar"):
        return list(_bundle_calls(path, graph, sizes, runtime, known))
    got = "something else" if Path(path).exists() else "nothing of that name"
    raise RecipeError(f"{text}: expected an ONNX file or a bundle, got {got}", cure="write model.onnx or dist/bundle")


def _file_call(path: Path, sizes: Mapping[str, int], threads: int, known: set[str]) -> tuple[str, Call]:
    model, signature = read_file(path, STAGE)
    axes = {axis for tensor in signature.inputs for axis in tensor.axes}
    known |= axes
    own_sizes = {name: size for name, size in sizes.items() if name in axes}
    require_sizes(shown_path(path), signature.inputs, own_sizes, lambda: axes_that_meet(model))
    session = open_file(path, STAGE, optimize=True, threads=threads)
    (drawn,) = random_feeds(signature.inputs, own_sizes, 0, 1)
    counts = counts_in_use(path)
    feed = {name: np.full_like(array, counts[name]) if name in counts else array for name, array in drawn.items()}
    call = functools.partial(session.run, None, feed)
    try:
        call()
    except Exception as error:
        raise unanswered(STAGE, shown_path(path), feed, error) from error
    return f"{shown_path(path)} {bucket_name(own_sizes)}" if own_sizes else shown_path(path), call


def _bundle_calls(
    path: str, graph: str | None, sizes: Mapping[str, int], runtime: Runtime, known: set[str]
) -> Iterator[tuple[str, Call]]:
    model = runtime.load(path)
    names = list(model.bundle.manifest.graphs) if graph is None else [model.runner(graph).name]
    known |= {axis for name in names for axis in model.runner(name).graph.axes}
    for name in names:
        runner = model.runner(name)
        wanted = {axis: size for axis, size in sizes.items() if axis in runner.graph.axes}
        fitting = [artifact for artifact in runner.graph.artifacts if wanted.items() <= artifact.sizes.items()]
        if not fitting:
            buckets = ", ".join(bucket_name(artifact.sizes) for artifact in runner.graph.artifacts)
            raise RecipeError(
                f"{path}: expected a bucket of {name}, got {bucket_name(wanted)}", cure=f"known: {buckets}"
            )
        for artifact in fitting:
            yield f"{shown_path(Path(path))}:{name} {bucket_name(artifact.sizes)}", bucket_call(runner, artifact)


def _only(text: str, calls: Sequence[tuple[str, Call]]) -> tuple[str, Call]:
    if len(calls) > 1:
        raise RecipeError(
            f"{text}: expected one bucket to compare, got {len(calls)}: {', '.join(label for label, _ in calls)}",
            cure=f"choose one with :GRAPH and {OPTION} AXIS=SIZE",
        )
    return calls[0]


def _timed(runs: Sequence[tuple[str, Call]], calls: int, clock: Clock) -> tuple[Timed, ...]:
    """Return the times of single calls, in turns where there are two."""
    times_ms: list[list[float]] = [[] for _ in runs]
    for _ in range(WARM_UP):
        for _, call in runs:
            call()
    for index in range(calls):
        for at in range(len(runs)) if index % 2 else reversed(range(len(runs))):
            started = clock()
            runs[at][1]()
            times_ms[at].append(1e3 * (clock() - started))
    return tuple(_summary(label, times) for (label, _), times in zip(runs, times_ms, strict=True))


def _summary(label: str, times_ms: Sequence[float]) -> Timed:
    hundredths = statistics.quantiles(times_ms, n=100, method="inclusive")
    return Timed(label, statistics.median(times_ms), hundredths[98], hundredths[9], hundredths[89])


def bench_table(benched: Benched) -> Table:
    """Return the times as a table for the terminal."""
    table = Table(box=None, pad_edge=False)
    table.add_column("what", overflow="fold")
    for title in ("p50 ms", "p99 ms", "p10..p90 ms"):
        table.add_column(title, justify="right")
    for row in benched.rows:
        spread = f"{row.low_ms:.3f}..{row.high_ms:.3f}"
        table.add_row(escape(row.what), f"{row.p50_ms:.3f}", f"{row.p99_ms:.3f}", spread)
    return table
