"""Trained weights of the codec and of the speech model, as their training scripts write them."""

from pathlib import Path
from typing import TypeVar

import safetensors.torch
from torch import nn

CODEC_PATH = Path(__file__).with_name("codec.safetensors")
SPEECH_PATH = Path(__file__).with_name("speech.safetensors")

Trained = TypeVar("Trained", bound=nn.Module)


def load(model: Trained, path: Path) -> Trained:
    """Load trained weights into a model.

    Args:
        model: a model as it was built for training.
        path: a file of `train_codec.py` or `train_speech.py`: float32 tensors with the names of `state_dict`.

    Returns:
        The same model, in evaluation mode.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"load: expected a checkpoint {str(path)!r}, got no file; run examples.codec_tts.train_{path.stem} first"
        )
    model.load_state_dict(safetensors.torch.load_file(path))
    return model.eval()
