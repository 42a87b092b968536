"""Implements the command `python -m runtime_lite load`: runs a load test, prints its results and draws them."""

import argparse
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from runtime_lite.errors import BadInput, GateFailed, show
from runtime_lite.format.arrays import Array, arrays_from_file
from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.golden import golden_from_npz
from runtime_lite.load_test.arrivals import Kind, Traffic, arrivals_of
from runtime_lite.load_test.drive import Ends, Source, drive
from runtime_lite.load_test.findings import Findings, Served, describe_findings, findings_of, json_of_findings
from runtime_lite.load_test.picture import picture_of
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime
from runtime_lite.scheduling.task import CHUNK, UTTERANCE
from runtime_lite.serving.events import Observer
from runtime_lite.serving.metrics import Metrics
from runtime_lite.serving.trace import Trace

DRAIN_S = 60.0

Feeds = Sequence[Mapping[str, Array]]


def add_arguments(
    parser: argparse.ArgumentParser, number: Callable[[str], int], seconds: Callable[[str], float]
) -> None:
    """Add the options of the command to its parser.

    Args:
        parser: the parser of the command.
        number: converts text to a positive integer.
        seconds: converts text to a positive number.
    """
    add = parser.add_argument
    add("bundles", type=Path, nargs="+", metavar="BUNDLE", help="bundles on one device")
    add("--seconds", type=seconds, default=10.0, help="for how long requests come (default 10)")
    add("--streams", type=number, default=0, metavar="N", help="live streams at once")
    add("--period-ms", type=seconds, metavar="MS", help="from chunk to chunk: the audio of a chunk")
    add("--chunks", type=number, default=100, metavar="N", help="chunks of a stream; another one follows (default 100)")
    add("--utterances", type=seconds, default=0.0, metavar="R", help="recordings per second, at random")
    add("--burst", type=number, default=0, metavar="N", help="recordings that come at once")
    add("--burst-every", type=seconds, default=5.0, metavar="S", help="seconds between bursts (default 5)")
    add("--utterance-s", type=seconds, default=0.0, metavar="S", help="audio of a recording, for the real-time factor")
    add("--soft-ms", type=seconds, default=CHUNK.soft_ms, help="soft target of a chunk (default %(default)s)")
    add("--stream-graph", metavar="GRAPH", help="what streams run; needed if several graphs have states")
    add("--utterance-graph", metavar="GRAPH", help="what recordings run; needed if several graphs have none")
    add(
        "--stream-feeds",
        type=Path,
        metavar="FILE.npz",
        help="chunks, arrays [chunks, rows, ...]; else the golden feeds",
    )
    add(
        "--utterance-feeds",
        type=Path,
        action="append",
        metavar="FILE.npz",
        help="recordings of one length, arrays [recordings, rows, ...]; once for each length; else golden",
    )
    add("--no-admission", action="store_true", help="take streams that the device cannot carry")
    add("--threads", type=number, default=1, help="threads of one run (default 1)")
    add("--workers", type=number, default=1, help="runs at once (default 1)")
    add("--seed", type=int, default=0, help="of the arrivals (default 0)")
    add("--json", type=Path, metavar="FILE", help="write the findings here")
    add("--svg", type=Path, metavar="FILE", help="draw latencies here")
    add("--trace", type=Path, metavar="FILE", help="write requests and runs as trace events here")
    add("--metrics", type=number, metavar="PORT", help="serve metrics here meanwhile, for `top`")


def load(options: argparse.Namespace) -> None:
    """Run the command.

    Raises:
        BadInput: an option is wrong, or no bundle has the graph that it needs.
        GateFailed: the request counts of the runtime do not balance.
    """
    traffic = _traffic_of(options)
    ends, trace = Ends(), Trace() if options.trace else None
    metrics = Metrics() if options.metrics else None
    observers: list[Observer] = [observer for observer in (ends, trace, metrics) if observer is not None]
    with (
        Runtime(threads=options.threads, workers=options.workers, observers=observers) as runtime,
        metrics.serve(options.metrics) if metrics else contextlib.nullcontext(),
    ):
        if metrics is not None:
            metrics.follow(runtime.health)
        models = [runtime.load(path, warm_up=True) for path in options.bundles]
        sources = dict(_sources(options, traffic, models))
        served = drive(arrivals_of(traffic, options.seed), sources, lambda: runtime.drain(DRAIN_S), ends)
        counts = runtime.request_counts
    soft_ms: dict[Kind, float] = {
        "stream": options.soft_ms,
        "utterance": UTTERANCE.soft_ms,
        "burst": UTTERANCE.soft_ms,
    }
    audio: dict[Kind, float] = {
        "stream": traffic.period_s,
        "utterance": options.utterance_s,
        "burst": options.utterance_s,
    }
    findings = findings_of(served, ends.executions, soft_ms, audio, options.workers, counts)
    print(describe_findings(findings))
    _write(options, findings, served, soft_ms)
    if trace is not None:
        trace.write(options.trace)
    if not findings.balanced:
        raise GateFailed(
            f"load: expected request counts that balance, got {show(dict(findings.requests))}; report this"
        )


def _traffic_of(options: argparse.Namespace) -> Traffic:
    if not (options.streams or options.utterances or options.burst):
        _refuse("something to send", "nothing", "pass --streams, --utterances or --burst")
    if options.streams and options.period_ms is None:
        _refuse("--period-ms with --streams", "none", "pass the audio that a chunk holds, in ms")
    return Traffic(
        seconds=options.seconds,
        streams=options.streams,
        chunks=options.chunks,
        period_s=(options.period_ms or 0.0) / 1e3,
        utterances_per_s=options.utterances,
        burst=options.burst,
        burst_every_s=options.burst_every,
    )


def _sources(options: argparse.Namespace, traffic: Traffic, models: Sequence[Model]) -> Iterator[tuple[Kind, Source]]:
    """Yield each kind of request with its feeds and the model that serves it."""
    if traffic.streams:
        model, graph = _graph_for("--stream-graph", options.stream_graph, models, states=True)
        service = CHUNK._replace(soft_ms=options.soft_ms)
        period_ms = None if options.no_admission else options.period_ms
        yield (
            "stream",
            Source(
                _feeds(model, graph, options.stream_feeds and [options.stream_feeds]),
                lambda feeds: model.submit(feeds, graph),
                lambda: model.open_stream(graph, service=service, period_ms=period_ms),
            ),
        )
    if traffic.utterances_per_s or traffic.burst:
        offline, name = _graph_for("--utterance-graph", options.utterance_graph, models, states=False)
        source = Source(
            _feeds(offline, name, options.utterance_feeds),
            lambda feeds: offline.submit(feeds, name, service=UTTERANCE),
        )
        yield "utterance", source
        yield "burst", source


def _graph_for(option: str, wanted: str | None, models: Sequence[Model], *, states: bool) -> tuple[Model, str]:
    """Return the only graph with states, or without, that fits the option; BadInput if there is not exactly one."""
    fitting = [
        (model, name)
        for model in models
        for name, graph in model.bundle.manifest.graphs.items()
        if bool(graph.states) is states and wanted in (None, name)
    ]
    if len(fitting) != 1:
        kind = "with states" if states else "without states"
        names = ", ".join(repr(name) for _, name in fitting) or "none"
        _refuse(f"one graph {kind}", names, f"name one by {option}, or pass a bundle that has one")
    return fitting[0]


def recorded_feeds(model: Model, graph: str) -> Feeds:
    """Return the golden feeds of a graph; those of a graph with states form one stream."""
    record = model.bundle.manifest.graphs[graph]
    golden = golden_from_npz(model.bundle.read_file(record.golden), record.golden, record)
    return [step.feeds for step in golden.steps]


def _feeds(model: Model, graph: str, files: Sequence[Path] | None) -> Feeds:
    """Return the feeds in files, or those of the bundle without files."""
    if files is None:
        return recorded_feeds(model, graph)
    return [feed for file in files for feed in _feeds_of(file)]


def _feeds_of(file: Path) -> Feeds:
    arrays = arrays_from_file(file)
    counts = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
    if len(counts) != 1 or 0 in counts:
        _refuse(f"arrays of one first axis in {file}", show(sorted(counts)), "stack the feeds along a new first axis")
    return [{name: np.asarray(array[at]) for name, array in arrays.items()} for at in range(counts.pop())]


def _write(
    options: argparse.Namespace, findings: Findings, served: Sequence[Served], soft_ms: Mapping[Kind, float]
) -> None:
    if options.json is not None:
        with replace_file(options.json) as file:
            file.write(json.dumps(json_of_findings(findings), indent=1).encode() + b"\n")
    if options.svg is not None:
        names = ", ".join(path.name for path in options.bundles)
        with replace_file(options.svg) as file:
            file.write(
                picture_of(served, soft_ms, f"{names}: {len(served)} requests, {options.workers} lanes").encode()
            )


def _refuse(expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"load: expected {expected}, got {got}; {cure}")
