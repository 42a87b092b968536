"""What values may hold by their places is what arrays hold, whatever is done to them entry by entry."""

import numpy as np

from compiler.proof.derivation.contents import Contents, Tables, beginning_behind, combined, moved, triangle, uniform
from compiler.proof.derivation.spans import ONE, RULES, SCORE, TRUTH, UNKNOWN, ZERO, Span

LONGEST = 6
CAUSAL = np.tril(np.ones((LONGEST, LONGEST), bool))


def of(*arrays: np.ndarray, prefixes: dict[int, int] | None = None) -> Contents:
    counts = {0: 0, 1: 0} if prefixes is None else prefixes
    tables = Tables(LONGEST, {axis: count > 0 for axis, count in counts.items()})
    assert all(tables.add(array, counts) for array in arrays)
    found = tables.contents()
    assert found is not None
    return found


def at(contents: Contents, *place: int) -> Span:
    return contents.spans[int(contents.which[place])]


def test_arrays_of_several_sizes_are_seen_together() -> None:
    found = of(CAUSAL, np.tril(CAUSAL, -1))
    assert (at(found, 2, 1), at(found, 2, 2), at(found, 2, 3)) == (ONE, TRUTH, ZERO)


def test_numbers_are_told_apart_where_it_matters() -> None:
    found = of(np.where(CAUSAL, 0.0, np.where(np.eye(LONGEST, k=1) > 0, -np.inf, -1e9)))
    assert (at(found, 1, 1), at(found, 1, 2)) == (ZERO, Span(-np.inf, -np.inf))
    assert at(found, 1, 3) == Span(-1e9, -1e9)
    assert at(of(np.where(CAUSAL, np.nan, 3.0)), 1, 0) == UNKNOWN


def test_other_axes_and_sizes_are_none() -> None:
    assert not Tables(LONGEST, {0: False, 1: False}).add(CAUSAL[:3], {0: 0, 1: 0})
    assert Tables(LONGEST, {0: False}).contents() is None


def test_heads_are_seen_together() -> None:
    heads = np.stack([CAUSAL, ~CAUSAL])
    found = of(heads, prefixes={1: 0, 2: 0})
    assert found.which.shape == (1, 1, 1)
    assert found.spans == (TRUTH,)


def test_a_prefix_is_one_entry_and_its_own_places() -> None:
    text = np.eye(2 + LONGEST, dtype=bool)
    text[2:, :2] = True
    found = of(text, prefixes={0: 2, 1: 2})
    assert (at(found, 0, 0), at(found, 0, 1), at(found, 1, 0), at(found, 1, 1)) == (ONE, ZERO, ONE, ONE)
    assert beginning_behind(found, 0).which.shape == (LONGEST, LONGEST + 1)


def test_entries_meet_entry_by_entry() -> None:
    future, row = of(~CAUSAL), uniform(TRUTH, 1)
    hidden = combined(RULES["Or"], [future, row], 2)
    assert (at(hidden, 0, 1), at(hidden, 1, 0)) == (ONE, TRUTH)
    scores = combined(RULES["Where"], [hidden, uniform(Span(-1e9, -1e9), 0), uniform(SCORE, 2)], 2)
    assert at(scores, 0, 1) == Span(-1e9, -1e9)
    assert at(scores, 1, 0) == Span(-1e9, 0.0, is_scored=True)
    assert scores.which is hidden.which


def test_two_that_change_meet_where_they_do() -> None:
    band = combined(RULES["And"], [of(CAUSAL), of(np.triu(np.ones((LONGEST, LONGEST), bool), -1))], 2)
    assert np.array_equal(band.where(span == ONE for span in band.spans), CAUSAL & ~np.tril(CAUSAL, -2))


def test_axes_are_moved_and_lost() -> None:
    causal = of(CAUSAL)
    turned = moved(causal, {3: 0, 1: 1}, 4)
    assert turned.which.shape == (1, LONGEST, 1, LONGEST)
    assert np.array_equal(turned.where(span == ONE for span in turned.spans)[0, :, 0], CAUSAL.T)
    assert moved(causal, {0: 1}, 1).spans == (UNKNOWN,)


def test_a_triangle_keeps_its_part() -> None:
    kept = triangle(LONGEST, 3, 1, upper=False)
    assert np.array_equal(kept.where(span == ONE for span in kept.spans)[0], np.tril(np.ones((LONGEST, LONGEST)), 1))
