"""What leaves a padded graph is what callers and states take it for."""

import pytest

from compiler.analysis.layout import Side
from compiler.analysis.lengths import infer_settled
from compiler.analysis.propagate import Axes, input_facts, propagate
from compiler.errors import Refused
from compiler.padding.outputs import check_empty, check_outputs
from compiler.stages import Lowered, PaddedAxis
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


def test_a_stream_begins_without_cached_frames() -> None:
    (cache,) = streaming().caches
    check_empty(0, cache)
    with pytest.raises(Refused, match="at least 1 cached frames"):
        check_empty(1, cache)
