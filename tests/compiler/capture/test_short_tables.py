"""A table with fewer entries than a bucket is named, with its length, the bucket and the cure."""

import pytest

from compiler.capture.short_tables import short_table
from compiler.recipe.graph_parts import Axis

SHAPES = {"weight": (4, 4), "positions": (1, 50, 4)}
AXES = {"batch": Axis(buckets=(1, 4)), "time": Axis(buckets=(32, 64), length_input="n")}


@pytest.mark.parametrize("told", ["Eq(s40, Min(50, s40)) is inconsistent!", "Eq(Min(50, s1), s1) is inconsistent!"])
def test_the_table_and_the_bucket_are_named(told: str) -> None:
    error = RuntimeError("export failed")
    error.__cause__ = ValueError(f"The following inconsistencies were found: {told}")
    refused = short_table(error, SHAPES, AXES)
    assert refused is not None
    assert str(refused) == (
        "expected a table of at least 64 entries for the buckets of time, got one of 50 (positions [1, 50, 4]); give "
        "the model a larger table, or build no bucket of time beyond 50"
    )


@pytest.mark.parametrize("told", ["Eq(s40, Min(70, s40))", "Eq(s40, Min(50, s41))", "another error"])
def test_other_errors_are_left_alone(told: str) -> None:
    assert short_table(ValueError(told), SHAPES, AXES) is None
