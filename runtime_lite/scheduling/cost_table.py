"""Estimates the cost of a run, c(rows, key), from the bundle's cost table, corrected by every run.

The plan value, by which runs start in time, is the table's, or the 95th percentile of the last `WINDOW` runs where that
is more and not long ago. Which bucket clears a queue cheapest goes by the medians of the last runs: a bucket that was
held up once is no dearer for it. What runs take beyond that, on the average of all, comes by runs, not by rows: where
they are held up again and again, fewer and larger ones are cheaper. A bucket that ran seldom is as much slower than its
table as the others were lately, as a machine that is slow is slow for all of them.

How many streams fit goes by the averages of the table, times how much slower than these all runs of the key were of
late: a large bucket runs in slow moments only, and what it took in them says nothing of what it would take. A bucket
that nobody measured costs what its neighbours let expect, until it runs.
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
"""Runs that the recent percentile looks at."""

FORGET = 200
"""Runs of a key without one of a bucket, after which it is tried again; else a dear one, not chosen, stays dear."""

PACE_NS = 200 * 1000 * NS_PER_MS
"""Time of runs over which their pace is averaged: streams stay for minutes, and a machine is slower for seconds."""

STEP = 0.05
"""Part of a plan by which it must be wrong before it is corrected."""

SEVERAL = 6
"""Runs of a bucket that say something about it alone; fewer that took longer than those of other buckets are chance."""

NO_RUNS = (1.0,)
"""Ratios where nothing ran: the table's."""

OTHERS = 4
"""Runs of a key after which all its buckets follow; the one that ran does at once, and takes the others along."""

DELAYS = 100
"""Runs over which delays are averaged. They come by runs, whatever the rows of these: the fewer runs, the fewer."""

TRIAL = 0.99
"""Part of the price per row of the next smaller bucket that one on trial costs: where its rows are there, it runs."""

ALIKE = 1.05
"""Waits up to this multiple of the least count as equal; then the choice that leaves more of the device wins."""

LEVELS = 2
"""Steps per doubling of a rate by which choices are told apart."""

UNKNOWN_NS = NS_PER_MS
"""Taken for a run of a graph of which nothing was ever measured."""

ALARM_BELOW, ALARM_ABOVE = 0.7, 1.5
"""Ratio of recent to planned cost beyond which the table is wrong for this machine."""

SLOW_PART, SLOWEST_PART = 0.1, 0.01
"""Part of the runs that take the 95th percentile or the 99th, and of those that take the 99th."""


class Spread(NamedTuple):
    """Times of one run in ns: the median, and percentiles."""

    p50: int
    p95: int
    p99: int

    @classmethod
    def always(cls, ns: int) -> "Spread":
        """Return the times of runs that all take the same."""
        return cls(ns, ns, ns)

    def at(self, chance: float) -> int:
        """Return what a run takes whose chance, 0 to 1, was drawn."""
        return self.p99 if chance < SLOWEST_PART else self.p95 if chance < SLOW_PART else self.p50

    @property
    def average(self) -> float:
        """Return what `at` gives on the average."""
        return self.p50 + SLOW_PART * (self.p95 - self.p50) + SLOWEST_PART * (self.p99 - self.p95)


class Ran(NamedTuple):
    """A run of a bucket.

    Attributes:
        ratio: what it took, as a multiple of the table.
        others: the median ratio of other buckets of the key lately; None where none ran.
    """

    ratio: float
    others: float | None


@dataclass(slots=True)
class BucketCost:
    """One row bucket: what the table says and what runs took lately.

    Attributes:
        rows: the bucket.
        table: cost by the table.
        average: what runs take on the average, by the table.
        known: whether it was measured; else it is guessed.
        plan: cost to plan with.
        usual: what a run usually takes now.
        price: what to choose by: that, but for a bucket on trial, and for one that nobody measured.
        on_trial: it has not run for long, and is taken for no dearer per row than the next smaller one until it has.
        recent: the last runs, oldest first.
        seen: which run of its key was its last.
        taught: runs that an average was made of that nobody had measured, up to `WINDOW`.
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
        """Begin with the table."""
        self.taught = WINDOW if self.known else 0
        self.plan, self.usual = self.table, float(self.table)

    def forget(self, runs: int) -> bool:
        """Forget what it took long ago, and begin or end its trial; whether it did that.

        Args:
            runs: of the key so far.
        """
        was_on_trial = self.on_trial
        if runs - self.seen >= FORGET:
            self.recent.clear()
            self.on_trial = True
        elif len(self.recent) >= SEVERAL:
            self.on_trial = False
        return self.on_trial != was_on_trial

    def follow(self, others: Sequence[float]) -> bool:
        """Let plan and usual cost follow the last runs, by steps of `STEP`; whether one of them did.

        Its own runs count once there are some, each as much slower as other buckets are now than they were then.

        Args:
            others: ratios of other buckets of the key lately, ascending.
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
        """Make an average of the first runs, where nobody measured them."""
        self.taught += 1
        self.average += (ns - self.average) / self.taught


class RowCosts:
    """Costs of one key by rows, and the row bucket to choose by them.

    Args:
        costs: by rows; None where nobody measured.

    Attributes:
        buckets: ascending.
        largest: rows of the largest bucket.
        best_rate: least cost per row of all buckets.
        pace: what runs took of late, as a multiple of what their buckets take on the average by the table.
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
        "best_rate",
        "buckets",
        "largest",
        "pace",
    )

    def __init__(self, costs: Mapping[int, Spread | None]) -> None:
        """Guess what is not known."""
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
        """Return the cheapest bucket that holds some rows, or the largest, and its cost; a larger may be cheaper."""
        found = self._fitting.get(rows)
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= rows]
            bucket = min(fitting, key=lambda bucket: bucket.price) if fitting else self.buckets[-1]
            found = self._fitting[rows] = bucket.rows, bucket.plan
        return found

    def observe(self, rows: int, ns: int) -> None:
        """Learn from a run; plans follow by steps of `STEP`, so that noise does not change them all the time."""
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
        """Keep a ratio among the last ones."""
        if len(self._recent) == WINDOW:
            self._ordered.remove(self._recent[0])
        self._recent.append((ratio, rows))
        insort(self._ordered, (ratio, rows))

    def _all_follow(self) -> bool:
        """Let all buckets forget and follow; whether one of them changed what it costs."""
        all_ratios = [ratio for ratio, _ in self._ordered]
        ran = {rows for _, rows in self._recent}
        beside = {each.rows: self._beside(each.rows) if each.rows in ran else all_ratios for each in self.buckets}
        changed = [each.forget(self._runs) for each in self.buckets]
        return any(changed + [each.follow(beside[each.rows]) for each in self.buckets if each.known])

    def _beside(self, rows: int) -> list[float]:
        """Ratios of the last runs of buckets of other rows, ascending."""
        return [ratio for ratio, of_rows in self._ordered if of_rows != rows]

    def _keep_pace(self, average: float, ns: int) -> None:
        """Take in a run; one that was held up counts for no more than three, as it is no slow machine."""
        if average:
            self.pace += (min(ns / average, 3 * self.pace) - self.pace) * min(average / PACE_NS, 1.0)

    def best_bucket(self, least: int, rows: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, that begins to clear a queue at the least total cost.

        So a batch is padded to a larger bucket, or split, by what is measured. Of equal totals the least cost per row
        wins, then the smaller bucket, which answers sooner. Where more rows wait than the largest bucket holds, the
        largest wins that costs at most `ALIKE` times the least per row: prices of neighbours differ by what the machine
        did when they ran last, and a large run reads the weights once for more rows.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
        """
        rows = min(rows, 2 * self.largest)
        found = self._best.get((least, rows))
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= least]
            at = next((at for at, bucket in enumerate(fitting) if bucket.rows >= rows), len(fitting))
            if rows > self.largest:  # whatever is taken is full
                most = ALIKE * min(b.price / b.rows for b in fitting)
                best = next(b for b in reversed(fitting) if b.price / b.rows <= most)
            else:
                best = min(
                    fitting[: at + 1],
                    key=lambda b: (b.price + self._cost_to_clear(rows - b.rows), b.price / min(rows, b.rows)),
                )
            found = self._best[least, rows] = best.rows, best.plan
        return found

    def soonest_bucket(self, least: int, rows: int, follows: float, lanes: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, with which rows wait least in all: those that are queued and later ones.

        If all runs have as many rows, on all lanes, the queued ones wait for the sum of the ends of their runs. Those
        that come until the lanes are free again wait for half of the time S that all runs take, in the mean: as a busy
        time of S / (1 - load) meets their rate, they are `follows * S / lanes`. Large runs are cheaper per row and end
        later, so that they win when there is much to do. Of sums within `ALIKE` of the least, the least time of all
        runs wins, then the larger bucket; where more rows wait than the largest holds, the largest of those within
        `ALIKE` of that time, too, for the same reason as in `best_bucket`.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
            follows: rows that come per ns, over the part of the lanes' time that is free.
            lanes: runs that may be in flight at once.
        """
        rows, level = min(rows, 2 * self.largest), round(LEVELS * math.log2(follows)) if follows else None
        found = self._soonest.get((least, rows, level))
        if found is None:
            follows = 0.0 if level is None else 2.0 ** (level / LEVELS)
            fitting = [bucket for bucket in self.buckets if bucket.rows >= least]
            last = next((at for at, bucket in enumerate(fitting) if bucket.rows >= rows), len(fitting))
            choices = [(*self._waits(bucket, rows, follows, lanes), bucket) for bucket in fitting[: last + 1]]
            most = ALIKE * min(waits for waits, _, _ in choices)
            alike = [(total, bucket) for waits, total, bucket in choices if waits <= most]
            longest = min(total for total, _ in alike) * (ALIKE if rows > self.largest else 1.0)
            best = max((bucket for total, bucket in alike if total <= longest), key=lambda bucket: bucket.rows)
            found = self._soonest[least, rows, level] = best.rows, best.plan
        return found

    def _waits(self, bucket: BucketCost, rows: int, follows: float, lanes: int) -> tuple[float, float]:
        """Return what rows wait in all and what all runs take, in ns, if these have the rows of a bucket."""
        size, one = min(bucket.rows, rows), bucket.price
        runs, rest = divmod(rows, size)
        total = runs * one + (self._cost_to_clear(rest) if rest else 0.0)
        of_runs = size * one * (runs * (runs + 1) / 2 + runs * (lanes - 1)) / lanes
        of_rest = rest * (total + (lanes - 1) * (total - runs * one)) / lanes
        return of_runs + of_rest + follows * total * total / (2 * lanes), total

    def best_bucket_within(self, room: int, least: int, rows: int) -> tuple[int, int] | None:
        """Return the row bucket of the least cost per row among those that cost at most some room, or None."""
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
        """Return the least cost of running some rows."""
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
        self._fitting: dict[int, tuple[int, int]] = {}
        self._clearing = [0.0]


class CostTable:
    """Costs of all models of one device."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[Key, RowCosts] = {}

    def add(self, key: Key, costs: Mapping[int, Spread | None]) -> None:
        """Enter a key with its row buckets.

        Args:
            key: not entered yet.
            costs: by rows; None where nobody measured.
        """
        self._keys[key] = RowCosts(costs)

    def remove_model(self, model: str) -> None:
        """Forget the keys of a model."""
        self._keys = {key: costs for key, costs in self._keys.items() if key.model != model}

    def knows(self, key: Key) -> bool:
        """Whether a key was entered, and its model is still here."""
        return key in self._keys

    def of(self, key: Key) -> RowCosts:
        """Return the costs of a key; what is learnt later shows in them.

        Raises:
            KeyError: the key was not entered.
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
        """Yield key, rows and the recent median over the table, for every bucket that ran lately."""
        for key, costs in self._keys.items():
            for bucket in costs.buckets:
                if bucket.recent:
                    yield key, bucket.rows, _median(sorted(ran.ratio for ran in bucket.recent))

    def alarms(self) -> list[tuple[Key, int, float]]:
        """Return what `ratios` gives for the buckets whose table is wrong for this machine."""
        return [found for found in self.ratios() if not ALARM_BELOW <= found[2] <= ALARM_ABOVE]


def _moves(old: float, new: float, table: int) -> bool:
    """Whether a value is wrong by so much that it is corrected; back to the table it always is."""
    return new != old and (abs(new - old) > STEP * old or new == table)


def _median(ascending: Sequence[float]) -> float:
    return ascending[len(ascending) // 2]


def _percentile_95(ascending: Sequence[float]) -> float:
    return ascending[(len(ascending) - 1) * 19 // 20]


def _guess(rows: int, known: Mapping[int, Spread]) -> Spread:
    """Return what a bucket may cost: what the next known one costs; beyond the largest, in proportion to its rows."""
    if rows in known:
        return known[rows]
    above = [cost for size, cost in known.items() if size > rows]
    if above:
        return min(above)
    in_proportion = (Spread(*(ns * rows // size for ns in cost)) for size, cost in known.items())
    return max(in_proportion, default=Spread.always(UNKNOWN_NS * rows))


def key_of(model: str, graph_name: str, graph: Graph, sizes: Mapping[str, int], alone: bool = False) -> Key:
    """Return the key of a feed.

    Args:
        model: the model's name on the device.
        graph_name: the graph's name.
        graph: its record.
        sizes: bucket of every axis; that of rows is left out of the key.
        alone: rows of several callers may not share a run.
    """
    kept = tuple(sorted((axis, size) for axis, size in sizes.items() if axis != graph.batch_axis))
    padded = tuple(axis for axis, _ in kept if graph.axes[axis].length_input is not None)
    return Key(model, graph_name, kept, padded, alone)


def costs_of_graph(
    model: str, graph_name: str, graph: Graph, costs: Mapping[str, Cost], threads: int, alone: bool = False
) -> dict[Key, dict[int, Spread | None]]:
    """Return what `CostTable.add` takes for every key of a graph; between buckets, costs lie on a line.

    Args:
        model: the model's name on the device.
        graph_name: the graph's name.
        graph: its record.
        costs: measured costs by bucket name; may lack some.
        threads: threads of one run; what was measured with others is not known here.
        alone: rows of several callers may not share a run.
    """
    found: dict[Key, dict[int, Spread | None]] = {}
    for artifact in graph.runnable:
        rows = 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]
        cost = costs.get(bucket_name(artifact.sizes))
        key = key_of(model, graph_name, graph, artifact.sizes, alone)
        found.setdefault(key, {})[rows] = None if cost is None or cost.threads != threads else _spread(cost)
    built = set(graph.row_buckets)
    for of_key in found.values():
        measured = {rows: cost for rows, cost in of_key.items() if rows in built}
        of_key |= {rows: _between(rows, measured) for rows in of_key.keys() - built}
    return found


def _between(rows: int, measured: Mapping[int, Spread | None]) -> Spread | None:
    """Return what rows between two buckets cost, where both were measured."""
    below, above = max(size for size in measured if size < rows), min(size for size in measured if size > rows)
    low, high = measured[below], measured[above]
    if low is None or high is None:
        return None
    part = (rows - below) / (above - below)
    return Spread(*(round(less + part * (more - less)) for less, more in zip(low, high, strict=True)))


def _spread(cost: Cost) -> Spread:
    p99_ms = cost.p95_ms if cost.p99_ms is None else cost.p99_ms
    return Spread(*(int(ms * NS_PER_MS) for ms in (cost.p50_ms, cost.p95_ms, p99_ms)))
