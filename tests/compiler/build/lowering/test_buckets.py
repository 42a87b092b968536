"""Buckets beyond what was proved are refused by name."""

import dataclasses

import pytest

from compiler.build.lowering.buckets import check_buckets
from compiler.errors import Refused
from compiler.graph.stages import Lowered, PaddedAxis
from tests.kit.graphs import BATCH, parse


def lowered(**known: object) -> Lowered:
    model = parse("(float[batch,time] x) => (float[batch,time] y) { y = Relu(x) }")
    axis = PaddedAxis("time", "time_length", minimum=4, maximum=32)
    made = Lowered("net", model, batch_axis=BATCH, padded_axes=(axis,), rows_independent=True)
    return dataclasses.replace(made, **known)  # type: ignore[arg-type]


def test_buckets_within_the_proof() -> None:
    check_buckets(lowered(), {"time": (4, 32), BATCH: (1, 4)})


@pytest.mark.parametrize(("slots", "limit"), [(3, "at least 4"), (33, "at most 32")])
def test_lengths_beyond_the_proof(slots: int, limit: str) -> None:
    with pytest.raises(Refused, match=f"expected buckets of time of {limit}, .* got {slots}; drop the bucket"):
        check_buckets(lowered(), {"time": (8, slots), BATCH: (1,)})


def test_several_rows_need_a_proof() -> None:
    alone = lowered(rows_independent=False)
    check_buckets(alone, {"time": (8,), BATCH: (1,)})
    with pytest.raises(Refused, match="expected a proof that rows are independent for buckets of 4 rows"):
        check_buckets(alone, {"time": (8,), BATCH: (1, 4)})


def test_what_limits_a_length_is_named() -> None:
    axis = PaddedAxis("time", "time_length", maximum=32, limited_by="Slice rows takes time entries of 32")
    with pytest.raises(
        Refused, match=r"at most 32, .* got 64: Slice rows takes time entries of 32; drop the bucket, or"
    ):
        check_buckets(lowered(padded_axes=(axis,)), {"time": (64,), BATCH: (1,)})
