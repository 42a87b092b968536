"""What serving costs and gives: the runtime beside ONNX Runtime alone and beside a real Triton server, in one run.

    python -m benchmarks.serving --quick
    python -m benchmarks.serving --bundle dist/streaming_asr-cpu --json serving.json

Contenders take turns, round after round, so that heat and other load hit all alike; ratios are per round, and the
tables show their median with the 10th and 90th percentile. `full load` and `real time` need a bundle with a streaming
graph.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.serving.against_triton import measure_against_triton
from benchmarks.serving.full_load import measure_full_load
from benchmarks.serving.overhead import measure_overhead
from benchmarks.serving.real_time import cores, measure_real_time
from benchmarks.serving.triton_server import Absent

Rows = list[dict[str, Any]]


def main() -> None:
    """Measure what is asked for, print tables, and keep the numbers with `--json`."""
    options = _parse()
    quick, lanes = options.quick, options.lanes
    rounds, calls = (5, 200) if quick else (20, 1000)
    sections: dict[str, Callable[[], Rows]] = {
        "overhead": lambda: measure_overhead(rounds, calls),
        "triton": lambda: measure_against_triton(options.cache, rounds, calls),
        "full load": lambda: measure_full_load(options.bundle, options.graph, lanes, rounds, 1.0 if quick else 5.0),
        "real time": lambda: measure_real_time(
            options.bundle, options.graph, lanes, options.period_ms / 1e3, 4.0 if quick else 20.0
        ),
    }
    console = Console(width=None if sys.stdout.isatty() else 170)
    console.print(f"{cores()} cores, {lanes} lanes, load {os.getloadavg()[0]:.1f} at the start")
    found: dict[str, Rows | str] = {}
    for name, measure in sections.items():
        if options.only and name not in options.only:
            continue
        if name in ("full load", "real time") and options.bundle is None:
            found[name] = "skipped: no --bundle"
        else:
            try:
                found[name] = measure()
            except Absent as error:
                found[name] = f"skipped: {error}"
        console.print(_shown(name, found[name]))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The runtime beside ONNX Runtime alone and a real Triton server.")
    parser.add_argument("--quick", action="store_true", help="few rounds and short trials")
    parser.add_argument("--bundle", type=Path, help="bundle with a streaming graph")
    parser.add_argument("--graph", default="encoder", help="its graph (default encoder)")
    parser.add_argument("--period-ms", type=float, default=640.0, help="audio of a chunk (default 640)")
    parser.add_argument("--lanes", type=int, default=cores(), help="runs at once (default: cores)")
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="where the environment of Triton is kept")
    parser.add_argument("--only", action="append", choices=["overhead", "triton", "full load", "real time"])
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
    main()
