"""Defines a loaded bundle, which runs or queues feeds, and opens streams whose states the runtime keeps.

A feed is padded to the smallest bucket that holds it, and the outputs are sliced to their valid entries. A graph
without states is run directly; a graph with states, run without a stream, starts from its initial states. Requests
share a run only if the bundle proves that rows are independent. A call either returns the outputs of role data, or
raises and changes nothing. Every method may be called from several threads.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, overload

import numpy as np

from runtime_lite.calls.feeds import Feed, RowLengths
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.calls.pipeline import Pipeline, Runnable
from runtime_lite.decoding.generation import Generation
from runtime_lite.decoding.say import VoiceOptions, say
from runtime_lite.decoding.steps import Steps
from runtime_lite.decoding.voice import Voice
from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import ExecutorFactory, is_simulated
from runtime_lite.format.arrays import Array
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.graph_contract import check_contracts
from runtime_lite.format.latencies import graph_at, latencies_of
from runtime_lite.format.reader import Bundle
from runtime_lite.format.sampling import Sampling
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import BULK, CHUNK, INTERACTIVE, STEP, ServiceClass
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
        server: the server of the runtime.
        version: the opened bundle with its runners.
        priority: added to the priority of every request.
    """

    def __init__(self, server: Server, version: Version, priority: int) -> None:
        """Store the parts; no session is opened yet."""
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
        """Run one feed; a feed with more rows than the largest bucket takes several runs.

        Args:
            feeds: every input of role data.
            graph: graph name; needed when the bundle has several. Without it wired ones run together.
            lengths: true length of every row by axis, e.g. `{"time": [900, 512]}`, for axes that have a length per row.
                Entries behind a row's length are ignored.

        Returns:
            Every output of role data, with as many rows as the feed and without padding. With `lengths`, a list per
            output: item i is row i, without the batch axis.

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
            service: service class: `INTERACTIVE`, `UTTERANCE`, `BULK`, or a class of your own.
            deadline_ms: from now on; an answer after it is not delivered. If None, the deadline of the class, if it has
                one.
            priority: among requests of one class, those of higher priority run first.
            copy: take a copy of the arrays, which are the caller's again when this returns. Without, they are handed
                over: until the request has ended nobody may write to them.

        Returns:
            The request: `.result()` and `await` wait for the outputs, which are those of `run`; `.cancel()` cancels it.

        Raises:
            BadInput: as for `run`.
            Overloaded: it could not be served in time, or the runtime drains; nothing was queued. If other requests
                wait, this may be raised before the values of the feed are checked.
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
        """Run feeds of one row each in shared runs, whatever their lengths.

        Args:
            feeds: every input of role data, one row each.
            graph: graph name; needed when the bundle has several. Without it wired ones run together.

        Returns:
            For each feed, the outputs that `run` returns for it alone.

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
        """Open a stream, whose states start as the manifest specifies.

        Args:
            graph: graph name; needed when the bundle has several. Without it wired ones run together.
            rows: rows of every feed, i.e. number of sequences that advance together.
            latency: name of one of the latencies of a model that has several in the bundle; see `latencies`.
            service: service class of the chunks.
            priority: as for `submit`.
            credits: requests of the stream that may be unanswered at once; more are refused.
            idle_s: the stream is closed after this many seconds without a chunk; never if None.
            period_ms: time between two chunks; the stream is refused if the device is too slow for it.

        Raises:
            BadInput: the graph has no states, no bucket of that many rows or no such latency, an option is wrong, or
                the model is closed.
            Overloaded: the greatest number of streams is open, the device is too slow for one more, or the runtime
                drains.
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

    def generate(
        self,
        feeds: Mapping[str, Array],
        sampling: Sampling,
        *,
        tokens: str,
        scores: str,
        graph: str | None = None,
        service: ServiceClass = CHUNK,
        priority: int = 0,
        deadline_ms: float | None = None,
        room: int | None = None,
    ) -> Generation:
        """Generate a sequence: draw a token of the scores of each call, and feed it as the next one.

        Args:
            feeds: the first call, of one row, with the prompt at `tokens`; other inputs are fed again in every call.
            sampling: how tokens are drawn, and when the sequence ends.
            tokens: integer input of shape [rows, count] that tokens are fed to.
            scores: output whose last row has the scores of the next token.
            graph: name of the graph of one step; needed when the bundle has several.
            service: service class of the steps.
            priority: as for `submit`.
            deadline_ms: for the whole sequence, from now on.
            room: number of tokens that may be unread, at which generation pauses; by default none is too many.

        Returns:
            The tokens to come: iterate over it, `async for` it, or take all of them with `result`.

        Raises:
            BadInput: a feed, a name or a setting is wrong, the graph has no states, or the model is closed.
            Overloaded: no stream can be opened, or the runtime drains.
        """

        def serve(version: Version, runner: Runnable) -> Generation:
            where = f"{runner.name}.generate"
            if not isinstance(sampling, Sampling):
                _refuse(where, "sampling as a Sampling", show(sampling), "pass Sampling(max_tokens=...)")
            if not isinstance(runner, GraphRunner) or not runner.has_states:
                _refuse(where, "one graph with states", "wired graphs, or one without", "name the graph of one step")
            hard = deadline_at(where, self._server.clock(), deadline_ms)
            options = StreamOptions(self._service(where, service, priority), 1, None, None)
            unread = sampling.max_tokens if room is None else room
            with Shield():
                live, close = self._server.open_stream(version, runner, 1, options), self._server.close_stream
                try:
                    steps = Steps(where, live, feeds, tokens, scores, sampling, self._server.clock)
                    generation = Generation(self._server, where, live, steps, close, unread)
                    self._server.submit(generation, version, [steps.first(generation, hard)])
                except BaseException:
                    close(live)
                    raise
                return generation

        return self._with_version(graph, serve)

    def say(
        self,
        feeds: Mapping[str, Array],
        sampling: Sampling | None = None,
        *,
        seed: int | None = None,
        service: ServiceClass = STEP,
        priority: int = 0,
        deadline_ms: float | None = None,
        room: int = 8,
        lead_ms: float | None = None,
    ) -> Voice:
        """Speak a text: tokens are drawn and become sound within the runtime, packet by packet.

        Args:
            feeds: inputs of the voice's step and codec, of one row, but those that the runtime feeds; the input of
                tokens takes the prompt, and may be left out if the bundle has a start.
            sampling: how tokens are drawn, and when the voice ends; by default as the bundle says.
            seed: of tokens and noise, in place of that of the sampling.
            service: service class of steps and chunks of the codec.
            priority: as for `submit`.
            deadline_ms: for the whole voice, from now on.
            room: number of packets that may be unread, at which the voice pauses.
            lead_ms: length of the sound that is not played yet at which the voice pauses, until little is left; by
                default it is made as fast as the device allows.

        Returns:
            The packets to come: iterate over it, `async for` it, or take all of them with `result`.

        Raises:
            BadInput: the bundle has no voice, a feed or a setting is wrong, or the model is closed.
            Overloaded: no streams can be opened, or the runtime drains.
        """

        def serve(version: Version) -> Voice:
            where = f"{version.bundle.manifest.name}.say"
            hard = deadline_at(where, self._server.clock(), deadline_ms)
            stream = StreamOptions(self._service(where, service, priority), 1, None, None)
            lead_ns = _ns(where, "lead_ms", lead_ms, 1)
            return say(self._server, version, feeds, VoiceOptions(sampling, seed, stream, hard, room, lead_ns))

        return self._with_newest(serve)

    @property
    def latencies(self) -> Mapping[str, Mapping[str, str]]:
        """Graph names by model and by latency, for each model that the bundle holds at several latencies."""
        return latencies_of(self.bundle.manifest)

    def runner(self, graph: str | None = None) -> GraphRunner:
        """Return the runner of the named graph; by default, of the only one."""
        self._check_open()
        return self._runner(self._version, graph)

    @property
    def simulated(self) -> tuple[str, ...]:
        """Return the names of the graphs that a vendor's simulator executes in the place of a device."""
        self._check_open()
        return tuple(name for name in self.bundle.manifest.graphs if is_simulated(self.runner(name).executor))

    def asked(self, graph: str | None = None) -> Runnable:
        """Return the runner of a request: the named graph, by default the wired graphs together, or the only graph."""
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
        """Call `serve` with the current version of the model and the runner that is asked for."""
        return self._with_newest(lambda version: serve(version, self._asked(version, graph, latency)))

    def _with_newest(self, serve: Callable[[Version], Answer]) -> Answer:
        """Call `serve` with the current version of the model, and again if it was swapped in the meantime."""
        while True:
            self._check_open()
            try:
                return serve(self._version)
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
        """Refuse a request that cannot meet its deadline before its values are checked, so that refusals cost little.

        Returns:
            The checked feed; None without a deadline, or if no feed of these names, shapes and dtypes was checked
            before.

        Raises:
            BadInput: a value of the feed is not allowed.
            Overloaded: the request cannot meet its deadline.
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
        """Return a request for one feed; `feed` is the checked feed, if `_turn_away` has checked it."""
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
        """Return a request for checked feeds, in as few parts as possible."""
        count = len(feeds)
        groups = runner.plan(feeds) if count > 1 else [[0]] * count

        def in_order(outputs: list[list[Outputs]]) -> Answer:
            if count == 1:
                return answer(outputs[0])
            pairs = zip(groups, outputs, strict=True)
            by_number = {
                number: outputs_of_feed
                for numbers, part in pairs
                for number, outputs_of_feed in zip(numbers, part, strict=True)
            }
            return answer([by_number[number] for number in range(count)])

        ticket = Ticket(self._server, where, service.name, in_order, len(groups))
        now = self._server.clock()
        hard = deadline_at(where, now, deadline_ms)
        for group, numbers in enumerate(groups):
            together = [feeds[number] for number in numbers]
            ticket.parts += self._server.parts_of(ticket, group, version, runner, together, service, now, hard)
        return ticket

    def _service(self, where: str, service: ServiceClass, priority: int) -> ServiceClass:
        """Return a service class with the priorities of the model and of the caller added to its own."""
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
        """Drop queued requests, end streams, wait for runs, and close the bundle; a second call does nothing.

        Args:
            limit_s: seconds to wait for runs in flight.

        Raises:
            BadInput: the limit is no number from 0 on.
            ExecutorFailed: a run has not ended within the limit; the bundle is closed when it ends.
        """
        where = f"{self.bundle.path}: close"
        check_seconds(where, "limit_s", limit_s)
        self._server.unload(where, self.leave(), limit_s)

    def leave(self) -> list[Version]:
        """Accept no more requests and return the versions to unload; `Runtime.close` calls this."""
        with self._server.lock:
            self._closed = True
            return [self._version, *self._pinned]

    @shielded
    def swap(self, version: Version) -> None:
        """Serve new requests with another version; open streams keep theirs. `Runtime.swap` calls this.

        Raises:
            BadInput: the model was closed in the meantime; the new version is closed.
        """
        with self._server.lock:
            if not self._closed:
                old, self._version = self._version, version
                self._pinned = [old, *(each for each in self._pinned if not each.gone.is_set())]
        self._server.retire(version if self._closed else old, "swapped")
        self._check_open()

    @property
    def name(self) -> str:
        """Name of the bundle that was loaded first; a swap does not change it."""
        return self._name

    @property
    def bundle(self) -> Bundle:
        """The bundle that serves new requests."""
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
    """Return a version: a bundle with a runner per graph; closing it closes the bundle.

    Args:
        name: name of the version, unique among those of the runtime that are not closed.
        bundle: an open bundle.
        threads: threads per session.
        check_finite: refuse NaN and infinity in feeds.
        executors: makes the executor of each graph.
        gone: event to set once the version is closed; by default a new one.

    Raises:
        BundleRefused: a graph file does not match the manifest, or the bundle needs a feature that this runtime lacks.
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
    """Concatenate the outputs of the parts of one feed along the batch axis."""
    if len(answers) == 1:
        return answers[0]
    return {name: np.concatenate([answer[name] for answer in answers], axis) for name, axis in runner.batched.items()}


def _as_rows(runner: Runnable, answers: list[Outputs]) -> dict[str, list[Array]]:
    """Return a list per output with one array per row, without the batch axis."""
    return {name: [np.squeeze(answer[name], axis) for answer in answers] for name, axis in runner.batched.items()}


def _ns(where: str, name: str, value: float | None, ms: int) -> int | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < 1e9:
        _refuse(where, f"{name} as a positive number", show(value), "leave it out")
    return int(value * ms * NS_PER_MS)


def _check_can_run(bundle: Bundle) -> None:
    """Refuse a manifest with a valid feature that this runtime cannot run yet, and name it."""
    for number, wire in enumerate(bundle.manifest.wiring):
        given = bundle.manifest.graphs[wire.from_graph].outputs
        if any(tensor.name == wire.output and tensor.role == "state" for tensor in given):
            got = "a state that another graph starts from, which is not run yet"
            refuse(f"{bundle.path}: wiring[{number}]", "wires between data", got, UPDATE)


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
