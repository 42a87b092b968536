"""The transcriber: any recording in, growing text out; mistakes are one sentence and exit code 2."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import soundfile

import runtime_lite
from examples.streaming_asr import data, evaluate, features, transcribe


class OriginalRuntime:
    """Stands in for the runtime: the original model behind the same calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        return None

    def load(self, bundle: Path) -> Self:
        return self

    def open_stream(self) -> Self:
        self._stream = evaluate.OriginalStream(evaluate.load())
        return self

    def push(self, feed: data.Feed) -> dict[str, Any]:
        return {"logits": self._stream.push(feed)}


@pytest.fixture
def original_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_lite, "Runtime", OriginalRuntime)


def _run(monkeypatch: pytest.MonkeyPatch, bundle: Path, recording: Path) -> int:
    monkeypatch.setattr(sys, "argv", ["transcribe", str(bundle), str(recording)])
    return transcribe.main()


def test_demo_recording_in_stereo_at_44100_hz_is_transcribed(
    original_runtime: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    entry = data.read_manifest(data.DEMO_FOLDER)[0]
    assert _run(monkeypatch, tmp_path, data.DEMO_FOLDER / entry.file) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == entry.text
    assert "real-time factor" in printed[1]


def test_text_only_grows(original_runtime: None, tmp_path: Path) -> None:
    samples = transcribe.read_recording(data.DEMO_FOLDER / "short.flac")
    texts = list(transcribe.transcribe(tmp_path, samples))
    assert len(texts) == features.chunk_count(len(samples))
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))


def test_mixed_down_and_resampled(tmp_path: Path) -> None:
    time_s = np.arange(22050) / 22050
    tone = 0.5 * np.sin(2 * np.pi * 440 * time_s)
    soundfile.write(tmp_path / "a.wav", np.stack([tone, np.zeros_like(tone)], axis=1), 22050)
    samples = transcribe.read_recording(tmp_path / "a.wav")
    assert samples.dtype == np.float32
    assert len(samples) == 16000
    assert np.abs(samples).max() == pytest.approx(0.25, abs=0.01)


def test_unusable_recordings_are_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "letter.wav").write_text("dear harbour master")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0, np.float32), 16000)
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan, np.float32), 16000, subtype="FLOAT")
    expected = {
        "none.flac": "got no file; check the path",
        "letter.wav": "not readable as audio; convert the recording",
        "empty.wav": "got an empty recording; record again",
        "nan.wav": "got NaN or infinity; export the recording again",
    }
    for name, message in expected.items():
        assert _run(monkeypatch, tmp_path, tmp_path / name) == 2
        refusal = capsys.readouterr().err
        assert message in refusal
        assert refusal.count("\n") == 1


def test_transcriber_imports_no_training_framework() -> None:
    code = "import sys, examples.streaming_asr.transcribe; assert not {'torch', 'compiler'} & set(sys.modules)"
    root = Path(transcribe.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
