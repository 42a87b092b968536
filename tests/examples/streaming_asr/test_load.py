"""Recordings become chunks of live streams, with the period that the chunks have."""

from pathlib import Path

import pytest

from examples.streaming_asr import load
from examples.streaming_asr.features import BINS, CALL_FRAMES
from runtime_lite.format.arrays import arrays_from_file


def test_recordings_are_handed_over_as_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def keep(arguments: list[str]) -> int:
        given.append(arguments)
        (features,) = arrays_from_file(Path(arguments[arguments.index("--stream-feeds") + 1])).values()
        assert features.shape[1:] == (1, CALL_FRAMES, BINS)
        assert len(features) > 10
        return 0

    monkeypatch.setattr("runtime_lite.__main__.main", keep)
    monkeypatch.setattr("sys.argv", ["load", "dist/recogniser", "--streams", "3"])
    assert load.main() == 0
    assert given[0][:2] == ["load", "dist/recogniser"]
    assert given[0][given[0].index("--period-ms") + 1] == "640.0"
    assert given[0][-2:] == ["--streams", "3"]
