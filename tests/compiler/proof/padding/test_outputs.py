"""What leaves a padded graph is what callers and states take it for."""

import pytest

from compiler.errors import Refused
from compiler.graph.stages import Lowered, PaddedAxis, State
from compiler.passes.pad_axes import PadAxes
from compiler.proof.facts.layout import Side
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.padding.outputs import check_empty, check_outputs
from compiler.proof.propagation.propagate import Axes, input_facts, propagate
from runtime_lite.format.cache_axis import CacheAxis
from tests.kit.graphs import parse, streaming

ACCEPTED = ("y = Relu(x)", "y = ReduceMax<keepdims = 0>(x, last)")
REFUSED = {
    "y = Transpose<perm = [1, 0, 2]>(x)": "the batch 'batch' is not the first axis of the output",
    "y = Concat<axis = 1>(x, x)": "of the output is",
    "n = Shape<start = 1, end = 2>(x)  y = Cast<to = 1>(n)": "an axis length that all rows share",
}


def checked(body: str) -> None:
    text = f"(float[batch,time,4] x) => (float[a] y) <int64[1] last = {{2}}> {{ {body} }}"
    lowered = Lowered("tiny", parse(text), batch_axis="batch", padded_axes=(PaddedAxis("time", "time_length"),))
    axes = Axes("batch", {"time": Side.LEFT})
    infer_settled(lowered.model, axes.behind)
    check_outputs(propagate(lowered.model, axes, input_facts(lowered.model, axes)), lowered)


@pytest.mark.parametrize("body", ACCEPTED)
def test_what_callers_can_cut_leaves(body: str) -> None:
    checked(body)


@pytest.mark.parametrize("body", REFUSED)
def test_what_callers_cannot_cut_is_refused(body: str) -> None:
    with pytest.raises(Refused, match=REFUSED[body]):
        checked(body)


CHUNK = (PaddedAxis("chunk", "chunk_length"),)

RESIZED = {
    "is fed with an axis 1": ("batch,chunk,4", None, "next_past = Slice(past, zero, six, one)"),
    "comes back with an axis 1": ("batch,6,4", None, "next_past = Mul(x, x)"),
    "comes back with an axis 2": (
        "batch,cache,4",
        CacheAxis("cache", 6, 6, "real_length", None),
        "turned = Transpose<perm = [0, 2, 1]>(x)  next_past = MatMul(weights, turned)",
    ),
}


@pytest.mark.parametrize("words", RESIZED)
def test_a_state_of_as_many_entries_as_the_chunk_is_refused(words: str) -> None:
    """The next chunk may be longer, and what lies behind the frames of a shorter one is anything."""
    shape, cache, body = RESIZED[words]
    numbers = ", ".join(["1"] * 24)
    text = f"""(float[batch,chunk,4] x, float[{shape}] past) => (float[batch,chunk,4] y, float[a,b,c] next_past)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] six = {{6}}, float[6,4] weights = {{{numbers}}}>
        {{ high = ReduceMax<keepdims = 1>(past, one)  y = Add(x, high)  {body} }}"""
    model = parse(text)
    states = (State("past", "next_past", *((None, None) if cache is None else (1, "cache"))),)
    caches = () if cache is None else (cache,)
    lowered = Lowered("tiny", model, None, states, caches, "batch", padded_axes=CHUNK)
    with pytest.raises(Refused, match=f"state 'past' {words} of .*chunk.* the next call may be of another length"):
        PadAxes().apply(lowered)


def test_a_stream_begins_without_cached_frames() -> None:
    (cache,) = streaming().caches
    check_empty(0, cache)
    with pytest.raises(Refused, match="at least 1 cached frames"):
        check_empty(1, cache)
