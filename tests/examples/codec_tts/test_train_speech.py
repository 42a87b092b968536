"""Training of the speech model: batches say what they should, the loss falls, a run leaves a checkpoint."""

import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from examples.codec_tts import codec, generation, recordings, speech_model, train_speech, training_run

PROMPT, BOUNDARY = generation.PROMPT_FRAMES, generation.BOUNDARY


def _spoken(count: int) -> list[train_speech.Spoken]:
    """Every letter lasts 4 codes, and its code tells the letter and the voice."""
    chance = np.random.default_rng(1)
    made = []
    for at in range(count):
        letters = chance.integers(0, 27, 9 if at % 2 else 12).tolist()
        made.append(train_speech.Spoken(letters, np.repeat(letters, 4) + 30 * (at % 3), at % 3))
    return made


def _nats(model: speech_model.SpeechModel, rows: list[train_speech.Spoken], prompts: list[train_speech.Codes]) -> float:
    text, codes, following = train_speech.join(rows, prompts)
    return float(train_speech.nats_per_code(model(text, codes), following))


def test_a_batch_is_prompt_boundary_speech_boundary() -> None:
    rows = [train_speech.Spoken([1, 2], np.array([7, 8, 9]), 0), train_speech.Spoken([3, 4], np.array([5]), 0)]
    prompts = [np.full(PROMPT, 11), np.full(PROMPT, 12)]
    text, codes, following = train_speech.join(rows, prompts)
    assert text.tolist() == [[1, 2], [3, 4]]
    assert codes[:, :PROMPT].tolist() == [[11] * PROMPT, [12] * PROMPT]
    assert codes[0, PROMPT:].tolist() == [BOUNDARY, 7, 8, 9]
    assert codes[1, PROMPT : PROMPT + 2].tolist() == [BOUNDARY, 5]
    assert (following[:, :PROMPT] == train_speech.IGNORED).all()
    assert following[0, PROMPT:].tolist() == [7, 8, 9, BOUNDARY]
    assert following[1, PROMPT:].tolist() == [5, BOUNDARY, train_speech.IGNORED, train_speech.IGNORED]


def test_prompts_are_of_the_row_s_voice_and_rows_of_equal_length() -> None:
    batches = train_speech.SentenceBatches(_spoken(60))
    lengths = set()
    for seed in range(10):
        text, codes, _ = batches.draw(8, np.random.default_rng(seed))
        lengths.add(text.shape[1])
        prompts, speech = codes[:, :PROMPT].numpy() // 30, codes[:, PROMPT + 1].numpy() // 30
        np.testing.assert_array_equal(prompts, np.repeat(speech[:, None], PROMPT, axis=1))
    assert lengths == {9, 12}


def test_what_fills_up_a_row_counts_in_no_loss() -> None:
    torch.manual_seed(1)
    model = speech_model.SpeechModel(dataclasses.replace(speech_model.SMALL, layers=1)).eval()
    spoken = _spoken(12)
    rows = [each for each in spoken if len(each.letters) == 9][:2]
    short = train_speech.Spoken(rows[1].letters, rows[1].codes[:20], rows[1].voice)
    prompts = [np.full(PROMPT, 3)] * 2
    with torch.inference_mode():
        alone = [_nats(model, [row], prompts[:1]) for row in (rows[0], short)]
        together = _nats(model, [rows[0], short], prompts)
    expected = (alone[0] * (len(rows[0].codes) + 1) + alone[1] * 21) / (len(rows[0].codes) + 22)
    assert together == pytest.approx(expected, abs=1e-4)


def test_boundaries_are_never_disturbed() -> None:
    codes = torch.full((8, 400), BOUNDARY)
    assert torch.equal(train_speech.disturb(codes, np.random.default_rng(1)), codes)
    changed = (train_speech.disturb(codes * 0, np.random.default_rng(1)) != 0).float().mean()
    assert float(changed) == pytest.approx(train_speech.NOISE_SHARE, abs=0.02)


def test_a_run_leaves_a_checkpoint_that_the_model_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(speech_model, "SMALL", dataclasses.replace(speech_model.SMALL, layers=1))
    monkeypatch.setattr(train_speech, "VALIDATED_BATCHES", 2)
    batches = train_speech.SentenceBatches(_spoken(12))
    options = training_run.Options(budget_s=2.0, batch=2)
    train_speech.train(batches, batches, codec.Codec(), options, tmp_path / "speech.safetensors")
    assert "nats per code" in capsys.readouterr().out
    speech_model.build().load_state_dict(safetensors.torch.load_file(tmp_path / "speech.safetensors"))


def test_recordings_too_short_for_a_prompt_are_left_out(tmp_path: Path) -> None:
    made = [
        recordings.Recording(np.zeros(frames * 320, np.int16), "turn left", 1, np.full(2 * frames, 130.0, np.float32))
        for frames in (PROMPT, PROMPT + 1)
    ]
    recordings.write(tmp_path / "training.npz", made)
    (spoken,) = train_speech.read_spoken(codec.Codec().eval(), tmp_path / "training.npz")
    assert (len(spoken.codes), spoken.voice, len(spoken.letters)) == (PROMPT + 1, 1, 11)
