"""stages: records between passes, and the newest frames of a window."""

import dataclasses

import numpy as np
import pytest

from compiler.errors import Location
from compiler.graph.stages import Refusal, RowAxis, State, newest, right_aligned

FRAMES = np.arange(10).reshape(1, 5, 2)


@pytest.mark.parametrize(
    ("frames", "kept"), [(0, []), (1, [8]), (3, [4, 6, 8]), (5, [0, 2, 4, 6, 8]), (9, [0, 2, 4, 6, 8])]
)
def test_the_newest_frames_are_the_last(frames: int, kept: list[int]) -> None:
    assert newest(FRAMES, 1, frames)[0, :, 0].tolist() == kept


@pytest.mark.parametrize(("frames", "kept"), [(3, [4, 6, 8]), (5, [0, 2, 4, 6, 8]), (7, [0, 0, 0, 2, 4, 6, 8])])
def test_short_windows_have_zeros_in_front(frames: int, kept: list[int]) -> None:
    assert right_aligned(FRAMES, 1, frames)[0, :, 0].tolist() == kept


@pytest.mark.parametrize(
    ("axis", "shape", "axes"),
    [(None, (5, 2), [0, 1]), (0, (1, 5, 2), [1, 2]), (1, (5, 1, 2), [0, 2]), (2, (5, 2, 1), [0, 1])],
)
def test_one_row_lies_where_the_graph_has_it(axis: int | None, shape: tuple[int, ...], axes: list[int]) -> None:
    place = RowAxis("x", axis)
    assert place.to_graph(FRAMES).shape == shape
    assert place.to_caller(place.to_graph(FRAMES)).tolist() == FRAMES.tolist()
    assert [place.axis_of(behind) for behind in (1, 2)] == axes


def test_an_empty_cache_is_all_padding() -> None:
    assert right_aligned(FRAMES[:, :0], 1, 3).tolist() == np.zeros((1, 3, 2)).tolist()


def test_a_refusal_reads_with_its_place() -> None:
    assert str(Refusal("too odd", Location(node="n", op="Relu"))) == "too odd (node n, op Relu)"
    assert str(Refusal("too odd")) == "too odd"


def test_records_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        State("a", "b", None).input = "c"  # type: ignore[misc]
