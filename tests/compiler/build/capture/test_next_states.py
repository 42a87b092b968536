"""Between two calls, frames go behind their cache and counts move on by the true length of the chunk."""

import numpy as np
import pytest

from compiler.build.capture.counts import frames_counted
from compiler.build.capture.initial_graph import states_of
from compiler.build.capture.next_states import lengths_of, moved_on
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Array, Feed
from compiler.recipe.graph import Graph
from compiler.recipe.graph_parts import Axis, Input, Source


def spec(counts: str) -> Graph:
    return Graph(
        source=Source(factory="m:f"),
        inputs={
            "x": Input(shape=("batch", "chunk", 4), dtype="float32"),
            "cache": Input(shape=("batch", 4, "cached"), dtype="float32", state="new"),
            "offset": Input(shape=("batch",), dtype="int64", counts=counts),
        },
        outputs=("y", "new"),
        axes={
            "batch": Axis(buckets=(1, 2)),
            "chunk": Axis(buckets=(8,), length_input="chunk_length"),
            "cached": Axis(window=6, update="append"),
        },
        passes=(),
    )


FED: dict[str, Array] = {"cache": np.zeros((1, 4, 3), np.float32), "offset": np.array([9])}
GIVEN: dict[str, Array] = {"y": np.ones((1, 7, 4), np.float32), "new": np.ones((1, 4, 4), np.float32)}
FEED: Feed = {"x": np.ones((1, 7, 4), np.float32)}
HALF: dict[str, Dim] = {"cached": graphs.expression("(chunk + 1) // 2")}


def test_the_length_of_a_call_is_that_of_its_feed() -> None:
    assert lengths_of(spec("chunk"), FEED) == {"chunk": 7}
    assert lengths_of(spec("chunk"), {}) == {}


@pytest.mark.parametrize(("counts", "after"), [("chunk", 16), ("cached", 13)])
def test_frames_go_behind_their_cache_and_counts_move_on(counts: str, after: int) -> None:
    given = spec(counts)
    found = moved_on(given, states_of(given), frames_counted(given, HALF), FEED, FED, GIVEN)
    assert found["new"][0, 0].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert found["offset_after"].tolist() == [after]
    assert found["y"] is GIVEN["y"]


def test_a_first_call_begins_with_nothing_and_counts_from_0() -> None:
    given = spec("chunk")
    empty: dict[str, Array] = {"cache": np.zeros((1, 4, 0), np.float32), "offset": np.array([0])}
    found = moved_on(given, states_of(given), frames_counted(given, HALF), FEED, empty, GIVEN)
    np.testing.assert_array_equal(found["new"], GIVEN["new"])
    assert found["offset_after"].tolist() == [7]
