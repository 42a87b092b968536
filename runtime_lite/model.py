"""A loaded bundle: run feeds, or open a stream whose state the runtime keeps.

A feed is padded to the smallest bucket that holds it, and the outputs are cut back to what is valid. A graph without
states is run directly; a graph with states, run without a stream, starts from its initial states. Rows share a run only
where the bundle proves that they are independent. A call either returns the outputs of role data or raises and changes
nothing. `run` may be called from several threads; two pushes on one stream at the same time are refused. Nothing here
queues, batches calls of several callers, retries or logs.
"""

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NoReturn, overload

import numpy as np

from runtime_lite.calls.feeds import RowLengths
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.state import StreamState, initial_state
from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import ExecutorFactory
from runtime_lite.format.arrays import Array
from runtime_lite.format.cache_axis import not_yet
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.graph_contract import check_contracts
from runtime_lite.format.reader import Bundle

UPDATE = "update runtime_lite, or rebuild the bundle without them"


class Model:
    """The graphs of one bundle, ready to run; made by `Runtime.load`.

    Args:
        bundle: an open bundle; the model closes it.
        threads: threads per session.
        check_finite: refuse NaN and infinity in feeds.
        executors: makes what runs a graph.

    Raises:
        BundleRefused: a graph file was built for something else than the manifest says, or the bundle asks for what is
            not there yet.
        EngineAbsent: an engine is not built, or what runs it is not on this machine.
    """

    def __init__(self, bundle: Bundle, threads: int, check_finite: bool, executors: ExecutorFactory) -> None:
        """Prepare the graphs; no session is opened yet."""
        _check_can_run(bundle)
        check_contracts(bundle)
        self.bundle = bundle
        self._closed = False
        self._runners = {
            name: GraphRunner(name, graph, executors(bundle, name, threads), check_finite)
            for name, graph in bundle.manifest.graphs.items()
        }

    @overload
    def run(self, feeds: Mapping[str, Array], graph: str | None = None, lengths: None = None) -> dict[str, Array]: ...

    @overload
    def run(
        self, feeds: Mapping[str, Array], graph: str | None = None, *, lengths: Mapping[str, RowLengths]
    ) -> dict[str, list[Array]]: ...

    def run(
        self,
        feeds: Mapping[str, Array],
        graph: str | None = None,
        lengths: Mapping[str, RowLengths] | None = None,
    ) -> dict[str, Array] | dict[str, list[Array]]:
        """Run one feed; more rows than the largest bucket are several runs.

        Args:
            feeds: every input of role data.
            graph: graph name; needed when the bundle has several.
            lengths: true length of every row by axis, e.g. `{"time": [900, 512]}`, for axes that have a length per
                row. What the arrays hold behind it is not looked at.

        Returns:
            Every output of role data, with as many rows as the feed and as long as the lengths make it. With `lengths`,
            a list per output: item i is row i, without the batch axis.

        Raises:
            BadInput: the feed, the lengths or the graph name is wrong, or the model is closed.
            BundleRefused: the graph file is not what the manifest says.
        """
        runner = self.runner(graph)
        where = f"{runner.name}.run"
        if lengths is not None:
            answers = runner.run(runner.check_ragged(where, feeds, lengths))
            return {
                name: [np.squeeze(answer[name], axis) for answer in answers] for name, axis in runner.batched.items()
            }
        answers = runner.run(runner.split(runner.check(where, feeds)))
        if len(answers) == 1:
            return answers[0]
        return {
            name: np.concatenate([answer[name] for answer in answers], axis) for name, axis in runner.batched.items()
        }

    def run_many(self, feeds: Sequence[Mapping[str, Array]], graph: str | None = None) -> list[dict[str, Array]]:
        """Run feeds of one row each together, whatever their lengths.

        Args:
            feeds: every input of role data, one row each.
            graph: graph name; needed when the bundle has several.

        Returns:
            For each feed what `run` returns for it alone.

        Raises:
            BadInput: a feed or the graph name is wrong, the bundle does not prove that rows are independent, or the
                model is closed; nothing was run.
            BundleRefused: the graph file is not what the manifest says.
        """
        runner = self.runner(graph)
        where = f"{runner.name}.run_many"
        if not isinstance(feeds, Sequence):
            _refuse(where, "a list of feeds", f"a {type(feeds).__name__}", "write [{'name': array}, ...]")
        if len(feeds) > 1 and (fault := runner.batching_fault()):
            _refuse(where, "a graph that may take rows of several callers", fault, "call run() for each feed")
        checked = [runner.check(f"{where}: feed {number}", feed) for number, feed in enumerate(feeds)]
        for number, feed in enumerate(checked):
            if feed.rows != 1:
                _refuse(f"{where}: feed {number}", "1 row", str(feed.rows), "make each row a feed of its own")
        return runner.run(checked)

    def open_stream(self, graph: str | None = None, rows: int = 1) -> "Stream":
        """Open a stream, whose state starts as the manifest says.

        Args:
            graph: graph name; needed when the bundle has several.
            rows: rows of every feed, i.e. streams that move in lock-step.

        Raises:
            BadInput: the graph has no states, no bucket for that many rows, or the model is closed.
        """
        runner = self.runner(graph)
        if not runner.graph.states:
            _refuse(f"{runner.name}.open_stream", "a graph with states", "one without", "call run() for each feed")
        buckets = runner.graph.row_buckets
        if type(rows) is not int or not 1 <= rows <= buckets[-1]:
            _refuse(f"{runner.name}.open_stream", f"rows from 1 to {buckets[-1]}", show(rows), "open several streams")
        return Stream(self, runner, rows)

    def runner(self, graph: str | None = None) -> GraphRunner:
        """Return what runs one graph: the only one, or the named one."""
        if self._closed:
            _refuse(str(self.bundle.path), "an open model", "a closed one", "load it again")
        names = ", ".join(repr(name) for name in self._runners)
        if graph is not None and not isinstance(graph, str):
            _refuse(str(self.bundle.path), f"one of its graphs ({names})", f"graph {show(graph)}", "pass its name")
        if graph is None and len(self._runners) != 1:
            _refuse(str(self.bundle.path), f"the name of one of its graphs ({names})", "none", "pass graph=...")
        runner = next((runner for name, runner in self._runners.items() if graph in (None, name)), None)
        if runner is None:
            _refuse(str(self.bundle.path), f"one of its graphs ({names})", f"graph {show(graph)}", "correct the name")
        return runner

    def close(self) -> None:
        """Drop the sessions and close the bundle; streams of it refuse further pushes. A second call does nothing."""
        self._closed = True
        for runner in self._runners.values():
            runner.executor.close()
        self.bundle.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed


class Stream:
    """One stream of chunks through a graph with states; made by `Model.open_stream`, best used in a `with` block."""

    def __init__(self, model: Model, runner: GraphRunner, rows: int) -> None:
        """Start from the initial states."""
        self._model = model
        self._runner = runner
        self._rows = rows
        self._closed = False
        self._pushing = threading.Lock()
        self._state = initial_state(runner.graph, rows)

    def push(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run the next chunk and carry the states on.

        Args:
            feeds: every input of role data, with the stream's number of rows.

        Returns:
            Every output of role data.

        Raises:
            BadInput: the feed is wrong, the stream or its model is closed, or another push runs; the state is kept.
            BundleRefused: the graph file is not what the manifest says.
        """
        if not self._pushing.acquire(blocking=False):
            _refuse(self._where, "one push at a time", "a push during another", "give each thread a stream of its own")
        try:
            self._check_open()
            feed = self._runner.check(self._where, feeds, self._rows)
            if feed.rows != self._rows:
                cure = f"feed {self._rows} or open a stream with rows={feed.rows}"
                _refuse(self._where, f"{self._rows} rows, as the stream was opened", str(feed.rows), cure)
            outputs, self._state = self._runner.step(feed, self._state)
            return outputs
        finally:
            self._pushing.release()

    def reset(self) -> None:
        """Forget everything pushed so far.

        Raises:
            BadInput: the stream is closed.
        """
        with self._pushing:
            self._check_open()
            self._state = initial_state(self._runner.graph, self._rows)

    @property
    def state(self) -> StreamState:
        """What the stream carries now; for reading, a change to its arrays changes the stream."""
        return self._state

    def close(self) -> None:
        """End the stream and drop its state; a second call does nothing."""
        self._closed = True
        self._state = StreamState(self._rows, {}, {})

    def __enter__(self) -> "Stream":
        """Return the stream.

        Raises:
            BadInput: it is closed.
        """
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        self.close()

    @property
    def _where(self) -> str:
        return f"{self._runner.name}.push"

    def _check_open(self) -> None:
        if self._closed:
            _refuse(self._where, "an open stream", "a closed one", "open another with open_stream()")
        if self._model.closed:
            _refuse(self._where, "a stream of an open model", "one of a closed model", "load the bundle again")


def _check_can_run(bundle: Bundle) -> None:
    """Refuse, by its name, what a manifest may say and this runtime cannot run yet."""
    if bundle.manifest.wiring:
        refuse(f"{bundle.path}: wiring", "graphs that run alone", "wired graphs, which are not run yet", UPDATE)
    for name, graph in bundle.manifest.graphs.items():
        for cache in graph.caches:
            kind = not_yet(cache.side, cache.update)
            if kind is not None:
                place = f"{bundle.path}: graphs.{name}.caches.{cache.axis}"
                refuse(place, "right-aligned caches that are replaced", f"{kind}, which are not run yet", UPDATE)


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
