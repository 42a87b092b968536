"""Sends requests to a Triton server over gRPC; runs in the server's environment and reads commands line by line.

python triton_client.py PORT      # lines `trip COUNT` and `flight COUNT REQUESTS` on standard input, JSON on output
"""

import json
import queue
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

MODEL = "no_op"
WIDTH = 4


def main(port: str) -> None:
    """Answer commands until the input ends."""
    import tritonclient.grpc as grpc  # in the environment of the server alone

    client = grpc.InferenceServerClient(f"127.0.0.1:{port}")
    array = np.arange(WIDTH, dtype=np.float32)[None]
    given = grpc.InferInput("x", list(array.shape), "FP32")
    given.set_data_from_numpy(array)
    answer = client.infer(MODEL, [given]).as_numpy("y")
    assert (answer == array).all(), answer
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        asked: dict[str, Callable[..., Any]] = {"trip": round_trips, "flight": in_flight}
        found = asked[what](client, given, *map(int, numbers))
        print(json.dumps(found), flush=True)


def round_trips(client: Any, given: Any, count: int) -> list[float]:
    """Return the microseconds of consecutive requests."""
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        client.infer(MODEL, [given]).as_numpy("y")
        times.append((time.perf_counter_ns() - start) / 1e3)
    return times


def in_flight(client: Any, given: Any, width: int, count: int) -> float:
    """Return the requests per second with `width` requests at a time."""
    answers: queue.SimpleQueue[object] = queue.SimpleQueue()

    def send() -> None:
        client.async_infer(MODEL, [given], callback=lambda result, error: answers.put(error or result.as_numpy("y")))

    start = time.perf_counter()
    for number in range(width + count):
        if number >= width:
            found = answers.get(timeout=30)
            assert isinstance(found, np.ndarray), found
        if number < count:
            send()
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main(sys.argv[1])
