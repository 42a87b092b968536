"""Random step graphs answer as their author's loop; planted weaknesses are noticed, and refusals are no errors."""

from collections.abc import Sequence

import numpy as np
import pytest

from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Array
from tests.property import streams
from tests.property.planted_streams import noticed
from tests.property.stream_graphs import ALL, WITH_STATES, begin, feeds_of, grow
from tests.property.streams import Outcome, counted, outcomes, try_graph

FEW = range(4)

QUICKLY_NOTICED = {
    "the newest frames end one slot later": 0,
    "a call adds none": 0,
    "the last entries are those of the slots": 20,
    "a recurrence runs over its padding": 3,
    "means are those of the slots": 4,
    "a state may hold any number of frames": 164,
    "a state may be as long as the chunk": 35,
    "any first call is the later one": 19,
}
"""A graph that notices the weakness, by its seed; `python -m tests.property.planted_streams` tries all of them."""


def test_random_streams_are_their_authors() -> None:
    found = dict(outcomes(FEW))
    assert set(counted(found)) <= {"accepted", "refused"}, found
    assert counted(found)["accepted"] >= 2


def test_random_encoders_are_their_authors() -> None:
    found = dict(outcomes((18, 38)))
    assert counted(found) == {"accepted": 2}, found


def off_by_a_hundredth(opened: streams.Open) -> streams.Open:
    """What opens models whose first output is wrong."""

    class Off:
        def __init__(self, session: Session) -> None:
            self.session = session

        def run(self, names: Sequence[str] | None, feeds: dict[str, Array]) -> list[Array]:
            first, *others = self.session.run(names, feeds)
            return [first * np.float32(1.01), *others]

    return lambda model: Off(opened(model))


def test_a_difference_that_double_precision_does_not_have_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 18
    monkeypatch.setattr(streams, "session_of", off_by_a_hundredth(session_of))
    assert try_graph(seed).kind == "ill-conditioned"
    monkeypatch.setattr(streams, "InDouble", lambda model: None)  # double precision cannot tell
    assert try_graph(seed).kind == "unsound"


def test_a_graph_that_hangs_is_told_by_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(seed: int) -> Outcome:
        while True:
            seed += 1

    monkeypatch.setattr(streams, "LIMIT_S", 0.05)
    monkeypatch.setattr(streams, "try_graph", endless)
    [(seed, outcome)] = outcomes([7])
    assert (seed, outcome.kind) == (7, "hang") and "in endless of" in outcome.told


@pytest.mark.parametrize("weakness", QUICKLY_NOTICED)
def test_planted_weaknesses_are_noticed(weakness: str) -> None:
    seed = QUICKLY_NOTICED[weakness]
    found = noticed(weakness, range(seed, seed + 1))
    assert found is not None
    assert found[1].kind in ("unsound", "disagreement")


@pytest.mark.parametrize("seed", [35, 164], ids=["a whole chunk", "a cache of which a frame is lost"])
def test_a_state_of_another_number_of_frames_is_refused(seed: int) -> None:
    assert try_graph(seed).kind == "refused"


def test_seeds_draw_every_layer_every_form_and_both_kinds_of_chunks() -> None:
    drawn = [begin(seed) for seed in range(400)]
    assert {name for _, names in drawn for name in names} == set(ALL)
    assert {grower.is_ragged for grower, _ in drawn} == {True, False}
    assert {grower.form for grower, _ in drawn} == {"front", "anywhere", "one row"}
    assert {grower.kind for grower, _ in drawn} == {"buckets", "fixed", "number"}
    assert {grower.rows for grower, _ in drawn if grower.kind != "buckets"} == {1, 3}
    assert all(set(names) & set(WITH_STATES) for _, names in drawn)


def test_a_seed_draws_the_same_again() -> None:
    one, other = grow(5), grow(5)
    assert one.spec == other.spec
    assert [str(node.op_type) for node in one.model.graph] == [str(node.op_type) for node in other.model.graph]
    assert len(feeds_of(one, np.random.default_rng(0), 6)) == 6
