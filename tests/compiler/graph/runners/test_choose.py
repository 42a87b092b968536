"""The runner of a graph: a stream, or whole rows, behind one contract."""

import dataclasses

import numpy as np
import pytest

from compiler.graph.runners.choose import runner_of, runner_on, runners_of
from compiler.graph.runners.padded_rows import RowsRunner
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.passes.pad_axes import PadAxes
from tests.kit.graphs import feeds_of, streaming
from tests.kit.growing_stream import growing
from tests.kit.offline import offline


def ragged() -> Lowered:
    return PadAxes().apply(offline("(float[batch,time,4] x) => (float[batch,time,4] y) { y = Neg(x) }")).lowered


def test_padded_axes_run_as_rows_and_states_as_streams() -> None:
    stream = growing()
    rows = dataclasses.replace(stream, states=(), caches=(), padded_axes=(PaddedAxis("cache", "cache_length"),))
    assert isinstance(runner_of(stream), Runner)
    assert isinstance(runner_of(rows), RowsRunner)


def test_a_stream_begins_anew_or_goes_on_from_where_it_was() -> None:
    lowered = streaming()
    feeds = feeds_of(lowered, 4)
    runner = runner_of(lowered)
    for feed in feeds[:2]:
        runner.step(feed)
    states, lengths = dict(runner.states), dict(runner.lengths)
    later = runner.step(feeds[2])["y"]
    runner.reset()
    assert all(not array.any() for array in runner.states.values())
    assert runner.lengths and not any(length.any() for length in runner.lengths.values())
    first = runner.step(feeds[0])["y"]
    runner.reset(states, lengths)
    assert np.array_equal(runner.step(feeds[2])["y"], later)
    runner.reset()
    assert np.array_equal(runner.step(feeds[0])["y"], first)


@pytest.mark.parametrize("optimize", [False, True])
def test_runners_of_one_graph_share_no_states(optimize: bool) -> None:
    lowered = streaming()
    fresh, feeds = runners_of(lowered, optimize=optimize), feeds_of(lowered, 2)
    one, other = fresh(), fresh()
    one.step(feeds[0])
    got, right = other.step(feeds[1]), runner_of(lowered, optimize=optimize).step(feeds[1])
    assert np.array_equal(got["y"], right["y"])


def test_a_call_of_rows_shows_its_padding_and_says_what_is_valid() -> None:
    lowered = ragged()
    runner = runner_on(session_of(lowered.model), lowered, fill=7.0)
    feed = {"x": np.ones((1, 2, 4), np.float32)}
    whole = runner.call(feed)["y"]
    assert whole.shape == (1, 5, 4) and (whole[:, 2:] == -7.0).all()
    place = runner.valid("y", whole, feed)
    assert np.array_equal(whole[place], runner.step(feed)["y"]) and whole[place].shape == (1, 2, 4)
    assert runner.full_feed(feed)["x"].shape == (1, 5, 4)
    assert runner.lengths == {} and runner.states == {}


def test_a_call_of_a_stream_is_valid_as_a_whole() -> None:
    lowered = streaming()
    runner, (feed,) = runner_of(lowered), feeds_of(lowered, 1)
    place = runner.valid("y", runner.call(feed)["y"], feed)
    assert place == (slice(None),) * 3
    assert set(runner.full_feed(feed)) >= set(feed) | set(runner.states)
