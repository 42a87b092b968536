"""Each row sees a defect that is planted for it."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import onnxruntime
import pytest

from runtime_lite import runtime as runtime_module
from runtime_lite.calls import graph_runner
from runtime_lite.calls.state import StreamState
from runtime_lite.errors import BadInput, BundleRefused
from runtime_lite.executors.onnx import OnnxExecutor
from runtime_lite.scheduling.choice import FOR_EVER, Chooser
from runtime_lite.scheduling.cost_table import RowCosts
from runtime_lite.scheduling.scheduler import Scheduler
from runtime_lite.scheduling.shares import Shares
from runtime_lite.serving import health, runs, server
from runtime_lite.serving.events import EventBus
from runtime_lite.serving.live_streams import LiveStreams, Slots
from runtime_lite.serving.request import Hold, Part, Version
from runtime_lite.serving.request_tracker import RequestCounts, RequestTracker
from runtime_lite.serving.ticket import Responses
from tests.soak import processes, puppet
from tests.soak.rows import ROWS

Original = Callable[..., Any]


@pytest.fixture
def leaked() -> Iterator[list[int]]:
    files: list[int] = []
    yield files
    for file in files:
        os.close(file)


def crashes(original: Original, *arguments: Any) -> Any:
    try:
        return original(*arguments)
    except BadInput as error:
        raise TypeError from error


def fails_all(parts: list[Part], run: Original) -> list[tuple[Part, Any]]:
    try:
        return list(zip(parts, run(parts), strict=True))
    except Exception as error:  # noqa: BLE001 - as the original does
        return [(part, error) for part in parts]


def commits_whatever_comes(slots: Slots, hold: Hold, state: StreamState) -> bool:
    slots._states[hold.slot] = state
    return True


def takes_as_it_was(original: Original, slots: Slots, state: StreamState) -> Any:
    """A slot that was in use keeps what it held."""
    kept = kept_states.get(id(slots), state)
    return original(slots, kept)


def remembers(original: Original, slots: Slots, hold: Hold, state: StreamState) -> Any:
    kept_states[id(slots)] = state
    return original(slots, hold, state)


kept_states: dict[int, StreamState] = {}


def keeps(original: Original, *arguments: Any) -> None:
    kept_ends.append(object())
    original(*arguments)


kept_ends: list[object] = []


def forgets_why_it_was_cancelled(original: Original, tracker: RequestTracker) -> RequestCounts:
    counts = original(tracker)
    ends = {(service, how, "" if how == "cancelled" else why): n for (service, how, why), n in counts.ends.items()}
    return RequestCounts(counts.submitted, counts.live, ends)


def says_twice(original: Original, bus: EventBus, method: str, *told: Any) -> None:
    for _ in range(2 if method == "ended" else 1):
        original(bus, method, *told)


def forgets_the_number(original: Original, served: LiveStreams, stream: Any, ticket: Any) -> None:
    ticket.sequence = None
    original(served, stream, ticket)


def last_first(original: Original, served: LiveStreams, stream: Any, now: int) -> None:
    stream.waiting.reverse()
    original(served, stream, now)


def as_long_as_the_bucket(original: Original, bucket: Any, *others: Any) -> Any:
    full = original(bucket, *others)
    full["time_length"][...] = bucket.sizes["time"]
    return full


def opens_with_two_threads(original: Original, executor: OnnxExecutor, bundle: Any, name: str, threads: int) -> None:
    original(executor, bundle, name, 2)


def has_one_name(original: Original, path: Any) -> Any:
    bundle = original(path)
    object.__setattr__(bundle, "manifest_sha256", "0" * 64)
    return bundle


def calls_often(original: Original, served: server.Server) -> None:
    for _ in range(1000):
        original(served)


def says_nothing(original: Original, *arguments: Any) -> None:
    """A swap to a broken bundle looks like one that went well."""
    with contextlib.suppress(BundleRefused):
        original(*arguments)


def opens_the_gate_again(original: Original, served: server.Server, limit_s: float) -> Any:
    report = original(served, limit_s)
    served._gate = ""
    return report


def opens_a_session_per_lane(original: Original, served: server.Server, lanes: int) -> None:
    original(served, lanes)
    for _ in range(lanes):
        onnxruntime.InferenceSession(
            str(puppet.adder() / "graphs/adder.batch1.onnx"), providers=["CPUExecutionProvider"]
        )


def counts_on_the_wall_clock(original: Original, served: server.Server, *arguments: Any) -> None:
    original(served, *arguments[:4], lambda: time.time_ns(), *arguments[5:])


def wraps(owner: Any, name: str, replacement: Callable[..., Any]) -> tuple[Any, str, Callable[..., Any]]:
    original = getattr(owner, name)
    return owner, name, lambda *arguments, **named: replacement(original, *arguments, **named)


PLANTED: dict[int, tuple[Any, str, Callable[..., Any]]] = {
    1: wraps(graph_runner.GraphRunner, "check", crashes),
    2: (runs, "run_parts", fails_all),
    4: (Responses, "is_full", property(lambda self: False)),  # type: ignore[dict-item]
    5: (RequestTracker, "_withdraw", lambda *_: None),
    6: (Scheduler, "_drop", lambda self, now: []),
    7: (Chooser, "_claim", lambda self, queue, slack, now: self._useful(queue, FOR_EVER, now)),
    8: (Slots, "free", lambda self, hold: True),
    9: wraps(LiveStreams, "check_chunk", forgets_the_number),
    10: wraps(Slots, "take", takes_as_it_was),
    11: (Slots, "commit", commits_whatever_comes),
    12: wraps(RequestTracker, "end", keeps),
    13: wraps(runtime_module.Runtime, "swap", says_nothing),
    14: wraps(server.Server, "drain", opens_the_gate_again),
    16: wraps(server.Server, "resize", opens_a_session_per_lane),
    17: (Shares, "entitled_at", lambda self, service, cost, now: None),
    18: wraps(LiveStreams, "advance", last_first),
    19: (runtime_module, "_warm_up", lambda version: {}),
    20: wraps(graph_runner, "full_feed", as_long_as_the_bucket),
    21: wraps(puppet, "read_bundle", has_one_name),
    22: wraps(EventBus, "note", says_twice),
    23: wraps(server.Server, "__init__", counts_on_the_wall_clock),
    24: wraps(server.Server, "_after", calls_often),
    25: wraps(OnnxExecutor, "__init__", opens_with_two_threads),
    26: (Chooser, "_slack", lambda self, urgent, now: (FOR_EVER, None)),
    27: (Chooser, "_slack", lambda self, urgent, now: (FOR_EVER, None)),
    28: wraps(RequestTracker, "counts", forgets_why_it_was_cancelled),
    29: (RowCosts, "observe", lambda self, rows, ns: None),
    34: (RequestTracker, "note_loss", lambda self, ticket, stream: None),
}
"""By row; 3, 15 and those of processes are below."""


@pytest.mark.parametrize("number", PLANTED)
def test_a_planted_defect_is_seen(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(row for row in ROWS if row.number == number)
    kept_states.clear()
    monkeypatch.setattr(Slots, "commit", wraps(Slots, "commit", remembers)[2])
    monkeypatch.setattr(*PLANTED[number])
    try:
        figures = row.measure(row.short, False)
    except Exception as error:  # noqa: BLE001 - a row may also fail on the way
        print(f"{type(error).__name__}: {error}")
    else:
        faults = row.faults(figures, short=True)
        print(faults)
        assert faults


def test_handles_that_are_kept_are_seen(monkeypatch: pytest.MonkeyPatch, leaked: list[int]) -> None:
    row = next(row for row in ROWS if row.number == 15)
    close = Version.close

    def close_and_keep(version: Version) -> None:
        close(version)
        leaked.append(os.open(os.devnull, os.O_RDONLY))

    monkeypatch.setattr(Version, "close", close_and_keep)
    assert row.faults(row.measure(1, False), short=True)


def test_a_probe_that_stays_green_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.soak.lives import _wrong_probes

    monkeypatch.setattr(health, "STUCK_NS", 10**18)
    assert _wrong_probes() > 50


IN_PROCESSES = {
    31: "server.Server.at_exit = lambda served: os.abort()",
    32: 'server.FORKED = "too much to do"',
    33: "server.no_thread = lambda where, error: error",
}
"""What is done to the script of a row before it runs."""


@pytest.mark.slow
@pytest.mark.parametrize("number", IN_PROCESSES)
def test_a_defect_that_is_planted_in_a_process_is_seen(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        f"import os, runpy; from runtime_lite.serving import server; {IN_PROCESSES[number]}; "
        "runpy.run_module('tests.soak.at_work', run_name='__main__', alter_sys=True)"
    )
    monkeypatch.setattr(processes, "SCRIPT", [sys.executable, "-c", script])
    row = next(row for row in ROWS if row.number == number)
    faults = row.faults(row.measure(2 if number == 33 else 6, False), short=True)
    print(faults)
    assert faults
