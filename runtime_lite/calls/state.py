"""The state of one stream: what a graph carries from push to push, and the count of its valid frames.

All rows of a stream move in lock-step, so one `real_length` holds for all of them. A record is never changed: a push
that fails leaves the stream as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import BATCH_AXIS, Graph, static_shape


@dataclass(frozen=True)
class StreamState:
    """What is carried, for `rows` rows.

    Attributes:
        rows: number of rows; 1 and without meaning for a graph without a batch axis.
        real_length: valid cached frames, 0 before the first push.
        values: arrays by graph input of role state.
    """

    rows: int
    real_length: int
    values: Mapping[str, Array]


def initial_state(graph: Graph, rows: int) -> StreamState:
    """Return the state of a new stream."""
    sizes = {BATCH_AXIS: rows}
    values = {s.input: np.full(static_shape(s.shape, sizes), s.initial, s.dtype) for s in graph.states}
    return StreamState(rows, 0, values)


def next_state(graph: Graph, state: StreamState, outputs: Mapping[str, Array]) -> StreamState:
    """Return the state after a push whose outputs, cut back to the stream's rows, are given."""
    stream = graph.stream
    length = 0 if stream is None else min(state.real_length + stream.step_frames, stream.window)
    return replace(state, real_length=length, values={s.input: outputs[s.output] for s in graph.states})
