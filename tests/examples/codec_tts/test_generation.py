"""Which code follows from its scores, when a sentence ends, and the noise it is heard with."""

from collections.abc import Iterator

import numpy as np
import pytest

from examples.codec_tts import generation


def scores_of(code: int) -> generation.Scores:
    return np.asarray(np.arange(generation.ENTRIES + 1) == code, np.float32)


def test_a_code_is_asked_for_once_and_nothing_behind_the_end() -> None:
    asked: list[int] = []

    def following(code: int) -> generation.Scores:
        asked.append(code)
        return scores_of(generation.BOUNDARY if code == 7 else code + 1)

    assert [*generation.generate(scores_of(5), following, generation.greedy)] == [5, 6, 7]
    assert asked == [5, 6, 7]
    assert [*generation.generate(scores_of(generation.BOUNDARY), following, generation.greedy)] == []


def test_codes_are_given_as_they_come() -> None:
    asked: list[int] = []

    def following(code: int) -> generation.Scores:
        asked.append(code)
        return scores_of(1)

    codes = generation.generate(scores_of(1), following, generation.greedy)
    assert next(codes) == 1 and asked == []
    assert next(codes) == 1 and asked == [1]


def test_the_last_code_of_the_longest_sentence_is_not_asked_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "LONGEST_FRAMES", 3)
    asked: list[int] = []

    def following(code: int) -> generation.Scores:
        asked.append(code)
        return scores_of(1)

    assert len([*generation.generate(scores_of(1), following, generation.greedy)]) == 3
    assert len(asked) == 2


def test_codes_are_drawn_as_often_as_their_scores_say() -> None:
    pick = generation.sampling(2.0, 1)
    scores = np.log(np.array([1.0, 4.0, 16.0, 1e-30], np.float32))
    counts = np.bincount([pick(scores) for _ in range(7000)], minlength=4)
    np.testing.assert_allclose(counts / 7000, [1 / 7, 2 / 7, 4 / 7, 0.0], atol=0.02)


def test_a_cold_draw_is_the_likeliest() -> None:
    scores = np.random.default_rng(1).standard_normal(513).astype(np.float32)
    assert generation.sampling(1e-3, 1)(scores) == generation.greedy(scores)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperatures_that_draw_nothing_are_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="expected a temperature above 0"):
        generation.sampling(temperature, 1)


def test_longer_noise_begins_with_shorter() -> None:
    long, short = generation.noise(9, 3), generation.noise(4, 3)
    assert short.shape == (4, generation.CODE_SAMPLES) and short.dtype == np.float32
    np.testing.assert_array_equal(long[:4], short)
    assert not np.array_equal(generation.noise(4, 4), short)
    assert abs(float(long.std()) - 1.0) < 0.1


def test_codes_are_grouped_as_they_come() -> None:
    given: list[int] = []

    def codes() -> Iterator[int]:
        for code in range(32):
            given.append(code)
            yield code

    packets = generation.packets(codes())
    assert (next(packets), len(given)) == ([0, 1, 2, 3, 4], 5)
    assert [len(packet) for packet in packets] == [10, 10, 7]
    assert [*generation.packets(iter(()))] == []
