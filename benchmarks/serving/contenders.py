"""Servers of live streams to compare: the runtime, simple ones, and a public one if it is installed.

The others are an asyncio queue that collects for 5 ms, at most 16 rows, a bare loop of one row a run, and mosec with
the window of the queue. All are fed what the runtime would feed, recorded before, and answer with nothing. Every server
is used once: it has just started, and its memory is new.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import command
from benchmarks.serving.bare_steps import Feeds
from benchmarks.serving.driven import live_streams, running
from benchmarks.serving.mosec_streams import MosecStreams, mosec
from benchmarks.serving.plain_queue import PlainQueue
from benchmarks.serving.recorder import Recorder
from benchmarks.serving.triton_server import Absent
from runtime_lite import CHUNK, Runtime, read_bundle
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.executors.executor import make_executor
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends, Source

CHUNKS = 50
"""Of a stream."""

WINDOW_S, MOST = 0.005, 16
"""The queue's."""

DRAIN_S = 120.0
"""For so long a server may take for what is on its way at the end."""

OURS, QUEUE, LOOP, MOSEC = "runtime_lite", "queue", "bare loop", "mosec"


class Server(NamedTuple):
    """A running server.

    Attributes:
        source: source of streams on it.
        drain: returns when all chunks have been answered; none may be sent after it.
    """

    source: Source
    drain: Callable[[], object]


class Contender(NamedTuple):
    """A kind of server.

    Attributes:
        start: starts a server, which notifies `Ends` of every chunk and ends with the block.
        others_s: returns the computing time of its other processes so far, in seconds.
    """

    start: Callable[[Ends], AbstractContextManager[Server]]
    others_s: Callable[[], float] = lambda: 0.0


@contextlib.contextmanager
def contenders(path: Path, name: str, lanes: int) -> Iterator[tuple[dict[str, Contender], dict[str, str]]]:
    """Yield all contenders, ours first, and the reasons why others are missing, by name.

    Args:
        path: bundle.
        name: graph with states, whose file leaves rows open.
        lanes: runs at once, of one thread each, for all contenders.
    """
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs[name]
    file, states = path / graph.artifacts[0].file, {state.input: state.output for state in graph.states}
    calls, initial = recorded(path, name)

    @contextlib.contextmanager
    def ours(ends: Ends) -> Iterator[Server]:
        with running(path, lanes, ends) as (runtime, model):
            yield Server(live_streams(model, name, CHUNK), lambda: runtime.drain(DRAIN_S))

    def queue(most: int, window_s: float) -> Contender:
        @contextlib.contextmanager
        def start(ends: Ends) -> Iterator[Server]:
            server = PlainQueue(file, states, initial, lanes, most, window_s, ends)
            yield Server(
                Source(calls, lambda feeds: server.open_stream().submit(feeds), server.open_stream), server.drain
            )

        return Contender(start)

    there, absent = {OURS: Contender(ours), QUEUE: queue(MOST, WINDOW_S), LOOP: queue(1, 0.0)}, dict[str, str]()
    with contextlib.ExitStack() as stack:
        try:
            with command.contender(MOSEC, but=Absent):
                servers = stack.enter_context(mosec(file, states, initial, calls[0], lanes, MOST, WINDOW_S))
        except Absent as error:
            absent[MOSEC] = str(error)
        else:

            @contextlib.contextmanager
            def on_mosec(ends: Ends) -> Iterator[Server]:
                client = MosecStreams(servers, ends)
                source = Source(calls, lambda feeds: client.open_stream().submit(feeds), client.open_stream)
                yield Server(source, client.drain)

            there[MOSEC] = Contender(on_mosec, servers.cpu_s)
        yield there, absent


def rows_of_absent(like: Mapping[str, Any], absent: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a row with the reason for each missing contender, with the columns of another row."""
    return [dict.fromkeys(like, "") | {"contender": f"{each}: {why}"} for each, why in absent.items()]


def recorded(path: Path, name: str) -> tuple[list[Feeds], Feeds]:
    """Return the feeds of the runtime for a stream of one row, without states, and its initial states."""
    with _runner(path, name) as (runner, recorder, feeds):
        state = runner.initial_state(1)
        for at in range(CHUNKS):
            _, state = runner.step(runner.check("push", feeds[at % len(feeds)]), state)
        taken = {each.input for each in runner.graph.states}
        calls: list[Feeds] = [{key: array for key, array in fed.items() if key not in taken} for fed in recorder.fed]
        return calls, {key: recorder.fed[0][key] for key in taken}


@contextlib.contextmanager
def _runner(path: Path, name: str) -> Iterator[tuple[GraphRunner, Recorder, list[Feeds]]]:
    with Runtime() as runtime, read_bundle(path) as bundle:
        recorder = Recorder(make_executor(bundle, name, 1))
        runner = GraphRunner(name, bundle.manifest.graphs[name], recorder, check_finite=False)
        yield runner, recorder, list(recorded_feeds(runtime.load(path), name))
        runner.close()
