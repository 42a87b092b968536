"""Shows a live view of a server in the terminal, computed from two readings of its metrics page (`metrics.py`).

Rates and percentiles are those of the time between the two readings.
"""

import http.client
import itertools
import math
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from runtime_lite.errors import BadInput, show
from runtime_lite.format.describe import format_table
from runtime_lite.serving.metrics import import_prometheus

MOST_BYTES = 2**24
ANSWER_S = 5.0
CLEAR = "\x1b[H\x1b[2J"

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Reading:
    """One page of metrics.

    Attributes:
        at: time of the reading, in seconds of a monotonic clock.
        samples: values by series name, each with its labels.
    """

    at: float
    samples: Mapping[str, list[tuple[Labels, float]]]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of a series that have these labels."""
        return sum(value for found, value in self.samples.get(name, ()) if labels.items() <= found.items())

    def values_of(self, label: str, *names: str) -> list[str]:
        """Return the sorted values of a label in some series."""
        return sorted({found[label] for name in names for found, _ in self.samples.get(name, ()) if label in found})


def read_page(address: str, clock: Callable[[], float] = time.monotonic) -> Reading:
    """Read and parse the metrics page of a server.

    Raises:
        BadInput: nothing answers at the address, or the answer is not a metrics page of this runtime.
        EngineAbsent: the client library is not installed.
    """
    parser = import_prometheus("prometheus_client.parser")
    try:
        if not address.startswith(("http://", "https://")):
            raise ValueError("no http:// address")
        with urllib.request.urlopen(address, timeout=ANSWER_S) as answer:
            text = answer.read(MOST_BYTES).decode()
        samples: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        families = list(parser.text_string_to_metric_families(text))
        for sample in itertools.chain.from_iterable(family.samples for family in families):
            labels = {name: text if text.isprintable() else show(text) for name, text in sample.labels.items()}
            samples[sample.name].append((labels, sample.value))
        if not any(family.name.startswith("slipway_") for family in families):
            raise ValueError("a page without any of this runtime")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise BadInput(
            f"top: expected metrics at {show(address)}, got {show(str(error))}; "
            "start the server with its metrics served, and pass their address"
        ) from error
    return Reading(clock(), samples)


def watch(address: str, every_s: float, pages: int | None) -> Iterator[str]:
    """Yield a view for each interval between two readings.

    Args:
        address: address of the metrics page.
        every_s: seconds between two readings.
        pages: number of views; None for no end.
    """
    before = read_page(address)
    for _ in itertools.count() if pages is None else range(pages):
        time.sleep(every_s)
        now = read_page(address)
        yield view(before, now)
        before = now


def view(before: Reading, now: Reading) -> str:
    """Return tables of what happened between two readings."""
    tables = (_of_classes(before, now), _of_graphs(before, now), _of_ends(before, now))
    streams = sum(value for _, value in now.samples.get("slipway_streams", ()))
    lanes = [
        f"{lane}: {_rate(before, now, 'slipway_lane_busy_seconds_total', lane=lane):.0%}"
        for lane in now.values_of("lane", "slipway_lane_busy_seconds_total")
    ]
    health = "".join(
        f"{value:.0f} {words}, "
        for name, words in (("slipway_queue_length", "queued"), ("slipway_runs_in_flight", "running"))
        for _, value in now.samples.get(name, ())
    )
    health += "".join("" if value else "NOT HEALTHY, " for _, value in now.samples.get("slipway_healthy", ()))
    head = f"{streams:.0f} streams, {health}lanes busy {', '.join(lanes) or 'never'}, over {now.at - before.at:.1f} s"
    return "\n\n".join([head, *(table for table in tables if table)])


def _of_classes(before: Reading, now: Reading) -> str:
    rows = []
    for service in now.values_of("service", "slipway_requests_submitted_total"):
        labels = {"service": service}
        done = _grown(before, now, "slipway_requests_ended_total", outcome="done", **labels)
        late = _grown(before, now, "slipway_requests_late_total", **labels)
        rows.append(
            (
                service,
                f"{now.sum('slipway_requests_live', **labels):.0f}",
                f"{_rate(before, now, 'slipway_requests_submitted_total', **labels):.1f}",
                f"{_rate(before, now, 'slipway_requests_ended_total', outcome='done', **labels):.1f}",
                f"{_rate(before, now, 'slipway_frames_total', **labels):.1f}",
                *(
                    _percentile_ms(before, now, "slipway_request_latency_seconds", share, **labels)
                    for share in (0.5, 0.99)
                ),
                _percentile_ms(before, now, "slipway_queue_seconds", 0.99, **labels),
                f"{late / done:.1%}" if done else "",
            )
        )
    heads = ("class", "live", "in/s", "done/s", "frames/s", "p50 ms", "p99 ms", "queue p99 ms", "late")
    return format_table(heads, rows) if rows else "no requests yet"


def _of_graphs(before: Reading, now: Reading) -> str:
    rows = []
    for model in now.values_of("model", "slipway_runs_total"):
        for graph in now.values_of("graph", "slipway_runs_total"):
            labels = {"model": model, "graph": graph}
            runs = _grown(before, now, "slipway_run_rows_count", **labels)
            places = _grown(before, now, "slipway_places_total", **labels)
            padding = _grown(before, now, "slipway_places_total", kind="padding", **labels)
            if now.sum("slipway_runs_total", **labels):
                rows.append(
                    (
                        f"{model}.{graph}",
                        f"{_rate(before, now, 'slipway_runs_total', **labels):.1f}",
                        f"{_grown(before, now, 'slipway_run_rows_sum', **labels) / runs:.1f}" if runs else "",
                        f"{padding / places:.1%}" if places else "",
                        *(_percentile_ms(before, now, "slipway_run_seconds", share, **labels) for share in (0.5, 0.99)),
                        f"{_grown(before, now, 'slipway_run_cost_ratio_sum', **labels) / runs:.2f}" if runs else "",
                    )
                )
    heads = ("graph", "runs/s", "rows", "padding", "p50 ms", "p99 ms", "time / plan")
    return format_table(heads, rows) if rows else ""


def _of_ends(before: Reading, now: Reading) -> str:
    """Return a table of requests that were dropped, cancelled or failed, in the interval and since the start."""
    name = "slipway_requests_ended_total"
    bad = [labels for labels, value in now.samples.get(name, ()) if labels["outcome"] != "done" and value]
    rows = [
        (
            labels["service"],
            labels["outcome"],
            labels["reason"],
            f"{_rate(before, now, name, **labels):.1f}",
            f"{now.sum(name, **labels):.0f}",
        )
        for labels in sorted(bad, key=lambda labels: sorted(labels.items()))
    ]
    return format_table(("class", "ended", "reason", "per s", "in all"), rows) if rows else ""


def _grown(before: Reading, now: Reading, name: str, **labels: str) -> float:
    """Return the growth of a count between two readings; a restarted server counts from zero."""
    then, here = before.sum(name, **labels), now.sum(name, **labels)
    return here - then if here >= then else here


def _rate(before: Reading, now: Reading, name: str, **labels: str) -> float:
    return _grown(before, now, name, **labels) / max(now.at - before.at, 1e-9)


def _percentile_ms(before: Reading, now: Reading, name: str, share: float, **labels: str) -> str:
    """Return a percentile of a histogram of seconds as text in ms, linear within a bucket; `>30000` beyond it."""
    bounds = sorted({float(found["le"]) for found, _ in now.samples.get(f"{name}_bucket", ())})
    counts = [_grown(before, now, f"{name}_bucket", le=_text_of(bound), **labels) for bound in bounds]
    found = percentile(bounds, counts, share)
    if found is None:
        return ""
    return f">{bounds[-2] * 1e3:g}" if math.isinf(found) else f"{found * 1e3:.1f}"


def _text_of(bound: float) -> str:
    """Return an upper bound as the page writes it."""
    return "+Inf" if math.isinf(bound) else str(bound)


def percentile(bounds: Iterable[float], counts: Iterable[float], share: float) -> float | None:
    """Return the percentile of a histogram: infinity beyond its last bound, None if the histogram is empty.

    Args:
        bounds: upper bounds of the buckets, ascending; the last is infinity.
        counts: number of values at or below each bound.
        share: the percentile as a number between 0 and 1.
    """
    below, lower = 0.0, 0.0
    pairs = list(zip(bounds, counts, strict=True))
    if not pairs or not pairs[-1][1]:
        return None
    wanted = share * pairs[-1][1]
    for bound, count in pairs:
        if count >= wanted and count > below:
            return bound if math.isinf(bound) else lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, bound
    return math.inf
