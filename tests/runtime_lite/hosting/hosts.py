"""This process, and the model of Triton's Python backend in it, as hosts of `rows.py`."""

import sys
import threading
from pathlib import Path

from runtime_lite import Model, Runtime, RuntimeLiteError
from runtime_lite.hosting.named_streams import NamedStreams, Place
from runtime_lite.hosting.triton_backend import TritonPythonModel
from runtime_lite.hosting.triton_repository import write_repository
from runtime_lite.serving.request import Outputs
from runtime_lite.serving.ticket import Ticket
from tests.runtime_lite.hosting import triton_stand_in
from tests.runtime_lite.hosting.rows import PATIENCE_S, PLAIN, STREAMING, Call, Feeds, RefusedError
from tests.runtime_lite.hosting.triton_stand_in import END, START, Request, TritonError, arguments_of


class _Ended:
    """A request that was refused when it came."""

    def __init__(self, error: RuntimeLiteError) -> None:
        self._error = error

    def result(self) -> Feeds:
        raise RefusedError(type(self._error).__name__, str(self._error))

    def cancel(self) -> None: ...


class _Queued:
    def __init__(self, ticket: Ticket[Outputs]) -> None:
        self._ticket = ticket

    def result(self) -> Feeds:
        try:
            return self._ticket.result(PATIENCE_S)
        except RuntimeLiteError as error:
            raise RefusedError(type(error).__name__, str(error)) from None

    def cancel(self) -> None:
        self._ticket.cancel()


class ThisProcess:
    """A runtime in this process."""

    def __init__(self, bundle: Path) -> None:
        self._runtime = Runtime(workers=2)
        self._model: Model = self._runtime.load(bundle, warm_up=True)
        self._streams = NamedStreams(self._model, STREAMING, idle_s=PATIENCE_S)

    def submit(self, feeds: Feeds) -> Call:
        try:
            return _Queued(self._model.submit(feeds, PLAIN))
        except RuntimeLiteError as error:
            return _Ended(error)

    def push(self, place: Place, feeds: Feeds) -> Call:
        try:
            return _Queued(self._streams.submit(place, feeds))
        except RuntimeLiteError as error:
            return _Ended(error)

    def swap(self, bundle: Path) -> bool:
        try:
            self._runtime.swap(self._model, bundle)
        except RuntimeLiteError:
            return False
        return True

    def drain(self) -> None:
        self._runtime.drain(PATIENCE_S)

    def close(self) -> None:
        assert self._runtime.request_counts.balanced
        self._runtime.close()


class _Sent:
    def __init__(self, request: Request) -> None:
        self._request = request

    def result(self) -> Feeds:
        assert self._request.answered.wait(PATIENCE_S)
        (response,) = self._request.responses
        if response.error is None:
            return response.outputs
        kind, _, text = response.error.message.partition(": ")
        if kind == "BadInput":
            assert response.error.code == TritonError.INVALID_ARG
        raise RefusedError(kind, text)

    def cancel(self) -> None:
        self._request.cancelled.set()


class TritonStandIn:
    """A repository whose models run in this process; a stream goes on with the model that it began with."""

    def __init__(self, bundle: Path, repository: Path) -> None:
        sys.modules["triton_python_backend_utils"] = triton_stand_in.module()
        self._repository = repository
        self._models: dict[str, TritonPythonModel] = {}
        self._newest, self._count = "", 0
        self._began: dict[object, str] = {}
        self._instance = threading.Lock()
        assert self.swap(bundle)

    def swap(self, bundle: Path) -> bool:
        self._count += 1
        name = f"tiny{self._count}"
        try:
            folders = write_repository(bundle, self._repository, name=name, workers=2, idle_s=PATIENCE_S)
        except RuntimeLiteError:
            return False
        for folder in folders:
            self._models[folder.name] = model = TritonPythonModel()
            model.initialize(arguments_of(folder))
        self._newest = name
        return True

    def submit(self, feeds: Feeds) -> Call:
        return self._send(f"{self._newest}_{PLAIN}", Request(feeds))

    def push(self, place: Place, feeds: Feeds) -> Call:
        flags = START * place.start | END * place.end
        parameters = {} if place.number is None else {"chunk": place.number}
        model = self._began.setdefault(place.stream, f"{self._newest}_{STREAMING}")
        if place.end:
            del self._began[place.stream]
        return self._send(model, Request(feeds, place.stream, flags, 0, parameters))

    def _send(self, model: str, request: Request) -> Call:
        with self._instance:  # a server calls an instance from one thread
            self._models[model].execute([request])
        return _Sent(request)

    def drain(self) -> None:
        for model in self._models.values():
            model._runtime.drain(PATIENCE_S)

    def close(self) -> None:
        for model in self._models.values():
            model.finalize()
            assert model._runtime.request_counts.balanced and model._runtime.request_counts.live == 0
        del sys.modules["triton_python_backend_utils"]
