"""A trace holds every part of a request where it was, and viewers read it."""

import json
from pathlib import Path
from typing import Any

from runtime_lite.serving.trace import LANES, REQUESTS, Trace
from tests.runtime_lite.serving.happenings import MS, execution, request
from tests.runtime_lite.serving.test_metrics import tell


def bars(events: list[dict[str, Any]], number: int) -> list[tuple[str, float, float]]:
    """Name, begin and end in ms of the bars of a request; one that ends before what it holds fails."""
    found: list[tuple[str, float, float]] = []
    opened: list[tuple[str, float, int]] = []
    for event in events:
        if event.get("id") == number and event["ph"] == "b":
            opened.append((event["name"], event["ts"] / 1e3, len(found)))
            found.append(("", 0.0, 0.0))
        elif event.get("id") == number and event["ph"] == "e":
            name, begin, place = opened.pop()
            assert name == event["name"]
            assert begin <= event["ts"] / 1e3
            found[place] = (name, begin, event["ts"] / 1e3)
    assert not opened
    return found


def test_a_request_passes_queue_batch_and_device() -> None:
    trace = Trace()
    tell(trace)
    assert bars(trace.events(), 1) == [
        ("chunk 1", 1.0, 23.0),
        ("queue", 1.0, 11.0),
        ("batch", 11.0, 12.0),
        ("device", 12.0, 22.0),
        ("answer", 22.0, 23.0),
    ]
    assert [name for name, *_ in bars(trace.events(), 4)] == ["chunk 4", "queue", "batch", "device", "answer"]
    assert bars(trace.events(), 3) == [("chunk 3", 3.0, 10.0), ("queue", 3.0, 10.0)]


def test_lanes_show_runs_and_arrows_lead_to_them() -> None:
    trace = Trace()
    tell(trace)
    events = trace.events()
    runs = [event for event in events if event["ph"] == "X" and event["name"] == "asr.encoder"]
    assert [(run["ts"], run["dur"], run["tid"]) for run in runs] == [(11e3, 11e3, 0), (25e3, 2e3, 0)]
    assert (runs[0]["args"]["padding"], runs[0]["args"]["requests"], runs[1]["args"]["fault"]) == (
        0.5,
        [1, 2],
        "it broke",
    )
    starts, ends = ([e for e in events if e["ph"] == phase] for phase in "sf")
    assert [(e["id"], e["ts"], e["pid"]) for e in starts] == [(e["id"], e["ts"], REQUESTS) for e in ends]
    assert {e["pid"] for e in ends} == {LANES}


def test_responses_and_changes_are_marks() -> None:
    trace = Trace()
    trace.submitted(request(1))
    trace.responded(request(1), 0, 5 * MS)
    trace.responded(request(8), 0, 5 * MS)  # one that came in before the trace began
    trace.ended(request(1), "cancelled", "caller", 6 * MS)
    trace.stream_changed("asr", 7, "expired", "idle", 7 * MS)
    trace.model_changed("asr", "loaded", 8 * MS)
    marks = [(event["name"], event["ts"]) for event in trace.events() if event["ph"] in "in"]
    assert marks == [("response 0", 5e3), ("asr: stream 7 expired: idle", 7e3), ("asr loaded", 8e3)]


def test_what_is_kept_is_bounded_and_what_is_written_is_json(tmp_path: Path) -> None:
    trace = Trace(most=3)
    for number in range(1, 11):
        trace.submitted(request(number, at=number))
        trace.executed(execution(number, (number,), number, number, number + 1))
        trace.ended(request(number, at=number), "done", "", (number + 2) * MS)
    trace.write(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_bytes())["traceEvents"]
    assert {event["id"] for event in events if event["ph"] == "b"} == {8, 9, 10}
    assert len([event for event in events if event["ph"] == "X" and event["name"] == "device"]) == 3
