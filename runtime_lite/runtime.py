"""Defines the runtime, which owns a device and the models loaded on it, and serves the requests of all callers.

Loading checks the whole bundle. The session of a bucket is opened at its first use, or by `warm_up`, and kept open.
Closing the runtime closes every model and every stream.
"""

import itertools
import math
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from runtime_lite.bench import bucket_call, feed_arrays
from runtime_lite.calls.graph_runner import GraphRunner
from runtime_lite.errors import BadInput, show
from runtime_lite.executors.executor import ExecutorFactory, make_executor, make_trusted_executor
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Artifact, Graph, bucket_name
from runtime_lite.format.reader import Bundle, read_bundle
from runtime_lite.model import MOST_PRIORITY, Model, make_version
from runtime_lite.scheduling.cost_table import CostTable
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.serving.events import Observer
from runtime_lite.serving.exits import native_work
from runtime_lite.serving.health import DrainReport, Health
from runtime_lite.serving.refusals import CLOSE_S, check_seconds
from runtime_lite.serving.request import Version
from runtime_lite.serving.request_tracker import RequestCounts
from runtime_lite.serving.server import Server
from runtime_lite.serving.shield import Shield, shielded

MAX_THREADS = 1024
MAX_WORKERS = 256
MAX_STREAMS = 1_000_000


class Runtime:
    """Loads bundles and serves them; best used in a `with` block.

    Args:
        threads: threads that one run may use.
        check_finite: refuse feeds that hold NaN or infinity.
        workers: runs that may be in flight at once.
        max_streams: streams that may be open at once.
        observers: objects that are notified of every request, run, stream and model.
    """

    def __init__(
        self,
        threads: int = 1,
        check_finite: bool = True,
        workers: int = 1,
        max_streams: int = 1024,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Check the options; no thread is started.

        Raises:
            BadInput: a number is out of its range, or another argument is of another type.
        """
        check_count("threads", threads, MAX_THREADS)
        _check_switch("Runtime", "check_finite", check_finite)
        _check_observers(observers)
        check_count("workers", workers, MAX_WORKERS)
        check_count("max_streams", max_streams, MAX_STREAMS)
        self._threads = threads
        self._check_finite = check_finite
        costs = CostTable()
        self._server = Server(workers, max_streams, Scheduler(costs, workers), costs, time.monotonic_ns, observers)
        self._models: list[Model] = []
        self._named: dict[str, threading.Event] = {}
        self._closed = False

    def load(
        self,
        path: str | os.PathLike[str],
        executors: ExecutorFactory = make_executor,
        allow_host_code: bool = False,
        priority: int = 0,
        warm_up: bool = False,
    ) -> Model:
        """Open and check a bundle.

        Args:
            path: bundle directory or `.tar` file.
            executors: makes the executor of each graph; by default the one the graph was built for.
            allow_host_code: let engines run the code that they contain, with the caller's rights. Without it such
                engines are refused, whatever the bundle states. Only for bundles from a trusted source.
            priority: added to the priority of every request of the model.
            warm_up: run every bucket before this returns, so that no request waits for a session to open, and use the
                times as costs of this machine.

        Raises:
            BadInput: there is nothing at the path, an argument is of another type, or the runtime is closed.
            BundleRefused: the bundle is truncated, altered, hostile, of an unknown version, or engines carry code.
            EngineAbsent: an engine is not built, or what runs it is not on this machine.
            Overloaded: the process ends.
        """
        self._check_open("load")
        if type(priority) is not int or abs(priority) > MOST_PRIORITY:
            raise BadInput(
                f"Runtime.load: expected a priority from {-MOST_PRIORITY} to {MOST_PRIORITY}, got {show(priority)}; "
                "leave it out"
            )
        _check_switch("Runtime.load", "warm_up", warm_up)
        with native_work("Runtime.load"):
            version = self._open("load", None, path, executors, allow_host_code)
            try:
                costs = _warm_up(version) if warm_up else {}
            except BaseException:
                version.close()
                raise
        with Shield():
            self._server.add(version, self._threads, costs)
            model = Model(self._server, version, priority)
            with self._server.lock:
                self._models = [*(known for known in self._models if not known.closed), model]
        if self._closed:
            model.close()
        self._check_open("load")
        return model

    def swap(
        self,
        model: Model,
        path: str | os.PathLike[str],
        executors: ExecutorFactory = make_executor,
        allow_host_code: bool = False,
    ) -> None:
        """Serve new requests of a model from another bundle, without a pause.

        Earlier requests and open streams stay with the old bundle, which is closed when the last of them ends. The new
        bundle is opened, checked and warmed up first; if it is refused, nothing changes. Memory must suffice for both
        bundles while both are open.

        Args:
            model: a model of this runtime.
            path: bundle directory or `.tar` file, with the same graphs, inputs, outputs and states.
            executors: as for `load`.
            allow_host_code: as for `load`.

        Raises:
            BadInput: there is nothing at the path, or the model is not an open one of this runtime.
            BundleRefused: the bundle cannot be trusted or read, or its graphs have another interface or other states.
            EngineAbsent: an engine is not built, or what runs it is not on this machine.
            Overloaded: the process ends.
        """
        self._check_open("swap")
        if not isinstance(model, Model) or model not in self._models or model.closed:
            raise BadInput("Runtime.swap: expected an open model of this runtime, got another; pass what load() gave")
        with native_work("Runtime.swap"):
            version = self._open("swap", model.name, path, executors, allow_host_code)
            try:
                _check_same_interface(model.bundle, version.bundle)
                costs = _warm_up(version)
            except BaseException:
                version.close()
                raise
        with Shield():
            self._server.add(version, self._threads, costs)
            model.swap(version)

    def _open(
        self,
        what: str,
        name: str | None,
        path: str | os.PathLike[str],
        executors: ExecutorFactory,
        allow_host_code: bool,
    ) -> Version:
        """Open a bundle as a version of the model `name`; None makes a new model, named after the bundle."""
        if not callable(executors):
            raise BadInput(f"Runtime.{what}: expected executors as a function, got {show(executors)}; leave it out")
        _check_switch(f"Runtime.{what}", "allow_host_code", allow_host_code)
        if allow_host_code and executors is make_executor:
            executors = make_trusted_executor
        bundle = read_bundle(path)
        gone = threading.Event()
        try:
            free = self._free_name(name or bundle.manifest.name, gone)
            return make_version(free, bundle, self._threads, self._check_finite, executors, gone)
        except BaseException:
            gone.set()
            bundle.close()
            raise

    def _free_name(self, name: str, gone: threading.Event) -> str:
        """Return the name of a model, with the first free number appended if open versions use the name.

        A name is free again when its version is closed, so that the number of names that observers see does not grow
        with swaps.
        """
        with Shield(), self._server.lock:
            self._named = {known: left for known, left in self._named.items() if not left.is_set()}
            names = itertools.chain([name], (f"{name}~{number}" for number in itertools.count(2)))
            free = next(candidate for candidate in names if candidate not in self._named)
            self._named[free] = gone
        return free

    @property
    def request_counts(self) -> RequestCounts:
        """Number of requests that came in, and how they ended."""
        return self._server.request_counts()

    def health(self) -> Health:
        """Return the health of the runtime: whether runs end, or none are queued."""
        return self._server.health()

    def resize(self, workers: int) -> None:
        """Change the number of runs that may be in flight at once; streams, requests and runs continue.

        Raises:
            BadInput: the number is out of its range.
        """
        check_count("workers", workers, MAX_WORKERS)
        self._server.resize(workers)

    def drain(self, limit_s: float) -> DrainReport:
        """Accept no new work, wait until all admitted work has ended, and drop the rest after `limit_s` seconds.

        Raises:
            BadInput: the limit is no number from 0 on.
        """
        check_seconds("Runtime.drain", "limit_s", limit_s)
        return self._server.drain(limit_s)

    @shielded
    def close(self, limit_s: float = CLOSE_S) -> None:
        """Close every model and end the threads; a second call does nothing.

        Args:
            limit_s: seconds to wait for runs in flight.

        Raises:
            BadInput: the limit is no number from 0 on.
            ExecutorFailed: a run has not ended within the limit. Everything else is closed.
        """
        check_seconds("Runtime.close", "limit_s", limit_s)
        self._closed = True
        with self._server.lock:
            models, self._models = self._models, []
        self._server.close("Runtime.close", [version for model in models for version in model.leave()], limit_s)

    def __enter__(self) -> "Runtime":
        """Return the runtime.

        Raises:
            BadInput: it is closed.
        """
        self._check_open("__enter__")
        return self

    def _check_open(self, what: str) -> None:
        if self._closed:
            raise BadInput(f"Runtime.{what}: expected an open runtime, got a closed one; make another Runtime")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the runtime, as `close` does.

        Raises:
            ExecutorFailed: a run does not end.
        """
        self.close()


def _warm_up(version: Version) -> dict[tuple[str, str], int]:
    """Run every bucket twice and return the time of the second run in nanoseconds, by graph and bucket.

    The largest bucket comes first: its memory is freed by the first run of the smallest. The results of checks of feeds
    and buckets are kept, the memory of the runs is not.
    """
    costs: dict[tuple[str, str], int] = {}
    for name, runner in version.runners.items():
        for artifact in sorted(runner.graph.artifacts, key=lambda candidate: -math.prod(candidate.sizes.values())):
            costs[name, bucket_name(artifact.sizes)] = _warm_run_ns(runner, artifact)
            _look_at_feed(version, runner, artifact)
        runner.trim()
    return costs


def _look_at_feed(version: Version, runner: GraphRunner, artifact: Artifact) -> None:
    """Check a feed of a bucket as that of a request, so that no request has to wait for the first check of its kind."""
    graph = runner.graph
    rows = 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]
    if rows == 1 or graph.rows_independent:  # else none is taken
        feed = runner.check(f"{runner.name}: warm-up", feed_arrays(graph, artifact.sizes), rows)
        version.key(runner, [feed])


def _warm_run_ns(runner: GraphRunner, artifact: Artifact) -> int:
    """Run a bucket twice and return the duration of the second run in nanoseconds."""
    call = bucket_call(runner, artifact)
    call()
    started = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - started


def check_count(name: str, value: int, most: int) -> None:
    """Refuse a number of workers, threads or streams below 1 or above the runtime's limit.

    Raises:
        BadInput: it is out of its range.
    """
    if type(value) is not int or not 1 <= value <= most:
        raise BadInput(
            f"Runtime: expected {name} from 1 to {most}, got {show(value)}; this machine has {os.cpu_count()} cores"
        )


def _check_switch(where: str, name: str, value: bool) -> None:
    if type(value) is not bool:
        raise BadInput(
            f"{where}: expected {name} as True or False, got {show(value)}; give one of them, or leave it out"
        )


def _check_observers(observers: Sequence[Observer]) -> None:
    hears = [name for name in vars(Observer) if not name.startswith("_")]
    odd = not isinstance(observers, list | tuple)
    for one in [observers] if odd else observers:
        if odd or any(not callable(getattr(one, name, None)) for name in hears):
            raise BadInput(
                f"Runtime: expected observers as a list of objects with {', '.join(hears)}, got {show(one)}; "
                "see runtime_lite.serving.events.Observer"
            )


def _check_same_interface(old: Bundle, new: Bundle) -> None:
    """Refuse a bundle that callers of the other bundle, or snapshots of its streams, could not be used with."""
    expected, graphs = old.manifest.graphs, new.manifest.graphs
    if old.manifest.wiring != new.manifest.wiring:
        wires = [[show(str(wire)) for wire in bundle.manifest.wiring] for bundle in (old, new)]
        refuse(f"{new.path}: wiring", f"that of {old.path}: {show(wires[0])}", show(wires[1]))
    if expected.keys() != graphs.keys():
        refuse(str(new.path), f"the graphs {', '.join(expected)}, as in {old.path}", ", ".join(graphs))
    for name, graph in expected.items():
        for what, before, after in zip(_INTERFACE, _interface(graph), _interface(graphs[name]), strict=True):
            if before != after:
                refuse(f"{new.path}: graph {name!r}", f"the {what} of {old.path}: {show(before)}", show(after))
        ranges = {tensor.name: tensor.range for tensor in graph.inputs}
        for tensor in graphs[name].inputs:
            if _is_narrower(tensor.range, ranges.get(tensor.name)):
                expected_range = ranges[tensor.name] or "any number"
                got = f"{tensor.range}, which refuses feeds that were taken"
                refuse(f"{new.path}: graph {name!r}: range of {tensor.name!r}", f"{expected_range} or more", got)


def _is_narrower(new: tuple[float, float] | None, old: tuple[float, float] | None) -> bool:
    """Return whether a new range excludes numbers that the old one allows; None allows any number."""
    return new is not None and (old is None or new[0] > old[0] or new[1] < old[1])


_INTERFACE = ("inputs", "outputs", "states", "cache axes", "batch axis", "lengths")


def _interface(graph: Graph) -> tuple[object, ...]:
    """Return the parts of a graph that callers and states depend on.

    Buckets are left out, as they may differ, and so are ranges of inputs, which may be wider.
    """
    inputs = [replace(tensor, range=None) for tensor in graph.inputs if tensor.role == "data"]
    outputs = [tensor for tensor in graph.outputs if tensor.role == "data"]
    lengths = {name: axis.length_input is not None for name, axis in graph.axes.items()}
    return inputs, outputs, graph.states, graph.caches, graph.batch_axis, lengths
