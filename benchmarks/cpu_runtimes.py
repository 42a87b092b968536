"""Compares runtimes for CPUs on one model: float32, bfloat16 and integers, quantised by this toolchain and by others.

    .venv/bin/python -m benchmarks.cpu_runtimes --recipe full_edge.yaml
    .venv/bin/python -m benchmarks.cpu_runtimes --recipe edge.yaml --task --nncf PYTHON   # of an environment with nncf

The recipe has a pass that rounds: what is before it is the float32 of all contenders, and its calibration data serves
all that calibrate. Every contender is written as files, opened as its runtime runs it, on one thread, and carries its
own caches. SQNR is that of the data outputs over verification streams, beside float32 in ONNX Runtime. Times are those
of one call on full windows while its thread computes, all contenders in one process, in turns; ratios are per round:
median (10th..90th percentile). Beside them stands the median time as a multiple of the floor of the contender's own
graph in its own runtime (`floor.py`; NNCF's graph is in a format that is not counted). `--task` decodes all recordings
of the task with each.

- ours: the bundles of `onnx_static` and `openvino`, all that their targets do included.
- ONNX Runtime static, dynamic: `onnxruntime.quantization`, its defaults, of static graphs.
- NNCF: its post-training quantisation, in an interpreter of its own, run by OpenVINO; left out where there is none.
"""

import argparse
import dataclasses
import functools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime.quantization as peer  # noqa: TID251 - the other side of the comparison
from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.floor import Machine, Work, engine_of, work_of
from benchmarks.quantization import Calls, frozen, quantized_by_peer, task_metric
from compiler.base.cache.store import StageCache, default_folder
from compiler.base.pieces import write_files
from compiler.base.records.timings import Ratio
from compiler.build.capture.original import Original, original_of
from compiler.build.lowering.lowering import Lowering, lower
from compiler.build.lowering.plan import plan_lowering
from compiler.build.report.progress import Progress
from compiler.build.verify.speed import full_feeds
from compiler.calib.noise import Noise
from compiler.graph.runners.paired_rounds import Rounds
from compiler.graph.runners.session import Session, open_session
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Array, Feed, Lowered
from compiler.recipe.load import load_recipe
from compiler.targets import TARGETS
from compiler.targets.base import Emitted, Target
from compiler.targets.openvino.session import OpenvinoSession
from compiler.targets.openvino.target import Openvino
from runtime_lite.executors.graph_file import GraphFile
from runtime_lite.executors.openvino_graph import compile_graph, import_openvino

FLOAT = "ONNX Runtime float32"

NNCF_CALLS = 60
"""Recorded calls that NNCF calibrates on."""

SCRIPT = """
import json, sys
import numpy as np, nncf, openvino
source, target, feeds = sys.argv[1:]
data = nncf.Dataset([dict(np.load(path)) for path in json.load(open(feeds))])
nncf_model = nncf.quantize(openvino.Core().read_model(source), data, subset_size=len(json.load(open(feeds))))
openvino.save_model(nncf_model, target, compress_to_fp16=False)
"""
"""What NNCF's interpreter runs: a graph and the names of recorded calls in, OpenVINO's own format out."""


@dataclasses.dataclass(frozen=True)
class Contender:
    """One graph in one runtime.

    Attributes:
        lowered: the graph with its inputs, states and outputs.
        opens: returns a session for a number of rows.
        machine: rates of its runtime.
        work: returns the work of a call of some rows; None if it is not counted.
    """

    lowered: Lowered
    opens: Callable[[int], Session]
    machine: Machine
    work: Callable[[int], Work] | None


def main() -> None:
    """Run the comparison and print a table."""
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else 160)
    loaded = load_recipe(options.recipe)
    name, spec = next(iter(loaded.recipe.graphs.items()))
    original = original_of(loaded, name, spec, StageCache(options.cache or default_folder()), Progress())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lowerings = {kind: _lowered(original, TARGETS[kind]()) for kind in ("onnx_static", "openvino")}
        exact = lowerings["onnx_static"].graph.exact
        contenders = {
            FLOAT: _emitted(lowerings["onnx_static"].plan.target.with_plan(()), exact, folder / "a", options.rows),
            "ONNX Runtime int8, ours": _emitted(
                lowerings["onnx_static"].plan.target, lowerings["onnx_static"].graph.final, folder / "b", options.rows
            ),
            "OpenVINO float32": _emitted(TARGETS["openvino"](), exact, folder / "c", options.rows),
            "OpenVINO bfloat16": _emitted(Openvino(precision="bfloat16"), exact, folder / "d", options.rows),
            "OpenVINO int8, ours": _emitted(
                lowerings["openvino"].plan.target, lowerings["openvino"].graph.final, folder / "e", options.rows
            ),
            "ONNX Runtime static": _from_file(exact, lambda rows: quantized_by_peer(exact, rows, folder)),
            "ONNX Runtime dynamic": _from_file(exact, lambda rows: _dynamic(exact, rows, folder)),
        }
        if options.nncf is None:
            console.print("NNCF: left out, no --nncf")
        else:
            contenders["OpenVINO int8, NNCF"] = _by_nncf(exact, options.nncf, folder)
        streams = [stream[: options.calls] for stream in original.streams()[: options.streams]]
        noise = {label: _sqnr(contenders[FLOAT], each, streams) for label, each in contenders.items()}
        judged = contenders if options.task else {}
        metrics = {label: float(task_metric(loaded, each.lowered, each.opens(1))) for label, each in judged.items()}
        found = {rows: _figures(contenders, rows, options.rounds) for rows in options.rows}
    console.print(_table(options.recipe, noise, metrics, found))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runtimes for CPUs side by side.")
    parser.add_argument("--recipe", default="full_edge.yaml", help="one with a pass that rounds")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--streams", type=int, default=2, help="verification streams that SQNR is measured on")
    parser.add_argument("--calls", type=int, default=20, help="calls of each")
    parser.add_argument("--task", action="store_true", help="decode all recordings with every contender")
    parser.add_argument("--cache", type=Path, help="of builds")
    parser.add_argument("--nncf", type=Path, help="interpreter of an environment with nncf and openvino")
    return parser.parse_args()


def _lowered(original: Original, target: Target) -> Lowering:
    return lower(plan_lowering(original, target, original.gate))


def _emitted(target: Target, lowered: Lowered, folder: Path, rows: Sequence[int]) -> Contender:
    """Return the contender of a graph as a target writes it."""
    built = target.emit(lowered, {str(lowered.batch_axis): tuple(rows)})
    write_files(folder, built.files)
    by_rows = {each.sizes[str(lowered.batch_axis)]: each for each in built.artifacts}
    open_once = functools.cache(target.open)
    return Contender(
        lowered,
        lambda count: open_once(folder / by_rows[count].file),
        Machine(opens=engine_of(target)),
        lambda count: work_of(by_rows[count].lowered.model, by_rows[count].sizes),
    )


def _from_file(lowered: Lowered, make: Callable[[int], onnx.ModelProto]) -> Contender:
    """Return a contender in ONNX Runtime, with one graph per number of rows."""
    made = functools.cache(make)
    return Contender(
        lowered,
        lambda rows: open_session(made(rows).SerializeToString(), optimize=True),
        Machine(),
        lambda rows: work_of(ir.from_proto(made(rows)), {}),
    )


def _dynamic(exact: Lowered, rows: int, folder: Path) -> onnx.ModelProto:
    source, made = folder / f"for_dynamic{rows}.onnx", folder / f"dynamic{rows}.onnx"
    onnx.save(frozen(exact, rows), source)
    peer.quantize_dynamic(source, made)
    return onnx.load(made)


def _by_nncf(exact: Lowered, python: Path, folder: Path) -> Contender:
    """Return a contender quantised by NNCF in another interpreter, for each number of rows."""

    def opens(rows: int) -> Session:
        source, target, listed = (folder / f"nncf{rows}{end}" for end in (".onnx", ".xml", ".json"))
        onnx.save(frozen(exact, rows), source)
        calls = []
        for number, feed in enumerate(Calls(exact, rows).feeds[:NNCF_CALLS]):
            calls.append(str(folder / f"nncf{rows}.{number}.npz"))
            np.savez(calls[-1], **feed)  # type: ignore[arg-type]
        listed.write_text(json.dumps(calls))
        subprocess.run([python, "-c", SCRIPT, source, target, listed], check=True, capture_output=True)
        file = GraphFile(target.name, b"", {})
        model = import_openvino().Core().read_model(target)
        return OpenvinoSession(model, compile_graph(file, model, "float32", 1))

    return Contender(exact, opens, Machine(), None)


def _sqnr(right: Contender, other: Contender, streams: Sequence[Sequence[Feed]]) -> float | None:
    """Return the SQNR of the worst data output, with states passed from call to call in both graphs."""
    names = right.lowered.data_outputs
    noise = {name: Noise() for name in names}
    sessions = right.opens(1), other.opens(1)
    for stream in streams:
        runners = [Runner(each.lowered, session, 1) for each, session in zip((right, other), sessions, strict=True)]
        for feed in stream:
            wanted, got = (runner.step(feed) for runner in runners)
            for name in names:
                noise[name].add(got[name], wanted[name])
    return min((each.sqnr_db for each in noise.values() if each.sqnr_db is not None), default=None)


def _figures(contenders: Mapping[str, Contender], rows: int, rounds: int) -> dict[str, tuple[Ratio, str]]:
    """Return the times of every contender relative to the first, per round, and as a multiple of its floor."""
    calls = []
    for label, each in contenders.items():
        with command.contender(label):
            calls.append(functools.partial(each.opens(rows).run, None, _full_feed(each.lowered, rows)))
            calls[-1]()
    turns = Rounds(calls)
    turns.more(rounds)
    found = {}
    for place, (label, each) in enumerate(contenders.items()):
        took_s = statistics.median(times[place] for times in turns.times)
        to_floor = "" if each.work is None else f"{took_s / each.machine.floor_s(each.work(rows)):.2f}"
        found[label] = turns.ratio(pair=(place, 0)), to_floor
    return found


def _full_feed(lowered: Lowered, rows: int) -> dict[str, Array]:
    sizes = {} if lowered.batch_axis is None else {lowered.batch_axis: rows}
    return full_feeds(Emitted(sizes, "", (), lowered))


def _table(
    recipe: str,
    noise: Mapping[str, float | None],
    metrics: Mapping[str, float],
    figures: Mapping[int, Mapping[str, tuple[Ratio, str]]],
) -> Table:
    table = Table(title=f"{recipe}: one thread, times beside {FLOAT}")
    table.add_column("contender")
    for column in ("SQNR, dB", "task metric", *(text for rows in figures for text in (f"{rows} rows", "to its floor"))):
        table.add_column(column, justify="right")
    for label, found in noise.items():
        cells = ["" if found is None else f"{found:.1f}", f"{metrics[label]:.5f}" if label in metrics else ""]
        times = [text for each in figures.values() for text in (str(each[label][0]).strip(), each[label][1])]
        table.add_row(label, *cells, *times)
    return table


if __name__ == "__main__":
    command.run(main)
