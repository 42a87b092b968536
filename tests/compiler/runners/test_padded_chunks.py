"""Chunks of any length are padded, run and cut; rows of one feed may differ in length and age."""

import numpy as np

from compiler.runners.callers_view import caller_dims
from compiler.runners.choose import runner_of
from compiler.runners.padded_chunks import PaddedChunks, SessionOfBuckets, rows_of, side_by_side
from compiler.runners.session import Session, session_of
from compiler.runners.stream import Runner
from tests.kit.short_chunks import SLOTS, captured, chunk, frozen, padded

LENGTHS = (4, 1, 3, 2, 4, 4, 1)


def test_a_chunk_is_padded_to_its_bucket_with_its_length() -> None:
    chunks = PaddedChunks(padded(), caller_dims(padded()), 1, [{"chunk": 2}, {"chunk": 4}], fill=7.0)
    for length, slots in ((1, 2), (2, 2), (3, 4)):
        full = chunks.padded(chunk(length, 0))
        assert full["features"].shape == (1, slots, 4)
        assert (full["features"][0, length:] == 7.0).all()
        assert full["chunk_length"].tolist() == [length]
        assert chunks.added(chunk(length, 0))["cache"] == [length]


def test_nothing_is_padded_before_the_graph_is() -> None:
    chunks = PaddedChunks(captured(), caller_dims(captured()), 1)
    assert chunks.padded(chunk(3, 0))["features"].shape == (1, 3, 4)


def test_outputs_and_states_are_those_of_the_graph_before_padding() -> None:
    original, runner = runner_of(captured()), runner_of(padded())
    for seed, length in enumerate(LENGTHS):
        expected, got = original.step(chunk(length, seed)), runner.step(chunk(length, seed))
        assert got["logits"].shape == (1, length, 4)
        np.testing.assert_allclose(got["logits"], expected["logits"], rtol=1e-5, atol=1e-5)
        kept = original.states["keys"]
        np.testing.assert_allclose(runner.states["keys"][:, SLOTS - kept.shape[1] :], kept, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(runner.states["context"], original.states["context"], rtol=1e-5, atol=1e-5)
    assert runner.lengths["cache"].tolist() == [SLOTS]


def test_rows_of_one_feed_have_chunks_and_ages_of_their_own() -> None:
    lowered = padded()
    together = Runner(lowered, session_of(lowered.model), 2)
    alone = [runner_of(lowered) for _ in range(2)]
    for call, lengths in enumerate([(4, 1), (2, 4), (3, 3), (1, 4)]):
        rows = [chunk(length, 10 * call + row) for row, length in enumerate(lengths)]
        outputs = together.step(side_by_side(lowered, rows, fill=1e30))
        expected = [runner.step(row) for runner, row in zip(alone, rows, strict=True)]
        for got, each in zip(
            rows_of(outputs["logits"], [each["logits"] for each in expected], has_rows=True), expected, strict=True
        ):
            np.testing.assert_allclose(got, each["logits"], rtol=1e-5, atol=1e-5)
    assert together.lengths["cache"].tolist() == [SLOTS, SLOTS]


def test_rows_of_equal_length_are_a_feed_without_lengths() -> None:
    assert set(side_by_side(padded(), [chunk(2, 0), chunk(2, 1)])) == {"features"}
    assert set(side_by_side(padded(), [chunk(2, 0), chunk(1, 1)])) == {"features", "chunk_length"}


def test_each_chunk_runs_in_the_smallest_graph_that_holds_it() -> None:
    lowered = padded()
    sessions: dict[tuple[int, ...], Session] = {(slots,): session_of(frozen(lowered, 1, slots)) for slots in (2, 4)}
    buckets = SessionOfBuckets(sessions, caller_dims(lowered), ["chunk"])
    runner = Runner(lowered, buckets, buckets=[{"chunk": 2}, {"chunk": 4}])
    original = runner_of(captured())
    for seed, length in enumerate(LENGTHS):
        np.testing.assert_allclose(
            runner.step(chunk(length, seed))["logits"],
            original.step(chunk(length, seed))["logits"],
            rtol=1e-5,
            atol=1e-5,
        )
