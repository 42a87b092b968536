"""What is missing, and Ctrl-C, end a command of an example with one sentence."""

import errno
from pathlib import Path

import pytest

from examples import command
from examples.codec_tts import evaluate as judge
from examples.codec_tts import recordings, train_codec, train_speech
from examples.streaming_asr import evaluate


@pytest.mark.parametrize("main", [train_codec.main, train_speech.main, judge.main])
def test_recordings_that_are_not_there_are_named(
    main: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(main)
    output = [] if main is judge.main else ["--output", str(tmp_path / "out.safetensors")]
    monkeypatch.setattr("sys.argv", ["", "--recordings", str(tmp_path / "none"), *output])
    with pytest.raises(SystemExit, match="2"):
        command.run(main)
    said = capsys.readouterr().err
    assert said.startswith(f"error: read: expected recordings in '{tmp_path / 'none'}") and said.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_synthesizer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["", "--output", str(tmp_path / "recordings")])
    with pytest.raises(SystemExit, match="2"):
        command.run(recordings.main)
    assert capsys.readouterr().err == (
        "error: speak: expected the program 'espeak-ng', got none; install the package espeak-ng\n"
    )


def test_a_checkpoint_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["", "--checkpoint", str(tmp_path / "none")])
    with pytest.raises(SystemExit, match="2"):
        command.run(evaluate.main)
    assert str(tmp_path / "none") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "a.npz"),
            "2",
            "error: a.npz: No space left on device; check the path, permissions and free space\n",
        ),
        (KeyboardInterrupt(), "130", "interrupted; repeat the command to go on\n"),
    ],
)
def test_what_ends_a_command_is_said(
    error: BaseException, code: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit, match=code):
        command.run(main)
    assert capsys.readouterr().err == said


def test_a_bug_keeps_its_traceback() -> None:
    def main() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command.run(main)
