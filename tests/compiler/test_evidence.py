"""Calibration data serve no gate, and the task's distance is that of the recipe's own functions."""

import numpy as np
import pytest

from compiler.errors import DataError
from compiler.evidence import check_disjoint
from compiler.stages import Feed


def stream(*seeds: int) -> list[Feed]:
    return [{"x": np.random.default_rng(seed).random((1, 4), np.float32)} for seed in seeds]


def test_streams_of_their_own_are_fine() -> None:
    check_disjoint([stream(0, 1), stream(2)], [stream(3, 4)], "here", "the data")


def test_a_feed_in_both_is_refused_with_both_places() -> None:
    with pytest.raises(DataError, match="feed 1 of stream 0 again as feed 0 of stream 1 of the data"):
        check_disjoint([stream(0, 1), stream(2)], [stream(3), stream(1, 5)], "here", "the data")


def test_silence_may_be_in_both() -> None:
    silence: list[Feed] = [{"x": np.full((1, 4), -15.9, np.float32)}]
    check_disjoint([silence], [silence], "here", "the data")
