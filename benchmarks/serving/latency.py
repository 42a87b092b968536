"""How soon chunks of live streams are answered below full load, and what a row costs: beside the simplest servers.

The others are an asyncio queue that collects for 5 ms, at most 16 rows, a bare loop of one row a run, and mosec with
the window of the queue, where it is installed. All are fed what the runtime would feed, recorded before, and answer
with nothing. Capacity is what the queue answers when more than it can carry comes. Loads are parts of it; contenders
take turns. Computing time is the whole process's from the first chunk to the last answer, that of the sender too, and
of the processes of mosec. Its floor (`floor.py`) is that of a row among as many as the queue runs at most. Every turn
is a server that has just started, whose memory is new: chunks of the first quarter stand in a column of their own.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from benchmarks import command
from benchmarks.floor import Machine, work_of
from benchmarks.serving.bare_steps import Feeds
from benchmarks.serving.driven import serve_streams
from benchmarks.serving.mosec_streams import MosecStreams, mosec
from benchmarks.serving.plain_queue import PlainQueue
from benchmarks.serving.planner import costs_as_served
from benchmarks.serving.recorder import Recorder
from benchmarks.serving.rounds import ratios, spread
from benchmarks.serving.triton_server import Absent
from runtime_lite import CHUNK, Runtime, read_bundle
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.executors.executor import make_executor
from runtime_lite.load_test.arrivals import Traffic, arrivals_of
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends, Source, drive
from runtime_lite.load_test.findings import Served

LOADS = (0.25, 0.5, 0.75, 0.9)
CHUNKS = 50
"""Of a stream."""

WINDOW_S, MOST = 0.005, 16
"""The queue's."""

OURS, QUEUE = "runtime_lite", "queue"


class Figures(NamedTuple):
    """Of one turn of one contender."""

    p50_ms: float
    p99_ms: float
    first_p99_ms: float
    rows_per_cpu_s: float


def measure_latency(
    path: Path, name: str, lanes: int, period_s: float, rounds: int, seconds: float, loads: Sequence[float] = LOADS
) -> list[dict[str, Any]]:
    """Latency and computing time by load and contender; ratios are to the better of the two others, round by round.

    Args:
        path: bundle.
        name: graph with states, whose file leaves rows open.
        lanes: runs at once, of one thread each, for all contenders.
        period_s: from chunk to chunk of a stream.
        rounds: turns.
        seconds: of each.
        loads: parts of what the queue carries.
    """
    found = []
    with costs_as_served(path, lanes) as measured, contextlib.ExitStack() as stack:
        named = _contenders(measured, name, lanes, stack)
        contenders = {each: contender for each, contender in named.items() if isinstance(contender, Contender)}
        capacity = _capacity(contenders[QUEUE].serve, period_s, seconds)
        floor_s = _floor_s(measured, name)
        for load in loads:
            streams = max(round(load * capacity * period_s), 1)
            traffic = Traffic(seconds, streams, CHUNKS, period_s)
            turns: dict[str, list[Figures]] = {each: [] for each in contenders}
            for seed in range(rounds):
                for each, contender in contenders.items():
                    turns[each].append(_figures(each, contender, traffic, seed))
            found += [_row(load, streams, each, turns, floor_s) for each in turns]
    absent = {each: reason for each, reason in named.items() if isinstance(reason, str)}
    return found + [dict.fromkeys(found[0], "") | {"contender": f"{each}: {why}"} for each, why in absent.items()]


def _floor_s(path: Path, name: str) -> float:
    """The least computing time of a row, in the largest run of the queue."""
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs[name]
    sizes = {**graph.artifacts[0].sizes, str(graph.batch_axis): MOST}
    work = work_of(ir.load(path / graph.artifacts[0].file), sizes)
    return Machine().floor_s(work) / MOST


def _row(
    load: float, streams: int, contender: str, turns: Mapping[str, Sequence[Figures]], floor_s: float
) -> dict[str, Any]:
    mine = turns[contender]
    others = [turns[each] for each in turns if each != OURS]
    best = [Figures(*(min(values) for values in zip(*at_once, strict=True))) for at_once in zip(*others, strict=True)]
    queue = turns[QUEUE]
    return {
        "load": f"{load:g}",
        "streams": streams,
        "contender": contender,
        "p50, ms": spread([each.p50_ms for each in mine], 1),
        "p99, ms": spread([each.p99_ms for each in mine], 1),
        "p99 of the first quarter, ms": spread([each.first_p99_ms for each in mine], 1),
        "rows per CPU s": spread([each.rows_per_cpu_s for each in mine], 0),
        "CPU to the floor": spread([1 / (each.rows_per_cpu_s * floor_s) for each in mine]),
        "p50 to the best other": spread(ratios([each.p50_ms for each in mine], [each.p50_ms for each in best])),
        "p99 to it": spread(ratios([each.p99_ms for each in mine], [each.p99_ms for each in best])),
        "rows to the queue": spread(
            ratios([each.rows_per_cpu_s for each in mine], [each.rows_per_cpu_s for each in queue])
        ),
    }


Serve = Callable[[Traffic, int], tuple[Sequence[Served], Ends]]


class Contender(NamedTuple):
    """A server.

    Attributes:
        serve: drives it once.
        others_s: computing time so far of its other processes, in seconds.
    """

    serve: Serve
    others_s: Callable[[], float] = lambda: 0.0


def _figures(name: str, contender: Contender, traffic: Traffic, seed: int) -> Figures:
    before_s = contender.others_s()
    with command.contender(name):
        served, ends = contender.serve(traffic, seed)
    used_s = ends.cpu_s + contender.others_s() - before_s
    answered = [each for each in served if each.outcome == "done"]
    first = [each.latency_ms for each in answered if each.arrival.at < traffic.seconds * 1e9 / 4]
    later = [each.latency_ms for each in answered if each.arrival.at >= traffic.seconds * 1e9 / 4]
    p50, p99 = np.percentile(later or first, (50, 99))
    return Figures(float(p50), float(p99), float(np.percentile(first or later, 99)), len(answered) / max(used_s, 1e-9))


def _capacity(serve: Serve, period_s: float, seconds: float) -> float:
    """Chunks per second of the queue when four times as many streams as fill its runs send without a pause."""
    streams, period = 4 * MOST, period_s / 100
    served, _ = serve(Traffic(seconds / 10, streams, CHUNKS, period), 0)
    return len(served) / (max(each.ended for each in served) / 1e9)


def _contenders(path: Path, name: str, lanes: int, stack: contextlib.ExitStack) -> dict[str, Contender | str]:
    """All servers; or why one is not there."""
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs[name]
        file = path / graph.artifacts[0].file
        states = {state.input: state.output for state in graph.states}
        calls, initial = recorded(path, name)

    def queue(most: int, window_s: float) -> Serve:
        def serve(traffic: Traffic, seed: int) -> tuple[Sequence[Served], Ends]:
            ends = Ends()
            server = PlainQueue(file, states, initial, lanes, most, window_s, ends)
            source = Source(calls, lambda feeds: server.open_stream().submit(feeds), server.open_stream)
            return drive(arrivals_of(traffic, seed), {"stream": source}, server.drain, ends), ends

        return serve

    def runtime_lite(traffic: Traffic, seed: int) -> tuple[Sequence[Served], Ends]:
        return serve_streams(path, name, lanes, traffic, seed, CHUNK)

    found: dict[str, Contender | str] = {
        OURS: Contender(runtime_lite),
        QUEUE: Contender(queue(MOST, WINDOW_S)),
        "bare loop": Contender(queue(1, 0.0)),
    }
    try:
        with command.contender("mosec", but=Absent):
            servers = stack.enter_context(mosec(file, states, initial, calls[0], lanes, MOST, WINDOW_S))
    except Absent as error:
        return found | {"mosec": str(error)}

    def on_mosec(traffic: Traffic, seed: int) -> tuple[Sequence[Served], Ends]:
        ends = Ends()
        client = MosecStreams(servers, ends)
        source = Source(calls, lambda feeds: client.open_stream().submit(feeds), client.open_stream)
        return drive(arrivals_of(traffic, seed), {"stream": source}, client.drain, ends), ends

    return found | {"mosec": Contender(on_mosec, servers.cpu_s)}


def recorded(path: Path, name: str) -> tuple[list[Feeds], Feeds]:
    """What the runtime feeds to a stream of one row, call by call, without states; and the states it begins with."""
    with _runner(path, name) as (runner, recorder, feeds):
        state = runner.initial_state(1)
        for at in range(CHUNKS):
            _, state = runner.step(runner.check("push", feeds[at % len(feeds)]), state)
        taken = {each.input for each in runner.graph.states}
        calls: list[Feeds] = [{key: array for key, array in fed.items() if key not in taken} for fed in recorder.fed]
        return calls, {key: recorder.fed[0][key] for key in taken}


@contextlib.contextmanager
def _runner(path: Path, name: str) -> Iterator[tuple[GraphRunner, Recorder, Sequence[Feeds]]]:
    with Runtime() as runtime, read_bundle(path) as bundle:
        recorder = Recorder(make_executor(bundle, name, 1))
        runner = GraphRunner(name, bundle.manifest.graphs[name], recorder, check_finite=False)
        yield runner, recorder, recorded_feeds(runtime.load(path), name)
        runner.close()
