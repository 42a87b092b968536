"""Serves captions: a page takes the microphone or a file, and its text grows while somebody speaks.

    python -m examples.captions.serve dist/captions-onnx_static --port 8000

Needs the extra `captions`. Browsers give a page the microphone on the same machine, or over HTTPS. It listens on this
machine only, unless `--host` says otherwise. Ctrl-C ends it.
"""

import argparse
import contextlib
import math
import statistics
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from examples.captions.data import ALGORITHMIC_DELAY_MS
from examples.captions.sessions import MOST_BYTES, TRANSIENT, Closed, Sessions
from runtime_lite import BadInput, BundleRefused, Runtime
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange

PAGE = Path(__file__).with_name("page")
SCRIPT = "text/javascript"
KINDS = {"index.html": "text/html", "page.js": SCRIPT, "recorder.js": SCRIPT, "page.css": "text/css"}
REMEMBERED = 1024
"""Chunks whose delays are shown."""

NS_PER_MS = 1e6


class Delays:
    """How long the newest chunks waited for their run, and how long it took, in milliseconds."""

    def __init__(self) -> None:
        self._arrivals: dict[int, int] = {}
        self._parts: dict[str, deque[float]] = {"queue": deque(maxlen=REMEMBERED), "run": deque(maxlen=REMEMBERED)}
        self._lock = threading.Lock()

    def submitted(self, request: Request) -> None:
        if request.graph == TRANSIENT:
            self._arrivals[request.number] = request.arrival

    def responded(self, request: Request, index: int, now: int) -> None: ...

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        self._arrivals.pop(request.number, None)

    def executed(self, execution: Execution) -> None:
        arrivals = [self._arrivals.pop(number) for number in execution.requests if number in self._arrivals]
        with self._lock:
            for arrival in arrivals:
                self._parts["queue"].append((execution.began - arrival) / NS_PER_MS)
                self._parts["run"].append((execution.ended - execution.began) / NS_PER_MS)

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None: ...

    def model_changed(self, model: str, change: ModelChange, now: int) -> None: ...

    def shown(self) -> dict[str, list[float]]:
        """Return median and 95th percentile of each part; those of the chunk are how much sound it spans."""
        with self._lock:
            parts = {name: sorted(times) for name, times in self._parts.items() if times}
        found = {"chunk": [ALGORITHMIC_DELAY_MS, ALGORITHMIC_DELAY_MS]}
        for name, times in parts.items():
            found[name] = [round(statistics.median(times), 2), round(times[math.ceil(0.95 * len(times)) - 1], 2)]
        return found


def application(sessions: Sessions, delays: Delays) -> Any:
    """Return the page, its sessions and their delays as an ASGI application."""
    from starlette.applications import Starlette
    from starlette.requests import Request as Asked
    from starlette.responses import FileResponse, JSONResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    class Messages:
        """A WebSocket as a connection."""

        def __init__(self, socket: WebSocket) -> None:
            self._socket = socket

        async def receive(self) -> str | bytes:
            with contextlib.suppress(RuntimeError):  # it was closed from here
                message = await self._socket.receive()
                if message["type"] == "websocket.receive":
                    content: str | bytes | None = message.get("text")
                    return message["bytes"] if content is None else content
            raise Closed

        async def send(self, message: str) -> None:
            try:
                await self._socket.send_text(message)
            except (WebSocketDisconnect, RuntimeError) as error:
                raise Closed from error

        async def close(self) -> None:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self._socket.close()

    async def captions(socket: WebSocket) -> None:
        await socket.accept()
        await sessions.serve(Messages(socket))

    async def page(asked: Asked) -> Response:
        name = asked.path_params.get("name", "index.html")
        if name not in KINDS:
            return Response("no such file", 404)
        return FileResponse(PAGE / name, media_type=KINDS[name])

    async def delay(_: Asked) -> Response:
        return JSONResponse({"sessions": sessions.count, "milliseconds": delays.shown()})

    return Starlette(
        routes=[
            WebSocketRoute("/captions", captions),
            Route("/delays", delay),
            Route("/", page),
            Route("/{name}", page),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the process is asked to end; return 0, 2 for a wrong argument or bundle, 5 without the extra."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="folder of the bundle of captions.yaml")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--idle-s", type=float, default=60.0, help="seconds that a session waits for a new connection")
    asked = parser.parse_args(arguments)
    try:
        import starlette  # noqa: F401
        import uvicorn
        import websockets  # noqa: F401
    except ImportError as error:
        print(f"error: captions: {error}; pip install '.[captions]'", file=sys.stderr)
        return 5
    delays = Delays()
    try:
        with Runtime(observers=[delays]) as runtime:
            sessions = Sessions(runtime.load(asked.bundle, warm_up=True), asked.idle_s)
            print(f"captions: open http://{asked.host}:{asked.port} in a browser; Ctrl-C ends", flush=True)
            uvicorn.run(
                application(sessions, delays),
                host=asked.host,
                port=asked.port,
                log_level="warning",
                ws_max_size=MOST_BYTES,
            )
    except (BadInput, BundleRefused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
