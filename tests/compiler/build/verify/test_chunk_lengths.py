"""Chunks of every length, made of the data."""

import dataclasses

import numpy as np
import pytest

from compiler.build.verify.chunk_lengths import (
    MOST,
    Flush,
    chunk_axis,
    length_of,
    lengths_to_try,
    of_every_length,
    streams_of_every_length,
    streams_that_fit,
    varied,
)
from compiler.graph.stages import PaddedAxis
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.short_chunks import chunk, padded

AXIS = PaddedAxis("chunk", "chunk_length")


def test_every_length_follows_a_whole_chunk() -> None:
    stream = [chunk(4, 0), chunk(2, 1), chunk(4, 2)]
    feeds = of_every_length(padded(), stream)
    assert [length_of(padded(), AXIS, feed) for feed in feeds] == [4, 1, 4, 2, 4, 3, 4, 4]
    np.testing.assert_array_equal(feeds[1]["features"], stream[2]["features"][:, :1])


def test_of_many_lengths_both_ends_and_some_between() -> None:
    assert lengths_to_try(2, 9) == list(range(2, 10))
    tried = lengths_to_try(1, 10 * MOST)
    assert len(tried) == MOST
    assert {1, 2, 10 * MOST - 1, 10 * MOST} <= set(tried)


def test_a_stream_ends_where_its_slots_are_full() -> None:
    feeds = [chunk(length, 0) for length in (4, 1, 4, 2)]
    assert streams_that_fit(padded(), feeds) == [feeds]
    caches = (CacheAxis("cache", 8, 1, "cache_length", None, added="chunk", is_whole=True),)
    whole = dataclasses.replace(padded(), caches=caches)
    found = [[length_of(whole, AXIS, feed) for feed in each] for each in streams_that_fit(whole, feeds)]
    assert found == [[4, 1], [4, 2]]


def test_a_chunk_that_is_shorter_than_those_that_are_masked_as_a_whole_ends_its_stream() -> None:
    feeds = [chunk(length, 0) for length in (4, 1, 4, 2, 4)]
    caches = (CacheAxis("cache", 16, 1, "cache_length", None, added="chunk", is_whole=True, chunk=4),)
    whole = dataclasses.replace(padded(), caches=caches)
    found = [[length_of(whole, AXIS, feed) for feed in each] for each in streams_that_fit(whole, feeds)]
    assert found == [[4, 1], [4, 2], [4]]
    cut = [[length_of(whole, AXIS, feed) for feed in varied(whole, [chunk(4, 0)] * 3, turn)] for turn in (0, 1)]
    assert cut == [[4, 4, 2], [4, 4, 3]]


def test_every_other_chunk_is_cut_and_streams_differ() -> None:
    stream = [chunk(4, seed) for seed in range(6)]
    cut = [[length_of(padded(), AXIS, feed) for feed in varied(padded(), stream, turn)] for turn in (0, 1)]
    assert cut == [[1, 4, 2, 4, 3, 4], [4, 2, 4, 3, 4, 4]]


@pytest.mark.parametrize("values", [{}, {"features": -11.5}])
def test_what_completes_a_stream_is_as_a_feed_is_otherwise(values: dict[str, float]) -> None:
    (made,) = Flush({"features": 2}, values).feeds(padded(), chunk(4, 0), AXIS)
    wanted = np.full((1, 2, 4), values.get("features", 0.0), np.float32)
    np.testing.assert_array_equal(made["features"], wanted, strict=True)


def test_where_nothing_lags_nothing_is_fed() -> None:
    assert Flush().feeds(padded(), chunk(4, 0), AXIS) == []


def test_where_chunks_have_one_length_or_several_axes_nothing_is_cut() -> None:
    several = dataclasses.replace(padded(), padded_axes=(AXIS, PaddedAxis("other", "other_length")))
    whole = dataclasses.replace(padded(), padded_axes=())
    stream = [chunk(4, 0)]
    for lowered in (several, whole):
        assert chunk_axis(lowered) is None
        assert varied(lowered, stream) is stream


def test_a_stream_has_one_length_along_an_axis_along_which_states_lie() -> None:
    held = dataclasses.replace(AXIS, is_held=True)
    lowered = dataclasses.replace(padded(), padded_axes=(held,))
    assert chunk_axis(lowered) is None
    streams = [[chunk(2, 0)] * 2, [chunk(4, 0)] * 4]
    found = [
        [length_of(lowered, held, feed) for feed in each] for each in streams_of_every_length(lowered, held, streams)
    ]
    assert found == [[length] * 3 for length in (1, 2, 3, 4)]
    cut = [[length_of(lowered, held, feed) for feed in varied(lowered, streams[1], turn)] for turn in (0, 1)]
    assert cut == [[3] * 4, [2] * 4]
