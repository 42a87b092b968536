"""removals: the order in which channels go, and what it costs."""

import numpy as np
import pytest

from compiler.rewriting.least_squares import Array
from compiler.rewriting.pruning.removals import fitted, removed

FRAMES, RESULTS = 300, 7


def contexts(channels: int, seed: int, *, ones: bool = False) -> Array:
    """Channels that have much in common, some of them always 0."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((FRAMES, channels // 2)) @ rng.standard_normal((channels // 2, channels))
    drawn = 0.5 + shared + 0.3 * rng.standard_normal((FRAMES, channels))
    drawn *= rng.uniform(0.1, 2.0, channels)
    return np.column_stack([drawn, np.ones(FRAMES)]) if ones else drawn


def least_error(read: Array, results: Array, stays: np.ndarray) -> float:
    """The smallest squared error with some columns alone, found by another method."""
    left = read[:, stays]
    return float(np.square(results - left @ np.linalg.lstsq(left, results, rcond=None)[0]).sum())


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_score_is_the_increase_of_the_error_however_many_are_gone(seed: int, *, ones: bool) -> None:
    channels = 24
    read = contexts(channels, seed, ones=ones)
    weights = np.random.default_rng(seed + 100).standard_normal((read.shape[1], RESULTS))
    results, inner = read @ weights, read[:, :channels] @ weights[:channels]
    left = removed(read.T @ read, weights, channels, 1, list(range(channels - 1, 3, -1)))
    for width, found in left.items():
        assert len(found.kept) == width
        stays = np.concatenate([found.kept, np.arange(channels, read.shape[1])])
        measured = least_error(read, results, stays) / np.square(inner).sum()
        assert found.share == pytest.approx(measured, rel=1e-3, abs=1e-7), width


def test_each_time_the_channel_goes_that_costs_least() -> None:
    channels = 12
    read, weights = contexts(channels, 5), np.random.default_rng(6).standard_normal((channels, RESULTS))
    left = removed(read.T @ read, weights, channels, 1, list(range(channels - 1, 5, -1)))
    before = set(range(channels))
    for found in left.values():
        after = set(found.kept.tolist())
        errors = {each: least_error(read, read @ weights, np.array(sorted(before - {each}))) for each in before}
        (gone,) = before - after
        assert errors[gone] == pytest.approx(min(errors.values()), rel=1e-4)
        before = after


def test_several_at_once_are_the_same_as_one_by_one() -> None:
    channels = 40
    read, weights = contexts(channels, 7, ones=True), np.random.default_rng(8).standard_normal((channels + 1, RESULTS))
    moments = read.T @ read
    singly = removed(moments, weights, channels, 1, list(range(channels - 1, 7, -1)))
    for step in (4, 8, 16):
        for width, found in removed(moments, weights, channels, 1, list(range(channels - step, 7, -step))).items():
            np.testing.assert_array_equal(found.kept, singly[width].kept)
            assert found.share == pytest.approx(singly[width].share, rel=1e-6)


def test_channels_that_are_always_0_or_twice_there_go_first_and_cost_nothing() -> None:
    channels = 10
    read, weights = contexts(channels, 9), np.random.default_rng(10).standard_normal((channels, RESULTS))
    read[:, 3] = 0.0
    read[:, 7] = 2 * read[:, 2]
    left = removed(read.T @ read, weights, channels, 1, [8, 7])
    gone = set(range(channels)) - set(left[8].kept.tolist())
    assert 3 in gone and gone & {2, 7} and left[8].share < 1e-6 < left[7].share


def test_fitted_weights_are_the_optimum_and_all_channels_keep_theirs() -> None:
    channels = 16
    read, weights = (
        contexts(channels, 11, ones=True),
        np.random.default_rng(12).standard_normal((channels + 1, RESULTS)),
    )
    moments, results = read.T @ read, read @ weights
    np.testing.assert_allclose(fitted(moments, weights, channels, np.arange(channels)), weights, atol=1e-6)
    kept = np.array([0, 2, 3, 5, 8, 13])
    left = read[:, [*kept, channels]]
    found = np.square(results - left @ fitted(moments, weights, channels, kept)).sum()
    assert found == pytest.approx(least_error(read, results, np.array([*kept, channels])), rel=1e-6)


def test_many_removals_stay_exact_where_channels_are_nearly_dependent() -> None:
    channels = 160
    rng = np.random.default_rng(13)
    read = rng.standard_normal((FRAMES, 20)) @ rng.standard_normal((20, channels))
    read += 1e-3 * rng.standard_normal(read.shape)
    weights = rng.standard_normal((channels, RESULTS))
    left = removed(read.T @ read, weights, channels, 1, [144, 96, 48, 16])
    measured = [least_error(read, read @ weights, left[width].kept) for width in (48, 16)]
    energy = np.square(read @ weights).sum()
    assert left[16].share == pytest.approx(measured[1] / energy, rel=0.05)
    assert left[48].share < 1e-4 and measured[0] / energy < 1e-4


@pytest.mark.parametrize("block", [2, 3, 5])
def test_the_score_of_a_head_is_the_increase_of_the_error_by_all_of_its_channels(block: int) -> None:
    heads = 8
    read = contexts(heads * block, 14, ones=True)
    weights = np.random.default_rng(15).standard_normal((read.shape[1], RESULTS))
    results, inner = read @ weights, read[:, :-1] @ weights[:-1]
    left = removed(read.T @ read, weights, heads, block, list(range(heads - 1, 0, -1)))
    before = set(range(heads))
    for number, found in left.items():
        after = set(found.kept.tolist())
        rows = {head: [head * block + at for at in range(block)] for head in before}
        errors = {}
        for gone in before:
            stays = [row for head in before - {gone} for row in rows[head]]
            errors[gone] = least_error(read, results, np.array([*stays, heads * block]))
        (gone,) = before - after
        assert errors[gone] == pytest.approx(min(errors.values()), rel=1e-4), number
        assert found.share == pytest.approx(errors[gone] / np.square(inner).sum(), rel=1e-3, abs=1e-7)
        before = after
