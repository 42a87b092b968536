"""Estimates the duration of a run by its key and rows, from the bundle's cost table and the runs since.

The plan value, which determines when runs must start, is that of the table, or the 95th percentile of the last `WINDOW`
runs if that is larger and recent. The bucket that clears a queue at the least cost is chosen by the medians of the last
runs, so that one delayed run does not make a bucket dearer. The average delay beyond the median is added to every run,
whatever its rows: on a machine with frequent delays, fewer and larger runs are cheaper. A bucket that ran seldom is
assumed to be as much slower than its table as the other buckets were lately, because a slow machine is slow for all of
them.

The admission of streams uses the averages of the table, times the recent slowdown of all runs of the key; a large
bucket runs at slow moments only, so its own times would mislead. A bucket without a measured cost gets one from its
neighbours until it has run.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime_lite.format.costs import Cost
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import Key

WINDOW = 20
"""Number of runs in the recent percentile."""

FORGET = 200
"""Number of runs of a key after which an unused bucket is tried again, as it may have become cheaper."""

PACE_NS = 200 * 1000 * NS_PER_MS
"""Run time in ns over which the pace is averaged: streams last for minutes, slow phases of a machine for seconds."""

STEP = 0.05
"""Relative error from which a plan value is corrected."""

SEVERAL = 6
"""Number of runs of a bucket from which its own times count; with fewer, differences from other buckets are chance."""

NO_RUNS = (1.0,)
"""Ratios to the table if nothing has run."""

OTHERS = 4
"""Number of runs of a key after which all its buckets are updated; the bucket that ran is updated at once."""

DELAYS = 100
"""Number of runs over which delays are averaged; a delay is counted per run, whatever its rows."""

TRIAL = 0.99
"""Price per row of a bucket on trial, relative to the next smaller bucket; below 1, so that it is chosen."""

ALIKE = 1.05
"""Waiting times up to this multiple of the least count as equal; then the choice that uses less of the device wins."""

TOGETHER = 1.3
"""Cost of one run of all queued rows, relative to that of the cheapest runs, up to which `widest_bucket` takes it."""

LEVELS = 2
"""Steps per doubling of the arrival rate within which choices are cached."""

UNKNOWN_NS = NS_PER_MS
"""Assumed nanoseconds per row for a graph without any measured cost."""

ALARM_BELOW, ALARM_ABOVE = 0.7, 1.5
"""Ratios of recent to table cost outside of which the table is wrong for this machine."""

SLOW_PART, SLOWEST_PART = 0.1, 0.01
"""Part of simulated runs that take the 95th or the 99th percentile, and part that takes the 99th."""


class Spread(NamedTuple):
    """Times of one run in ns: the median, and percentiles."""

    p50: int
    p95: int
    p99: int

    @classmethod
    def always(cls, ns: int) -> "Spread":
        """Return the times of runs of a constant duration."""
        return cls(ns, ns, ns)

    def at(self, chance: float) -> int:
        """Return the duration of a run for a random number `chance` from 0 to 1."""
        return self.p99 if chance < SLOWEST_PART else self.p95 if chance < SLOW_PART else self.p50

    @property
    def average(self) -> float:
        """The average of `at` over all chances."""
        return self.p50 + SLOW_PART * (self.p95 - self.p50) + SLOWEST_PART * (self.p99 - self.p95)


class Ran(NamedTuple):
    """A run of a bucket.

    Attributes:
        ratio: its duration as a multiple of the table.
        others: the recent median ratio of other buckets of the key; None if none ran.
    """

    ratio: float
    others: float | None


@dataclass(slots=True)
class BucketCost:
    """Costs of one row bucket, in nanoseconds, from the table and from recent runs.

    Attributes:
        rows: rows of the bucket.
        table: cost in the table.
        average: average cost in the table.
        known: whether it was measured; else it is estimated.
        plan: cost to plan with.
        usual: median cost of a run now.
        price: cost by which buckets are compared: `usual` and the average delay, except for a bucket on trial or
            without a measured cost.
        on_trial: whether it has not run for long; until it has, its price per row is just below that of the next
            smaller one.
        recent: the last runs, oldest first.
        seen: number of its last run, among the runs of its key.
        taught: number of runs in `average`, up to `WINDOW`, if no average was measured.
    """

    rows: int
    table: int
    average: float
    known: bool
    plan: int = 0
    usual: float = 0.0
    price: float = 0.0
    on_trial: bool = False
    recent: deque[Ran] = field(default_factory=lambda: deque(maxlen=WINDOW))
    seen: int = 0
    taught: int = 0

    def __post_init__(self) -> None:
        """Start with the costs of the table."""
        self.taught = WINDOW if self.known else 0
        self.plan, self.usual = self.table, float(self.table)

    def forget(self, runs: int) -> bool:
        """Forget runs of long ago, and begin or end a trial; return whether a trial began or ended.

        Args:
            runs: number of runs of the key so far.
        """
        was_on_trial = self.on_trial
        if runs - self.seen >= FORGET:
            self.recent.clear()
            self.on_trial = True
        elif len(self.recent) >= SEVERAL:
            self.on_trial = False
        return self.on_trial != was_on_trial

    def follow(self, others: Sequence[float]) -> bool:
        """Update plan and usual cost by the last runs, in steps of `STEP`; return whether one of them changed.

        Its own runs count once there are enough, each scaled by how much slower other buckets are now than at that run.

        Args:
            others: recent ratios of other buckets of the key, ascending.
        """
        if len(self.recent) < (SEVERAL if others else 1):
            ratios = others or NO_RUNS
        else:
            now = _median(others) if others else None
            ratios = sorted([ratio * now / then if now and then else ratio for ratio, then in self.recent])
        plan, usual = max(self.table, round(self.table * _percentile_95(ratios))), self.table * _median(ratios)
        moves = _moves(self.plan, plan, self.table), _moves(self.usual, usual, self.table)
        self.plan, self.usual = plan if moves[0] else self.plan, usual if moves[1] else self.usual
        return any(moves)

    def teach(self, ns: int) -> None:
        """Add a run to the average, if no average was measured."""
        self.taught += 1
        self.average += (ns - self.average) / self.taught


class RowCosts:
    """Costs of one key by rows, and the choice of row buckets by cost.

    Args:
        costs: costs by rows; None if not measured.

    Attributes:
        buckets: row buckets, ascending.
        largest: rows of the largest bucket.
        best_rate: least cost per row of all buckets, in ns.
        pace: recent duration of runs as a multiple of the averages in the table.
    """

    __slots__ = (
        "_best",
        "_by_rows",
        "_charged",
        "_clearing",
        "_delay",
        "_fitting",
        "_ordered",
        "_recent",
        "_runs",
        "_soonest",
        "_widest",
        "best_rate",
        "buckets",
        "largest",
        "pace",
    )

    def __init__(self, costs: Mapping[int, Spread | None]) -> None:
        """Estimate the costs that were not measured."""
        known = {rows: cost for rows, cost in costs.items() if cost is not None}
        guesses = {rows: _guess(rows, known) for rows in costs}
        self.buckets = [
            BucketCost(rows, guesses[rows].p50, guesses[rows].average, rows in known) for rows in sorted(costs)
        ]
        self.pace = 1.0
        self.largest = self.buckets[-1].rows
        self._by_rows = {bucket.rows: bucket for bucket in self.buckets}
        self._runs = 0
        self._delay = self._charged = 0.0
        self._recent: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._ordered: list[tuple[float, int]] = []
        self._plans_changed()

    def cost(self, rows: int) -> int:
        """Return the nanoseconds to plan with for a row bucket."""
        return self._by_rows[rows].plan

    def bucket_for(self, rows: int) -> tuple[int, int]:
        """Return the cheapest bucket that holds some rows, or the largest bucket, and its cost."""
        found = self._fitting.get(rows)
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= rows]
            bucket = min(fitting, key=lambda bucket: bucket.price) if fitting else self.buckets[-1]
            found = self._fitting[rows] = bucket.rows, bucket.plan
        return found

    def observe(self, rows: int, ns: int) -> None:
        """Learn from the duration of a run; plans change in steps of `STEP`, so that noise does not change them."""
        self._runs += 1
        bucket = self._by_rows[rows]
        bucket.seen = self._runs
        if not bucket.known:
            bucket.table, bucket.known = max(ns, 1), True
        if bucket.taught < WINDOW:
            bucket.teach(ns)
        else:
            self._keep_pace(bucket.average, ns)
        others, ratio = self._beside(rows), ns / max(bucket.table, 1)
        bucket.recent.append(Ran(ratio, _median(others) if others else None))
        self._note(ratio, rows)
        self._delay += (max(ns - bucket.usual, 0.0) - self._delay) / DELAYS
        changed = bucket.forget(self._runs) | bucket.follow(others)
        if changed or not self._runs % OTHERS:
            changed |= self._all_follow()
        if changed or abs(self._delay - self._charged) > STEP * self.buckets[0].usual:
            self._plans_changed()

    def _note(self, ratio: float, rows: int) -> None:
        """Add a ratio to the last ones."""
        if len(self._recent) == WINDOW:
            self._ordered.remove(self._recent[0])
        self._recent.append((ratio, rows))
        insort(self._ordered, (ratio, rows))

    def _all_follow(self) -> bool:
        """Update all buckets; return whether the cost of one changed."""
        all_ratios = [ratio for ratio, _ in self._ordered]
        ran = {rows for _, rows in self._recent}
        beside = {each.rows: self._beside(each.rows) if each.rows in ran else all_ratios for each in self.buckets}
        changed = [each.forget(self._runs) for each in self.buckets]
        return any(changed + [each.follow(beside[each.rows]) for each in self.buckets if each.known])

    def _beside(self, rows: int) -> list[float]:
        """Return the ratios of the last runs of other row buckets, ascending."""
        return [ratio for ratio, of_rows in self._ordered if of_rows != rows]

    def _keep_pace(self, average: float, ns: int) -> None:
        """Update the pace by a run; a delayed run counts as at most three times as slow as the pace."""
        if average:
            self.pace += (min(ns / average, 3 * self.pace) - self.pace) * min(average / PACE_NS, 1.0)

    def best_bucket(self, least: int, rows: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, with which clearing a queue costs least in total.

        So measured costs decide whether a batch is padded to a larger bucket or split. Of equal totals the least cost
        per row wins, then the smaller bucket, which answers sooner. If more rows wait than the largest bucket holds,
        the largest bucket wins whose cost per row is at most `ALIKE` times the least: small differences of prices are
        noise, and a large run reads the weights once for more rows.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
        """
        rows = min(rows, 2 * self.largest)
        choice = self._best.get((least, rows))
        if choice is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= least]
            last = next((position for position, bucket in enumerate(fitting) if bucket.rows >= rows), len(fitting))
            if rows > self.largest:  # whatever is taken is full
                most = ALIKE * min(b.price / b.rows for b in fitting)
                best = next(b for b in reversed(fitting) if b.price / b.rows <= most)
            else:
                best = min(
                    fitting[: last + 1],
                    key=lambda b: (b.price + self._cost_to_clear(rows - b.rows), b.price / min(rows, b.rows)),
                )
            choice = self._best[least, rows] = best.rows, best.plan
        return choice

    def soonest_bucket(self, least: int, rows: int, follows: float, lanes: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, with the least sum of waiting times of queued and later rows.

        All runs have the same number of rows and use all lanes. Queued rows wait until the end of their run. Let S be
        the time of all runs; rows that come until the lanes are free again wait for S / 2 on average, and as the lanes
        are busy for S / (1 - load), there are `follows * S / lanes` of them. Large runs are cheaper per row and end
        later, so that they win under high load. Of sums within `ALIKE` of the least, the least time of all runs wins,
        then the larger bucket. If more rows wait than the largest bucket holds, times within `ALIKE` of the least count
        as equal, too, as in `best_bucket`.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
            follows: rows that come per ns, divided by the part of the lanes' time that is free.
            lanes: runs that may be in flight at once.
        """
        rows, level = min(rows, 2 * self.largest), round(LEVELS * math.log2(follows)) if follows else None
        choice = self._soonest.get((least, rows, level))
        if choice is None:
            follows = 0.0 if level is None else 2.0 ** (level / LEVELS)
            fitting = [bucket for bucket in self.buckets if bucket.rows >= least]
            last = next((position for position, bucket in enumerate(fitting) if bucket.rows >= rows), len(fitting))
            choices = [(*self._waits(bucket, rows, follows, lanes), bucket) for bucket in fitting[: last + 1]]
            most = ALIKE * min(waits for waits, _, _ in choices)
            alike = [(total, bucket) for waits, total, bucket in choices if waits <= most]
            longest = min(total for total, _ in alike) * (ALIKE if rows > self.largest else 1.0)
            best = max((bucket for total, bucket in alike if total <= longest), key=lambda bucket: bucket.rows)
            choice = self._soonest[least, rows, level] = best.rows, best.plan
        return choice

    def widest_bucket(self, least: int, rows: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, of a run of all queued rows, unless several runs cost much less.

        Streams that always run together keep their states in one block of memory; where runs take some of them and then
        others, these are copied in each run. Buckets on trial are tried by runs of all rows alone.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
        """
        rows = min(rows, 2 * self.largest)
        found = self._widest.get((least, rows))
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= rows and bucket.known]
            wide = min(fitting, key=lambda bucket: bucket.price, default=None)
            settled = [bucket for bucket in self.buckets if not bucket.on_trial]
            if wide is not None and (wide.on_trial or wide.price <= TOGETHER * _cheapest(settled, rows)):
                found = wide.rows, wide.plan
            else:
                found = self.best_bucket(least, rows)
            self._widest[least, rows] = found
        return found

    def _waits(self, bucket: BucketCost, rows: int, follows: float, lanes: int) -> tuple[float, float]:
        """Return the sum of the waiting times of rows and the time of all runs, in ns, for runs of one bucket."""
        size, one = min(bucket.rows, rows), bucket.price
        runs, rest = divmod(rows, size)
        total = runs * one + (self._cost_to_clear(rest) if rest else 0.0)
        of_runs = size * one * (runs * (runs + 1) / 2 + runs * (lanes - 1)) / lanes
        of_rest = rest * (total + (lanes - 1) * (total - runs * one)) / lanes
        return of_runs + of_rest + follows * total * total / (2 * lanes), total

    def best_bucket_within(self, room: int, least: int, rows: int) -> tuple[int, int] | None:
        """Return the row bucket of least cost per row among those that cost at most `room` ns, or None."""
        best = None
        for bucket in self.buckets:
            if bucket.rows >= least and bucket.plan <= room:
                rate = bucket.price / min(rows, bucket.rows)
                if best is None or rate < best[0]:
                    best = rate, (bucket.rows, bucket.plan)
            if bucket.rows >= rows:
                break
        return None if best is None else best[1]

    def _cost_to_clear(self, rows: int) -> float:
        """Return the least cost of running some rows, in ns."""
        if rows <= 0:
            return 0.0
        known = self._clearing
        for count in range(len(known), rows + 1):
            known.append(min(b.price + known[max(count - b.rows, 0)] for b in self.buckets))
        return known[rows]

    def _plans_changed(self) -> None:
        plan, price, rate, self._charged = 0, 0.0, math.inf, self._delay
        for bucket in self.buckets:
            bucket.price = bucket.usual + self._charged
            if not bucket.known:  # a guess is never a reason to take more rows than are needed
                bucket.plan, bucket.price = max(bucket.table, plan), max(float(bucket.table), price)
            elif bucket.on_trial:
                bucket.price = min(bucket.price, TRIAL * rate * bucket.rows)
            plan, price, rate = max(plan, bucket.plan), max(price, bucket.price), bucket.price / bucket.rows
        self.best_rate = min(bucket.plan / bucket.rows for bucket in self.buckets)
        self._best: dict[tuple[int, int], tuple[int, int]] = {}
        self._soonest: dict[tuple[int, int, int | None], tuple[int, int]] = {}
        self._widest: dict[tuple[int, int], tuple[int, int]] = {}
        self._fitting: dict[int, tuple[int, int]] = {}
        self._clearing = [0.0]


class CostTable:
    """Costs of all models of one device."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[Key, RowCosts] = {}

    def add(self, key: Key, costs: Mapping[int, Spread | None]) -> None:
        """Add a key with its row buckets.

        Args:
            key: a new key.
            costs: costs by rows; None if not measured.
        """
        self._keys[key] = RowCosts(costs)

    def remove_model(self, model: str) -> None:
        """Forget the keys of a model."""
        self._keys = {key: costs for key, costs in self._keys.items() if key.model != model}

    def knows(self, key: Key) -> bool:
        """Return whether a key was added and its model was not removed."""
        return key in self._keys

    def of(self, key: Key) -> RowCosts:
        """Return the costs of a key; later runs change the returned object.

        Raises:
            KeyError: the key was not added.
        """
        return self._keys[key]

    def row_buckets(self, key: Key) -> tuple[int, ...]:
        """Return the compiled numbers of rows, ascending."""
        return tuple(bucket.rows for bucket in self._keys[key].buckets)

    def cost(self, key: Key, rows: int) -> int:
        """Return the nanoseconds to plan with for one run of a row bucket."""
        return self._keys[key].cost(rows)

    def observe(self, key: Key, rows: int, ns: int) -> None:
        """Learn from a run that took some nanoseconds."""
        self._keys[key].observe(rows, ns)

    def ratios(self) -> Iterator[tuple[Key, int, float]]:
        """Yield key, rows and the recent median ratio to the table, for every bucket that ran lately."""
        for key, costs in self._keys.items():
            for bucket in costs.buckets:
                if bucket.recent:
                    yield key, bucket.rows, _median(sorted(ran.ratio for ran in bucket.recent))

    def alarms(self) -> list[tuple[Key, int, float]]:
        """Return the rows of `ratios` whose table cost is wrong for this machine."""
        return [found for found in self.ratios() if not ALARM_BELOW <= found[2] <= ALARM_ABOVE]


def _moves(old: float, new: float, table: int) -> bool:
    """Return whether a value is replaced: it is wrong by more than `STEP`, or the new one is that of the table."""
    return new != old and (abs(new - old) > STEP * old or new == table)


def _median(ascending: Sequence[float]) -> float:
    return ascending[len(ascending) // 2]


def _percentile_95(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) * 19 // 20]


def _cheapest(buckets: Sequence[BucketCost], rows: int) -> float:
    """Return the least cost of running some rows in some buckets, in ns."""
    costs = [0.0]
    for count in range(1, rows + 1):
        costs.append(min(bucket.price + costs[max(count - bucket.rows, 0)] for bucket in buckets))
    return costs[rows]


def _guess(rows: int, known: Mapping[int, Spread]) -> Spread:
    """Return an estimate of a bucket's cost: that of the next larger one, or in proportion to the rows."""
    if rows in known:
        return known[rows]
    above = [cost for size, cost in known.items() if size > rows]
    if above:
        return min(above)
    in_proportion = (Spread(*(ns * rows // size for ns in cost)) for size, cost in known.items())
    return max(in_proportion, default=Spread.always(UNKNOWN_NS * rows))


def key_of(model: str, graph_name: str, graph: Graph, sizes: Mapping[str, int], alone: bool = False) -> Key:
    """Return the key of feeds that run in a bucket.

    Args:
        model: the model's name on the device.
        graph_name: the graph's name.
        graph: its record.
        sizes: bucket of every axis; that of rows is left out of the key.
        alone: whether rows of several callers may not share a run.
    """
    key_sizes = tuple(sorted((axis, size) for axis, size in sizes.items() if axis != graph.batch_axis))
    padded = tuple(axis for axis, _ in key_sizes if graph.axes[axis].length_input is not None)
    return Key(model, graph_name, key_sizes, padded, alone)


def costs_of_graph(
    model: str, graph_name: str, graph: Graph, costs: Mapping[str, Cost], threads: int, alone: bool = False
) -> dict[Key, dict[int, Spread | None]]:
    """Return the costs of a graph by key and rows, for `CostTable.add`; linear between two buckets.

    Args:
        model: the model's name on the device.
        graph_name: the graph's name.
        graph: its record.
        costs: measured costs by bucket name; may lack some.
        threads: threads of one run; costs measured with another number are not used.
        alone: whether rows of several callers may not share a run.
    """
    by_key: dict[Key, dict[int, Spread | None]] = {}
    for artifact in graph.runnable:
        rows = 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]
        cost = costs.get(bucket_name(artifact.sizes))
        key = key_of(model, graph_name, graph, artifact.sizes, alone)
        by_key.setdefault(key, {})[rows] = None if cost is None or cost.threads != threads else _spread(cost)
    built = set(graph.row_buckets)
    for of_key in by_key.values():
        measured = {rows: cost for rows, cost in of_key.items() if rows in built}
        of_key |= {rows: _between(rows, measured) for rows in of_key.keys() - built}
    return by_key


def _between(rows: int, measured: Mapping[int, Spread | None]) -> Spread | None:
    """Return the cost of some rows between two buckets, if both were measured."""
    below, above = max(size for size in measured if size < rows), min(size for size in measured if size > rows)
    low, high = measured[below], measured[above]
    if low is None or high is None:
        return None
    part = (rows - below) / (above - below)
    return Spread(*(round(less + part * (more - less)) for less, more in zip(low, high, strict=True)))


def _spread(cost: Cost) -> Spread:
    p99_ms = cost.p95_ms if cost.p99_ms is None else cost.p99_ms
    return Spread(*(int(ms * NS_PER_MS) for ms in (cost.p50_ms, cost.p95_ms, p99_ms)))
