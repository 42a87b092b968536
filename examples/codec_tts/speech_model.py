"""An autoregressive codec language model, as researchers train one: text and prompt audio in, first-codebook codes out.

    text [batch, letters] and codes [batch, time] -> one sequence -> transformer layers of 16 heads
        -> scores of the next code [batch, time, 513]

`codes` is prompt audio (the voice), then `BOUNDARY`, then what has been said so far; a second `BOUNDARY` ends the
speech. Text sees all of the text, audio sees the text and earlier audio: a prefix mask. Rotary positions count frames:
letters stand `LETTER_FRAMES` apart, so that a letter is near the frames that speak it, and codes 1 apart. Every call
takes the whole sequence: no cache, no shared keys and values. All rows of a batch have the same number of letters.

Sources: a codec language model for text to speech (Wang et al. 2023, arXiv 2301.02111); a decoder that sees a prefix
both ways (Raffel et al. 2020, arXiv 1910.10683, section 3.2.1); rotary positions (Su et al. 2021, arXiv 2104.09864).
"""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.codec_tts.generation import ENTRIES

LETTER_FRAMES = 4.0
"""Frames per letter in the positions, about what the training voices take."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of one model.

    Attributes:
        layers: transformer layers.
        width: hidden channels.
        heads: attention heads; divides `width` into an even number.
        feed_forward: inner channels of the feed-forward part.
        letters: text tokens.
        slowest: turns of the slowest rotary pair take this many frames, divided by 2 pi.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    letters: int = 27
    slowest: float = 300.0


SMALL = Config(layers=4, width=128, heads=16, feed_forward=512)
FULL = Config(layers=12, width=1024, heads=16, feed_forward=4096)


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Apply rotary positions: rotate the pairs of [batch, heads, n, size] by angles [n, size / 2]."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Layer(nn.Module):
    """Attention and a feed-forward part, each after a norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.before, self.between = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.query, self.key, self.value, self.output = (nn.Linear(config.width, config.width) for _ in range(4))
        self.wide = nn.Linear(config.width, config.feed_forward)
        self.narrow = nn.Linear(config.feed_forward, config.width)

    def forward(self, x: Tensor, angles: Tensor, seen: Tensor) -> Tensor:
        """Take a sequence [batch, n, width], angles [n, size / 2] and a mask bool [n, n]; return the same shape."""
        y = self.before(x)
        queries, keys, values = (self.split(part(y)) for part in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(turn(queries, angles), turn(keys, angles), values, seen)
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        fed: Tensor = self.narrow(functional.gelu(self.wide(self.between(x))))
        return x + fed

    def split(self, x: Tensor) -> Tensor:
        """Split the width into heads: [batch, n, width] to [batch, heads, n, size]."""
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)


class SpeechModel(nn.Module):
    """The model; every call takes the whole text and all codes so far."""

    rates: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        pairs = config.width // config.heads // 2
        self.register_buffer("rates", config.slowest ** -torch.linspace(0.0, 1.0, pairs), persistent=False)
        self.letters = nn.Embedding(config.letters, config.width)
        self.codes = nn.Embedding(ENTRIES + 1, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm, self.scores = nn.LayerNorm(config.width), nn.Linear(config.width, ENTRIES + 1)

    def forward(self, text: Tensor, codes: Tensor) -> Tensor:
        """Return the scores of the code after every position of `codes`.

        Args:
            text: int64 [batch, letters], from `sentences.encode`.
            codes: int64 [batch, time]: prompt, `BOUNDARY`, speech.

        Returns:
            float32 [batch, time, 513], logits.
        """
        letters = text.shape[1]
        places = torch.arange(letters + codes.shape[1])
        seen = (places[None, :] <= places[:, None]) | (places[None, :] < letters)
        positions = torch.cat([torch.arange(letters) * LETTER_FRAMES, torch.arange(codes.shape[1]).float()])
        angles = positions[:, None] * self.rates
        x = torch.cat([self.letters(text), self.codes(codes)], dim=1)
        for layer in self.layers:
            x = layer(x, angles, seen)
        scores: Tensor = self.scores(self.norm(x[:, letters:]))
        return scores


def build() -> SpeechModel:
    """Return the trained model."""
    return SpeechModel(SMALL)


def build_full() -> SpeechModel:
    """Return the large configuration with fixed random weights, to show structure and speed."""
    torch.manual_seed(0)
    return SpeechModel(FULL)
