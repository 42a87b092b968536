"""Chunks of any length are padded, run and cut; rows of one feed may differ in length and age."""

import numpy as np

from compiler.graph import model as graphs
from compiler.graph.runners.callers_view import caller_dims
from compiler.graph.runners.choose import runner_of
from compiler.graph.runners.padded_chunks import PaddedChunks, SessionOfBuckets, rows_of, side_by_side
from compiler.graph.runners.session import Session, session_of
from compiler.graph.runners.stream import Runner
from compiler.graph.stages import Lowered, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from compiler.passes.remove_mask_inputs import RemoveMaskInputs
from compiler.passes.window_states import WindowStates
from compiler.states.kept_frames import keep_newest
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse
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


def test_frames_that_lie_row_by_row_in_one_axis_are_those_of_a_row() -> None:
    dims = {"merged": (graphs.symbol("batch") * graphs.symbol("chunk"), 4)}
    chunks = PaddedChunks(padded(), dims, 1)
    assert chunks.valid("merged", np.zeros((4, 4)), {"chunk": 3}) == (slice(3), slice(None))


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


MASKED = """
(float[batch,chunk,4] features, float[batch,chunk] mask, bool[batch,chunk] hidden, int32[batch] seen,
    float[batch,cache,4] keys)
    => (float[batch,chunk,4] logits, float[batch,all,4] next_keys)
<int64[1] last = {-1}, int64[1] one = {1}, int64 zero = {0}, int64 step = {1}, int64[1] front = {0}, float none = {0.0}>
{
    wide = Unsqueeze(mask, last)
    masked = Mul(features, wide)
    padding = Unsqueeze(hidden, last)
    heard = Where(padding, none, masked)
    size = Shape<start = 1, end = 2>(features)
    length = Squeeze(size, front)
    places = Range(zero, length, step)
    counted = Cast<to = 7>(seen)
    each = Unsqueeze(counted, one)
    valid = Less(places, each)
    kept = Cast<to = 1>(valid)
    wider = Unsqueeze(kept, last)
    frames = Mul(heard, wider)
    next_keys = Concat<axis = 1>(keys, frames)
    turned = Transpose<perm = [0, 2, 1]>(next_keys)
    scores = MatMul(frames, turned)
    weights = Softmax<axis = -1>(scores)
    logits = MatMul(weights, next_keys)
}
"""


def masked() -> Lowered:
    model = parse(MASKED)
    keep_newest(model, SLOTS, {"next_keys": 1})
    return Lowered(
        "net",
        model,
        states=(State("keys", "next_keys", 1, "cache"),),
        caches=(CacheAxis("cache", SLOTS, 1, "real_length", None, added="chunk"),),
        batch_axis="batch",
        data_outputs=("logits",),
        padded_axes=(PaddedAxis("chunk", "seen", ("mask",), ("hidden",), ("seen",)),),
    )


def test_masks_and_lengths_that_the_model_takes_of_its_chunk_are_made_and_leave_the_graph() -> None:
    full = PaddedChunks(masked(), caller_dims(masked()), 1).padded(chunk(3, 0))
    assert (full["mask"].tolist(), full["seen"].tolist(), str(full["seen"].dtype)) == ([[1, 1, 1]], [3], "int32")
    assert (full["hidden"].tolist(), str(full["hidden"].dtype)) == ([[False] * 3], "bool")
    lowered = RemoveMaskInputs().apply(masked()).lowered
    assert set(graphs.inputs_named(lowered.model)) == {"features", "keys"}
    original, runner = runner_of(masked()), runner_of(WindowStates().apply(PadAxes().apply(lowered).lowered).lowered)
    for seed, length in enumerate(LENGTHS):
        expected, got = original.step(chunk(length, seed)), runner.step(chunk(length, seed))
        np.testing.assert_allclose(got["logits"], expected["logits"], rtol=1e-5, atol=1e-5)
