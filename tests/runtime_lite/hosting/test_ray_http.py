"""A gateway over HTTP: chunks as `.npz`, errors by kind and status, and nothing that a client sends ends it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np
import pytest

from runtime_lite.errors import BadInput
from runtime_lite.format.arrays import arrays_from_npz, npz_from_arrays
from runtime_lite.hosting import ray_http
from runtime_lite.hosting.ray_gateway import Gateway
from runtime_lite.hosting.ray_http import Reply, answer
from runtime_lite.hosting.ray_replica import RayOptions
from tests.runtime_lite.bundles import random_chunks, truth_of_stream, write_streaming_bundle
from tests.runtime_lite.hosting.ray_stand_in import GoneError, Replicas
from tests.runtime_lite.serving.served import assert_close


class Request:
    """A request, in parts of some bytes."""

    def __init__(self, method: str, path: str, body: bytes = b"") -> None:
        self.method, self._body = method, body
        self.url = Url(urlsplit(path))

    async def stream(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), 1000):
            yield self._body[start : start + 1000]


class Url:
    def __init__(self, parts: SplitResult) -> None:
        self.path, self.query = parts.path, parts.query


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    bundle = write_streaming_bundle(tmp_path_factory.mktemp("streaming"))
    options = RayOptions(max_streams=4)
    return Gateway(Replicas(bundle, options, "a"), options, (GoneError,))


def ask(gateway: Gateway, method: str, path: str, body: bytes = b"") -> Reply:
    return asyncio.run(answer(gateway, Request(method, path, body)))


def told(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply.content)
    return found


def test_a_stream_is_opened_fed_resumed_and_closed(gateway: Gateway) -> None:
    async def work() -> None:
        async def asked(method: str, path: str, body: bytes = b"") -> Reply:
            return await answer(gateway, Request(method, path, body))

        chunks = random_chunks(3, rows=2)
        address = told(await asked("POST", "/streams?rows=2"))
        stream = address["stream"]
        assert (address["generation"], address["number"]) == (1, 0)
        for number, (truth, _) in enumerate(truth_of_stream(chunks[:2])):
            reply = await asked("POST", f"/streams/{stream}/1/{number}", npz_from_arrays({"x": chunks[number]}))
            assert (reply.status, reply.kind) == (200, "application/octet-stream")
            assert_close(arrays_from_npz(reply.content, "here", BadInput)["y"], truth)
        assert told(await asked("POST", f"/streams/{stream}/1/resume")) == {
            "stream": stream,
            "generation": 2,
            "number": 2,
        }
        late = await asked("POST", f"/streams/{stream}/1/2", npz_from_arrays({"x": chunks[2]}))
        assert (late.status, told(late)["error"], told(late)["last_counted"]) == (410, "StreamLost", 1)
        assert told(await asked("DELETE", f"/streams/{stream}/2")) == {"counted": 2}
        assert told(await asked("GET", "/streams"))["closed"] == 1

    asyncio.run(work())


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/", b"", 404, "expected a path below /streams, got '/'"),
        ("PUT", "/streams", b"", 404, "expected a path below /streams"),
        ("POST", "/streams/a/b/c/d", b"", 404, "expected a path below /streams"),
        ("POST", "/streams?rows=x", b"", 400, "expected rows as a number from 0 on, got 'x'"),
        ("POST", "/streams?rows=0", b"", 400, "expected rows from 1 to 4, got 0"),
        ("POST", "/streams/a/-1/0", b"", 400, "expected an .npz file"),
        ("POST", "/streams/a/1/0", b"PK", 400, "expected an .npz file"),
        ("POST", "/streams/a/1/9999999999999999999999", npz_from_arrays({"x": np.zeros(1)}), 400, "expected number as"),
        ("POST", "/streams/a/x/0", npz_from_arrays({"x": np.zeros(1)}), 400, "expected generation as a number"),
        ("POST", "/streams/a/1/0", npz_from_arrays({"x": np.zeros(1)}), 410, "lost: unknown; open another stream"),
        ("DELETE", "/streams/a/1", b"", 410, "lost: unknown"),
    ],
)
def test_what_is_wrong_is_an_answer(
    gateway: Gateway, method: str, path: str, body: bytes, status: int, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(*_: object) -> list[None]:
        return [None]

    monkeypatch.setattr(gateway, "_broadcast", nowhere)
    reply = ask(gateway, method, path, body)
    assert reply.status == status and text in told(reply)["message"]


def test_a_body_that_is_too_large_is_refused_while_it_comes(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_http, "MOST_BYTES", 5_000)
    reply = ask(gateway, "POST", "/streams/a/1/0", bytes(100_000))
    assert reply.status == 400 and "expected at most 5000 bytes, got more" in told(reply)["message"]


def test_a_full_application_says_so(gateway: Gateway) -> None:
    async def work() -> None:
        replies = [await answer(gateway, Request("POST", "/streams")) for _ in range(5)]
        assert [reply.status for reply in replies][-1] == 503
        assert told(replies[-1])["reason"] == "all places for streams are taken"

    asyncio.run(work())
