"""agreement: where two ways of speaking part, and whether it was a near tie."""

import numpy as np

from examples.codec_tts import agreement, generation


def scores(first: float, second: float, taken: int = 1) -> generation.Scores:
    """Of 513 codes: `taken` has one, the next code the other, all else lies far below."""
    found = np.full(generation.ENTRIES + 1, -9.0, np.float32)
    found[taken], found[taken + 1] = first, second
    return found


def test_codes_scores_sound_and_times_stand_beside_the_original_s() -> None:
    codes = [np.array([1, 2]), np.array([4, 5]), np.array([6])]
    sound = [np.zeros(2, np.float32)] * 3
    ours = [[scores(2.0, 1.0), scores(3.0, 1.0), scores(5.0, 1.0)], [scores(2.0, 1.5), scores(2.0, 1.75, 5)], []]
    theirs = [[each + 0.125 for each in ours[0]], [ours[1][0], scores(1.75, 2.0, 5)], []]
    original = agreement.Said(codes, ours, sound)
    other = [codes[0], np.array([4, 6]), np.array([6, 6])]
    heard = [sound[0] + np.float32(0.5), *sound[1:]]
    bundle = agreement.Said(other, theirs, heard, [0.01, 0.02, 0.04], [0.1, 0.2, 0.4])
    assert [*agreement.compared(original, bundle)] == [
        "the same codes: 1 of 3 sentences",
        "scores of 5 steps behind the same codes: at most 0.25 apart, of up to 9",
        "nearest ties of the likeliest code, lead over the next: 0.25 (sentence 1, step 1), 0.5 (sentence 1, step 0), "
        "1 (sentence 0, step 0)",
        "near ties, where scores so far apart could take another code: 2 of 5 steps",
        "sentence 1 differs from code 1 on: its code lies 0.25 below the original's likeliest",
        "sentence 2 differs from code 1 on",
        "sound of the same codes: at most 0.5 apart",
        "real-time factor 0.200 (0.100..0.400)",
        "first sound after 20.0 (10.0..40.0) ms",
    ]


def test_steps_behind_different_codes_are_not_compared() -> None:
    first, second = np.array([1, 2, 3]), np.array([1, 4, 3])
    ours = [[scores(2.0, 1.0) for _ in range(4)]]
    theirs = [[*ours[0][:2], scores(90.0, 1.0), scores(90.0, 1.0)]]
    told = list(agreement.compared(agreement.Said([first], ours), agreement.Said([second], theirs)))
    assert told[1].startswith("scores of 2 steps behind the same codes: at most 0 apart")


def test_scores_are_kept_as_they_were_when_a_code_was_taken() -> None:
    said = agreement.Said()
    pick, given = said.hearing(generation.greedy), scores(2.0, 1.0)
    assert pick(given) == 1
    given[:] = 0
    assert said.scores[0][0][1] == 2.0
