"""A worker of streams in a process of its own: a line of JSON is a call, a line of JSON the answer.

python -m tests.runtime_lite.hosting.stream_worker BUNDLE GRAPH
"""

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from runtime_lite import Runtime, RuntimeLiteError, StreamLost
from runtime_lite.format.arrays import Array
from runtime_lite.hosting.named_streams import NamedStreams, Place

ROOT = Path(__file__).parents[3]


def main(bundle: str, graph: str) -> None:
    """Answer calls until the input ends."""
    with Runtime() as runtime:
        streams = NamedStreams(runtime.load(bundle), graph, None)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            try:
                answer = _answer(streams, **json.loads(line))
            except RuntimeLiteError as error:
                last = error.last_counted if isinstance(error, StreamLost) else None
                answer = {"error": type(error).__name__, "text": str(error), "last_counted": last}
            print(json.dumps(answer), flush=True)


def _answer(streams: NamedStreams, call: str, **given: Any) -> dict[str, Any]:
    if call == "push":
        place = Place(given["name"], number=given["number"], generation=given["generation"])
        x = np.frombuffer(base64.b64decode(given["x"]), np.float32).reshape(-1, 3, 2)
        return {"y": base64.b64encode(streams.submit(place, {"x": x}).result()["y"].tobytes()).decode()}
    if call == "open":
        streams.open(given["name"], given["generation"])
        return {}
    if call == "snapshot":
        return {"content": base64.b64encode(streams.snapshot(given["name"], given["generation"])).decode()}
    if call == "restore":
        content = base64.b64decode(given["content"])
        return {"number": streams.restore(given["name"], given["generation"], content)}
    assert call == "drain"
    return {
        "moved": [
            [each.stream, each.generation, each.sequence, base64.b64encode(each.content).decode()]
            for each in streams.drain(10.0)
        ]
    }


class WorkerGoneError(Exception):
    """The process has ended."""


class Worker:
    """The process, and its calls."""

    def __init__(self, bundle: Path, graph: str) -> None:
        """Start it; its first answer says that it is ready."""
        command = [sys.executable, "-m", "tests.runtime_lite.hosting.stream_worker", str(bundle), graph]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)

    def send(self, call: str, **given: Any) -> None:
        """Send a call; its answer is read by `answer`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"call": call, **given}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            WorkerGoneError: there is none.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerGoneError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, call: str, **given: Any) -> dict[str, Any]:
        """Send a call and return its answer."""
        self.send(call, **given)
        return self.answer()

    def push(self, name: str, generation: int, number: int, chunk: Array) -> Array:
        """Push a chunk and return the output."""
        self.send_chunk(name, generation, number, chunk)
        return output_of(self.answer())

    def send_chunk(self, name: str, generation: int, number: int, chunk: Array) -> None:
        """Send a chunk without waiting."""
        self.send("push", name=name, generation=generation, number=number, x=base64.b64encode(chunk.tobytes()).decode())

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


def output_of(answer: dict[str, Any]) -> Array:
    """Return the output of an answered push."""
    return np.frombuffer(base64.b64decode(answer["y"]), np.float32).reshape(-1, 3, 2)


if __name__ == "__main__":
    main(*sys.argv[1:])
