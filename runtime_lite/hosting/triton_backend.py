"""Serves a bundle as a model of Triton's Python backend; the runtime, not Triton, forms the batches.

The model is configured without Triton's batching. Every request is submitted to the runtime at once and answered when
its ticket ends, in any order; so rows of several callers share runs as in any other use of the runtime.

    sequence id         name of a stream; with its start and end
    timeout             deadline of the request
    parameters          `runtime_priority`, a number; `service`, `interactive`, `utterance` or `bulk`, of a graph
                        without states; `chunk`, the number of a chunk in its stream, which finds what came out of order
                        and answers a repeated chunk again; `generation`, that of the stream
    cancellation        takes the request back
    error               `BadInput: ...`, `Overloaded: ...`: the name of the runtime's error, then its message

Source: triton-inference-server/python_backend, README of release 24.10 (response senders without decoupling).
"""

import json
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from runtime_lite.errors import (
    BadInput,
    Cancelled,
    Dropped,
    ExecutorFailed,
    Overloaded,
    RuntimeLiteError,
    StreamLost,
    show,
)
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import NamedStreams, Place
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime
from runtime_lite.scheduling.task import BULK, INTERACTIVE, UTTERANCE
from runtime_lite.serving.request import Outputs
from runtime_lite.serving.ticket import Ticket

BUNDLE = "bundle"
"""Name of the bundle's folder beside `model.py`."""

LOOK_S = 0.02
"""Seconds between two checks whether callers of requests in flight have cancelled."""

LOOK, CLOSE = 0, -1
"""Messages to the answering thread beside numbers of ended requests: check for cancellations; end."""

DRAIN_S = 20.0
"""Seconds that requests in flight have to end when the model is unloaded; the server waits 30 s when it ends."""

SERVICES = {service.name: service for service in (INTERACTIVE, UTTERANCE, BULK)}

CODES: tuple[tuple[type[RuntimeLiteError], str], ...] = (
    (BadInput, "INVALID_ARG"),
    (Cancelled, "CANCELLED"),
    (Overloaded, "UNAVAILABLE"),
    (Dropped, "UNAVAILABLE"),
    (ExecutorFailed, "UNAVAILABLE"),
    (StreamLost, "NOT_FOUND"),
)
"""Triton's error codes by the runtime's errors; other errors are `INTERNAL`."""


class Tensor(Protocol):
    """An array of a request or response."""

    def name(self) -> str: ...
    def as_numpy(self) -> Array: ...


class Sender(Protocol):
    """Sends the responses to one request."""

    def send(self, response: Any = None, flags: int = 0) -> None: ...
    def is_cancelled(self) -> bool: ...


class Request(Protocol):
    """A request of the server."""

    def inputs(self) -> Sequence[Tensor]: ...
    def requested_output_names(self) -> Sequence[str]: ...
    def correlation_id(self) -> int | str: ...
    def flags(self) -> int: ...
    def timeout(self) -> int: ...
    def parameters(self) -> str: ...
    def get_response_sender(self) -> Sender: ...


class HostedModel(NamedTuple):
    """The options of a model, which its configuration contains.

    Attributes:
        graph: name of the graph that it serves; of a voice, that of its step.
        threads: threads of one run.
        workers: runs in flight at once.
        max_streams: streams that may be open at once.
        idle_s: seconds without a chunk after which a stream ends.
        parts: what has many responses to a request, `voice` or `recording`; empty for one response to each.
    """

    graph: str
    threads: int
    workers: int
    max_streams: int
    idle_s: float
    parts: str = ""


class Opened(NamedTuple):
    """What a model has once it is loaded.

    Attributes:
        utils: the server's module for models.
        options: those of its configuration.
        runtime: with the bundle alone.
        model: the bundle, every bucket of which has run once.
    """

    utils: Any
    options: HostedModel
    runtime: Runtime
    model: Model

    @classmethod
    def by(cls, args: Mapping[str, str]) -> "Opened":
        """Open the bundle of a model and run every bucket once, so that no request waits for a session.

        Args:
            args: `model_config` as JSON, `model_repository` and `model_version`.

        Raises:
            RuntimeLiteError: the bundle is refused.
        """
        import triton_python_backend_utils as utils  # in the server's process alone

        parameters = json.loads(args["model_config"])["parameters"]
        options = _options_of({name: value["string_value"] for name, value in parameters.items()})
        runtime = Runtime(options.threads, workers=options.workers, max_streams=options.max_streams)
        folder = Path(args["model_repository"], args["model_version"])
        return cls(utils, options, runtime, runtime.load(folder / BUNDLE, warm_up=True))

    def response(self, arrays: Mapping[str, Array]) -> Any:
        """Return a response with arrays."""
        tensors = [self.utils.Tensor(name, np.ascontiguousarray(array)) for name, array in arrays.items()]
        return self.utils.InferenceResponse(tensors)

    def send_error(self, sender: Sender, error: Exception) -> None:
        """Send the last response to a request, which has failed."""
        code = next((code for kind, code in CODES if isinstance(error, kind)), "INTERNAL")
        told = self.utils.TritonError(f"{type(error).__name__}: {error}", getattr(self.utils.TritonError, code))
        self.send_last(sender, self.utils.InferenceResponse([], told))

    def send_last(self, sender: Sender, response: Any = None) -> None:
        """Send the last response to a request; without one, say that there are no more."""
        flags = self.utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
        if response is None:
            sender.send(flags=flags)
        else:
            sender.send(response, flags=flags)


class Asked(NamedTuple):
    """What a request says.

    Attributes:
        feeds: arrays by input, in memory of their own.
        parameters: by name.
        deadline_ms: from now on; None for none.
    """

    feeds: dict[str, Array]
    parameters: dict[str, Any]
    deadline_ms: float | None

    @classmethod
    def by(cls, request: Request) -> "Asked":
        """Read a request."""
        feeds = {tensor.name(): np.array(tensor.as_numpy()) for tensor in request.inputs()}  # the server's own memory
        return cls(feeds, json.loads(request.parameters() or "{}"), request.timeout() / 1e3 or None)

    @property
    def priority(self) -> Any:
        """The runtime's priority."""
        return self.parameters.get("runtime_priority", 0)


class _Flight(NamedTuple):
    ticket: Ticket[Outputs]
    sender: Sender
    wanted: Sequence[str]
    since: float


class TritonPythonModel:
    """One graph of a bundle; the server makes one object per instance."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Open the bundle, as `Opened` says.

        Raises:
            RuntimeLiteError: the bundle is refused, and the server does not load the model.
        """
        self._opened = Opened.by(args)
        self._utils, options, self._runtime, self._model = self._opened
        self._graph = options.graph
        has_states = bool(self._model.runner(options.graph).graph.states)
        self._streams = NamedStreams(self._model, options.graph, options.idle_s) if has_states else None
        self._flying: dict[int, _Flight] = {}
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._numbers = 0
        self._answering = threading.Thread(target=self._answer_all, name="runtime_lite answers", daemon=True)
        self._answering.start()

    def execute(self, requests: Sequence[Request]) -> None:
        """Submit requests; the answers are sent later, by another thread."""
        for request in requests:
            sender = request.get_response_sender()
            try:
                ticket = self._submit(request)
            except Exception as error:  # noqa: BLE001 - one request must not take its neighbours along
                self._opened.send_error(sender, error)
                continue
            self._numbers = number = self._numbers + 1
            self._flying[number] = _Flight(ticket, sender, list(request.requested_output_names()), time.monotonic())
            self._ended.put(LOOK)
            ticket.when_done(partial(self._ended.put, number))

    def finalize(self) -> None:
        """Answer the admitted requests, drop those that exceed the limit, and close everything."""
        self._runtime.drain(DRAIN_S)
        self._ended.put(CLOSE)
        self._answering.join()
        self._runtime.close()

    def _submit(self, request: Request) -> Ticket[Outputs]:
        feeds, parameters, deadline_ms = asked = Asked.by(request)
        if self._streams is None:
            service = SERVICES.get(parameters.get("service", INTERACTIVE.name))
            if service is None:
                raise BadInput(
                    f"{self._graph}: expected service as one of {', '.join(SERVICES)}, "
                    f"got {show(parameters['service'])}; leave it out"
                )
            return self._model.submit(
                feeds, self._graph, service=service, deadline_ms=deadline_ms, priority=asked.priority
            )
        name, flags = request.correlation_id(), request.flags()
        if not name:
            raise BadInput(f"{self._graph}: expected a chunk of a stream, got no sequence id; name the stream by one")
        start = bool(flags & self._utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
        end = bool(flags & self._utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
        place = Place(name, start, end, parameters.get("chunk"), parameters.get("generation", 0))
        return self._streams.submit(place, feeds, deadline_ms, asked.priority)

    def _answer_all(self) -> None:
        """Send the answers of ended requests, and cancel requests whose callers have cancelled."""
        look, closing = 0.0, False
        while self._flying or not closing:
            try:
                number = self._ended.get(timeout=LOOK_S if self._flying else None)
            except queue.Empty:
                number = LOOK
            if number > LOOK:
                self._answer(self._flying.pop(number))
            closing |= number == CLOSE
            if (now := time.monotonic()) >= look:
                self._take_back_abandoned(now - LOOK_S)
                look = now + LOOK_S

    def _take_back_abandoned(self, before: float) -> None:
        for flight in list(self._flying.values()):
            if flight.since > before:
                return
            if flight.sender.is_cancelled():
                flight.ticket.cancel()

    def _answer(self, flight: _Flight) -> None:
        try:
            outputs = flight.ticket.result()
            wanted = {name: outputs[name] for name in flight.wanted if name in outputs} or outputs
            self._opened.send_last(flight.sender, self._opened.response(wanted))
        except Exception as error:  # noqa: BLE001 - whatever it is, its caller is told
            self._opened.send_error(flight.sender, error)


def _options_of(given: Mapping[str, str]) -> HostedModel:
    return HostedModel(
        given["graph"],
        int(given["threads"]),
        int(given["workers"]),
        int(given["max_streams"]),
        float(given["idle_s"]),
        given["parts"],
    )
