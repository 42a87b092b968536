"""A streaming recogniser of one screen: caches that grow, a position table looked up by the joined length, two calls.

Tests copy this file into a folder of their own and build it there, so it imports nothing of ours. Width 8, chunks of 4
frames, a window of 8 frames, 40 labels; random weights of a fixed seed.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, CHUNK, BLOCKS, LABELS, TAPS, ROWS = 8, 2, 4, 2, 40, 3, 64


class Block(nn.Module):
    """Attention over [cached ++ new] frames with a content and a position term, then a causal convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS))
        self.position_bias = nn.Parameter(torch.zeros(HEADS, WIDTH // HEADS))
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, TAPS, groups=WIDTH)

    def split(self, x: Tensor) -> Tensor:
        heads: Tensor = x.unflatten(-1, (HEADS, WIDTH // HEADS))  # type: ignore[no-untyped-call]
        return heads.transpose(1, 2)

    def attend(self, joined: Tensor, positions: Tensor) -> Tensor:
        """Mix all frames for each of the newest `CHUNK` frames."""
        normed = self.norm(joined)
        query = self.query(normed[:, -CHUNK:]).unflatten(-1, (HEADS, WIDTH // HEADS))
        content = (query + self.content_bias).transpose(1, 2) @ self.split(self.key(normed)).transpose(-1, -2)
        position = (query + self.position_bias).transpose(1, 2) @ self.split(self.position(positions)).transpose(-1, -2)
        weights = torch.softmax((content + position) / math.sqrt(WIDTH // HEADS), dim=-1)
        mixed: Tensor = (weights @ self.split(self.value(normed))).transpose(1, 2).flatten(2)
        return mixed

    def forward(self, joined: Tensor, positions: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """New frames [batch, CHUNK, WIDTH], and the last frames for the next convolution."""
        x = joined[:, -CHUNK:] + self.attend(joined, positions)
        hidden = x.transpose(1, 2)
        hidden = functional.pad(hidden, (TAPS - 1, 0)) if context is None else torch.cat([context, hidden], dim=2)
        return x + functional.silu(self.depthwise(hidden)).transpose(1, 2), hidden[:, :, -(TAPS - 1) :]


class TinyRecogniser(nn.Module):
    """One chunk after the other: logits of the new frames, then the grown caches in the order they came."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.output = nn.Linear(WIDTH, LABELS)
        angles = torch.arange(ROWS).unsqueeze(1) * torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(100.0) / WIDTH))
        table = torch.stack([torch.sin(angles), torch.cos(angles)], dim=2).flatten(1).unsqueeze(0)
        self.register_buffer("positions", table, persistent=False)

    def step(self, features: Tensor, caches: tuple[Tensor, ...], contexts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = self.embed(features)
        grown, next_contexts = [], []
        for index, block in enumerate(self.blocks):
            joined = torch.cat([caches[index], x], dim=1) if caches else x
            x, next_context = block(joined, self.positions[:, : joined.shape[1]], contexts[index] if contexts else None)
            grown.append(joined)
            next_contexts.append(next_context)
        return self.output(x), *grown, *next_contexts

    def forward(self, features: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return self.step(features, states[:BLOCKS], states[BLOCKS:])


class TinyFirstCall(TinyRecogniser):
    """The call form that starts a stream: no caches."""

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return self.step(features, (), ())


def build() -> TinyRecogniser:
    """The later call."""
    return _seeded(TinyRecogniser())


def build_first() -> TinyRecogniser:
    """The first call."""
    return _seeded(TinyFirstCall())


def _seeded(model: TinyRecogniser) -> TinyRecogniser:
    torch.manual_seed(5)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model
