"""What the exporter finds inconsistent is said of the model: a table that is too short, frames that come in groups."""

import pytest

from compiler.build.capture.inconsistent_sizes import inconsistent_sizes
from compiler.recipe.graph_parts import Axis

SHAPES = {"weight": (4, 4), "positions": (1, 50, 4)}
AXES = {"batch": Axis(buckets=(1, 4)), "time": Axis(buckets=(32, 64), length_input="n")}


@pytest.mark.parametrize("told", ["Eq(s40, Min(50, s40)) is inconsistent!", "Eq(Min(50, s1), s1) is inconsistent!"])
def test_the_table_and_the_bucket_are_named(told: str) -> None:
    error = RuntimeError("export failed")
    error.__cause__ = ValueError(f"The following inconsistencies were found: {told}")
    refused = inconsistent_sizes(error, SHAPES, AXES)
    assert refused is not None
    assert str(refused) == (
        "expected a table of at least 64 entries for the buckets of time, got one of 50 (positions [1, 50, 4]); give "
        "the model a larger table, or build no bucket of time beyond 50"
    )


@pytest.mark.parametrize("told", ["Eq(s40, Min(70, s40))", "Eq(s40, Min(50, s41))", "another error"])
def test_other_errors_are_left_alone(told: str) -> None:
    assert inconsistent_sizes(ValueError(told), SHAPES, AXES) is None


def test_groups_of_frames_are_named() -> None:
    told = "The following inconsistencies were found:\n  Eq(s28*s40, 2*s28*((s40//2))) is inconsistent!"
    refused = inconsistent_sizes(ValueError(told), {}, AXES)
    assert refused is not None
    assert refused.message == (
        "expected a model that takes any length along time, got one that takes multiples of 2, as it joins "
        "neighbouring frames to groups of 2"
    )
    assert inconsistent_sizes(ValueError(told), {}, {"batch": Axis(buckets=(1, 4))}) is None
