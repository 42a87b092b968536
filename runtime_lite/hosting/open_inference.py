"""Serves whole utterances over HTTP by the Open Inference Protocol, version 2, with health and metadata.

    GET  /v2                                    the server: name, version, extensions
    GET  /v2/health/live  /v2/health/ready      whether the process answers; whether its runs end
    GET  /v2/models/MODEL                       inputs and outputs; /ready: that the model is served
    POST /v2/models/MODEL/infer                 a feed; tensors as JSON, or as bytes behind the JSON

A graph is a model, as in a Triton repository: named after the bundle, and its graph where there are several. A request
is one feed, runs beside others, and starts from the initial states: the protocol has no streams. The parameter
`timeout`, in microseconds, is its deadline.

Source: Open Inference Protocol, specification/protocol/inference_rest.md; bytes behind the JSON as in Triton's binary
tensor data extension.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runtime_lite.errors import BadInput, Cancelled, Dropped, EngineAbsent, Overloaded, RuntimeLiteError, show
from runtime_lite.format.arrays import MAX_DIMENSIONS, Array
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.format.manifest import Tensor
from runtime_lite.model import Model
from runtime_lite.runtime import Runtime

NAME, VERSION = "slipway", "2"

MOST_BYTES = 2**28
"""Largest body of a request: an hour of float32 features, 100 frames of 80 numbers per second, is 115 MB."""

JSON_HEADER = "Inference-Header-Content-Length"
"""Header with the number of bytes of the JSON in front of tensors as bytes."""

TYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
}
"""Names of the protocol by those of the manifest."""

DTYPES = {name: np.dtype(dtype).newbyteorder("<") for dtype, name in TYPES.items()}

KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}
"""Kinds of numbers in JSON that a tensor of a kind takes, as NumPy names kinds."""

STATUSES: tuple[tuple[type[RuntimeLiteError], int], ...] = (
    (BadInput, 400),
    (Cancelled, 400),
    (Overloaded, 503),
    (Dropped, 503),
)
"""HTTP status by the runtime's errors; others are 500."""


class Reply(NamedTuple):
    """What goes back.

    Attributes:
        status: HTTP status.
        content: the body.
        headers: further headers.
    """

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = {}


class NotFoundError(BadInput):
    """There is no such path or model."""


class OpenInference:
    """The graphs of a bundle as models of the protocol.

    Args:
        runtime: the runtime that has the model; its health is that of the server.
        model: a loaded bundle.
    """

    def __init__(self, runtime: Runtime, model: Model) -> None:
        """Name the models."""
        graphs = model.bundle.manifest.graphs
        self._runtime, self._model = runtime, model
        self._graphs = {f"{model.name}_{graph}" if len(graphs) > 1 else model.name: graph for graph in graphs}

    async def answer(self, method: str, path: str, body: bytes = b"", json_bytes: str | None = None) -> Reply:
        """Return the answer to a request; an error is an answer, too.

        Args:
            method: HTTP method.
            path: path of the request.
            body: its body, of at most `MOST_BYTES`.
            json_bytes: the header `JSON_HEADER`; None without it.
        """
        try:
            return await self._answer(method, path.strip("/").split("/"), body, json_bytes)
        except NotFoundError as error:
            return Reply(404, canonical_json({"error": str(error)}))
        except RuntimeLiteError as error:
            status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
            return Reply(status, canonical_json({"error": f"{type(error).__name__}: {error}"}))

    async def _answer(self, method: str, words: Sequence[str], body: bytes, json_bytes: str | None) -> Reply:
        match method, words:
            case "GET", ["v2"]:
                return _json({"name": NAME, "version": VERSION, "extensions": ["binary_tensor_data"]})
            case "GET", ["v2", "health", "live"]:
                return Reply(200)
            case "GET", ["v2", "health", "ready"]:
                return Reply(200 if self._is_ready() else 503)
            case "GET", ["v2", "models", model, *version]:
                return self._about(self._graph(model), model, _behind_version(version))
            case "POST", ["v2", "models", model, *version] if _behind_version(version) == ["infer"]:
                return await self._infer(self._graph(model), model, body, json_bytes)
        raise NotFoundError(f"expected a path of the protocol, got {show(method)} {show('/'.join(words))}; see /v2")

    def _is_ready(self) -> bool:
        health = self._runtime.health()
        return health.healthy and not health.draining and not self._model.closed

    def _graph(self, model: str) -> str:
        if model not in self._graphs:
            names = ", ".join(self._graphs)
            raise NotFoundError(f"expected one of the models {names}, got {show(model)}; correct the name")
        return self._graphs[model]

    def _about(self, graph: str, model: str, rest: Sequence[str]) -> Reply:
        if rest == ["ready"]:
            return Reply(200 if self._is_ready() else 503)
        if rest:
            raise NotFoundError(f"expected /ready or nothing behind the model, got {show('/'.join(rest))}; see /v2")
        record = self._model.bundle.manifest.graphs[graph]
        return _json(
            {
                "name": model,
                "versions": ["1"],
                "platform": f"slipway_{record.target}",
                "inputs": [_described(tensor) for tensor in record.inputs if tensor.role == "data"],
                "outputs": [_described(tensor) for tensor in record.outputs if tensor.role == "data"],
            }
        )

    async def _infer(self, graph: str, model: str, body: bytes, json_bytes: str | None) -> Reply:
        told, behind = _split(body, json_bytes)
        feeds = _feeds(_list(told, "inputs"), behind)
        parameters = told.get("parameters", {})
        timeout = parameters.get("timeout") if isinstance(parameters, dict) else None
        if timeout is not None and type(timeout) is not int:
            raise BadInput(f"timeout: expected microseconds as a whole number, got {show(timeout)}; leave it out")
        outputs = await self._model.submit(feeds, graph, deadline_ms=timeout / 1e3 if timeout else None)
        wanted = _wanted(told, outputs)
        all_as_bytes = isinstance(parameters, dict) and parameters.get("binary_data_output") is True
        described, content = [], b""
        for name, as_bytes in wanted.items():
            array = np.ascontiguousarray(outputs[name])
            tensor: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": TYPES[array.dtype.name]}
            if as_bytes or all_as_bytes:
                raw = array.astype(DTYPES[TYPES[array.dtype.name]], copy=False).tobytes()
                tensor["parameters"] = {"binary_data_size": len(raw)}
                content += raw
            elif array.dtype.kind == "f" and not np.isfinite(array).all():
                raise BadInput(f"{name}: expected numbers that JSON has, got NaN or infinity; ask for it as bytes")
            else:
                tensor["data"] = array.ravel().tolist()
            described.append(tensor)
        answer = {"model_name": model, "model_version": "1", "outputs": described}
        if isinstance(told.get("id"), str):
            answer["id"] = told["id"]
        head = json.dumps(answer).encode()
        return Reply(200, head + content, {JSON_HEADER: str(len(head))} if content else {})


def _behind_version(words: Sequence[str]) -> Sequence[str]:
    """Return what follows a model's version, of which there is one."""
    return words[2:] if list(words[:2]) == ["versions", "1"] else words


def _described(tensor: Tensor) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    return {"name": tensor.name, "datatype": TYPES[tensor.dtype], "shape": shape}


def _json(content: Any) -> Reply:
    return Reply(200, canonical_json(content))


def _split(body: bytes, json_bytes: str | None) -> tuple[dict[str, Any], memoryview]:
    """Return the JSON of a body, and the bytes behind it."""
    size = len(body)
    if json_bytes is not None:
        if not (json_bytes.isascii() and json_bytes.isdecimal() and len(json_bytes) < 12 and int(json_bytes) <= size):
            raise BadInput(f"{JSON_HEADER}: expected at most the {size} bytes of the body, got {show(json_bytes)}")
        size = int(json_bytes)
    try:
        told = json.loads(body[:size], parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the request: expected JSON, got {show(str(error))}; see the protocol") from None
    if not isinstance(told, dict):
        raise BadInput(f"the request: expected an object, got {show(told)}; see the protocol")
    return told, memoryview(body)[size:]


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _list(told: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    tensors = told.get(key)
    if not isinstance(tensors, list) or any(not isinstance(tensor, dict) for tensor in tensors):
        raise BadInput(f"{key}: expected a list of tensors, got {show(tensors)}; see the protocol")
    return tensors


def _feeds(tensors: Sequence[Mapping[str, Any]], behind: memoryview) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for tensor in tensors:
        name, shape, kind = tensor.get("name"), tensor.get("shape"), tensor.get("datatype")
        if type(name) is not str or name in feeds:
            raise BadInput(f"inputs: expected every input once by its name, got {show(name)}; correct it")
        if type(kind) is not str or kind not in DTYPES:
            raise BadInput(f"{show(name)}: expected a datatype of {', '.join(DTYPES)}, got {show(kind)}; correct it")
        if (
            not isinstance(shape, list)
            or len(shape) > MAX_DIMENSIONS
            or any(type(size) is not int or not 0 <= size < 2**31 for size in shape)
        ):
            raise BadInput(f"{show(name)}: expected a shape of whole numbers from 0 on, got {show(shape)}; correct it")
        parameters = tensor.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        dtype = DTYPES[kind]
        if size is None:
            feeds[name] = _from_json(name, tensor.get("data"), shape, dtype)
            continue
        expected = math.prod(shape) * dtype.itemsize
        if type(size) is not int or size != expected or size > len(behind):
            raise BadInput(
                f"{show(name)}: expected {expected} bytes for its shape, got {show(size)}, and {len(behind)} bytes "
                "behind the JSON; send all of them"
            )
        stored = np.frombuffer(behind[:size], dtype).reshape(shape)
        if kind == "BOOL" and stored.size and stored.view(np.uint8).max() > 1:
            raise BadInput(f"{show(name)}: expected booleans, got bytes other than 0 and 1; correct it")
        feeds[name] = stored.astype(dtype.newbyteorder("="))
        behind = behind[size:]
    if len(behind):
        raise BadInput(f"inputs: expected nothing behind the tensors, got {len(behind)} bytes; correct their sizes")
    return feeds


def _from_json(name: str, data: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Return a tensor whose numbers came as a list, flat or nested."""
    try:
        flat = np.array(data if isinstance(data, list) else None).ravel()
        kinds, native = KINDS[dtype.kind], dtype.newbyteorder("=")
        if flat.size != math.prod(shape) or (flat.size and flat.dtype.kind not in kinds):
            raise ValueError
        if dtype.kind in "iu" and flat.size:
            bounds = np.iinfo(native)
            if int(flat.min()) < bounds.min or int(flat.max()) > bounds.max:
                raise ValueError
        with np.errstate(over="ignore"):
            return flat.astype(native).reshape(shape)
    except (ValueError, OverflowError):
        raise BadInput(
            f"{show(name)}: expected {math.prod(shape)} numbers of its datatype, got {show(data)}; correct one of them"
        ) from None


def _wanted(told: Mapping[str, Any], outputs: Mapping[str, Array]) -> dict[str, bool]:
    """Return the outputs that are asked for, by default all, and whether each goes as bytes."""
    if told.get("outputs") is None:
        return dict.fromkeys(outputs, False)
    wanted: dict[str, bool] = {}
    for tensor in _list(told, "outputs"):
        name, parameters = tensor.get("name"), tensor.get("parameters")
        if type(name) is not str or name not in outputs:
            raise BadInput(f"outputs: expected one of {', '.join(outputs)}, got {show(name)}; correct the name")
        wanted[name] = isinstance(parameters, dict) and parameters.get("binary_data") is True
    return wanted


def serve(runtime: Runtime, model: Model, host: str, port: int) -> None:
    """Serve the models of a bundle until the process is asked to end.

    Args:
        runtime: the runtime that has the model.
        model: a loaded bundle.
        host: address to listen on.
        port: port to listen on.

    Raises:
        EngineAbsent: the server's libraries are not installed.
    """
    try:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise EngineAbsent(
            f"open-inference: expected starlette and uvicorn, got none: {error}; "
            "pip install starlette==1.10.0 uvicorn==0.54.0"
        ) from error

    inference = OpenInference(runtime, model)

    async def endpoint(request: Request) -> Response:
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                return Response(canonical_json({"error": f"expected at most {MOST_BYTES} bytes, got more"}), 413)
        reply = await inference.answer(
            request.method, request.url.path, bytes(content), request.headers.get(JSON_HEADER)
        )
        return Response(reply.content, reply.status, dict(reply.headers), media_type="application/json")

    application = Starlette(routes=[Route("/{path:path}", endpoint, methods=["GET", "POST"])])
    uvicorn.run(application, host=host, port=port, log_level="warning", access_log=False)
