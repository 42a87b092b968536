"""What a load came to is counted from when requests were meant to come, and request counts are compared."""

import json

import pytest

from runtime_lite.load_test.arrivals import Arrival, Kind
from runtime_lite.load_test.findings import Findings, Served, describe_findings, findings_of, json_of_findings
from runtime_lite.serving.request_tracker import RequestCounts
from tests.runtime_lite.serving.happenings import MS, execution

SOFT: dict[Kind, float] = {"stream": 100.0, "utterance": 1000.0, "burst": 1000.0}


def chunk(at_ms: int, item: int, took_ms: int, *, last: bool = False, outcome: str = "done") -> Served:
    """A chunk that was sent 2 ms late."""
    reason = "" if outcome == "done" else "why"
    return Served(
        Arrival(at_ms * MS, "stream", 0, item, last), outcome, reason, (at_ms + took_ms) * MS, (at_ms + 2) * MS
    )


def counts(**ends: int) -> RequestCounts:
    by_outcome = {("chunk", outcome, ""): count for outcome, count in ends.items()}
    return RequestCounts(sum(ends.values()), 0, by_outcome)  # type: ignore[arg-type]  # words of the protocol


def findings(counts: RequestCounts) -> Findings:
    served = [
        chunk(0, 0, 50),
        *(chunk(100 * item, item, 10 * item) for item in range(1, 9)),
        chunk(900, 9, 1100, last=True),
        chunk(500, 3, 5, outcome="dropped"),
        chunk(600, 4, 0, outcome="refused"),
    ]
    runs = [execution(1, (1, 2), 0, 0, 100), execution(2, (3, 4, 5), 0, 0, 300)]
    return findings_of(served, runs, SOFT, {"stream": 0.5, "utterance": 0.0, "burst": 0.0}, 2, counts)


def test_latency_by_place_in_the_stream_late_share_and_ends() -> None:
    found = findings(counts(done=10, dropped=1)).kinds["stream"]
    assert (found.sent, found.done, found.ends) == (12, 10, {"dropped: why": 1, "refused: why": 1})
    assert found.latency_ms["first"] == {"p50": 50.0, "p95": 50.0, "p99": 50.0, "most": 50.0}
    assert found.latency_ms["middle"] == {"p50": 40.0, "p95": 80.0, "p99": 80.0, "most": 80.0}
    assert found.latency_ms["last"]["most"] == 1100.0
    assert found.latency_ms["all"]["p50"] == 50.0
    assert found.late_share == pytest.approx(0.1)
    assert found.per_s == pytest.approx(5.0)


def test_device_time_over_audio_is_the_real_time_factor() -> None:
    found = findings(counts(done=10, dropped=1))
    assert found.seconds == pytest.approx(2.0)
    assert found.audio_per_s == pytest.approx(2.5)
    assert found.rtf == pytest.approx(0.4 / 5.0)
    assert found.lanes_busy == pytest.approx(0.4 / 4.0)
    assert found.rows_per_run == 2.5
    assert found.padding_share == pytest.approx(1 - 50 / 80)
    assert found.generator_lag_ms == pytest.approx(2.0)


def test_books_that_do_not_balance_or_say_something_else_are_told() -> None:
    assert findings(counts(done=10, dropped=1)).balanced
    assert not findings(counts(done=9)).balanced
    assert not findings(RequestCounts(12, 1, counts(done=10, dropped=1).ends)).balanced
    assert not findings(RequestCounts(13, 0, counts(done=10, dropped=1).ends)).balanced
    assert "requests: submitted 11, live 0, done 10, dropped 1, cancelled 0, failed 0: balanced" in describe_findings(
        findings(counts(done=10, dropped=1))
    )
    assert "NOT BALANCED" in describe_findings(findings(counts(done=9)))


def test_nothing_at_all_is_described_too() -> None:
    found = findings_of([], [], SOFT, {"stream": 0.0, "utterance": 0.0, "burst": 0.0}, 1, counts())
    assert found.balanced
    assert found.rtf is None
    assert "RTF" not in describe_findings(found)
    assert json.loads(json.dumps(json_of_findings(found)))["schema_version"] == 1
