"""sampling: which token is drawn of which scores."""

import numpy as np
import pytest

from runtime_lite import Sampling
from runtime_lite.decoding.sampling import Sampler

SCORES = np.array([0.0, 2.0, 1.0, -1.0], np.float32)


def drawn(count: int, scores: np.ndarray = SCORES, **settings: object) -> list[int]:
    sampler = Sampler(Sampling(max_tokens=count, **settings))  # type: ignore[arg-type]
    return [sampler.take(scores).token for _ in range(count)]


def test_without_a_temperature_the_highest_score_is_taken() -> None:
    assert drawn(3) == [1, 1, 1]
    assert Sampler(Sampling(max_tokens=1)).take(SCORES).margin == 1.0
    assert Sampler(Sampling(max_tokens=1)).take(np.array([3.0, 3.0])).token == 0


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    count = 20_000
    found = np.bincount(drawn(count, temperature=0.7, seed=5), minlength=4)
    weights = np.exp(SCORES / 0.7)
    expected = count * weights / weights.sum()
    assert ((found - expected) ** 2 / expected).sum() < 16.27  # chi-square, 3 degrees of freedom, 0.1 %


def test_first_draws_of_many_seeds_are_distributed_as_well() -> None:
    count = 5_000
    found = np.bincount([drawn(1, temperature=1.0, seed=seed)[0] for seed in range(count)], minlength=4)
    weights = np.exp(SCORES)
    expected = count * weights / weights.sum()
    assert ((found - expected) ** 2 / expected).sum() < 16.27


def test_equal_seeds_draw_equal_tokens_and_others_do_not() -> None:
    assert drawn(50, temperature=1.0, seed=3) == drawn(50, temperature=1.0, seed=3)
    assert drawn(50, temperature=1.0, seed=3) != drawn(50, temperature=1.0, seed=4)


def test_a_sequence_draws_the_same_whatever_is_drawn_in_between() -> None:
    alone = drawn(20, temperature=1.0, seed=9)
    one, other = (Sampler(Sampling(max_tokens=20, temperature=1.0, seed=seed)) for seed in (9, 10))
    together = []
    for _ in range(20):
        together.append(one.take(SCORES).token)
        other.take(SCORES[::-1])
    assert together == alone


def test_only_the_likeliest_tokens_are_drawn() -> None:
    assert set(drawn(300, temperature=2.0, top_k=2)) == {1, 2}
    assert set(drawn(300, temperature=1.0, top_p=0.6)) == {1}
    assert set(drawn(300, temperature=1.0, top_p=0.7)) == {1, 2}
    assert set(drawn(3000, temperature=2.0)) == {0, 1, 2, 3}


def test_recent_tokens_are_penalised_as_long_as_they_are_recent() -> None:
    assert drawn(4, repetition_penalty=4.0, penalty_window=1) == [1, 2, 1, 2]
    scores = np.array([-1.0, -1.5], np.float32)
    assert drawn(3, scores, repetition_penalty=2.0, penalty_window=1) == [0, 1, 0]


def test_no_stop_token_is_drawn_before_the_fewest_tokens() -> None:
    sampler = Sampler(Sampling(max_tokens=9, stop=frozenset({1, 99}), min_tokens=2))
    assert [sampler.take(SCORES).token for _ in range(3)] == [2, 2, 1]


def test_a_margin_is_the_distance_to_another_token() -> None:
    sampler = Sampler(Sampling(max_tokens=100, temperature=1.0, seed=1))
    draws = [sampler.take(SCORES) for _ in range(100)]
    shares = np.exp(SCORES) / np.exp(SCORES).sum()
    assert all(0 <= draw.margin <= shares[draw.token] / 2 + 1e-12 for draw in draws)


@pytest.mark.parametrize("scores", [[0.0, float("nan")], [-float("inf")] * 2, []])
def test_scores_of_which_nothing_can_be_drawn_are_refused(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Sampler(Sampling(max_tokens=1)).take(np.array(scores, np.float32))
