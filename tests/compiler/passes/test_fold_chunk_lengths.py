"""fold_chunk_lengths: fixed cuts where every chunk has one length."""

import dataclasses

import numpy as np
import pytest

from compiler.graph import model as graphs
from compiler.graph.runners.session import session_of
from compiler.graph.runners.stream import Runner, poisoned
from compiler.graph.stages import Array, Lowered
from compiler.passes import make_pass
from compiler.passes.fold_chunk_lengths import FoldChunkLengths
from compiler.passes.freeze_axes import FreezeAxes
from compiler.recipe.tree.standard_passes import STANDARD_PASSES
from tests.kit.attention import attention, feeds
from tests.kit.contract import content_of
from tests.kit.derived import in_chunks, steps_of
from tests.kit.graphs import copy_of, ops_of, parse

SLOTS = 6


def named(*left_out: str) -> Lowered:
    """The steps of an attention, lowered."""
    lowered = steps_of(attention(), SLOTS)
    for name in STANDARD_PASSES:
        if name not in left_out:
            lowered = make_pass(name, {}).apply(lowered).lowered
    return lowered


def frozen(frames: int, *left_out: str) -> Lowered:
    """Return the same with `frames` frames per call."""
    return FreezeAxes((("time", frames),)).apply(named(*left_out)).lowered


def answers(lowered: Lowered, record: Lowered, poison: float) -> list[dict[str, Array]]:
    """All outputs of calls of one frame, until the window is full; what lies in free slots is poison.

    Args:
        lowered: for one frame per call.
        record: the same with axes by name.
        poison: in free slots.
    """
    session = session_of(lowered.model)
    runner = Runner(record, session, buckets=[{"time": 1}])
    found = []
    for feed in in_chunks(feeds(1, SLOTS)[0], (1,) * SLOTS):
        full = poisoned(record, runner.full_feed(feed), np.ones(1, np.bool_), [poison])
        names = list(graphs.outputs_named(lowered.model))
        found.append(dict(zip(names, session.run(names, full), strict=True)))
        runner.step(feed)
    return found


@pytest.mark.parametrize("left_out", [(), ("pack_states",)])
def test_a_step_of_one_frame_gives_the_same_bits_and_looks_no_frame_up(left_out: tuple[str, ...]) -> None:
    record, before = named(*left_out), frozen(1, *left_out)
    after = FoldChunkLengths((("time", 1),)).apply(copy_of(before)).lowered
    assert "GatherND" in ops_of(before.model) and "GatherND" not in ops_of(after.model)
    right = answers(before, record, 0.0)
    for poison in (0.0, np.nan, np.inf):
        for one, other in zip(right, answers(after, record, poison), strict=True):
            for name, array in one.items():
                np.testing.assert_array_equal(other[name], array)


def test_a_cache_is_moved_three_times_and_cleaned_once() -> None:
    after = FoldChunkLengths((("time", 1),)).apply(frozen(1, "pack_states")).lowered
    sizes = [graphs.dims_of(node.outputs[0]) or () for node in after.model.graph]
    whole = [dims for dims in sizes if len(dims) == 4 and (SLOTS in dims or SLOTS + 1 in dims) and 4 in dims[2:]]
    assert len(whole) == 2 * 3
    again = FoldChunkLengths((("time", 1),)).apply(copy_of(after))
    assert again.rewritten == 0 and content_of(again.lowered) == content_of(after)


def test_chunks_that_may_be_shorter_stay_as_they_are() -> None:
    before = frozen(2)
    outcome = FoldChunkLengths((("time", 2),)).apply(copy_of(before))
    assert outcome.rewritten == 0 and content_of(outcome.lowered) == content_of(before)


def test_places_that_follow_the_length_of_the_cache_are_looked_up() -> None:
    """Slots counted from the oldest valid frame on: no fixed cut, though the chunk has one length."""
    before = frozen(1, "pack_states")
    for node in [node for node in before.model.graph if node.op_type == "GatherND"]:
        places, length = node.inputs[1], graphs.inputs_named(before.model)["past_length"]
        assert places is not None
        insert = graphs.Inserter(before.model, "test", before=node)
        one = insert.op("Min", [length, insert.int64s(1)], name="one")
        shift = insert.op("Reshape", [one, insert.int64s(-1, 1, 1)], name="shift")
        node.replace_input_with(1, insert.op("Sub", [places, shift], name="moved"))
    after = FoldChunkLengths((("time", 1),)).apply(copy_of(before)).lowered
    assert ops_of(after.model).count("GatherND") == 2


def test_a_selection_that_writes_one_zero_more_than_there_are_stays() -> None:
    model = parse(
        """(float[1,4] cache, int64[1] past_length, int64[1] time_length) => (float[1,3] y)
        <int64[1,4] slots = {0, 1, 2, 3}, int64[1,3] later = {0, 1, 2}, int64 all = {4}, float zero = {0},
         int64[1] one = {1}, int64[1] end = {4}> {
            first = Sub(all, past_length)  valid = GreaterOrEqual(slots, first)  clean = Where(valid, cache, zero)
            cut = Slice(clean, one, end, one)  fewer = GreaterOrEqual(later, first)  y = Where(fewer, cut, zero)
        }"""
    )
    record = steps_of(attention(), 4)
    lowered = dataclasses.replace(record, model=model)
    assert FoldChunkLengths((("time", 1),)).apply(lowered).rewritten == 0
