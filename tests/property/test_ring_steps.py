"""The short form of the fuzzer of rings, and that it notices what it is there for."""

import numpy as np
import pytest

from compiler.states.appending import order
from runtime_lite.states.ring import Ring
from tests.property.ring_steps import compare, drawn, outcome_of, rings_of, windows_of

SEEDS = range(3)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(100), marks=pytest.mark.slow)], ids=["few", "many"])
def test_rings_answer_as_windows_do(seeds: range) -> None:
    found = [outcome_of(seed) for seed in seeds]
    assert [each for each in found if each.startswith("unsound")] == []
    assert "ring" in found


def test_a_bias_by_slots_that_is_let_through_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = next(seed for seed in range(2, 60, 3) if "differs from slot to slot" in outcome_of(seed))
    through = order.write_apart
    monkeypatch.setattr("compiler.passes.append_states.write_apart", lambda *given: through(*given[:5]))
    assert outcome_of(refused).startswith("unsound")


def test_a_slot_that_is_written_beside_its_place_is_seen_by_those_who_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = drawn(0)
    window = windows_of(graph)
    ring = rings_of(window, is_packed=False)
    moves = Ring.moves
    monkeypatch.setattr(Ring, "moves", lambda self, slots, length, added: moves(self, slots, length + 1, added))
    with pytest.raises(Exception, match="served"):
        compare(graph, window, ring, np.random.default_rng(0), is_served=True)
