"""What a run costs: c(rows, key), from the bundle's cost table, corrected by every run.

The plan value, by which runs start in time, is the table's, or the 95th percentile of the last `WINDOW` runs where that
is more and not long ago. Which bucket clears a queue cheapest goes by the table, or by the median where that is more: a
bucket that was held up once is no dearer for it. How many streams fit goes by averages. A bucket that nobody measured
costs what its neighbours let expect, until its first run.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from runtime_lite.format.costs import Cost
from runtime_lite.format.manifest import Graph, bucket_name
from runtime_lite.scheduling.clock import NS_PER_MS
from runtime_lite.scheduling.task import Key

WINDOW = 20
"""Runs that the recent percentile looks at."""

FORGET = 200
"""Runs of a key after which what a bucket took is forgotten; else a dear one, as it is not chosen, stays dear."""

AVERAGED = 1000
"""Runs of a bucket that are averaged: streams are let in for minutes, and a machine is slower for seconds."""

TABLE_RUNS = 100
"""Runs that a measured table stands for in an average, as many as `bench` times.

A handful of slow ones, as after a start, turn none away; nor do those of a large bucket that runs in slow moments only.
"""

STEP = 0.05
"""Part of a plan by which it must be wrong before it is corrected."""

UNKNOWN_NS = NS_PER_MS
"""Taken for a run of a graph of which nothing was ever measured."""

ALARM_BELOW, ALARM_ABOVE = 0.7, 1.5
"""Ratio of recent to planned cost beyond which the table is wrong for this machine."""


@dataclass(slots=True)
class BucketCost:
    """One row bucket: what the table says and what runs took lately.

    Attributes:
        rows: the bucket.
        table: cost by the table.
        known: whether it was measured; else it is guessed.
        plan: cost to plan with.
        usual: median of the table and the last runs where that is more than the table, to choose by.
        percentile: the 95th of the last runs, 0 before the first.
        recent: the last runs, oldest first.
        seen: which run of its key was its last.
        average: what runs take on the average, of many runs, the older the less: of fast and slow times together.
        averaged: runs that it stands for, the table's among them.
        weight: runs that the table stands for.
    """

    rows: int
    table: int
    known: bool
    plan: int
    percentile: int = 0
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    seen: int = 0
    average: float = 0.0
    averaged: int = 0
    weight: int = 1
    usual: int = 0

    def __post_init__(self) -> None:
        """The average begins with the table, which one run may have taught, or many."""
        self.weight = TABLE_RUNS if self.known else 1
        self.forget()

    def forget(self) -> None:
        """Go by the table again."""
        self.recent.clear()
        self.percentile = 0
        self.plan = self.usual = self.table
        self.average, self.averaged = self.table, self.weight

    def follow(self) -> bool:
        """Let plan and median follow the last runs, by steps of `STEP`; whether one of them did."""
        plan = max(self.table, self.percentile)
        # not less than the table: on a machine that is faster, what runs would else beat what has not run yet for ever
        usual = max(self.table, sorted((self.table, *self.recent))[len(self.recent) // 2])
        moves = _moves(self.plan, plan, self.table), _moves(self.usual, usual, self.table)
        self.plan, self.usual = plan if moves[0] else self.plan, usual if moves[1] else self.usual
        return any(moves)

    def take_in(self, ns: int) -> None:
        """Average a run; one that was held up counts for no more than three, as it is no slow machine."""
        self.averaged = min(self.averaged + 1, AVERAGED)
        self.average += (min(ns, 3 * self.average or ns) - self.average) / self.averaged


class RowCosts:
    """Costs of one key by rows, and the row bucket to choose by them.

    Args:
        costs: nanoseconds by rows; None where nobody measured.

    Attributes:
        buckets: ascending.
        largest: rows of the largest bucket.
        best_rate: least cost per row of all buckets.
    """

    __slots__ = ("_best", "_by_rows", "_clearing", "_fitting", "_runs", "best_rate", "buckets", "largest")

    def __init__(self, costs: Mapping[int, int | None]) -> None:
        """Guess what is not known."""
        known = {rows: cost for rows, cost in costs.items() if cost is not None}
        guesses = {rows: _guess(rows, known) for rows in costs}
        self.buckets = [BucketCost(rows, guesses[rows], rows in known, guesses[rows]) for rows in sorted(costs)]
        self.largest = self.buckets[-1].rows
        self._by_rows = {bucket.rows: bucket for bucket in self.buckets}
        self._runs = 0
        self._plans_changed()

    def cost(self, rows: int) -> int:
        """Return the nanoseconds to plan with for a row bucket."""
        return self._by_rows[rows].plan

    def bucket_for(self, rows: int) -> tuple[int, int]:
        """Return the cheapest bucket that holds some rows, or the largest, and its cost; a larger may be cheaper."""
        found = self._fitting.get(rows)
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= rows]
            bucket = min(fitting, key=lambda bucket: bucket.plan) if fitting else self.buckets[-1]
            found = self._fitting[rows] = bucket.rows, bucket.plan
        return found

    def observe(self, rows: int, ns: int) -> None:
        """Learn from a run; plans follow by steps of `STEP`, so that noise does not change them all the time."""
        self._runs += 1
        bucket = self._by_rows[rows]
        bucket.seen = self._runs
        self._forget()
        recent = bucket.recent
        left = recent[0] if len(recent) == WINDOW else bucket.percentile
        recent.append(ns)
        if not bucket.known:
            bucket.table, bucket.known, bucket.average = ns, True, ns
        bucket.take_in(ns)
        if ns > bucket.percentile or left >= bucket.percentile:
            bucket.percentile = _percentile_95(recent)
        if bucket.follow():
            self._plans_changed()

    def _forget(self) -> None:
        for bucket in self.buckets:
            if bucket.recent and self._runs - bucket.seen >= FORGET:
                bucket.forget()
                self._plans_changed()

    def best_bucket(self, least: int, rows: int) -> tuple[int, int]:
        """Return the row bucket, and its cost, that begins to clear a queue at the least total cost.

        So a batch is padded to a larger bucket, or split, by what is measured. Of equal totals the least cost per row
        wins, then the smaller bucket, which answers sooner.

        Args:
            least: rows that it must hold, at most the largest bucket.
            rows: rows that are queued, at least as many; beyond twice the largest bucket, more of them change nothing.
        """
        rows = min(rows, 2 * self.largest)
        found = self._best.get((least, rows))
        if found is None:
            fitting = [bucket for bucket in self.buckets if bucket.rows >= least]
            at = next((at for at, bucket in enumerate(fitting) if bucket.rows >= rows), len(fitting))
            best = min(
                fitting[: at + 1],
                key=lambda b: (b.usual + self._cost_to_clear(rows - b.rows), b.usual / min(rows, b.rows)),
            )
            found = self._best[least, rows] = best.rows, best.plan
        return found

    def best_bucket_within(self, room: int, least: int, rows: int) -> tuple[int, int] | None:
        """Return the row bucket of the least cost per row among those that cost at most some room, or None."""
        best = None
        for bucket in self.buckets:
            if bucket.rows >= least and bucket.plan <= room:
                rate = bucket.usual / min(rows, bucket.rows)
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
            known.append(min(b.usual + known[max(count - b.rows, 0)] for b in self.buckets))
        return known[rows]

    def _plans_changed(self) -> None:
        plan = usual = 0
        for bucket in self.buckets:
            if not bucket.known:  # a guess is never a reason to take more rows than are needed
                bucket.plan, bucket.usual = max(bucket.table, plan), max(bucket.table, usual)
            plan, usual = max(plan, bucket.plan), max(usual, bucket.usual)
        self.best_rate = min(bucket.plan / bucket.rows for bucket in self.buckets)
        self._best: dict[tuple[int, int], tuple[int, int]] = {}
        self._fitting: dict[int, tuple[int, int]] = {}
        self._clearing = [0.0]


class CostTable:
    """Costs of all models of one device."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[Key, RowCosts] = {}

    def add(self, key: Key, costs: Mapping[int, int | None]) -> None:
        """Enter a key with its row buckets.

        Args:
            key: not entered yet.
            costs: nanoseconds by rows; None where nobody measured.
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
                    recent = sorted(bucket.recent)
                    yield key, bucket.rows, recent[len(recent) // 2] / max(bucket.table, 1)

    def alarms(self) -> list[tuple[Key, int, float]]:
        """Return what `ratios` gives for the buckets whose table is wrong for this machine."""
        return [found for found in self.ratios() if not ALARM_BELOW <= found[2] <= ALARM_ABOVE]


def _moves(old: int, new: int, table: int) -> bool:
    """Whether a value is wrong by so much that it is corrected; back to the table it always is."""
    return new != old and (abs(new - old) > STEP * old or new == table)


def _percentile_95(recent: Iterable[int]) -> int:
    ordered = sorted(recent)
    return ordered[(len(ordered) - 1) * 19 // 20]


def _guess(rows: int, known: Mapping[int, int]) -> int:
    """Return what a bucket may cost: what the next known one costs; beyond the largest, in proportion to its rows."""
    if rows in known:
        return known[rows]
    above = [cost for size, cost in known.items() if size > rows]
    if above:
        return min(above)
    return max((cost * rows // size for size, cost in known.items()), default=UNKNOWN_NS * rows)


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
) -> dict[Key, dict[int, int | None]]:
    """Return what `CostTable.add` takes for every key of a graph.

    Args:
        model: the model's name on the device.
        graph_name: the graph's name.
        graph: its record.
        costs: measured costs by bucket name; may lack some.
        threads: threads of one run; what was measured with others is not known here.
        alone: rows of several callers may not share a run.
    """
    found: dict[Key, dict[int, int | None]] = {}
    for artifact in graph.artifacts:
        rows = 1 if graph.batch_axis is None else artifact.sizes[graph.batch_axis]
        cost = costs.get(bucket_name(artifact.sizes))
        key = key_of(model, graph_name, graph, artifact.sizes, alone)
        known = cost is not None and cost.threads == threads
        found.setdefault(key, {})[rows] = int(cost.p50_ms * NS_PER_MS) if cost is not None and known else None
    return found
