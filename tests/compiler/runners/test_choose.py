"""The runner of a graph: a stream, or whole rows."""

import dataclasses

from compiler.runners.choose import runner_of
from compiler.runners.padded_rows import RowsRunner
from compiler.runners.stream import Runner
from compiler.stages import PaddedAxis
from tests.kit.growing_stream import growing


def test_padded_axes_run_as_rows_and_states_as_streams() -> None:
    stream = growing()
    rows = dataclasses.replace(stream, states=(), caches=(), padded_axes=(PaddedAxis("cache", "cache_length"),))
    assert isinstance(runner_of(stream), Runner)
    assert isinstance(runner_of(rows), RowsRunner)
