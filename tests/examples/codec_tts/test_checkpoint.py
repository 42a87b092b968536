"""Weights come back as they were written, and what is missing is named with what makes it."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from examples.codec_tts import checkpoint, codec


def test_weights_come_back(tmp_path: Path) -> None:
    torch.manual_seed(1)
    made = codec.Codec()
    safetensors.torch.save_file(made.state_dict(), tmp_path / "codec.safetensors")
    read = checkpoint.load(codec.Codec(), tmp_path / "codec.safetensors")
    assert not read.training
    assert all(torch.equal(value, read.state_dict()[name]) for name, value in made.state_dict().items())


@pytest.mark.parametrize("trained", ["codec", "speech"])
def test_a_missing_checkpoint_is_refused(trained: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"got no file; run examples.codec_tts.train_{trained} first"):
        checkpoint.load(codec.Codec(), tmp_path / f"{trained}.safetensors")
