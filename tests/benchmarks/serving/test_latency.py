"""The latency benchmark in its shortest form: all contenders, and a queue that answers as the runtime does."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.serving.contenders import OURS, recorded
from benchmarks.serving.latency import measure_latency
from benchmarks.serving.plain_queue import PlainQueue
from runtime_lite import Runtime, read_bundle
from runtime_lite.load_test.command import recorded_feeds
from runtime_lite.load_test.drive import Ends
from tests.runtime_lite.bundles import write_open_bundle


@pytest.mark.slow
def test_a_load_has_a_row_of_each_contender(tmp_path: Path) -> None:
    rows = measure_latency(write_open_bundle(tmp_path / "bundle"), "streaming", 2, 0.05, 1, 0.1, (0.5,))
    *others, mosec = [row["contender"] for row in rows]
    assert others == [OURS, "queue", "bare loop"] and mosec in ("mosec", "mosec: not installed")


def test_streams_of_the_queue_carry_what_the_runtimes_do(tmp_path: Path) -> None:
    path = write_open_bundle(tmp_path / "bundle")
    calls, initial = recorded(path, "streaming")
    with read_bundle(path) as bundle:
        graph = bundle.manifest.graphs["streaming"]
    states = {state.input: state.output for state in graph.states}
    ends = Ends()
    queue = PlainQueue(path / graph.artifacts[0].file, states, initial, 2, 16, 0.001, ends)
    streams = [queue.open_stream() for _ in range(5)]
    for call in calls[:3]:
        for stream in streams:
            stream.submit(call)
    queue.drain()
    assert len(ends.outcomes) == 15
    with Runtime() as runtime:
        model = runtime.load(path)
        feeds = recorded_feeds(model, "streaming")
        with model.open_stream("streaming") as ours:
            for at in range(3):
                ours.push(feeds[at % len(feeds)])
            for name, value in ours.snapshot().state.values.items():
                for stream in streams:
                    np.testing.assert_allclose(stream.states[name], value, atol=1e-6)
