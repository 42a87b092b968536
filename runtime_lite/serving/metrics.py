"""Exports the server's counts as Prometheus metrics, with the client library (`pip install prometheus-client`).

    metrics = Metrics()
    runtime = Runtime(observers=[metrics])
    metrics.follow(runtime.health)
    with metrics.serve(9464):  # http://127.0.0.1:9464/metrics
        ...

Every series is a count or a histogram since the start, so that a reader can compute rates and percentiles over any
time. The number of unended requests is the difference of two counts, and equals that of the runtime's request counts.
"""

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

from runtime_lite.errors import BadInput, EngineAbsent
from runtime_lite.format.manifest import bucket_name
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange
from runtime_lite.serving.health import Health

NS_PER_S = 1e9

LATENCIES_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of the histograms of time in seconds: from the runtime's overhead to whole utterances."""

ROWS = tuple(float(2**power) for power in range(11))

COST_RATIOS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0)

STREAM_STEPS: dict[StreamChange, int] = {"opened": 1, "restored": 1, "closed": -1, "expired": -1, "slow": -1}
"""By how much a change of a stream changes the number of open streams."""


def import_prometheus(name: str = "prometheus_client") -> ModuleType:
    """Import and return the client library, or a module of it.

    Raises:
        EngineAbsent: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise EngineAbsent(
            "metrics: expected the package prometheus-client, got none; pip install prometheus-client"
        ) from error


class Metrics:
    """An observer that counts events; pass it to one `Runtime`.

    Raises:
        EngineAbsent: the client library is not installed.
    """

    def __init__(self) -> None:
        """Create the series in a new registry."""
        self._library = import_prometheus()
        self.registry = self._library.CollectorRegistry()
        self._lock = threading.Lock()
        counter, gauge, histogram = self._library.Counter, self._library.Gauge, self._library.Histogram
        common = {"namespace": "slipway", "registry": self.registry}
        by_graph = ("model", "graph")
        self._submitted = counter("requests_submitted", "requests that came in", ("service",), **common)
        self._ended = counter("requests_ended", "requests that have ended", ("service", "outcome", "reason"), **common)
        self._live = gauge("requests_live", "requests that have not ended", ("service",), **common)
        self._late = counter("requests_late", "done after the soft target", ("service",), **common)
        self._frames = counter(
            "frames", "rows of requests that are done, times their lengths where these differ", ("service",), **common
        )
        self._latency = histogram(
            "request_latency_seconds",
            "from submission to the end, if done",
            ("service",),
            buckets=LATENCIES_S,
            **common,
        )
        self._first = histogram(
            "first_response_seconds", "to the first of many responses", ("service",), buckets=LATENCIES_S, **common
        )
        self._queue = histogram(
            "queue_seconds", "from submission to the choice of a run", ("service",), buckets=LATENCIES_S, **common
        )
        self._runs = counter("runs", "runs that have ended", (*by_graph, "outcome"), **common)
        self._run_time = histogram(
            "run_seconds", "time in the executor", (*by_graph, "bucket"), buckets=LATENCIES_S, **common
        )
        self._rows = histogram("run_rows", "rows in use per run", by_graph, buckets=ROWS, **common)
        self._places = counter("places", "values fed, the caller's own and padding", (*by_graph, "kind"), **common)
        self._ratio = histogram(
            "run_cost_ratio", "time of a run to that of the cost table", by_graph, buckets=COST_RATIOS, **common
        )
        self._busy = counter("lane_busy_seconds", "time in which a lane ran something", ("lane",), **common)
        self._streams = gauge("streams", "open streams", ("model",), **common)
        self._stream_changes = counter("stream_changes", "what happened to streams", ("model", "change"), **common)
        self._model_changes = counter("model_changes", "what happened to models", ("model", "change"), **common)
        self._waiting: dict[int, Request] = {}

    def submitted(self, request: Request) -> None:
        with self._lock:
            self._waiting[request.number] = request
        self._submitted.labels(request.service).inc()
        self._live.labels(request.service).inc()

    def responded(self, request: Request, index: int, now: int) -> None:
        if index == 0:
            self._first.labels(request.service).observe((now - request.arrival) / NS_PER_S)

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        with self._lock:
            self._waiting.pop(request.number, None)
        service = request.service
        self._live.labels(service).dec()
        self._ended.labels(service, outcome, reason).inc()
        if outcome == "done":
            self._latency.labels(service).observe((now - request.arrival) / NS_PER_S)
            self._frames.labels(service).inc(request.worth)
            self._late.labels(service).inc(now > request.soft)

    def executed(self, execution: Execution) -> None:
        of = (execution.model, execution.graph)
        took_s = (execution.ended - execution.began) / NS_PER_S
        self._busy.labels(str(execution.lane)).inc((execution.ended - execution.decided) / NS_PER_S)
        self._runs.labels(*of, "done" if execution.fault is None else "failed").inc()
        if execution.fault is None:
            self._run_time.labels(*of, bucket_name(execution.sizes)).observe(took_s)
            self._rows.labels(*of).observe(execution.rows)
            self._places.labels(*of, "used").inc(execution.used)
            self._places.labels(*of, "padding").inc(execution.places - execution.used)
            if execution.expected_ns:
                self._ratio.labels(*of).observe(took_s * NS_PER_S / execution.expected_ns)
        if not execution.retry:
            with self._lock:
                requests = [self._waiting.get(number) for number in execution.requests]
            for request in filter(None, requests):
                self._queue.labels(request.service).observe((execution.decided - request.arrival) / NS_PER_S)

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        self._stream_changes.labels(model, change).inc()
        self._streams.labels(model).inc(STREAM_STEPS.get(change, 0))

    def model_changed(self, model: str, change: ModelChange, now: int) -> None:
        self._model_changes.labels(model, change).inc()

    def follow(self, health: Callable[[], Health]) -> None:
        """Add the queue length, the runs in flight and the health of a runtime, measured each time the page is read.

        Args:
            health: the method `health` of the runtime.
        """
        now: dict[str, tuple[str, Callable[[], float]]] = {
            "queue_length": ("requests, or chunks of them, that wait for a run", lambda: health().queued),
            "runs_in_flight": ("runs that have begun and not ended", lambda: health().running),
            "healthy": ("1 if runs end or there is nothing to do", lambda: health().healthy),
        }
        for name, (meaning, value) in now.items():
            self._library.Gauge(name, meaning, namespace="slipway", registry=self.registry).set_function(value)

    def page(self) -> bytes:
        """Return all series in the text format of Prometheus."""
        text: bytes = self._library.generate_latest(self.registry)
        return text

    @contextlib.contextmanager
    def serve(self, port: int, host: str = "127.0.0.1") -> Iterator[str]:
        """Serve the page over HTTP within a `with` block; its value is the address.

        Args:
            port: port number; 0 for any free one.
            host: address to listen on; by default only this machine can connect.

        Raises:
            BadInput: the port is in use, or out of range.
        """
        try:
            server, thread = self._library.start_http_server(port, host, self.registry)
        except (OSError, OverflowError, TypeError) as error:
            raise BadInput(
                f"metrics: expected a free port on {host}, got {port!r} ({error}); choose another"
            ) from error
        try:
            yield f"http://{host}:{server.server_port}/metrics"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
