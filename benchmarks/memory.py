"""Measures the memory of the buckets of a graph: one session each, one session for all, bare and in the runtime.

    python -m benchmarks.memory dist/streaming_asr-full_cpu

Every contender is a process of its own, started in turn, round after round. It opens its buckets, runs each a few times
and tells what it has taken since before it opened anything: what is resident, its share of that (Pss: pages that other
processes have, too, in parts), and the most that was resident. What the rows of a bucket need while they run is
memory, too, so the smallest and the largest bucket stand alone as well: to the largest alone, which runs as many rows,
all buckets together should add little. What a stream holds is the growth from few open streams to many, beside the
bytes of its states. What one call moves follows from the graph (`bytes_per_call.py`). Needs a bundle whose rows are
open.
"""

import argparse
import dataclasses
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import runtime_lite
from benchmarks import command
from benchmarks.bytes_per_call import bytes_per_call
from runtime_lite.bench import bucket_call
from runtime_lite.format.manifest import Graph, static_shape, tensor_bytes

RUNS = 4
"""Runs of every bucket."""

FEW_STREAMS, MANY_STREAMS = 64, 192
"""Open streams, each of which has run twice."""

Measure = Callable[[Path, Sequence[int]], object]
"""Opens and runs the buckets of so many rows; what it returns is alive while memory is read."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """Memory of a process in MB; the final value is what was added since it started.

    Attributes:
        resident: resident memory (RSS).
        share: resident memory with shared pages divided among their processes (PSS).
        most: peak of the resident memory.
    """

    resident: float
    share: float
    most: float

    def __sub__(self, before: "Taken") -> "Taken":
        return Taken(self.resident - before.resident, self.share - before.share, self.most - before.resident)


Measured = tuple[Taken, Taken]
"""What a process had before it opened anything, and what it has taken since."""


def main() -> None:
    """Measure every contender in turn and print the table."""
    options = _parse()
    contenders = dict(_contenders(_rows_of(options.bundle)))
    found: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(options.rounds):
        for name, (measure, rows) in contenders.items():
            found[name].append(_in_a_process(measure, options.bundle, rows))
    Console().print(_table({name: [taken for _, taken in rounds] for name, rounds in found.items()}))
    before = [each for rounds in found.values() for each, _ in rounds]
    resident, share = ([getattr(each, key) for each in before] for key in ("resident", "share"))
    Console().print(f"before, MB: resident {_spread(resident, 1)}, share {_spread(share, 1)}")
    few, many = (
        [_taken(_streams, options.bundle, [count]) for _ in range(options.rounds)]
        for count in (FEW_STREAMS, MANY_STREAMS)
    )
    states = _state_mb(options.bundle)
    each = [(most - least) / (MANY_STREAMS - FEW_STREAMS) for least, most in zip(few, many, strict=True)]
    Console().print(
        f"a stream, MB: {_spread(each, 2)}; its states: {states:.2f}; ratio: {_spread([mb / states for mb in each], 3)}"
    )
    Console().print(_bytes_table(options.bundle))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Memory of the buckets of a bundle of one graph.")
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rounds", type=int, help="7 without `--quick`")
    parser.add_argument("--quick", action="store_true", help="two rounds")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    return options


def _rows_of(bundle: Path) -> tuple[int, ...]:
    graph = command.graph_of_bundle(bundle, streams=True)
    if len({artifact.file for artifact in graph.artifacts}) == len(graph.artifacts):
        raise runtime_lite.BadInput(
            f"{bundle}: expected a file that several buckets share, got a file each; build it anew"
        )
    return graph.row_buckets


def of_all_buckets_mb(bundle: Path) -> dict[str, float]:
    """Return the resident MB with every bucket of a bundle open, by contender."""
    contenders = dict(_contenders(_rows_of(bundle)))
    return {
        name.partition(":")[0]: _taken(measure, bundle, rows)
        for name, (measure, rows) in contenders.items()
        if name.endswith(": all")
    }


def _contenders(rows: Sequence[int]) -> Iterator[tuple[str, tuple[Measure, list[int]]]]:
    """Yield the contenders by name; `all buckets` follows those that it is divided by."""
    for name, measure in (
        ("sessions of fixed rows", _fixed),
        ("one session", _open),
        ("runtime_lite", _runtime),
        ("runtime_lite, warm", _warm),
    ):
        for label, part in (("smallest", rows[:1]), ("largest", rows[-1:]), ("all", rows)):
            yield f"{name}: {label}", (measure, list(part))


def _taken(measure: Measure, bundle: Path, rows: Sequence[int]) -> float:
    """Return the resident MB added by a measure."""
    _, taken = _in_a_process(measure, bundle, rows)
    return taken.resident


def _in_a_process(measure: Measure, bundle: Path, rows: Sequence[int]) -> Measured:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_child, args=(theirs, measure, bundle, rows))
    child.start()
    theirs.close()
    try:
        result: Measured = ours.recv()
    except EOFError:
        raise SystemExit(f"{measure.__name__} with {list(rows)} rows failed") from None
    child.join()
    return result


def _child(answers: Connection, measure: Measure, bundle: Path, rows: list[int]) -> None:
    before = _now()
    held = measure(bundle, rows)
    answers.send((before, _now() - before))
    del held


def _now() -> Taken:
    return Taken(mb_of("smaps_rollup", "Rss"), mb_of("smaps_rollup", "Pss"), mb_of("status", "VmHWM"))


def mb_of(file: str, key: str) -> float:
    """Return a value of a file of this process in /proc, in MB."""
    lines = Path("/proc/self", file).read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{key}:"))) / 1024


def _fixed(bundle: Path, rows: Sequence[int]) -> object:
    """Open a bare session for each number of rows."""
    graph, file = _graph_of(bundle)
    return [_run(graph, _session(file, graph, count), [count]) for count in rows]


def _open(bundle: Path, rows: Sequence[int]) -> object:
    """Open one bare session for all numbers of rows."""
    graph, file = _graph_of(bundle)
    return _run(graph, _session(file, graph, None), rows)


def _runtime(bundle: Path, rows: Sequence[int]) -> object:
    runtime = runtime_lite.Runtime()
    model = runtime.load(bundle)
    runner = model.runner()
    for artifact in runner.graph.artifacts:
        if artifact.sizes[str(runner.graph.batch_axis)] in rows:
            call = bucket_call(runner, artifact)
            for _ in range(RUNS):
                call()
    return runtime


def _warm(bundle: Path, rows: Sequence[int]) -> object:
    """Load the buckets with `load(warm_up=True)`; no request is served."""
    runtime = runtime_lite.Runtime()
    runner = runtime.load(bundle).runner()
    for artifact in reversed(runner.graph.artifacts):
        if artifact.sizes[str(runner.graph.batch_axis)] in rows:
            call = bucket_call(runner, artifact)
            call()
            call()
            del call
    runner.trim()
    return runtime


def _streams(bundle: Path, rows: Sequence[int]) -> object:
    """Open a number of streams of the runtime, in one lane."""
    runtime = runtime_lite.Runtime(workers=1)
    model = runtime.load(bundle, warm_up=True)
    graph = model.runner().graph
    sizes = {**graph.artifacts[0].sizes, str(graph.batch_axis): 1}
    feed = {t.name: np.zeros(static_shape(t.shape, sizes), t.dtype) for t in graph.inputs if t.role == "data"}
    streams = [model.open_stream() for _ in range(rows[0])]
    for _ in range(2):
        for ticket in [stream.submit(feed) for stream in streams]:
            ticket.result()
    return runtime, streams


def _state_mb(bundle: Path) -> float:
    """Return the MB of the states of one stream."""
    graph, _ = _graph_of(bundle)
    sizes = {str(graph.batch_axis): 1}
    return sum(tensor_bytes(static_shape(state.shape, sizes), state.dtype) for state in graph.states) / 2**20


def _graph_of(bundle: Path) -> tuple[Graph, Path]:
    with runtime_lite.read_bundle(bundle) as opened:
        (graph,) = opened.manifest.graphs.values()
    return graph, bundle / graph.artifacts[0].file


def _session(file: Path, graph: Graph, rows: int | None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if rows is not None:
        options.add_free_dimension_override_by_name(str(graph.batch_axis), rows)
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _run(graph: Graph, session: onnxruntime.InferenceSession, rows: Sequence[int]) -> object:
    for artifact in graph.artifacts:
        if artifact.file == graph.artifacts[0].file and artifact.sizes[str(graph.batch_axis)] in rows:
            feed = {each.name: np.zeros(static_shape(each.shape, artifact.sizes), each.dtype) for each in graph.inputs}
            for _ in range(RUNS):
                session.run(None, feed)
    return session


def _table(found: dict[str, list[Taken]]) -> Table:
    """Return a table of MB as median (least..most), and ratios to the smallest and largest bucket alone."""
    table = Table(box=None, pad_edge=False)
    for title in ("", "resident, MB", "share, MB", "at most, MB", "to the smallest alone", "to the largest alone"):
        table.add_column(title)
    for name, rounds in found.items():
        kind = name.partition(":")[0]
        ratios = [
            _spread([a.resident / b.resident for a, b in zip(rounds, found[f"{kind}: {label}"], strict=True)], 2)
            for label in ("smallest", "largest")
        ]
        columns = ([each.resident for each in rounds], [each.share for each in rounds], [each.most for each in rounds])
        table.add_row(name, *(_spread(column, 0) for column in columns), *ratios)
    return table


def _bytes_table(bundle: Path) -> Table:
    """Return a table of the MB that one call of every bucket moves."""
    graph, _ = _graph_of(bundle)
    table = Table(box=None, pad_edge=False, title=f"{len(graph.states)} states; MB of one call", title_justify="left")
    for title in ("", "states fed", "states returned", "weights", "values between nodes"):
        table.add_column(title)
    for each in bytes_per_call(bundle, graph):
        counts = (each.fed, each.returned, each.weights, each.values)
        table.add_row(each.bucket, *(f"{count / 2**20:.2f}" for count in counts))
    return table


def _spread(values: Sequence[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


if __name__ == "__main__":
    command.run(main)
