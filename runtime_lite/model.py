"""A loaded bundle: run feeds, submit them, or open a stream whose state the runtime keeps.

A feed is padded to the smallest bucket that holds it, and the outputs are cut back to what is valid. A graph without
states is run directly; a graph with states, run without a stream, starts from its initial states. Rows share a run only
where the bundle proves that they are independent; then those of several callers do. A call either returns the outputs
of role data or raises and changes nothing. All of it may be called from several threads.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from runtime_lite.calls.feeds import Feed, RowLengths
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Pipeline, Runnable
from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import ExecutorFactory
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.graph_contract import check_contracts
from runtime_lite.format.latencies import graph_at, latencies_of
from runtime_lite.format.reader import Bundle
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, ServiceClass
from runtime_lite.serving.refusals import CLOSE_S, RetiredError, check_seconds
from runtime_lite.serving.request import LiveRequest, Outputs, StreamOptions, Version, make_part
from runtime_lite.serving.server import Server
from runtime_lite.serving.shield import Shield, shielded
from runtime_lite.serving.ticket import Ticket, deadline_at
from runtime_lite.stream import Stream, check_copy

Answer = TypeVar("Answer")

MOST_PRIORITY = 100

UPDATE = "update runtime_lite, or rebuild the bundle without them"


class Model:
    """The graphs of one bundle, ready to run; made by `Runtime.load`.

    Args:
        server: of the runtime.
        version: the bundle.
        priority: added to that of every request.
    """

    def __init__(self, server: Server, version: Version, priority: int) -> None:
        """Keep the parts; no session is opened yet."""
        self._server = server
        self._version = version
        self._name = version.bundle.manifest.name
        self._pinned: list[Version] = []
        self._priority = priority
        self._closed = False

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
            graph: graph name; needed when the bundle has several. Without it wired ones run together.
            lengths: true length of every row by axis, e.g. `{"time": [900, 512]}`, for axes that have a length per
                row. What the arrays hold behind it is not looked at.

        Returns:
            Every output of role data, with as many rows as the feed and as long as the lengths make it. With `lengths`,
            a list per output: item i is row i, without the batch axis.

        Raises:
            BadInput: the feed, the lengths or the graph name is wrong, or the model is closed.
            BundleRefused: the graph file is not what the manifest says.
        """

        def serve(version: Version, runner: Runnable) -> dict[str, Array] | dict[str, list[Array]]:
            ticket: Ticket[dict[str, Array]] = self._ticket(
                f"{runner.name}.run", version, runner, feeds, lengths, INTERACTIVE, None
            )
            self._server.call(ticket, version, ticket.parts)
            return ticket.result()

        return self._with_version(graph, serve)

    @overload
    def submit(
        self,
        feeds: Mapping[str, Array],
        graph: str | None = None,
        lengths: None = None,
        *,
        service: ServiceClass = INTERACTIVE,
        deadline_ms: float | None = None,
        priority: int = 0,
        copy: bool = True,
    ) -> Ticket[dict[str, Array]]: ...

    @overload
    def submit(
        self,
        feeds: Mapping[str, Array],
        graph: str | None = None,
        *,
        lengths: Mapping[str, RowLengths],
        service: ServiceClass = INTERACTIVE,
        deadline_ms: float | None = None,
        priority: int = 0,
        copy: bool = True,
    ) -> Ticket[dict[str, list[Array]]]: ...

    def submit(
        self,
        feeds: Mapping[str, Array],
        graph: str | None = None,
        lengths: Mapping[str, RowLengths] | None = None,
        *,
        service: ServiceClass = INTERACTIVE,
        deadline_ms: float | None = None,
        priority: int = 0,
        copy: bool = True,
    ) -> Ticket[Any]:
        """Queue one feed and return at once; it shares runs with others.

        Args:
            feeds: as for `run`.
            graph: graph name; needed when the bundle has several. Without it wired ones run together.
            lengths: as for `run`.
            service: what is promised: `INTERACTIVE`, `UTTERANCE`, `BULK`, or a class of your own.
            deadline_ms: from now on; an answer after it is not delivered. The class's, if it has one and this is None.
            priority: the higher goes first among requests of a kind.
            copy: take a copy of the arrays, which are the caller's again when this returns. Without, they are handed
                over: until the request has ended nobody may write to them.

        Returns:
            The request: `.result()` waits for what `run` returns, so does `await`; `.cancel()` takes it back.

        Raises:
            BadInput: as for `run`.
            Overloaded: it could not be served in time, or the runtime drains; nothing was queued. Where something
                waits, that may be said before the values of the feed are looked at.
        """

        def serve(version: Version, runner: Runnable) -> Ticket[Any]:
            where = f"{runner.name}.submit"
            kind = self._service(where, service, priority)
            check_copy(where, copy)
            checked = None
            if lengths is None and self._server.has_queue and isinstance(runner, GraphRunner):
                checked = self._turn_away(where, version, runner, feeds, kind, deadline_ms, copy)
            ticket = self._ticket(where, version, runner, feeds, lengths, kind, deadline_ms, checked, copy)
            self._server.submit(ticket, version, ticket.parts)
            return ticket

        return self._with_version(graph, serve)

    def run_many(self, feeds: Sequence[Mapping[str, Array]], graph: str | None = None) -> list[dict[str, Array]]:
        """Run feeds of one row each together, whatever their lengths.

        Args:
            feeds: every input of role data, one row each.
            graph: graph name; needed when the bundle has several. Without it wired ones run together.

        Returns:
            For each feed what `run` returns for it alone.

        Raises:
            BadInput: a feed or the graph name is wrong, the bundle does not prove that rows are independent, or the
                model is closed; nothing was run.
            BundleRefused: the graph file is not what the manifest says.
        """

        def serve(version: Version, runner: Runnable) -> list[Outputs]:
            where = f"{runner.name}.run_many"
            checked = _check_many(where, runner, feeds)
            ticket = self._ticket_of(where, version, runner, checked, BULK, None, lambda answers: answers)
            self._server.call(ticket, version, ticket.parts)
            return ticket.result()

        return self._with_version(graph, serve)

    def open_stream(
        self,
        graph: str | None = None,
        rows: int = 1,
        *,
        latency: str | None = None,
        service: ServiceClass = CHUNK,
        priority: int = 0,
        credits: int = 8,
        idle_s: float | None = None,
        period_ms: float | None = None,
    ) -> Stream:
        """Open a stream, whose state starts as the manifest says.

        Args:
            graph: graph name; needed when the bundle has several. Without it wired ones run together.
            rows: rows of every feed, i.e. streams that move in lock-step.
            latency: of a model that the bundle holds at several latencies, the name of one; see `latencies`.
            service: class of its chunks.
            priority: as for `submit`.
            credits: requests of the stream that may be alive at once; more are refused.
            idle_s: without a chunk for so long it ends by itself.
            period_ms: a chunk will come so often: the stream is refused if the device could not carry it.

        Raises:
            BadInput: the graph has no states, no bucket for that many rows or not that latency, an option is wrong, or
                the model is closed.
            Overloaded: all slots are taken, the device is full, or the runtime drains.
        """

        def serve(version: Version, runner: Runnable) -> Stream:
            where = f"{runner.name}.open_stream"
            if not runner.has_states:
                _refuse(where, "a graph with states", "one without", "call run() for each feed")
            most = runner.most_rows
            if type(rows) is not int or not 1 <= rows <= most:
                _refuse(where, f"rows from 1 to {most}", show(rows), "open several streams")
            if type(credits) is not int or credits < 1:
                _refuse(where, "credits from 1 on", show(credits), "leave it out")
            idle_ns, period_ns = _ns(where, "idle_s", idle_s, 1000), _ns(where, "period_ms", period_ms, 1)
            if period_ns is not None and isinstance(runner, Pipeline):
                _refuse(where, "no period_ms for wired graphs", show(period_ms), "leave it out: not counted yet")
            options = StreamOptions(self._service(where, service, priority), credits, idle_ns, period_ns)
            with Shield():
                return Stream(self._server, self._server.open_stream(version, runner, rows, options))

        return self._with_version(graph, serve, latency)

    @property
    def latencies(self) -> Mapping[str, Mapping[str, str]]:
        """For each model with several latencies its latencies, and their graphs."""
        return latencies_of(self.bundle.manifest)

    def runner(self, graph: str | None = None) -> GraphRunner:
        """Return what runs one graph: the only one, or the named one."""
        self._check_open()
        return self._runner(self._version, graph)

    def asked(self, graph: str | None = None) -> Runnable:
        """Return what a request asks for: the named graph, else the wired ones together, else the only one."""
        self._check_open()
        return self._asked(self._version, graph)

    def _asked(self, version: Version, graph: str | None, latency: str | None = None) -> Runnable:
        if latency is not None or latencies_of(version.bundle.manifest):
            graph = graph_at(str(self.bundle.path), version.bundle.manifest, graph, latency)
        if graph is None and version.pipeline is not None:
            return version.pipeline
        return self._runner(version, graph)

    def _runner(self, version: Version, graph: str | None) -> GraphRunner:
        if graph is None and len(version.runners) == 1:
            return next(iter(version.runners.values()))
        if isinstance(graph, str) and graph in version.runners:
            return version.runners[graph]
        names = ", ".join(repr(name) for name in version.runners)
        if graph is not None and not isinstance(graph, str):
            _refuse(str(self.bundle.path), f"one of its graphs ({names})", f"graph {show(graph)}", "pass its name")
        if graph is None:
            _refuse(str(self.bundle.path), f"the name of one of its graphs ({names})", "none", "pass graph=...")
        _refuse(str(self.bundle.path), f"one of its graphs ({names})", f"graph {show(graph)}", "correct the name")

    def _with_version(
        self, graph: str | None, serve: Callable[[Version, Runnable], Answer], latency: str | None = None
    ) -> Answer:
        """Serve with the version of now; once more if it was swapped meanwhile."""
        while True:
            self._check_open()
            version = self._version
            try:
                return serve(version, self._asked(version, graph, latency))
            except RetiredError:
                continue

    def _turn_away(
        self,
        where: str,
        version: Version,
        runner: GraphRunner,
        feeds: Mapping[str, Array],
        service: ServiceClass,
        deadline_ms: float | None,
        copy: bool,
    ) -> Feed | None:
        """Refuse what has a deadline and cannot meet it before its values are looked at: a refusal is to cost little.

        Returns:
            The checked feed, if its kind has been checked before.

        Raises:
            BadInput: it is of such a kind, and a value is none.
            Overloaded: it is refused.
        """
        if deadline_ms is None and service.hard_ms is None:
            return None
        feed = runner.known(feeds)
        if feed is None:
            return None
        if feed.rows <= runner.most_rows:
            now = self._server.clock()
            hard = deadline_at(where, now, deadline_ms)
            request = LiveRequest(self._server, where, service.name, tuple)
            self._server.turn_away(request, make_part(request, 0, version, runner, [feed], service, now, hard))
        return runner.check_values(where, feed, copy)

    def _ticket(
        self,
        where: str,
        version: Version,
        runner: Runnable,
        feeds: Mapping[str, Array],
        lengths: Mapping[str, RowLengths] | None,
        service: ServiceClass,
        deadline_ms: float | None,
        feed: Feed | None = None,
        copy: bool = False,
    ) -> Ticket[Any]:
        """A request for one feed, checked, be it by `_turn_away`."""
        if lengths is not None:
            checked = runner.check_ragged(where, feeds, lengths, copy)
            return self._ticket_of(where, version, runner, checked, service, deadline_ms, lambda a: _as_rows(runner, a))
        checked = runner.split(runner.check(where, feeds, copy=copy) if feed is None else feed)
        return self._ticket_of(where, version, runner, checked, service, deadline_ms, lambda a: _as_one(runner, a))

    def _ticket_of(
        self,
        where: str,
        version: Version,
        runner: Runnable,
        feeds: Sequence[Feed],
        service: ServiceClass,
        deadline_ms: float | None,
        answer: Callable[[list[Outputs]], Answer],
    ) -> Ticket[Answer]:
        """A request for checked feeds, in as few parts as hold them."""
        count = len(feeds)
        groups = runner.plan(feeds) if count > 1 else [[0]] * count

        def in_order(outputs: list[list[Outputs]]) -> Answer:
            if count == 1:
                return answer(outputs[0])
            pairs = zip(groups, outputs, strict=True)
            found = {at: each for numbers, part in pairs for at, each in zip(numbers, part, strict=True)}
            return answer([found[at] for at in range(count)])

        ticket = Ticket(self._server, where, service.name, in_order, len(groups))
        now = self._server.clock()
        hard = deadline_at(where, now, deadline_ms)
        for at, numbers in enumerate(groups):
            together = [feeds[number] for number in numbers]
            ticket.parts += self._server.parts_of(ticket, at, version, runner, together, service, now, hard)
        return ticket

    def _service(self, where: str, service: ServiceClass, priority: int) -> ServiceClass:
        """The class of a request with the priorities of model and caller in it."""
        if not isinstance(service, ServiceClass):
            _refuse(where, "a service class", show(service), "pass INTERACTIVE, UTTERANCE, BULK or CHUNK")
        if fault := service.fault():
            _refuse(where, f"a service class with a {fault}", show(getattr(service, fault)), "see ServiceClass")
        if type(priority) is not int or abs(priority) > MOST_PRIORITY:
            _refuse(where, f"a priority from {-MOST_PRIORITY} to {MOST_PRIORITY}", show(priority), "leave it out")
        added = priority + self._priority
        if not added:
            return service
        return service._replace(name=f"{service.name}{added:+d}", priority=service.priority + added)

    def _check_open(self) -> None:
        if self._closed:
            _refuse(str(self.bundle.path), "an open model", "a closed one", "load it again")

    @shielded
    def close(self, limit_s: float = CLOSE_S) -> None:
        """Drop what is queued, end the streams, wait for what runs, and close the bundle; twice does nothing more.

        Args:
            limit_s: so long a run in flight may take.

        Raises:
            BadInput: the limit is no number from 0 on.
            ExecutorFailed: a run has not ended by then; the bundle is closed when it does.
        """
        where = f"{self.bundle.path}: close"
        check_seconds(where, "limit_s", limit_s)
        self._server.unload(where, self.leave(), limit_s)

    def leave(self) -> list[Version]:
        """For `Runtime.close`: take no more requests; return the versions that are to be unloaded."""
        with self._server.lock:
            self._closed = True
            return [self._version, *self._pinned]

    @shielded
    def swap(self, version: Version) -> None:
        """For `Runtime.swap`: serve what comes from now on with another version; open streams stay with theirs.

        Raises:
            BadInput: the model was closed meanwhile; the version is closed.
        """
        with self._server.lock:
            if not self._closed:
                old, self._version = self._version, version
                self._pinned = [old, *(each for each in self._pinned if not each.gone.is_set())]
        self._server.retire(version if self._closed else old, "swapped")
        self._check_open()

    @property
    def name(self) -> str:
        """Name of the bundle that was loaded; a swap keeps it."""
        return self._name

    @property
    def bundle(self) -> Bundle:
        """The bundle that new requests are served from."""
        return self._version.bundle

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed


def make_version(
    name: str,
    bundle: Bundle,
    threads: int,
    check_finite: bool,
    executors: ExecutorFactory,
    gone: threading.Event | None = None,
) -> Version:
    """Return a bundle ready to run; it closes the bundle.

    Args:
        name: no other version of the runtime that is not gone has it.
        bundle: an open bundle.
        threads: threads per session.
        check_finite: refuse NaN and infinity in feeds.
        executors: makes what runs a graph.
        gone: to be set once the version is closed; without it one is made.

    Raises:
        BundleRefused: a graph file was built for something else than the manifest says, or the bundle asks for what is
            not there yet.
        EngineAbsent: an engine is not built, or what runs it is not on this machine.
    """
    _check_can_run(bundle)
    check_contracts(bundle)
    runners: dict[str, GraphRunner] = {}
    try:
        for graph_name, graph in bundle.manifest.graphs.items():
            executor = executors(bundle, graph_name, threads)
            runners[graph_name] = GraphRunner(graph_name, graph, executor, check_finite)
    except BaseException:
        for runner in runners.values():
            runner.executor.close()
        raise
    wiring = bundle.manifest.wiring
    pipeline = Pipeline(runners, wiring) if wiring else None
    return Version(name, bundle, runners, pipeline, gone=gone or threading.Event())


def _check_many(where: str, runner: Runnable, feeds: Sequence[Mapping[str, Array]]) -> list[Feed]:
    if not isinstance(feeds, Sequence):
        _refuse(where, "a list of feeds", f"a {type(feeds).__name__}", "write [{'name': array}, ...]")
    if len(feeds) > 1 and (fault := runner.batching_fault()):
        _refuse(where, "a graph that may take rows of several callers", fault, "call run() for each feed")
    checked = [runner.check(f"{where}: feed {number}", feed) for number, feed in enumerate(feeds)]
    for number, feed in enumerate(checked):
        if feed.rows != 1:
            _refuse(f"{where}: feed {number}", "1 row", str(feed.rows), "make each row a feed of its own")
    return checked


def _as_one(runner: Runnable, answers: list[Outputs]) -> Outputs:
    """The outputs of the parts of one feed as those of the whole."""
    if len(answers) == 1:
        return answers[0]
    return {name: np.concatenate([answer[name] for answer in answers], axis) for name, axis in runner.batched.items()}


def _as_rows(runner: Runnable, answers: list[Outputs]) -> dict[str, list[Array]]:
    """The outputs of rows of several lengths: a list per output, without the batch axis."""
    return {name: [np.squeeze(answer[name], axis) for answer in answers] for name, axis in runner.batched.items()}


def _ns(where: str, name: str, value: float | None, ms: int) -> int | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < 1e9:
        _refuse(where, f"{name} as a positive number", show(value), "leave it out")
    return int(value * ms * NS_PER_MS)


def _check_can_run(bundle: Bundle) -> None:
    """Refuse, by its name, what a manifest may say and this runtime cannot run yet."""
    for number, wire in enumerate(bundle.manifest.wiring):
        given = bundle.manifest.graphs[wire.from_graph].outputs
        if any(tensor.name == wire.output and tensor.role == "state" for tensor in given):
            got = "a state that another graph starts from, which is not run yet"
            refuse(f"{bundle.path}: wiring[{number}]", "wires between data", got, UPDATE)


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
