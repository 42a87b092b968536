"""moments: sums over calibration streams, and the fit that follows from them."""

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.rewriting.attention.attention import find_attentions
from compiler.rewriting.attention.moments import OutputMoments, head_moments, output_moments, refitted
from tests.kit.attention import HEADS, SIZE, WIDTH, attention, feeds, weights


def test_moments_are_those_of_the_projections() -> None:
    graph, stored = attention("turned"), weights()
    graphs.infer_shapes(graph.model)
    streams = feeds(3, 7)
    (found,) = head_moments(graph, find_attentions(graph.model).attentions, streams)
    rows = np.concatenate([feed["x"][0] for stream in streams for feed in stream]).astype(np.float64)
    keys = (rows @ stored["wk"] + stored["bk"]).reshape(-1, HEADS, SIZE)
    queries = (rows @ stored["wq"] + stored["bq"]).reshape(-1, HEADS, SIZE)
    np.testing.assert_allclose(found.keys, np.einsum("thi,tgj->higj", keys, keys), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.queries, np.einsum("thi,thj->hij", queries, queries), rtol=1e-3, atol=1e-3)


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
