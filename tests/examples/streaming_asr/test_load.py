"""Recordings become chunks of live streams, with the period that the chunks have."""

from pathlib import Path

import pytest

from examples.streaming_asr import load
from examples.streaming_asr.features import BINS, CALL_FRAMES
from runtime_lite.format.arrays import arrays_from_file
from tests.runtime_lite.bundles import write_ragged_bundle


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


def test_whole_recordings_of_many_lengths_come_beside_the_streams(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lengths: list[int] = []

    def keep(arguments: list[str]) -> int:
        for at, word in enumerate(arguments):
            if word == "--utterance-feeds":
                (features,) = arrays_from_file(Path(arguments[at + 1])).values()
                assert features.shape[:2] == (1, 1) and features.shape[3:] == (BINS,)
                lengths.append(features.shape[2])
        assert arguments[:3] == ["load", "dist/recogniser", str(bundle)]
        mean_s = float(arguments[arguments.index("--utterance-s") + 1])
        assert mean_s == pytest.approx(sum(lengths) / len(lengths) / 100)
        return 0

    bundle = write_ragged_bundle(tmp_path / "whole")
    monkeypatch.setattr("runtime_lite.__main__.main", keep)
    assert load._longest(bundle) == 8
    monkeypatch.setattr(load, "_longest", lambda _: 500)
    monkeypatch.setattr("sys.argv", ["load", "dist/recogniser", "--offline", str(bundle), "--utterances", "2"])
    assert load.main() == 0
    assert len(set(lengths)) > 3 and max(lengths) <= 500


@pytest.mark.parametrize("option", ["--offline", "--recordings"])
def test_what_is_not_there_is_a_message(
    option: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nothing"
    monkeypatch.setattr("sys.argv", ["load", "dist/recogniser", option, str(missing)])
    assert load.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(missing) in said
