"""Moves live streams from one runtime to another, as bytes, and times each against the period of its chunks.

Two runtimes of this process stand for two machines; what a network adds is the time for the bytes.
"""

from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from runtime_lite import Runtime
from runtime_lite.bench import feed_arrays
from runtime_lite.hosting.named_streams import NamedStreams, Place

CHUNKS = 12
"""Chunks of a stream before it is moved: its caches are full by then, which changes no size."""


def measure_moves(path: Path, name: str, period_ms: float, streams: int) -> list[dict[str, Any]]:
    """Return the bytes and the times of moves.

    Args:
        path: bundle directory.
        name: graph with states.
        period_ms: from chunk to chunk.
        streams: streams that are moved, one after the other, each behind its chunk.
    """
    with Runtime(max_streams=2 * streams) as first, Runtime(max_streams=2 * streams) as second:
        here = NamedStreams(first.load(path, warm_up=True), name, None)
        there = NamedStreams(second.load(path, warm_up=True), name, None)
        graph = first.load(path).runner(name).graph
        feeds = feed_arrays(graph, {axis: record.buckets[0] for axis, record in graph.axes.items()})
        for stream in range(streams):
            here.open(stream, 1)
            for number in range(CHUNKS):
                here.submit(Place(stream, number=number, generation=1), feeds).result()
        snapshots, moves, size = [], [], 0
        for stream in range(streams):
            begin = perf_counter_ns()
            here.snapshot(stream, 1)
            between = perf_counter_ns()
            moved = here.take_out(stream, 1)
            there.restore(stream, 2, moved.content, sequence=CHUNKS)
            moves.append((perf_counter_ns() - between) / 1e6)
            snapshots.append((between - begin) / 1e6)
            size = len(moved.content)
        with first.load(path).open_stream(name) as alone:
            state = sum(array.nbytes for array in alone.state.values.values())
    return [
        {
            "streams": streams,
            "state, bytes": state,
            "snapshot, bytes": size,
            "snapshot / state": f"{size / state:.4f}",
            "snapshot, ms": f"{np.median(snapshots):.2f}",
            "move p50, ms": f"{np.percentile(moves, 50):.2f}",
            "move p99, ms": f"{np.percentile(moves, 99):.2f}",
            f"move p99 / {period_ms:g} ms": f"{np.percentile(moves, 99) / period_ms:.4f}",
        }
    ]
