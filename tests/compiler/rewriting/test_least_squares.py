"""least_squares: sums over calibration streams, and the fit that follows from them."""

import numpy as np
import pytest

from compiler.rewriting.least_squares import OutputMoments, output_moments, refitted
from tests.kit.attention import WIDTH, attention, feeds, weights


def test_every_fifth_stream_is_kept_apart() -> None:
    graph = attention()
    fitted, kept = output_moments(graph, "given", np.zeros(WIDTH), graph, "gated", feeds(10, 6))
    assert fitted.results > 2 * kept.results > 0
    stored = weights()["wo"].astype(np.float64)
    assert fitted.error(stored) < 1e-5 and kept.error(stored) < 1e-5


def drawn(frames: int, seed: int, noise: float) -> tuple[OutputMoments, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = np.random.default_rng(1).standard_normal((WIDTH, 8))
    contexts = rng.standard_normal((frames, WIDTH))
    moments = OutputMoments.empty(WIDTH, 8)
    moments.add(contexts, contexts @ true + noise * rng.standard_normal((frames, 8)))
    return moments, true


def test_the_fit_finds_the_weights_that_made_the_results() -> None:
    fitted, true = drawn(400, 2, 0.01)
    kept, _ = drawn(100, 3, 0.01)
    np.testing.assert_allclose(refitted(fitted, kept, np.zeros_like(true)), true, atol=0.01)


def test_weights_that_nothing_betters_stay() -> None:
    fitted, true = drawn(3, 4, 1.0)
    kept, _ = drawn(100, 5, 0.0)
    assert refitted(fitted, kept, true) is true


def test_few_frames_do_not_overfit() -> None:
    fitted, true = drawn(WIDTH // 2, 6, 0.1)
    kept, _ = drawn(200, 7, 0.1)
    start = true + 0.3 * np.random.default_rng(8).standard_normal(true.shape)
    assert kept.error(refitted(fitted, kept, start)) <= kept.error(start)


def test_sums_add_up() -> None:
    (first, true), (second, _) = drawn(30, 9, 0.1), drawn(50, 10, 0.1)
    both = first + second
    assert both.results == pytest.approx(first.results + second.results)
    assert min(first.error(true), second.error(true)) <= both.error(true) <= max(first.error(true), second.error(true))


def test_frames_of_padding_are_left_out() -> None:
    rng = np.random.default_rng(11)
    contexts, results = rng.standard_normal((20, WIDTH)), rng.standard_normal((20, 8))
    padded, clean = OutputMoments.empty(WIDTH, 8), OutputMoments.empty(WIDTH, 8)
    clean.add(contexts[5:], results[5:])
    contexts[:5] = np.nan
    padded.add(contexts, results)
    np.testing.assert_array_equal(padded.contexts, clean.contexts)
    np.testing.assert_array_equal(padded.mixed, clean.mixed)
    assert padded.results == clean.results


def test_a_one_behind_every_frame_stands_for_the_bias() -> None:
    graph, stored = attention(), weights()["wo"].astype(np.float64)
    fitted, kept = output_moments(graph, "given", np.zeros(WIDTH), graph, "gated", feeds(10, 6), with_ones=True)
    start = np.vstack([stored, np.full((1, stored.shape[1]), 0.5)])
    found = refitted(fitted, kept, start)
    assert fitted.contexts[-1, -1] == fitted.contexts[-1, -1].round() > 0, "it counts frames"
    assert kept.error(found) < 0.01 * kept.error(start)
