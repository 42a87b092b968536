"""Cache axes: what their true lengths are from call to call, and which kinds nothing can lower or run yet."""

import numpy as np
import pytest

from runtime_lite.format.cache_axis import CacheAxis, not_yet

CACHE = CacheAxis("cache", 3, 2, "real_length", None)


def test_a_mask_has_the_newest_cached_frames_and_the_new_ones() -> None:
    assert CACHE.mask(np.array([0, 2, 3])).astype(int).tolist() == [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_rows_of_different_ages_grow_each_by_a_step_until_they_are_full() -> None:
    lengths = np.array([0, 2, 3])
    for expected in ([2, 3, 3], [3, 3, 3], [3, 3, 3]):
        lengths = CACHE.after_call(lengths)
        assert lengths.tolist() == expected


@pytest.mark.parametrize(("slots", "step", "calls"), [(6, 2, 3), (5, 2, 3), (2, 5, 1), (1, 1, 1)])
def test_a_stream_fills_its_slots_after_so_many_calls(slots: int, step: int, calls: int) -> None:
    assert CacheAxis("cache", slots, step, "n", None).calls_to_fill == calls


def test_of_all_kinds_only_right_aligned_caches_that_are_replaced_are_there() -> None:
    kinds = {
        ("right", "replace"): None,
        ("right", "append"): "caches that append",
        ("left", "replace"): "left-aligned caches",
        ("left", "append"): "left-aligned caches",
    }
    assert {kind: not_yet(*kind) for kind in kinds} == kinds
