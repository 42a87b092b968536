"""Offers the methods of a gateway over HTTP; feeds and outputs are `.npz` files, everything else is JSON.

    POST   /streams?rows=1                       opens a stream: {"stream", "generation", "number"}
    POST   /streams/STREAM/GENERATION/NUMBER     a chunk: an .npz of arrays by input, an .npz by output comes back
    POST   /streams/STREAM/GENERATION/resume     the address for another connection, from where the stream goes on
    DELETE /streams/STREAM/GENERATION            ends the stream: {"counted"}
    GET    /streams                              what has become of the streams

An error is {"error", "message", "reason", "last_counted"} with the status of its kind.
"""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs

from runtime_lite.errors import BadInput, Cancelled, Dropped, Overloaded, RuntimeLiteError, StreamLost, show
from runtime_lite.format.arrays import arrays_from_npz, npz_from_arrays
from runtime_lite.format.canonical_json import canonical_json
from runtime_lite.hosting.ray_gateway import Gateway

MOST_BYTES = 2**26
"""Largest body of a request."""

STATUSES: tuple[tuple[type[RuntimeLiteError], int], ...] = (
    (BadInput, 400),
    (Cancelled, 400),
    (StreamLost, 410),
    (Overloaded, 503),
    (Dropped, 503),
)
"""HTTP status by the runtime's errors; others are 500."""


class Asked(Protocol):
    """A request as Starlette has it."""

    method: str
    url: Any

    def stream(self) -> AsyncIterator[bytes]: ...


class Reply(NamedTuple):
    """What goes back.

    Attributes:
        status: HTTP status.
        content: the body.
        kind: media type of the body.
    """

    status: int
    content: bytes
    kind: str = "application/json"


async def answer(gateway: Gateway, request: Asked) -> Reply:
    """Return the answer to a request; an error of the runtime is an answer, too."""
    try:
        return await _answer(gateway, request)
    except RuntimeLiteError as error:
        status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
        told = {"error": type(error).__name__, "message": str(error), "reason": getattr(error, "reason", "")}
        return Reply(status, canonical_json({**told, "last_counted": getattr(error, "last_counted", None)}))


async def _answer(gateway: Gateway, request: Asked) -> Reply:
    method, words = request.method, request.url.path.strip("/").split("/")
    if words[:1] == ["streams"]:
        match method, words[1:]:
            case "GET", []:
                return Reply(200, canonical_json((await gateway.counts())._asdict()))
            case "POST", []:
                rows = _number("rows", parse_qs(request.url.query).get("rows", ["1"])[0])
                return Reply(200, canonical_json((await gateway.open(rows))._asdict()))
            case "POST", [stream, generation, "resume"]:
                address = await gateway.resume(stream, _number("generation", generation))
                return Reply(200, canonical_json(address._asdict()))
            case "POST", [stream, generation, number]:
                feeds = arrays_from_npz(await _body(request), "the body of the request", BadInput)
                outputs = await gateway.push(
                    stream, _number("generation", generation), _number("number", number), feeds
                )
                return Reply(200, npz_from_arrays(outputs), "application/octet-stream")
            case "DELETE", [stream, generation]:
                counted = await gateway.close(stream, _number("generation", generation))
                return Reply(200, canonical_json({"counted": counted}))
    return Reply(
        404,
        canonical_json(
            {
                "error": "BadInput",
                "message": f"expected a path below /streams, got {show(request.url.path)}; see README.md",
            }
        ),
    )


async def _body(request: Asked) -> bytes:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            raise BadInput(f"the body of the request: expected at most {MOST_BYTES} bytes, got more; send less at once")
    return bytes(content)


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise BadInput(f"the path of the request: expected {name} as a number from 0 on, got {show(text)}; correct it")
    return int(text)
