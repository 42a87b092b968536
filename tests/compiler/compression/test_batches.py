"""batches: whole sequences side by side."""

import numpy as np

from compiler.compression.batches import Batches, joined

ALONG = {"codes": 1}


def feed(letters: int, frames: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {"text": random.integers(9, size=(1, letters)), "codes": random.integers(9, size=(1, frames))}


def test_calls_of_a_stream_are_joined_along_time() -> None:
    text = np.array([[1, 2]])
    stream = [{"text": text, "codes": np.array([each])} for each in ([1, 2, 3], [4], [5, 6])]
    found = joined(stream, ALONG)
    assert found["codes"].tolist() == [[1, 2, 3, 4, 5, 6]] and found["text"].tolist() == [[1, 2]]


def test_rows_are_alike_but_for_their_frames_and_filled_up_with_the_last() -> None:
    sequences = [feed(4, 6), feed(5, 3), feed(4, 2, seed=1)]
    drawn = Batches(sequences, ALONG, rows=8).draw(np.random.default_rng(0))
    assert drawn.feed["text"].shape in ((2, 4), (1, 5))
    both = Batches(sequences, ALONG, rows=8).of([0, 2])
    assert both.lengths.tolist() == [6, 2] and both.feed["codes"].shape == (2, 6)
    assert both.feed["codes"][1].tolist() == [*sequences[2]["codes"][0].tolist(), *[sequences[2]["codes"][0, -1]] * 4]


def test_every_sequence_is_judged_once() -> None:
    sequences = [feed(letters, frames) for letters in (4, 5) for frames in (2, 3, 4)]
    batches = Batches(sequences, ALONG, rows=2).every()
    assert sum(len(each.lengths) for each in batches) == 6 and all(len(each.lengths) <= 2 for each in batches)


def test_models_without_time_are_given_equal_rows() -> None:
    found = Batches([feed(4, 6), feed(4, 6, seed=1), feed(4, 7)], {}, rows=8)
    assert sorted(len(each.lengths) for each in found.every()) == [1, 2]
    assert not any(each.lengths.any() for each in found.every())


def test_equal_seeds_draw_equal_batches() -> None:
    sequences = [feed(4, frames, seed=frames) for frames in range(2, 9)]
    first, again = (Batches(sequences, ALONG, rows=3).draw(np.random.default_rng((1, 5))) for _ in range(2))
    np.testing.assert_array_equal(first.feed["codes"], again.feed["codes"])
