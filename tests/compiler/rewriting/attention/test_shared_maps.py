"""shared_maps: the maps that lose least, and those they are compared with."""

import numpy as np
import pytest

from compiler.rewriting.attention.shared_maps import (
    METHODS,
    Array,
    Channels,
    Maps,
    energy,
    lost,
    mean,
    of_group,
    optimal,
    rotated_mean,
)

HEADS, SIZE, FRAMES = 4, 6, 400
FREE = Channels(tuple(range(SIZE)))
TURNED = Channels((), ((0, 3), (1, 4), (2, 5)))
MIXED = Channels((4, 5), ((0, 2), (1, 3)))


def moments_of(vectors: Array) -> Array:
    return np.asarray(np.einsum("thi,tgj->higj", vectors, vectors))


def metrics_of(readers: Array) -> Array:
    return np.asarray(np.einsum("hid,hjd->hij", readers, readers))


def drawn(seed: int) -> tuple[Array, Array]:
    """Vectors [frames, heads, d] with shared structure, and what reads them [heads, d, D]."""
    rng = np.random.default_rng(seed)
    code = rng.standard_normal((FRAMES, SIZE))
    mixes = rng.standard_normal((HEADS, SIZE, SIZE))
    own = rng.standard_normal((FRAMES, HEADS, SIZE))
    return np.einsum("ti,hij->thj", code, mixes) + 0.3 * own, rng.standard_normal((HEADS, SIZE, 9))


def directly_lost(vectors: Array, readers: Array, maps: Maps) -> float:
    shared = np.einsum("thi,hij->tj", vectors, maps.to_shared)
    rest = vectors - np.einsum("tj,hjk->thk", shared, maps.from_shared)
    return float((np.einsum("thi,hid->thd", rest, readers) ** 2).sum())


@pytest.mark.parametrize("channels", [FREE, TURNED, MIXED])
@pytest.mark.parametrize("method", METHODS)
def test_what_is_lost_follows_from_the_moments(method: str, channels: Channels) -> None:
    vectors, readers = drawn(1)
    moments, metrics = moments_of(vectors), metrics_of(readers)
    maps = METHODS[method](moments, metrics, channels)
    assert lost(moments, metrics, maps) == pytest.approx(directly_lost(vectors, readers, maps), rel=1e-8)


def test_without_pairs_it_is_the_tail_of_the_singular_values() -> None:
    vectors, readers = drawn(2)
    wide = np.einsum("thi,hid->thd", vectors, readers).reshape(FRAMES, -1)
    tail = (np.linalg.svd(wide, compute_uv=False)[SIZE:] ** 2).sum()
    moments, metrics = moments_of(vectors), metrics_of(readers)
    assert lost(moments, metrics, optimal(moments, metrics, FREE)) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize("channels", [FREE, TURNED, MIXED])
@pytest.mark.parametrize("seed", range(5))
def test_it_never_loses_more_than_the_mean_or_rotations(seed: int, channels: Channels) -> None:
    vectors, _ = drawn(10 + seed)
    scales = np.random.default_rng(seed).uniform(0.2, 3.0, HEADS)
    # metrics that know no direction: rotations are optimal for those alone
    moments, metrics = moments_of(vectors), scales[:, None, None] * np.eye(SIZE)
    least = lost(moments, metrics, optimal(moments, metrics, channels))
    for other in (mean, rotated_mean):
        assert least <= lost(moments, metrics, other(moments, metrics, channels)) * (1 + 1e-9)


def test_rotations_beat_the_mean_where_heads_are_turned_copies() -> None:
    rng = np.random.default_rng(3)
    code = rng.standard_normal((FRAMES, SIZE))
    turns = np.linalg.qr(rng.standard_normal((HEADS, SIZE, SIZE)))[0]
    moments = moments_of(np.einsum("ti,hij->thj", code, turns))
    metrics = np.broadcast_to(np.eye(SIZE), (HEADS, SIZE, SIZE)).copy()
    whole = energy(moments, metrics)
    assert lost(moments, metrics, rotated_mean(moments, metrics, FREE)) < 1e-9 * whole
    assert lost(moments, metrics, mean(moments, metrics, FREE)) > 0.1 * whole


@pytest.mark.parametrize("channels", [TURNED, MIXED])
def test_nothing_is_lost_of_heads_that_are_images_of_one(channels: Channels) -> None:
    rng = np.random.default_rng(4)
    code = rng.standard_normal((FRAMES, SIZE))
    images = np.zeros((FRAMES, HEADS, SIZE))
    for real, imaginary in channels.pairs:
        factors = rng.standard_normal(HEADS) + 1j * rng.standard_normal(HEADS)
        turned = (code[:, real] + 1j * code[:, imaginary])[:, None] * factors
        images[:, :, real], images[:, :, imaginary] = turned.real, turned.imag
    free = list(channels.free)
    images[:, :, free] = np.einsum("ti,hij->thj", code[:, free], rng.standard_normal((HEADS, len(free), len(free))))
    moments, metrics = moments_of(images), metrics_of(rng.standard_normal((HEADS, SIZE, 8)))
    assert lost(moments, metrics, optimal(moments, metrics, channels)) < 1e-8 * energy(moments, metrics)


def test_maps_of_pairs_commute_with_every_rotation() -> None:
    vectors, readers = drawn(5)
    maps = optimal(moments_of(vectors), metrics_of(readers), MIXED)
    turn = np.eye(SIZE)
    for angle, (real, imaginary) in zip((0.3, 1.1), MIXED.pairs, strict=True):
        turn[np.ix_((real, imaginary), (real, imaginary))] = [
            [np.cos(angle), np.sin(angle)],
            [-np.sin(angle), np.cos(angle)],
        ]
    for each in (*maps.to_shared, *maps.from_shared):
        np.testing.assert_allclose(each @ turn, turn @ each, atol=1e-12)


def test_a_group_has_the_moments_of_its_heads() -> None:
    vectors, readers = drawn(6)
    moments, metrics = of_group(moments_of(vectors), metrics_of(readers), (3, 1))
    np.testing.assert_allclose(moments, moments_of(vectors[:, [3, 1]]))
    np.testing.assert_allclose(metrics, metrics_of(readers[[3, 1]]))


def test_a_head_that_nothing_reads_is_no_trouble() -> None:
    vectors, readers = drawn(7)
    readers[2] = 0
    moments, metrics = moments_of(vectors), metrics_of(readers)
    maps = optimal(moments, metrics, MIXED)
    assert np.isfinite(maps.to_shared).all() and np.isfinite(maps.from_shared).all()
