"""What a run costs: c(rows, key), from the bundle's cost table, corrected by every run.

The plan value is the table's, or the 95th percentile of the last `WINDOW` runs where that is more. A bucket that nobody
measured costs what its neighbours let expect, until its first run.
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

UNKNOWN_NS = NS_PER_MS
"""Taken for a run of a graph of which nothing was ever measured."""

ALARM_BELOW, ALARM_ABOVE = 0.7, 1.5
"""Ratio of recent to planned cost beyond which the table is wrong for this machine."""


@dataclass(slots=True)
class BucketCost:
    """One bucket: what the table says and what runs took lately.

    Attributes:
        table: cost by the table.
        known: whether it was measured; else it is guessed.
        plan: cost to plan with.
        recent: the last runs, oldest first.
    """

    table: int
    known: bool
    plan: int
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))


class CostTable:
    """Costs of all models of one device."""

    def __init__(self) -> None:
        """Start empty."""
        self._entries: dict[Key, dict[int, BucketCost]] = {}
        self._buckets: dict[Key, tuple[int, ...]] = {}

    def add(self, key: Key, costs: Mapping[int, int | None]) -> None:
        """Enter a key with its row buckets.

        Args:
            key: not entered yet.
            costs: nanoseconds by rows; None where nobody measured.
        """
        known = {rows: cost for rows, cost in costs.items() if cost is not None}
        self._buckets[key] = tuple(sorted(costs))
        guesses = {rows: _guess(rows, known) for rows in costs}
        self._entries[key] = {rows: BucketCost(guesses[rows], rows in known, guesses[rows]) for rows in costs}

    def remove_model(self, model: str) -> None:
        """Forget the keys of a model."""
        for key in [key for key in self._entries if key.model == model]:
            del self._entries[key], self._buckets[key]

    def row_buckets(self, key: Key) -> tuple[int, ...]:
        """Return the compiled numbers of rows, ascending.

        Raises:
            KeyError: the key was not entered.
        """
        return self._buckets[key]

    def entries(self, key: Key) -> tuple[tuple[int, BucketCost], ...]:
        """Return rows and cost of every row bucket, ascending; what is learnt later shows in the entries.

        Raises:
            KeyError: the key was not entered.
        """
        return tuple((rows, self._entries[key][rows]) for rows in self._buckets[key])

    def cost(self, key: Key, rows: int) -> int:
        """Return the nanoseconds to plan with for one run of a row bucket."""
        return self._entries[key][rows].plan

    def observe(self, key: Key, rows: int, ns: int) -> None:
        """Learn from a run that took some nanoseconds."""
        entry = self._entries[key][rows]
        recent = entry.recent
        left = recent[0] if len(recent) == WINDOW else entry.plan
        recent.append(ns)
        if not entry.known:
            entry.table, entry.known, entry.plan = ns, True, ns
        elif ns > entry.plan or left >= entry.plan:
            entry.plan = max(entry.table, _percentile_95(recent))

    def ratios(self) -> Iterator[tuple[Key, int, float]]:
        """Yield key, rows and the recent median over the table, for every bucket that ran lately."""
        for key, entries in self._entries.items():
            for rows, entry in entries.items():
                if entry.recent:
                    yield key, rows, sorted(entry.recent)[len(entry.recent) // 2] / max(entry.table, 1)

    def alarms(self) -> list[tuple[Key, int, float]]:
        """Return what `ratios` gives for the buckets whose table is wrong for this machine."""
        return [found for found in self.ratios() if not ALARM_BELOW <= found[2] <= ALARM_ABOVE]


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
