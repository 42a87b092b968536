"""Calls for the quantiser: from the start of streams past full caches, without states, and how large scores are."""

import io
from typing import Any

import numpy as np
import pytest

from compiler.errors import Refused
from compiler.targets.ethos_u import calibration
from compiler.targets.ethos_u.calibration import record
from compiler.targets.ethos_u.masks import HIDDEN, hidden_scores
from tests.compiler.targets.ethos_u.graphs import static_stream
from tests.kit.calibration import with_streams
from tests.kit.graphs import feeds_of


def recorded(*lengths: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and limits of streams of so many chunks."""
    lowered = static_stream()
    streams = [feeds_of(lowered, length, seed=seed) for seed, length in enumerate(lengths)]
    made = record(with_streams(lowered, *streams))
    with np.load(io.BytesIO(made.content)) as file:
        return {name: file[name] for name in file.files}, made.limits


def test_streams_are_recorded_from_their_start_until_caches_have_been_full() -> None:
    arrays, limits = recorded(3, 100)
    assert arrays["starts"].tolist() == [True, False, False, True, *[False] * 7]
    assert set(arrays) == {"starts", "feed x", "feed real_length", "feed mask", "initial past", "initial context"}
    assert arrays["feed real_length"].reshape(-1).tolist()[:3] == [0, 2, 4]
    assert not arrays["initial past"].any()
    (limit,) = limits.values()
    assert limit.shown > limit.hidden + HIDDEN
    assert list(limits) == [node.name for node in hidden_scores(static_stream().model)]


def test_no_more_calls_are_recorded_than_a_quantiser_has_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "CALLS", 10)
    arrays, _ = recorded(100, 100, 100)
    assert arrays["starts"].tolist() == [True, *[False] * 7, True, False]


def test_equal_streams_give_equal_files() -> None:
    lowered = static_stream()
    stream = feeds_of(lowered, 4)
    assert record(with_streams(lowered, stream)).content == record(with_streams(lowered, stream)).content


def test_without_calibration_data_there_is_nothing_to_record() -> None:
    with pytest.raises(Refused, match=r"expected data\.calibration to measure on, got none"):
        record(static_stream())
