"""The inputs that tell the true lengths of every row."""

import dataclasses

import pytest

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, PaddedAxis
from compiler.proof.padding.length_inputs import frames_of_call, with_length_inputs
from compiler.proof.padding.valid_slots import ValidSlots
from tests.kit.graphs import copy_of, parse, streaming

TEXT = "(float[{rows},time,4] x) => (float[{rows},time,4] y) { y = Relu(x) }"


def added(lowered: Lowered) -> ValidSlots:
    return with_length_inputs(lowered, "pad_axes")


def padded(rows: str, batch: str | None) -> Lowered:
    axes = (PaddedAxis("time", "time_length"),)
    return Lowered("tiny", parse(TEXT.replace("{rows}", rows)), batch_axis=batch, padded_axes=axes)


@pytest.mark.parametrize(
    ("rows", "batch", "expected"), [("batch", "batch", "batch"), ("1", None, 1), ("3", None, 1), ("rows", None, 1)]
)
def test_rows_of_a_batch_have_true_lengths_and_a_call_without_it_has_one(
    rows: str, batch: str | None, expected: str | int
) -> None:
    lowered = padded(rows, batch)
    (length,) = added(lowered).lengths.values()
    assert length.value is graphs.inputs_named(lowered.model)["time_length"]
    assert [str(dim) for dim in length.value.shape or ()] == [str(expected)]


def test_a_cache_has_its_mask_where_the_recipe_names_one() -> None:
    for mask in ("mask", None):
        lowered = copy_of(streaming(mask_input=mask))
        (length,) = added(lowered).lengths.values()
        assert (length.mask is None) == (mask is None)
        assert length.mask_size == graphs.symbol("cache") + frames_of_call(lowered.caches[0])


def test_the_frames_of_a_call_may_follow_from_an_axis() -> None:
    (cache,) = streaming().caches
    assert frames_of_call(cache) == cache.step
    assert frames_of_call(dataclasses.replace(cache, added="2*chunk")) == 2 * graphs.symbol("chunk")
