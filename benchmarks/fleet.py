"""How many workers captions need past one machine: a fleet over an hour, in virtual time.

    python -m benchmarks.fleet BUNDLE --graph encoder --write docs/fleet.svg

A worker is simulated in detail once: the runtime's scheduler on a virtual clock, with the costs that the bundle has for
this machine, gives the share of late chunks by the number of streams. The fleet is then simulated by sessions, second
by second, with that function: arrivals with a burst, lengths with a heavy tail, placement by counts that are some
seconds old, loss of a rack, workers that need time to start.

Lost streams are placed before new ones, and at any worker; new ones are refused where a worker has as many streams as
it answers without a late chunk. Both take a place in the number that a worker opens per second.
"""

import argparse
import html
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import command
from runtime_lite.format.reader import read_bundle
from runtime_lite.plan import spreads_of
from runtime_lite.scheduling.capacity import Machine, Work, most_streams, plan_streams
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import CHUNK

LATE_MS = 2_000.0
"""Age of a chunk at which captions drop it."""

LEVELS = (0.5, 0.9, 1.0, 1.05, 1.1, 1.2, 1.4, 1.8)
"""Loads of one worker that are simulated in detail, as multiples of what it carries; between them it is a line."""

WORKER_S = 300.0
"""Seconds for which a worker is simulated: a backlog that grows is late by then."""

HOUR = 3600
MEDIAN_S, SPREAD = 1800.0, math.log(8.0) / 2.326
"""Lengths of sessions: half are below 30 minutes, one of a hundred is above 4 hours."""

SHORT, SHORT_S = 0.1, 10
"""Share of sessions that end within seconds: clients that connect again."""

BURST, BURST_AT, BURST_S = 0.3, 1800, 120
"""Share of an hour's sessions that begin at the half hour, within two minutes."""

PAIRS = 3
"""Pairs of random workers that are tried, the next one where both of a pair are full."""

POINTS = 100
"""Points of each worker on a ring of hashes."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Fleet:
    """A fleet and what happens to it.

    Attributes:
        streams: live streams at the beginning, and on average without the burst.
        carried: streams that a worker answers without a late chunk.
        workers: workers at the beginning.
        placement: `two` (the emptier one of two random workers, of two others where both are full), `ring`, or `least`
            (the emptiest of all).
        stale_s: seconds between two reports of how many streams a worker has.
        opens_per_s: streams that a worker opens per second.
        lost_at: second at which workers are lost; None for never.
        lost: number of workers that are lost.
        start_s: seconds until another worker has started.
        target: load at which another worker is started; None for a fixed number. Lost ones are always replaced.
        burst: share of an hour's sessions that begin at the half hour.
        seed: of all random numbers.
    """

    streams: int
    carried: int
    workers: int
    placement: str = "two"
    stale_s: int = 1
    opens_per_s: int = 20
    lost_at: int | None = None
    lost: int = 0
    start_s: int = 180
    target: float | None = None
    burst: float = BURST
    seed: int = 1


@dataclass(frozen=True)
class Outcome:
    """What came of an hour.

    Attributes:
        late: share of all chunks that were late.
        refused: share of new streams that were refused.
        moved: streams that lost their worker.
        gap_p50_s: median of the seconds that these waited for another one; 0 without any.
        gap_max_s: longest of these.
        fullest: streams of the fullest worker over the mean, at the end.
        most_live: most streams at one time.
        worker_hours: cost.
    """

    late: float
    refused: float
    moved: int
    gap_p50_s: float
    gap_max_s: float
    fullest: float
    most_live: int
    worker_hours: float


def simulate(fleet: Fleet, late_of: Callable[[Counts], NDArray[np.float64]], seconds: int = HOUR) -> Outcome:
    """Return what comes of a fleet.

    Args:
        fleet: the fleet.
        late_of: share of late chunks of workers by their streams.
        seconds: simulated time.
    """
    draw = np.random.default_rng(fleet.seed)
    most = 4 * fleet.workers + 200
    counts, alive = np.zeros(most, np.int64), np.zeros(most, bool)
    alive[: fleet.workers] = True
    ready_at: list[int] = []
    ends: list[list[int]] = [[] for _ in range(seconds + 1)]
    worker_of: list[int] = []
    waiting: deque[tuple[int, int]] = deque()
    choose = _Placement(fleet, draw)
    late = total = hours = 0.0
    refused = arrived = moved = most_live = 0
    gaps: list[int] = []

    def placed(session: int, workers: Sequence[int], opened: Counts, limit: float) -> bool:
        for worker in workers:
            if alive[worker] and opened[worker] < fleet.opens_per_s and counts[worker] < limit:
                worker_of[session] = worker
                counts[worker] += 1
                opened[worker] += 1
                return True
        return False

    def enter(length: float, now: int) -> int:
        worker_of.append(-1)
        if now + length < seconds:
            ends[int(now + length)].append(len(worker_of) - 1)
        return len(worker_of) - 1

    choose.report(counts, alive)
    free = np.full(most, -(10**9))
    for length in _rest_of_lengths(draw, fleet.streams):  # who is there at the beginning was placed over hours
        if choose.has_to_report(len(worker_of)):
            choose.report(counts, alive)
        session = enter(length, 0)
        placed(session, choose.workers(), free, math.inf)
    for now in range(seconds):
        for session in ends[now]:
            if worker_of[session] >= 0:
                counts[worker_of[session]] -= 1
            worker_of[session] = -2
        if now == fleet.lost_at:
            gone = np.flatnonzero(alive)[: fleet.lost]
            alive[gone], counts[gone] = False, 0
            lost = [session for session, worker in enumerate(worker_of) if worker in set(gone.tolist())]
            for session in lost:
                worker_of[session] = -1
            waiting.extend((session, now) for session in lost)
            moved += len(lost)
            ready_at += [now + fleet.start_s] * len(gone)
        live = int(counts.sum()) + len(waiting)
        if fleet.target is not None:
            wanted = math.ceil(live / (fleet.target * fleet.carried)) - int(alive.sum()) - len(ready_at)
            ready_at += [now + fleet.start_s] * max(wanted, 0)
        begun = sum(at <= now for at in ready_at)
        ready_at = [at for at in ready_at if at > now]
        alive[np.flatnonzero(~alive & (counts == 0))[-begun:] if begun else []] = True
        if now % fleet.stale_s == 0:
            choose.report(counts, alive)
        opened = np.zeros(most, np.int64)
        for _ in range(len(waiting)):
            session, since = waiting.popleft()
            if worker_of[session] != -1:
                continue  # it has ended
            if placed(session, choose.workers(), opened, math.inf):
                gaps.append(now - since)
            else:
                waiting.append((session, since))
        for length in _lengths(draw, int(draw.poisson(_rate(fleet, now)))):
            arrived += 1
            session = enter(length, now)
            if not placed(session, choose.workers(), opened, fleet.carried):
                refused += 1
                worker_of[session] = -2
        late += float((counts * late_of(counts)).sum()) + len(waiting)
        total += live
        hours += float(alive.sum()) / HOUR
        most_live = max(most_live, live)
    working = counts[alive]
    return Outcome(
        late / max(total, 1.0),
        refused / max(arrived, 1),
        moved,
        float(np.median(gaps)) if gaps else 0.0,
        float(max(gaps, default=0)),
        float(working.max() / working.mean()),
        most_live,
        hours,
    )


class _Placement:
    """Chooses workers by counts of the last report."""

    def __init__(self, fleet: Fleet, draw: np.random.Generator) -> None:
        self._fleet, self._draw = fleet, draw
        self._numbers: Iterator[int] = iter(())
        self._alive: list[int] = []

    def has_to_report(self, sessions: int) -> bool:
        """Return whether as many have been placed as arrive between two reports."""
        between = max(int(_rate(replace(self._fleet, burst=0.0), 0) * self._fleet.stale_s), 1)
        return sessions % between == 0

    def report(self, counts: Counts, alive: NDArray[np.bool_]) -> None:
        """Hear from all workers how many streams they have."""
        known, self._alive = self._alive, np.flatnonzero(alive).tolist()
        self._counts = counts.tolist()
        if self._fleet.placement == "least":
            self._least = min(self._alive, key=self._counts.__getitem__)
        if known == self._alive:
            return
        self._numbers = iter(())  # those that are left were drawn for another number of workers
        if self._fleet.placement == "ring":
            points = [
                (place, worker)
                for worker in self._alive
                for place in np.random.default_rng(worker).random(POINTS).tolist()
            ]
            places, self._ring = zip(*sorted(points), strict=True)
            self._places = np.array(places)

    def workers(self) -> Sequence[int]:
        """Return the workers to try for a stream, the best one first."""
        if self._fleet.placement == "ring":
            return (self._ring[int(np.searchsorted(self._places, self._draw.random())) % len(self._ring)],)
        if self._fleet.placement == "least":
            return (self._least,)
        pairs = [[self._alive[self._number()], self._alive[self._number()]] for _ in range(PAIRS)]
        return [worker for pair in pairs for worker in sorted(pair, key=self._counts.__getitem__)]

    def _number(self) -> int:
        number = next(self._numbers, None)
        if number is None:
            self._numbers = iter(self._draw.integers(0, len(self._alive), 4096).tolist())
            number = next(self._numbers)
        return number


def _rate(fleet: Fleet, now: int) -> float:
    """Return the new streams per second; without the burst, as many as keep the number of live streams."""
    steady = fleet.streams / _mean_length()
    if BURST_AT <= now < BURST_AT + BURST_S:
        return steady * (1.0 - fleet.burst + fleet.burst * HOUR / BURST_S)
    return steady * (1.0 - fleet.burst)


def _mean_length() -> float:
    return (1.0 - SHORT) * MEDIAN_S * math.exp(SPREAD**2 / 2) + SHORT * SHORT_S / 2


def _lengths(draw: np.random.Generator, count: int) -> list[float]:
    """Return lengths of new sessions in seconds."""
    lengths = draw.lognormal(math.log(MEDIAN_S), SPREAD, count)
    lengths = np.where(draw.random(count) < SHORT, draw.random(count) * SHORT_S, lengths)
    found: list[float] = np.maximum(lengths, 1.0).tolist()
    return found


def _rest_of_lengths(draw: np.random.Generator, count: int) -> list[float]:
    """Return how long sessions go on that are live at a moment: long ones are met more often than short ones."""
    # a lognormal length, weighted by itself, has the same spread around a median that is exp(spread^2) longer
    lengths = draw.lognormal(math.log(MEDIAN_S) + SPREAD**2, SPREAD, count)
    rest: list[float] = np.maximum(lengths * draw.random(count), 1.0).tolist()
    return rest


# A worker


def worker_curve(machine: Machine, period_ms: float, seconds: float) -> tuple[int, list[tuple[int, float]]]:
    """Return what a worker carries without a late chunk, and the share of late ones by its number of streams."""
    period = int(period_ms * NS_PER_MS)
    work = Work(
        tuple(machine.costs),
        (),
        period,
        int(LATE_MS * NS_PER_MS),
        CHUNK._replace(soft_ms=period_ms / 2, hard_ms=LATE_MS),
        seconds=seconds,
        admission=False,
    )
    carried = most_streams(machine, work).streams
    levels = [max(round(level * carried), 1) for level in LEVELS]
    return carried, [(streams, plan_streams(machine, work, streams).late) for streams in levels]


def late_by(curve: Sequence[tuple[int, float]]) -> Callable[[Counts], NDArray[np.float64]]:
    """Return the function of `simulate` that goes through a curve; beyond its last point, what is over is late."""
    streams, late = (np.array(each, float) for each in zip(*curve, strict=True))
    carried = streams[late <= 0].max(initial=streams[0])

    def late_of(counts: Counts) -> NDArray[np.float64]:
        beyond = 1.0 - carried / np.maximum(counts, carried)
        found: NDArray[np.float64] = np.where(counts > streams[-1], beyond, np.interp(counts, streams, late))
        return found

    return late_of


# The page


@dataclass(frozen=True)
class Line:
    """A line of the picture: its label, and points."""

    label: str
    points: Sequence[tuple[float, float]]


COLOURS = ("#0072b2", "#d55e00", "#009e73")
WIDE, TALL, LEFT, TOP = 300, 220, 60, 40


def picture(panels: Sequence[tuple[str, str, str, Sequence[Line]]]) -> str:
    """Return an SVG of panels beside each other: title, names of both axes, lines."""
    shapes = []
    for number, (title, across, up, lines) in enumerate(panels):
        x0 = LEFT + number * (WIDE + LEFT + 20)
        points = [point for line in lines for point in line.points]
        low, high = min(x for x, _ in points), max(x for x, _ in points)
        top = max(y for _, y in points) or 1.0
        shapes.append(f'<rect x="{x0}" y="{TOP}" width="{WIDE}" height="{TALL}" fill="none" stroke="#999"/>')
        for text, x, y, anchor in (
            (title, x0, TOP - 14, "start"),
            (across, x0 + WIDE, TOP + TALL + 34, "end"),
            (f"{low:g}", x0, TOP + TALL + 16, "middle"),
            (f"{high:g}", x0 + WIDE, TOP + TALL + 16, "middle"),
            (up, x0 + 6, TOP + 14, "start"),
            (f"{top:.3g}", x0 - 4, TOP + 10, "end"),
            ("0", x0 - 4, TOP + TALL, "end"),
        ):
            shapes.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>')
        for at, line in enumerate(lines):
            path = " ".join(
                f"{x0 + WIDE * (x - low) / ((high - low) or 1):.1f},{TOP + TALL * (1 - y / top):.1f}"
                for x, y in line.points
            )
            shapes.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[at]}" stroke-width="2"/>')
            label = f'x="{x0 + WIDE - 6}" y="{TOP + 32 + 16 * at}" text-anchor="end" fill="{COLOURS[at]}"'
            shapes.append(f"<text {label}>{html.escape(line.label)}</text>")
    size = f'viewBox="0 0 {len(panels) * (WIDE + LEFT + 20) + 20} {TOP + TALL + 50}"'
    style = 'font-family="sans-serif" font-size="12"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{background}{"".join(shapes)}</svg>\n'


def main() -> None:
    """Print tables of what a fleet needs, and write the picture if asked to."""
    parser = argparse.ArgumentParser(description="How many workers captions need past one machine.")
    parser.add_argument("bundle", type=Path, help="bundle with a streaming graph and its costs on this machine")
    parser.add_argument("--graph", default="encoder", help="its graph (default encoder)")
    parser.add_argument("--lanes", type=int, default=2, help="runs of a worker at once (default 2)")
    parser.add_argument("--period-ms", type=float, default=640.0, help="audio of a chunk (default 640)")
    parser.add_argument("--streams", type=int, default=100_000, help="live streams (default 100000)")
    parser.add_argument("--seconds", type=int, default=HOUR, help="simulated time (default 3600)")
    parser.add_argument("--write", type=Path, help="the picture, an SVG file")
    options = parser.parse_args()
    graph = command.graph_of_bundle(options.bundle, options.graph, streams=True)
    with read_bundle(options.bundle) as bundle:
        costs = spreads_of(bundle, options.graph, graph, bundle.costs.get(options.graph, {}), 1)
    carried, curve = worker_curve(Machine(costs, options.lanes), options.period_ms, WORKER_S)
    late_of, console = late_by(curve), Console(width=160)
    console.print(_table("one worker", ("streams", "late"), [(n, f"{late:.2%}") for n, late in curve]))
    least = math.ceil(options.streams / carried)
    base = Fleet(options.streams, carried, least, lost_at=BURST_AT + 60, lost=max(least * 20 // 250, 1))

    def run(**changes: Any) -> Outcome:
        return simulate(replace(base, **changes), late_of, options.seconds)

    rows: list[tuple[object, ...]] = []
    for name, changes in (
        ("ring", {"placement": "ring"}),
        ("least loaded", {"placement": "least"}),
        ("least loaded, 10 s old", {"placement": "least", "stale_s": 10}),
        ("two choices", {}),
        ("two choices, 10 s old", {"stale_s": 10}),
    ):
        roomy = {"workers": 2 * least, "lost_at": None, "opens_per_s": 10**6, "burst": 0.0, **changes}
        rows.append((name, f"{run(**roomy).fullest:.2f}"))
    console.print(_table("placement", ("", "fullest / mean"), rows))
    sizes = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    fixed = [run(workers=math.ceil(size * least)) for size in sizes]
    heads = ("workers / least", "worker hours", "refused", "late", "moved", "gap p50, s", "gap max, s", "most live")
    console.print(_table("a fixed fleet: the burst, and a rack lost in it", heads, list(map(_row, sizes, fixed))))
    delays = [0, 60, 180, 600]
    scaled = [run(workers=math.ceil(least / 0.9), target=0.9, start_s=delay, lost_at=None) for delay in delays]
    heads = ("start, s", *heads[1:])
    console.print(_table("started when 0.9 is in use", heads, list(map(_row, delays, scaled))))
    limits = [1, 2, 5, 10, 20, 50]
    storms = [run(workers=math.ceil(1.6 * least), opens_per_s=limit) for limit in limits]
    heads = ("opens / worker / s", *heads[1:])
    console.print(_table("how fast lost streams are placed anew, at 1.6", heads, list(map(_row, limits, storms))))
    if options.write is not None:
        refused = Line("refused, %", [(size, 100 * each.refused) for size, each in zip(sizes, fixed, strict=True)])
        late = Line("late, %", [(size, 100 * each.late) for size, each in zip(sizes, fixed, strict=True)])
        start = Line("refused, %", [(delay, 100 * each.refused) for delay, each in zip(delays, scaled, strict=True)])
        gap = Line("longest", [(limit, each.gap_max_s) for limit, each in zip(limits, storms, strict=True)])
        half = Line("median", [(limit, each.gap_p50_s) for limit, each in zip(limits, storms, strict=True)])
        panels = (
            ("fixed fleet, a rack lost in the burst", "workers / least", "", (refused, late)),
            ("another worker when 0.9 is in use", "seconds until a worker has started", "", (start,)),
            ("streams of a lost rack", "opens per worker and second", "seconds without captions", (gap, half)),
        )
        options.write.write_text(picture(panels), encoding="utf-8")


def _row(value: float, outcome: Outcome) -> tuple[object, ...]:
    return (
        value,
        round(outcome.worker_hours),
        f"{outcome.refused:.2%}",
        f"{outcome.late:.3%}",
        outcome.moved,
        outcome.gap_p50_s,
        outcome.gap_max_s,
        outcome.most_live,
    )


def _table(title: str, heads: Sequence[str], rows: Sequence[tuple[object, ...]]) -> Table:
    table = Table(title=title)
    for head in heads:
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(*map(str, row))
    return table


if __name__ == "__main__":
    command.run(main)
