"""Every kind says in which slots the frames of a stream lie, whatever calls have added."""

import numpy as np
import pytest

from runtime_lite.states import CACHES, KINDS
from runtime_lite.states.kind import StateKind


def test_kinds_are_told_apart_by_name_and_by_the_words_of_a_manifest() -> None:
    assert len({kind.name for kind in KINDS}) == len({(kind.side, kind.update) for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("slots", [1, 5, 8])
@pytest.mark.parametrize(
    "kind", [kind for kind in CACHES.values() if not kind.is_given_whole], ids=lambda kind: kind.update
)
def test_the_newest_frames_lie_in_order_behind_the_oldest(kind: StateKind, slots: int) -> None:
    random = np.random.default_rng(slots)
    for _ in range(50):
        held, frames, length = np.full(slots, -1), np.arange(0), np.zeros(1, np.int64)
        for _ in range(12):
            count = int(random.integers(0, slots + 4))
            if kind.needs_whole and len(frames) + count > slots:
                break
            given = np.append(len(frames) + np.arange(count), [-9, -9])  # padding behind
            for places, new in kind.moves(slots, int(length[0]), count):
                held[places] = given[new]
            frames, length = np.append(frames, given[:count]), kind.after(slots, length, count)
            assert 0 <= length[0] <= kind.most(slots)
            (valid,) = kind.valid(slots, length)
            assert valid == min(len(frames), slots)
            in_order = np.roll(held, -kind.oldest(slots, int(length[0])))
            assert in_order.tolist() == [*frames[len(frames) - valid :], *[-1] * (slots - valid)]
