"""A real Triton server as a host of `rows.py`, through gRPC; runs in the environment of the server's client.

python -m tests.runtime_lite.hosting.real_triton PORT PROCESS REPOSITORY FIRST SECOND BROKEN
"""

import contextlib
import os
import signal
import sys
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import RuntimeLiteError
from runtime_lite.hosting.named_streams import Place
from runtime_lite.hosting.triton_repository import write_repository
from tests.runtime_lite.hosting.rows import (
    PATIENCE_S,
    PLAIN,
    STREAMING,
    Bundles,
    Call,
    Feeds,
    RefusedError,
    all_rows,
)

HEARD_S = 0.2
"""A cancellation that this process knows of has reached the model after this."""

KINDS = {
    "INVALID_ARGUMENT": "BadInput",
    "UNAVAILABLE": "Overloaded",
    "NOT_FOUND": "Overloaded",
    "CANCELLED": "Cancelled",
}
"""Where the server refuses by itself; while it ends, its models are not found."""


class _Sent:
    def __init__(self) -> None:
        self.found: Future[tuple[Any, Any]] = Future()
        self.call: Any = None
        self._cancelled = False

    def result(self) -> Feeds:
        result, error = self.found.result(PATIENCE_S)
        if error is None:
            return {"y": result.as_numpy("y")}
        if self._cancelled:
            time.sleep(HEARD_S)
        name, _, text = error.message().partition(": ")
        status = (error.status() or "").partition(".")[2]
        raise RefusedError(name if name.isidentifier() else KINDS.get(status, status), text or name)

    def cancel(self) -> None:
        self._cancelled = True
        self.call.cancel()


class RealTriton:
    """A server with both models; a stream goes on with the model that it began with."""

    def __init__(self, port: str, process: int, repository: Path) -> None:
        import tritonclient.grpc as grpc  # in the environment of the server alone

        self._grpc: Any = grpc
        self._client = grpc.InferenceServerClient(f"127.0.0.1:{port}")
        self._process, self._repository = process, repository
        self._newest, self._count = "tiny1", 1
        self._began: dict[object, str] = {}

    def submit(self, feeds: Feeds) -> Call:
        return self._send(f"{self._newest}_{PLAIN}", feeds)

    def push(self, place: Place, feeds: Feeds) -> Call:
        model = self._began.setdefault(place.stream, f"{self._newest}_{STREAMING}")
        if place.end:
            del self._began[place.stream]
        parameters = {} if place.number is None else {"chunk": place.number}
        flags = {"sequence_start": place.start, "sequence_end": place.end}
        return self._send(model, feeds, sequence_id=place.stream, parameters=parameters, **flags)

    def _send(self, model: str, feeds: Feeds, **options: Any) -> Call:
        inputs = []
        for name, array in feeds.items():
            kind = {"float32": "FP32", "float64": "FP64", "int64": "INT64"}[str(array.dtype)]
            inputs.append(self._grpc.InferInput(name, list(array.shape), kind))
            inputs[-1].set_data_from_numpy(np.ascontiguousarray(array))
        sent = _Sent()
        sent.call = self._client.async_infer(
            model,
            inputs,
            callback=lambda result, error: sent.found.set_result((result, error)),
            **options,
        )
        return sent

    def swap(self, bundle: Path) -> bool:
        self._count += 1
        name = f"tiny{self._count}"
        try:
            for folder in write_repository(bundle, self._repository, name=name, workers=2, idle_s=PATIENCE_S):
                self._client.load_model(folder.name)
        except (RuntimeLiteError, self._grpc.InferenceServerException) as error:
            print(f"  refused: {error}"[:160], flush=True)
            return False
        self._newest = name
        return True

    def drain(self) -> None:
        os.kill(self._process, signal.SIGTERM)
        with contextlib.suppress(self._grpc.InferenceServerException):  # "Server exiting"
            while self._client.is_server_ready():
                time.sleep(0.05)


def main(port: str, process: str, repository: str, *paths: str) -> None:
    """Run all rows and say which passed."""
    host, bundles = RealTriton(port, int(process), Path(repository)), Bundles(*map(Path, paths))
    for name, row in all_rows():
        row(host, bundles)
        print(f"row {name}: passed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
