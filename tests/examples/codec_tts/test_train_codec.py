"""Training of the codec: the losses fall, codebooks follow, a stopped run goes on."""

import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from examples.codec_tts import codec, generation, recordings, train_codec, training_run

TINY = codec.Config(width=16, blocks=1, latent=4, entries=8)


def _recordings(count: int) -> list[recordings.Recording]:
    generator = np.random.default_rng(1)
    turns = np.arange(40 * generation.CODE_SAMPLES) * 140.0 / 16000
    waves = [np.sin(2 * np.pi * turns * (1 + each % 3)) * 9000 for each in range(count)]
    noisy = [(wave + generator.normal(0, 300, len(wave))).astype(np.int16) for wave in waves]
    return [recordings.Recording(each, "turn left", 0, np.full(80, 140.0, np.float32)) for each in noisy]


def test_the_loss_falls_within_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_codec, "CROP_FRAMES", 10)
    torch.manual_seed(1)
    learning = train_codec.LearningCodec(TINY).train()
    optimizer = torch.optim.AdamW(learning.parameters(), lr=1e-2)
    training = _recordings(3)
    totals = []
    for step in range(10):
        generator = torch.Generator().manual_seed(step)
        waveforms, octaves = train_codec.draw(training, 2, np.random.default_rng(step))
        losses = learning.losses(waveforms, octaves, torch.tensor([1, 4]), generator)
        total = torch.stack([train_codec.WEIGHTS[name] * loss for name, loss in losses.items()]).sum()
        optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        totals.append(total.item())
    assert totals[-1] < 0.8 * totals[0]


def test_codebooks_move_to_what_is_assigned_to_them() -> None:
    learning = train_codec.LearningCodec(TINY).train()
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(8, 4, generator=generator) * 5
    for _ in range(60):
        drawn = centres[torch.randint(8, (256,), generator=generator)] + 0.01 * torch.randn(256, 4, generator=generator)
        learning.follow(drawn, learning.codec.quantiser.nearest(drawn, 0), 0, generator)
    nearest = torch.cdist(centres, learning.codec.quantiser.tables[0]).min(dim=1).values
    assert int((nearest < 0.1).sum()) >= 5


def test_rows_are_decoded_from_their_own_number_of_codebooks() -> None:
    torch.manual_seed(1)
    learning = train_codec.LearningCodec(TINY).eval()
    latents = torch.randn(2, 5, 4)
    kept, _ = learning.quantise(latents, torch.tensor([1, 4]), torch.Generator())
    codes = learning.codec.quantiser(latents)
    torch.testing.assert_close(kept[0], learning.codec.quantiser.look_up(codes[:1, :, :1])[0])
    torch.testing.assert_close(kept[1], learning.codec.quantiser.look_up(codes[1:])[0])


def test_crops_and_their_pitch_lie_on_the_same_frames() -> None:
    frames = 120
    steps = np.repeat(np.arange(frames), generation.CODE_SAMPLES)
    rising = recordings.Recording(
        (steps * 10).astype(np.int16), "turn left", 0, np.repeat(100.0 + np.arange(frames), 2).astype(np.float32)
    )
    waveforms, octaves = train_codec.draw([rising], 4, np.random.default_rng(1))
    found = waveforms.reshape(4, train_codec.CROP_FRAMES, -1)[:, :, 0].numpy() * 3276.8
    expected = codec.NEUTRAL_HZ * np.exp2(octaves[:, ::2].numpy()) - 100.0
    ratio = found[:, 1:] / np.maximum(expected[:, 1:], 1e-3)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, -1:], ratio.shape), rtol=0.05)


def test_a_stopped_run_goes_on_and_leaves_a_checkpoint_that_the_codec_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = iter(range(100000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    path = tmp_path / "codec.safetensors"
    for budget_s in (2.0, 4.0):
        options = training_run.Options(budget_s=budget_s, batch=2)
        train_codec.train(_recordings(2), _recordings(1), options, path)
    assert capsys.readouterr().out.count("development: mel with 1") == 2
    codec.Codec().load_state_dict(safetensors.torch.load_file(path))
