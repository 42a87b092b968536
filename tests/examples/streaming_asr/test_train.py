"""Training: guessed alignments, the learning rate's shape, and a run of a few steps."""

from pathlib import Path

import numpy as np
import pytest

from examples.streaming_asr import evaluate, features, text, train

TOKENS = text.read_tokens()


def _recording(sentence: str, chunks: int) -> train.Recording:
    """Quiet noise, with louder noise from a quarter to three quarters."""
    generator = np.random.default_rng(1)
    frames = generator.standard_normal((chunks * features.HOP_FRAMES + 3, features.BINS)) - 9.0
    frames[len(frames) // 4 : 3 * len(frames) // 4] += 5.0
    return train.Recording(frames.astype(np.float16), TOKENS.encode(sentence), sentence)


def test_guessed_alignment_keeps_label_order_within_the_loud_part() -> None:
    recording = _recording("the captain counted seven lemons", 4)
    alignment = train._guess_alignment(recording, TOKENS)
    assert len(alignment) == 64
    assert set(alignment[:15]) == set(alignment[-15:]) == {text.BLANK}
    changes = alignment[np.flatnonzero(np.diff(alignment, prepend=text.BLANK))]
    assert [label for label in changes.tolist() if label != text.BLANK] == recording.labels


def test_rate_rises_by_steps_and_falls_by_the_clock() -> None:
    options = train.Options(budget_s=100.0)
    rates = [train._rate(options, 0.0, step) for step in range(0, options.warm_up_steps, 50)]
    assert rates == sorted(rates)
    assert train._rate(options, 50.0, 10**6) == pytest.approx(options.peak_rate / 2)
    assert train._rate(options, 100.0, 10**6) == pytest.approx(options.peak_rate / 100)


def test_a_short_run_writes_a_checkpoint_that_the_model_takes(tmp_path: Path) -> None:
    recordings = [_recording("the captain", 4) for _ in range(4)]
    options = train.Options(budget_s=0.5, batch_frames=300, flat_start_steps=2)
    train.train(recordings, recordings[:1], TOKENS, options, tmp_path / "checkpoint.safetensors")
    recogniser = evaluate.load(tmp_path / "checkpoint.safetensors")
    assert float(recogniser.mean.mean()) == pytest.approx(-6.5, abs=0.5)


def test_the_development_set_decides_which_checkpoint_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([0.5, 0.6, 0.4])
    measured: list[float] = []
    kept: list[float] = []

    def validate(_: object, development: list[train.Recording], __: object) -> float:
        assert [each.sentence for each in development] == ["seven lemons"]
        measured.append(rate := next(rates, 0.7))
        return rate

    monkeypatch.setattr(train, "_validate", validate)
    monkeypatch.setattr(train, "_save", lambda recogniser, path: kept.append(measured[-1]))
    options = train.Options(budget_s=0.5, batch_frames=300, flat_start_steps=2, checkpoint_every_s=-1.0)
    recordings = [_recording("the captain", 4) for _ in range(4)]
    train.train(recordings, [_recording("seven lemons", 4)], TOKENS, options, tmp_path / "checkpoint.safetensors")
    assert kept == [rate for rate in (0.5, 0.4) if rate in measured]
    assert kept


def test_development_recordings_are_whole_and_spelt() -> None:
    first = next(train.read_development(TOKENS))
    assert (len(first.frames) - 3) % features.HOP_FRAMES == 0
    assert TOKENS.decode(first.labels) == first.sentence


def test_missing_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected shard-\*.npz.*run examples.streaming_asr.synthesize first"):
        train.read_shards(tmp_path, TOKENS)
