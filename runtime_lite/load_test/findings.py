"""Computes the results of a load test: latency, share of late answers, throughput, and whether counts balance."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from runtime_lite.format.describe import format_table
from runtime_lite.load_test.arrivals import NS_PER_S, Arrival, Kind
from runtime_lite.serving.events import Execution
from runtime_lite.serving.request_tracker import RequestCounts

PLACES = ("first", "middle", "last")
SHARES = (0.5, 0.95, 0.99, 1.0)


class Served(NamedTuple):
    """One request and how it ended.

    Attributes:
        arrival: the planned request.
        outcome: how it ended; `refused` if it was not admitted.
        reason: why it ended; empty for `done`.
        ended: nanoseconds after the start.
        sent: time at which the generator submitted it, in nanoseconds after the start.
    """

    arrival: Arrival
    outcome: str
    reason: str
    ended: int
    sent: int

    @property
    def latency_ms(self) -> float:
        """Time in ms from the planned arrival of the request to its end."""
        return (self.ended - self.arrival.at) / 1e6


@dataclass(frozen=True)
class KindFindings:
    """Results for the requests of one kind.

    Attributes:
        sent: number of requests.
        done: number of answered requests.
        ends: number of requests that ended without an answer, by `outcome: reason`.
        late_share: share of the answers that came after the soft target.
        per_s: answers per second.
        latency_ms: p50, p95, p99 and largest latency of answers, by position in the stream (`first`, `middle`, `last`;
            `all`).
    """

    sent: int
    done: int
    ends: Mapping[str, int]
    late_share: float
    per_s: float
    latency_ms: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Findings:
    """Results of a load test.

    Attributes:
        seconds: time from the start to the last end.
        kinds: results by kind of request.
        audio_per_s: seconds of audio answered per second, for requests whose audio is known.
        rtf: real-time factor: seconds of device time per second of audio; None if no audio is known.
        lanes_busy: share of the lanes' time in which they ran something.
        rows_per_run: average number of rows in use.
        padding_share: share of padding in the entries of all inputs.
        generator_lag_ms: 99th percentile of the delay with which requests were sent; if it is large, the generator was
            too slow.
        requests: request counts of the runtime.
        balanced: whether they balance and agree with the generator's own count.
    """

    seconds: float
    kinds: Mapping[Kind, KindFindings]
    audio_per_s: float
    rtf: float | None
    lanes_busy: float
    rows_per_run: float
    padding_share: float
    generator_lag_ms: float
    requests: Mapping[str, int]
    balanced: bool


def findings_of(
    served: Sequence[Served],
    executions: Sequence[Execution],
    soft_ms: Mapping[Kind, float],
    audio_s: Mapping[Kind, float],
    lanes: int,
    counts: RequestCounts,
) -> Findings:
    """Compute the results of a load test.

    Args:
        served: every planned request and how it ended.
        executions: every run.
        soft_ms: soft target by kind.
        audio_s: seconds of audio of a request by kind; 0 if unknown.
        lanes: runs that may be in flight at once.
        counts: the runtime's request counts at the end.
    """
    seconds = max((request.ended for request in served), default=0) / NS_PER_S
    done = [request for request in served if request.outcome == "done"]
    audio = sum(audio_s[request.arrival.kind] for request in done)
    busy = sum(run.ended - run.began for run in executions) / NS_PER_S
    places = sum(run.places for run in executions)
    kinds = sorted({request.arrival.kind for request in served})
    requests = {"submitted": counts.submitted, "live": counts.live}
    requests |= {outcome: counts.count(outcome) for outcome in ("done", "dropped", "cancelled", "failed")}
    return Findings(
        seconds=seconds,
        kinds={kind: _of_kind([s for s in served if s.arrival.kind == kind], soft_ms[kind], seconds) for kind in kinds},
        audio_per_s=audio / seconds if seconds else 0.0,
        rtf=busy / audio if audio else None,
        lanes_busy=busy / (seconds * lanes) if seconds else 0.0,
        rows_per_run=sum(run.rows for run in executions) / max(len(executions), 1),
        padding_share=1.0 - sum(run.used for run in executions) / places if places else 0.0,
        generator_lag_ms=_percentile([(request.sent - request.arrival.at) / 1e6 for request in served], 0.99),
        requests=requests,
        balanced=counts.balanced and counts.live == 0 and counts.count("done") == len(done),
    )


def _of_kind(served: Sequence[Served], soft_ms: float, seconds: float) -> KindFindings:
    done = [request for request in served if request.outcome == "done"]
    other = Counter(f"{request.outcome}: {request.reason}" for request in served if request.outcome != "done")
    by_place = {
        place: [request.latency_ms for request in done if _place_of(request.arrival) == place] for place in PLACES
    }
    by_place["all"] = [request.latency_ms for request in done]
    return KindFindings(
        sent=len(served),
        done=len(done),
        ends=dict(sorted(other.items())),
        late_share=sum(request.latency_ms > soft_ms for request in done) / max(len(done), 1),
        per_s=len(done) / seconds if seconds else 0.0,
        latency_ms={place: _percentiles(times) for place, times in by_place.items() if times},
    )


def _place_of(arrival: Arrival) -> str:
    """Return the position of a chunk in its stream: `first`, `middle` or `last`; `none` for a single request."""
    if arrival.kind != "stream":
        return "none"
    return "first" if arrival.item == 0 else "last" if arrival.last else "middle"


def _percentiles(times: Sequence[float]) -> dict[str, float]:
    names = ("p50", "p95", "p99", "most")
    return {name: _percentile(times, share) for name, share in zip(names, SHARES, strict=True)}


def _percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that a share of the values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def describe_findings(findings: Findings) -> str:
    """Return the results as tables and sentences."""
    rows = [
        (
            kind,
            place,
            *(
                (of_kind.sent, of_kind.done, f"{of_kind.per_s:.1f}", f"{of_kind.late_share:.2%}")
                if place == "all"
                else [""] * 4
            ),
            *(f"{value:.1f}" for value in times.values()),
        )
        for kind, of_kind in findings.kinds.items()
        for place, times in sorted(of_kind.latency_ms.items())
    ]
    heads = ("requests", "", "sent", "done", "per s", "late", "p50 ms", "p95 ms", "p99 ms", "most ms")
    parts = [format_table(heads, rows)]
    ends = [(kind, end, count) for kind, of_kind in findings.kinds.items() for end, count in of_kind.ends.items()]
    if ends:
        parts.append(format_table(("requests", "not answered", "count"), ends))
    rtf = "" if findings.rtf is None else f"RTF {findings.rtf:.4f}, {findings.audio_per_s:.1f} s of audio per s; "
    parts.append(
        f"{rtf}lanes busy {findings.lanes_busy:.0%}, {findings.rows_per_run:.2f} rows per run, "
        f"{findings.padding_share:.1%} padding\n"
        f"{findings.seconds:.1f} s; requests sent at most {findings.generator_lag_ms:.1f} ms late (p99)\n"
        f"requests: {', '.join(f'{name} {count}' for name, count in findings.requests.items())}: "
        f"{'balanced' if findings.balanced else 'NOT BALANCED'}"
    )
    return "\n\n".join(parts)


def json_of_findings(findings: Findings) -> dict[str, Any]:
    """Return the results as plain data for JSON."""
    return {"schema_version": 1, **asdict(findings)}
