"""Groups feeds that share a run and chooses its bucket: arithmetic on sizes, no array is touched."""

from collections.abc import Mapping, Sequence

from runtime_lite.calls.feeds import Feed
from runtime_lite.format.manifest import Graph


def plan_runs(graph: Graph, feeds: Sequence[Feed]) -> list[list[int]]:
    """Return the numbers of the feeds that share a run, for every run.

    Feeds share a run when the axes that cannot be padded agree. The longest come first, so that a run holds rows of
    similar lengths; feeds of equal lengths keep their order. No run has more rows than the largest bucket of the batch
    axis; without that axis every feed runs alone.

    Args:
        graph: a graph whose rows are independent, or one feed.
        feeds: checked feeds, each with no more rows than the largest bucket.
    """
    padded = [name for name, axis in graph.axes.items() if axis.length_input is not None]
    exact = [name for name in graph.axes if name != graph.batch_axis and name not in padded]
    most = graph.row_buckets[-1]

    def order(number: int) -> tuple[list[int], list[int]]:
        sizes = feeds[number].sizes
        return [sizes[name] for name in exact], [-sizes[name] for name in padded]

    runs: list[list[int]] = []
    room = 0
    for number in sorted(range(len(feeds)), key=order):
        if feeds[number].rows > room or order(number)[0] != order(runs[-1][0])[0]:
            runs.append([])
            room = most
        runs[-1].append(number)
        room -= feeds[number].rows
    return runs


def smallest_bucket(graph: Graph, feeds: Sequence[Feed]) -> Mapping[str, int]:
    """Return the smallest bucket of every axis that holds all rows of some feeds, each as long as the longest."""
    needed = {axis: max(feed.sizes.get(axis, 1) for feed in feeds) for axis in graph.axes}
    if graph.batch_axis is not None:
        needed[graph.batch_axis] = sum(feed.rows for feed in feeds)
    return {name: next(size for size in axis.buckets if size >= needed[name]) for name, axis in graph.axes.items()}


def bucket_fault(graph: Graph, feeds: Sequence[Feed], sizes: Mapping[str, int]) -> str | None:
    """Return what does not fit when some feeds run together in a bucket, or None when all do.

    Places of an axis with a length per row and free rows may be left over; of any other axis nothing may.
    """
    rows = sum(feed.rows for feed in feeds)
    for name, axis in graph.axes.items():
        size = sizes.get(name, 0)
        if size not in (graph.row_steps if name == graph.batch_axis else axis.buckets):
            return f"{size} on axis {name!r}, which was not built"
        if name == graph.batch_axis:
            if rows > size:
                return f"{rows} rows"
            continue
        for feed in feeds:
            found = feed.sizes[name]
            if found > size or (found < size and axis.length_input is None):
                return f"{found} on axis {name!r}"
    return None
