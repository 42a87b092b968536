"""Times a recipe's static graph with and without one of its passes, interleaved.

    python -m benchmarks.one_pass --recipe full_cpu.yaml --without select_states
    python -m benchmarks.one_pass --recipe offline_full_cpu.yaml --without pad_axes

Both graphs are captured once, go through the recipe's passes with or without the one in question, are frozen at the
same sizes and run in this process under ONNX Runtime, round after round, in alternating order. All axes are full:
padded slots and windows hold valid entries only, so both graphs do the same job. Ratios (with / without) are per round;
the table shows their median and their 10th and 90th percentile. Each time is also given as a multiple of the floor of
its own graph (`floor.py`).
"""

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, to_floor, work_of
from compiler.base.cache.store import StageCache
from compiler.build.capture.original import original_of
from compiler.build.report.progress import Progress
from compiler.errors import DataError
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered
from compiler.passes import make_pass
from compiler.passes.freeze_axes import FreezeAxes
from compiler.recipe.load import load_recipe
from compiler.targets import placements

CALLS = 5
"""Calls per graph and round."""

WARM_UP = 5


def main() -> None:
    """Run the comparison for each thread count and print a table."""
    options = _parse()
    loaded = load_recipe(options.recipe)
    name = options.graph or next(iter(loaded.recipe.graphs))
    if name not in loaded.recipe.graphs:
        names = ", ".join(loaded.recipe.graphs)
        raise DataError(f"{options.recipe}: expected one of its graphs ({names}), got {name!r}", cure="correct --graph")
    spec = loaded.recipe.graphs[name]
    buckets = {axis: sizes.buckets[-1] for axis, sizes in spec.axes.items() if sizes.buckets}
    sizes = buckets | dict(_size(text) for text in options.size)
    with tempfile.TemporaryDirectory() as scratch:
        original = original_of(
            loaded,
            name,
            spec,
            StageCache(options.cache or Path(scratch)),
            Progress(Console(quiet=True)),
            with_data=False,
        )
        graphs = {}
        for label, left_out in (("without", {options.without}), ("with", set())):
            lowered = original.start()
            for each in spec.passes:
                if each.name not in left_out:
                    lowered = make_pass(each.name, each.options, placements()).apply(lowered).lowered
            graphs[label] = _frozen(lowered, sizes)
    table = Table(title=f"{options.recipe}: {options.without}, {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    for column in (
        "threads", "without, ms", "to its floor", "with, ms", "to its floor", "with / without", "10th..90th percentile",
        "multiply-adds, M",
    ):  # fmt: skip
        table.add_column(column)
    works = {label: work_of(graph.model, {}) for label, graph in graphs.items()}
    counts = " / ".join(f"{sum(work.multiply_adds.values()) / 1e6:.0f}" for work in works.values())
    for threads in options.threads:
        machine = Machine(threads)
        times = _interleaved(graphs, sizes, threads, options.rounds)
        ratios = sorted(a / b for a, b in zip(times["with"], times["without"], strict=True))
        low, high = (ratios[round(share * (len(ratios) - 1))] for share in (0.1, 0.9))
        shown = [
            text
            for label, each in times.items()
            for text in (f"{1e3 * statistics.median(each):.2f}", to_floor(each, machine.floor_s(works[label])))
        ]
        spread = f"{low:.3f}..{high:.3f}"
        table.add_row(str(threads), *shown, f"{statistics.median(ratios):.3f}", spread, counts)
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="full_cpu.yaml")
    parser.add_argument("--without", required=True, help="the pass in question")
    parser.add_argument("--graph", help="the recipe's first by default")
    parser.add_argument("--size", action="append", default=[], metavar="AXIS=N", help="the largest bucket by default")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cache", type=Path, help="captured graphs of earlier builds")
    return parser.parse_args()


def _size(text: str) -> tuple[str, int]:
    axis, _, count = text.partition("=")
    if not count.isdigit():
        raise SystemExit(f"--size: expected AXIS=N, got {text!r}")
    return axis, int(count)


def _frozen(lowered: Lowered, sizes: Mapping[str, int]) -> Lowered:
    """Return the graph at fixed sizes; a cache axis that padding left open is full."""
    names = {str(name) for value in lowered.model.graph.inputs for dim in value.shape or () for name in [dim]}
    wanted = {cache.axis: cache.slots for cache in lowered.caches} | dict(sizes)
    kept = tuple((axis, size) for axis, size in wanted.items() if axis in names)
    copy = dataclasses.replace(lowered, model=graphs.clone(lowered.model))
    return FreezeAxes(kept).apply(copy).lowered


def _interleaved(
    graphs: Mapping[str, Lowered], sizes: Mapping[str, int], threads: int, rounds: int
) -> dict[str, list[float]]:
    """Return seconds per call, by graph and round."""
    sessions, feeds = {}, {}
    for label, graph in graphs.items():
        with command.contender(label):
            sessions[label], feeds[label] = _session(graph, threads), _full_feeds(graph, sizes)
            for _ in range(WARM_UP):
                sessions[label].run(None, feeds[label])
    times: dict[str, list[float]] = {label: [] for label in graphs}
    for each in range(rounds):
        labels = list(graphs) if each % 2 else list(graphs)[::-1]
        for label in labels:
            started = time.perf_counter()
            for _ in range(CALLS):
                sessions[label].run(None, feeds[label])
            times[label].append((time.perf_counter() - started) / CALLS)
    return times


def _session(lowered: Lowered, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(graphs.serialized(lowered.model), options, providers=["CPUExecutionProvider"])


def _full_feeds(lowered: Lowered, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return random numbers as feeds, ones for masks, and the number of slots for lengths."""
    rng = np.random.default_rng(0)
    full = {each.length_input: sizes[each.axis] for each in lowered.padded_axes}
    full |= {cache.length_input: cache.slots for cache in lowered.caches}
    masks = {cache.mask_input: 1 for cache in lowered.caches}
    masks |= {name: number for each in lowered.padded_axes for name, number in each.masks.items()}
    feeds: dict[str, Any] = {}
    for value in lowered.model.graph.inputs:
        shape, name = [int(str(dim)) for dim in value.shape or ()], str(value.name)
        assert value.dtype is not None
        kind = value.dtype.numpy()
        if name in full:
            feeds[name] = np.full(shape, full[name], kind)
        elif name in masks:
            feeds[name] = np.full(shape, masks[name], kind)
        else:
            feeds[name] = (rng.standard_normal(shape) if kind.kind == "f" else np.ones(shape)).astype(kind)
    return feeds


if __name__ == "__main__":
    command.run(main)
