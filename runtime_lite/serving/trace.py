"""Records requests, runs and changes in the trace-event format of chrome://tracing and Perfetto.

    trace = Trace()
    runtime = Runtime(observers=[trace])
    ...
    trace.write("trace.json")

The upper tracks show requests, each a bar with its phases: `queue` until the scheduler chose it, `batch` while its rows
were gathered, `device` in the executor, `answer` until it was delivered. The lower tracks show the runs of each lane,
and an arrow leads from a request to each of its runs. Only the latest requests are kept.
"""

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime_lite.format.atomic_file import replace_file
from runtime_lite.format.manifest import bucket_name
from runtime_lite.serving.events import Execution, ModelChange, Outcome, Request, StreamChange

REQUESTS, LANES = 1, 2
"""Numbers of the two groups of tracks."""

TraceEvent = dict[str, Any]


class Trace:
    """An observer that keeps the latest requests, their runs, and the changes of streams and models.

    Args:
        most: number of records to keep of each kind.
    """

    def __init__(self, most: int = 20_000) -> None:
        """Start without records."""
        self._lock = threading.Lock()
        self._runs: dict[int, list[Execution]] = {}
        self._done: deque[tuple[Request, list[Execution], list[int], str, int]] = deque(maxlen=most)
        self._responses: dict[int, list[int]] = {}
        self._executions: deque[Execution] = deque(maxlen=most)
        self._changes: deque[tuple[str, str, int]] = deque(maxlen=most)

    def submitted(self, request: Request) -> None:
        with self._lock:
            self._runs[request.number], self._responses[request.number] = [], []

    def responded(self, request: Request, index: int, now: int) -> None:
        with self._lock:
            if request.number in self._responses:
                self._responses[request.number].append(now)

    def ended(self, request: Request, outcome: Outcome, reason: str, now: int) -> None:
        with self._lock:
            runs, responses = self._runs.pop(request.number, []), self._responses.pop(request.number, [])
            self._done.append((request, runs, responses, f"{outcome}: {reason}" if reason else outcome, now))

    def executed(self, execution: Execution) -> None:
        with self._lock:
            self._executions.append(execution)
            for number in execution.requests:
                if number in self._runs:
                    self._runs[number].append(execution)

    def stream_changed(self, model: str, stream: int, change: StreamChange, reason: str, now: int) -> None:
        with self._lock:
            self._changes.append((f"{model}: stream {stream}", f"{change}: {reason}" if reason else change, now))

    def model_changed(self, model: str, change: ModelChange, now: int) -> None:
        with self._lock:
            self._changes.append((model, change, now))

    def events(self) -> list[TraceEvent]:
        """Return all records as trace events, unsorted; viewers sort them."""
        with self._lock:
            done, executions, changes = list(self._done), list(self._executions), list(self._changes)
        events = [_named("process_name", REQUESTS, 0, "requests"), _named("process_name", LANES, 0, "lanes")]
        events += [
            _named("thread_name", LANES, lane, f"lane {lane}") for lane in {execution.lane for execution in executions}
        ]
        for execution in executions:
            events += _events_of_run(execution)
        for request, runs, responses, outcome, ended in done:
            events += _events_of_request(request, runs, responses, outcome, ended)
        for name, change, now in changes:
            events.append(_event("i", f"{name} {change}", REQUESTS, 0, now, s="g"))
        return events

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `chrome://tracing` and ui.perfetto.dev open."""
        with replace_file(Path(path)) as file:
            file.write(json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ms"}).encode())


def _events_of_run(execution: Execution) -> Iterator[TraceEvent]:
    """Yield a bar on the lane of a run, and within it a bar for the time in the executor."""
    about: dict[str, Any] = {
        "run": execution.number,
        "bucket": bucket_name(execution.sizes),
        "rows": execution.rows,
        "requests": list(execution.requests),
        "padding": round(1.0 - execution.used / max(execution.places, 1), 4),
        "expected_ms": execution.expected_ns / 1e6,
        "fault": execution.fault,
        "retry": execution.retry,
    }
    if execution.crossed is not None:
        about |= {"bytes_to_device": execution.crossed.to_device, "bytes_to_host": execution.crossed.to_host}
    name = f"{execution.model}.{execution.graph}"
    for what, start, args in ((name, execution.decided, about), ("device", execution.began, {})):
        yield _event("X", what, LANES, execution.lane, start, dur=(execution.ended - start) / 1e3, args=args)


def _events_of_request(
    request: Request, runs: list[Execution], responses: list[int], outcome: str, ended: int
) -> Iterator[TraceEvent]:
    """Yield a bar of a request with its phases, marks for its responses, and arrows to its runs."""
    name = f"{request.service} {request.number}"
    about = {
        "model": request.model,
        "graph": request.graph,
        "rows": request.rows,
        "stream": request.stream,
        "sequence": request.sequence,
        "soft_ms": (request.soft - request.arrival) / 1e6,
        "hard_ms": None if request.hard is None else (request.hard - request.arrival) / 1e6,
        "outcome": outcome,
    }
    begin, end_of_all = _bar(request, name, request.arrival, ended, about)
    yield begin
    phase_start = request.arrival
    for run in runs:
        for part, end in (("queue", run.decided), ("batch", run.began), ("device", run.ended)):
            yield from _bar(request, part, phase_start, end, {"run": run.number})
            phase_start = end
        arrow = {"id": f"{request.number}-{run.number}", "cat": "run"}
        yield _event("s", "runs in", REQUESTS, 0, run.decided, **arrow)
        yield _event("f", "runs in", LANES, run.lane, run.decided, bp="e", **arrow)
    yield from _bar(request, "answer" if runs else "queue", phase_start, ended, {})
    for index, now in enumerate(responses):
        yield _event("n", f"response {index}", REQUESTS, 0, now, cat="request", id=request.number)
    yield end_of_all  # behind its parts: what ends at the same time ends in this order


def _bar(request: Request, name: str, start: int, end: int, args: dict[str, Any]) -> tuple[TraceEvent, TraceEvent]:
    """Return the events of the begin and of the end of a bar."""
    return (
        _event("b", name, REQUESTS, 0, start, cat="request", id=request.number, args=args),
        _event("e", name, REQUESTS, 0, end, cat="request", id=request.number),
    )


def _event(phase: str, name: str, group: int, track: int, now: int, **more: Any) -> TraceEvent:
    return {"ph": phase, "name": name, "pid": group, "tid": track, "ts": now / 1e3, **more}


def _named(what: str, group: int, track: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": what, "pid": group, "tid": track, "args": {"name": name}}
