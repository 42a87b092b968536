"""Cache axes: what their true lengths are from call to call, and of which kind the states along them are."""

import dataclasses

import numpy as np
import pytest

from runtime_lite.errors import BadInput
from runtime_lite.format.cache_axis import CacheAxis
from runtime_lite.states import APPENDED, CACHES, WINDOW

CACHE = CacheAxis("cache", 3, 2, "real_length", None)


def test_a_mask_has_the_newest_cached_frames_and_the_new_ones() -> None:
    assert CACHE.mask(np.array([0, 2, 3])).astype(int).tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_rows_of_different_ages_grow_each_by_a_step_until_they_are_full() -> None:
    lengths = np.array([0, 2, 3])
    for expected in ([2, 3, 3], [3, 3, 3], [3, 3, 3]):
        lengths = CACHE.after_call(lengths, CACHE.step)
        assert lengths.tolist() == expected


def test_rows_may_add_different_numbers_of_frames() -> None:
    assert CACHE.after_call(np.array([0, 1, 2]), np.array([1, 0, 2])).tolist() == [1, 1, 3]


def test_where_every_frame_is_needed_none_makes_room() -> None:
    whole = CacheAxis("cache", 3, 2, "real_length", None, is_whole=True)
    assert whole.after_call(np.array([0, 1]), 2).tolist() == [2, 3]
    with pytest.raises(BadInput, match="at most 3 frames along 'cache' in all of its calls, got 4"):
        whole.after_call(np.array([1, 2]), 2)


def test_a_chunk_that_is_shorter_than_those_that_are_masked_as_a_whole_is_the_last() -> None:
    chunks = CacheAxis("cache", 12, 1, "real_length", None, is_whole=True, chunk=4)
    assert chunks.after_call(np.array([0, 4]), np.array([4, 3])).tolist() == [4, 7]
    assert chunks.after_call(np.array([4, 7]), np.array([4, 0])).tolist() == [8, 7]
    with pytest.raises(BadInput, match="expected calls of whole chunks of 4 frames before this one, got 7"):
        chunks.after_call(np.array([4, 7]), 1)


@pytest.mark.parametrize(("added", "frames"), [(None, 2), ("time", 5), ("(time - 1) // 2 + 1", 3), ("time - 7", 0)])
def test_the_frames_of_a_call_follow_from_its_lengths(added: str | None, frames: int) -> None:
    assert CacheAxis("cache", 3, 2, "n", None, added=added).frames_of({"time": 5}) == frames


@pytest.mark.parametrize(("slots", "step", "calls"), [(6, 2, 3), (5, 2, 3), (2, 5, 1), (1, 1, 1)])
def test_a_stream_fills_its_slots_after_so_many_calls(slots: int, step: int, calls: int) -> None:
    assert CacheAxis("cache", slots, step, "n", None).calls_to_fill == calls


def test_side_and_update_name_the_kind() -> None:
    assert CACHE.kind is WINDOW and CACHE.as_kind(APPENDED).kind is APPENDED
    assert CACHE.as_kind(APPENDED).as_kind(WINDOW) == CACHE
    for (side, update), kind in CACHES.items():
        assert dataclasses.replace(CACHE, side=side, update=update) == CACHE.as_kind(kind)
