"""Measures the cost and throughput of serving: the runtime beside ONNX Runtime alone and a real Triton server.

    python -m benchmarks.serving --quick
    python -m benchmarks.serving --bundle dist/streaming_asr-cpu --offline dist/offline_asr-offline_cpu
    python -m benchmarks.serving --bundle dist/streaming_asr-cpu --only crash --quick

Contenders take turns, round after round, so that heat and other load hit all alike; ratios are per round, and the
tables show their median with the 10th and 90th percentile. All parts but `overhead` and `triton` need a bundle with a
streaming graph, `transcripts` and `source_ratios` that of the trained recogniser.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.serving.against_triton import measure_against_triton
from benchmarks.serving.closed_loop import measure_closed_loop
from benchmarks.serving.crash import measure_crash
from benchmarks.serving.full_load import measure_full_load
from benchmarks.serving.latency import measure_latency
from benchmarks.serving.moves import measure_moves
from benchmarks.serving.overhead import measure_overhead
from benchmarks.serving.overload import measure_overload
from benchmarks.serving.planner import measure_planner
from benchmarks.serving.real_time import cores, measure_real_time
from benchmarks.serving.source_ratios import measure_source_ratios
from benchmarks.serving.steady import measure_steady
from benchmarks.serving.transcripts import measure_transcripts
from benchmarks.serving.triton_server import Absent

Rows = list[dict[str, Any]]


def main() -> None:
    """Run the requested measurements, print tables, and write the numbers with `--json`."""
    options = _parse()
    if options.bundle is not None:
        command.graph_of_bundle(options.bundle, options.graph, streams=True)
    if options.offline is not None:
        command.graph_of_bundle(options.offline)
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(f"{cores()} cores, {options.lanes} lanes, load {os.getloadavg()[0]:.1f} at the start")
    found: dict[str, Rows | str] = {}
    for name in options.only or PARTS:
        if name not in WITHOUT_BUNDLE and options.bundle is None:
            found[name] = "skipped: no --bundle"
        else:
            try:
                found[name] = PARTS[name](options)
            except Absent as error:
                found[name] = f"skipped: {error}"
        console.print(_shown(name, found[name]))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _overhead(options: argparse.Namespace) -> Rows:
    return measure_overhead(*_of(options, (20, 1000), (5, 200), (2, 5)))


def _triton(options: argparse.Namespace) -> Rows:
    return measure_against_triton(options.cache, *_of(options, (20, 1000), (5, 200), (2, 5)))


def _full_load(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (12, 4.0), (5, 1.0), (2, 0.1))
    return measure_full_load(options.bundle, options.graph, options.lanes, rounds, seconds)


def _real_time(options: argparse.Namespace) -> Rows:
    seconds = _of(options, 10.0, 4.0, 0.1)
    return measure_real_time(options.bundle, options.graph, options.lanes, options.period_ms / 1e3, seconds)


def _latency(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (5, 20.0), (1, 4.0), (1, 0.1))
    return measure_latency(options.bundle, options.graph, options.lanes, options.period_ms / 1e3, rounds, seconds)


def _closed_loop(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (5, 8.0), (1, 4.0), (1, 0.1))
    return measure_closed_loop(options.bundle, options.graph, options.lanes, rounds, seconds)


def _crash(options: argparse.Namespace) -> Rows:
    return measure_crash(options.bundle, options.graph, options.lanes, _of(options, 20, 3, 1))


def _transcripts(options: argparse.Namespace) -> Rows:
    return measure_transcripts(options.bundle, options.lanes, _of(options, 64, 24, 4))


def _source_ratios(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (10, 10.0), (3, 2.0), (1, 0.2))
    period_s = options.period_ms / 1e3
    return measure_source_ratios(
        options.bundle, options.offline, options.graph, options.lanes, period_s, rounds, seconds
    )


def _planner(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (3, 15.0), (1, 4.0), (1, 0.1))
    return measure_planner(options.bundle, options.graph, options.lanes, options.period_ms, rounds, seconds)


def _steady(options: argparse.Namespace) -> Rows:
    seconds = _of(options, options.seconds, 10.0, 0.3)
    return measure_steady(options.bundle, options.graph, options.lanes, options.period_ms, seconds)


def _moves(options: argparse.Namespace) -> Rows:
    return measure_moves(options.bundle, options.graph, options.period_ms, _of(options, 200, 50, 4))


def _overload(options: argparse.Namespace) -> Rows:
    rounds, seconds = _of(options, (7, 8.0), (2, 3.0), (1, 0.2))
    return measure_overload(options.bundle, options.graph, options.lanes, rounds, seconds)


Size = TypeVar("Size")


def _of(options: argparse.Namespace, whole: Size, quick: Size, shortest: Size) -> Size:
    """Return the amount to measure: everything, few rounds, or just a test that it runs."""
    return shortest if options.shortest else quick if options.quick else whole


PARTS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "overhead": _overhead,
    "triton": _triton,
    "full_load": _full_load,
    "real_time": _real_time,
    "latency": _latency,
    "closed_loop": _closed_loop,
    "crash": _crash,
    "transcripts": _transcripts,
    "source_ratios": _source_ratios,
    "planner": _planner,
    "steady": _steady,
    "overload": _overload,
    "moves": _moves,
}

WITHOUT_BUNDLE = ("overhead", "triton")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The runtime beside ONNX Runtime alone and a real Triton server.")
    parser.add_argument("--quick", action="store_true", help="few rounds and short trials")
    parser.add_argument("--shortest", action="store_true", help="whether everything runs; figures mean nothing")
    parser.add_argument("--bundle", type=Path, help="bundle with a streaming graph")
    parser.add_argument("--offline", type=Path, help="the same recogniser's bundle for whole utterances")
    parser.add_argument("--graph", default="encoder", help="its graph (default encoder)")
    parser.add_argument("--period-ms", type=float, default=640.0, help="audio of a chunk (default 640)")
    parser.add_argument("--lanes", type=int, default=cores(), help="runs at once (default: cores)")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long `steady` takes (default 600)")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="where the environment of Triton is kept")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="this part alone")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    return parser.parse_args()


def _shown(name: str, found: Rows | str) -> Table | str:
    if isinstance(found, str):
        return f"{name}: {found}"
    table = Table(title=name)
    for head in found[0]:
        table.add_column(head)
    for row in found:
        table.add_row(*(str(value) for value in row.values()))
    return table


if __name__ == "__main__":
    command.run(main)
