"""Groups feeds into runs and chooses their buckets, from sizes alone; no array is read or written."""

from collections.abc import Mapping, Sequence

from runtime_lite.calls.feeds import Feed
from runtime_lite.format.manifest import Graph


def plan_runs(graph: Graph, feeds: Sequence[Feed]) -> list[list[int]]:
    """Return, for every run, the indices of the feeds that share it.

    Feeds may share a run if they have the same sizes along the axes that cannot be padded. They are sorted by length,
    longest first, so that a run holds rows of similar lengths; feeds of equal lengths keep their order. No run has more
    rows than the largest bucket of the batch axis; without that axis every feed runs alone.

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
    """Return the smallest bucket of every axis that holds all rows of the feeds, each as long as the longest."""
    needed = {axis: max(feed.sizes.get(axis, 1) for feed in feeds) for axis in graph.axes}
    if graph.batch_axis is not None:
        needed[graph.batch_axis] = sum(feed.rows for feed in feeds)
    return {name: next(size for size in axis.buckets if size >= needed[name]) for name, axis in graph.axes.items()}


def bucket_fault(graph: Graph, feeds: Sequence[Feed], sizes: Mapping[str, int]) -> str | None:
    """Return why feeds do not fit into a bucket together, or None if they fit.

    Rows may stay free, and so may positions of an axis with a length per row; every other axis must be full.
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
            length = feed.sizes[name]
            if length > size or (length < size and axis.length_input is None):
                return f"{length} on axis {name!r}"
    return None
