"""Models over whole utterances, as researchers hold them, with random weights: steps are derived of both.

Conformer   features [batch, time, 20] -> scores [batch, time, 11]; attention under a mask of whole chunks
Seq2Seq     encoded [batch, heard, 32] and tokens [batch, time] -> scores [batch, time, 17]; cross-attention
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

Feeds = list[dict[str, npt.NDArray[np.generic]]]

CHUNK, BEHIND, WIDTH, HEADS = 8, 2, 32, 4
FEATURES, TOKENS, HEARD = 20, 17, 12


class ConformerBlock(nn.Module):
    """Half a feed-forward part, attention, a causal convolution with the statistics of training, the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.fed = nn.ModuleList(_feed_forward(nn.SiLU()) for _ in range(2))
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Conv1d(WIDTH, 2 * WIDTH, 1), nn.Conv1d(WIDTH, WIDTH, 1)
        self.along, self.batch = nn.Conv1d(WIDTH, WIDTH, 7, groups=WIDTH), nn.BatchNorm1d(WIDTH)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Frames [batch, time, width], what may be seen bool [time, time]; the same shape."""
        x = x + 0.5 * self.fed[0](self.norms[0](x))
        rows, frames, _ = x.shape
        parted = self.heads(self.norms[1](x)).view(rows, frames, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = parted.permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(queries, keys, values, seen)
        x = x + self.joined(heard.transpose(1, 2).reshape(rows, frames, WIDTH))
        y = functional.glu(self.wide(self.norms[2](x).transpose(1, 2)), dim=1)
        y = self.narrow(functional.silu(self.batch(self.along(functional.pad(y, (6, 0))))))
        x = x + y.transpose(1, 2)
        more: Tensor = self.fed[1](self.norms[3](x))
        return x + 0.5 * more


class Conformer(nn.Module):
    """Frames see their own chunk and two in front of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, 11)
        self.blocks = nn.ModuleList(ConformerBlock() for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        """Features float32 [batch, time, 20]; scores float32 [batch, time, 11]."""
        chunks = torch.arange(features.shape[1]) // CHUNK
        behind = chunks[:, None] - chunks[None, :]
        x = self.inner(features)
        for block in self.blocks:
            x = block(x, (behind >= 0) & (behind <= BEHIND))
        scores: Tensor = self.outer(x)
        return scores


class DecoderLayer(nn.Module):
    """Attention to earlier frames, attention to what an encoder has heard, and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.own, self.cross = (nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))
        self.fed = _feed_forward(nn.ReLU())

    def forward(self, x: Tensor, encoded: Tensor, hidden: Tensor) -> Tensor:
        """Frames [batch, time, width], encoded [batch, heard, width], hidden bool [time, time]; shaped as frames."""
        y = self.norms[0](x)
        x = x + self.own(y, y, y, attn_mask=hidden, need_weights=False)[0]
        x = x + self.cross(self.norms[1](x), encoded, encoded, need_weights=False)[0]
        more: Tensor = self.fed(self.norms[2](x))
        return x + more


class Seq2Seq(nn.Module):
    """The decoder of a sequence-to-sequence model, given what the encoder says."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(128, WIDTH)
        self.norm, self.outer = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(2))

    def forward(self, encoded: Tensor, tokens: Tensor) -> Tensor:
        """Encoded float32 [batch, heard, 32] and tokens int64 [batch, time]; scores float32 [batch, time, 17]."""
        places = torch.arange(tokens.shape[1])
        x, heard = self.tokens(tokens) + self.places(places), self.norm(encoded)
        for layer in self.layers:
            x = layer(x, heard, places[None, :] > places[:, None])
        scores: Tensor = self.outer(x)
        return scores


def _feed_forward(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 64), activation, nn.Linear(64, WIDTH))


def conformer() -> nn.Module:
    """The same weights in every call; statistics of its normalisations that are not those of new ones."""
    torch.manual_seed(0)
    made = Conformer()
    for name, values in made.named_buffers():
        if values.is_floating_point():
            values.uniform_(0.5, 1.5) if name.endswith("var") else values.normal_(0.0, 0.2)
    return made.eval()


def seq2seq() -> nn.Module:
    """The same weights in every call."""
    torch.manual_seed(0)
    return Seq2Seq().eval()


def utterances() -> Iterator[Feeds]:
    """Streams of whole chunks, the last one shorter."""
    random = np.random.default_rng(0)
    while True:
        lengths = (2 * CHUNK, *[CHUNK] * 9, 5)
        yield [{"features": random.standard_normal((1, count, FEATURES)).astype(np.float32)} for count in lengths]


def sentences() -> Iterator[Feeds]:
    """Streams of a prompt and single tokens, each with what was heard in all of its calls."""
    return _sentences(seed=0)


def sentences_to_calibrate() -> Iterator[Feeds]:
    """Other draws."""
    return _sentences(seed=1)


def _sentences(seed: int) -> Iterator[Feeds]:
    random = np.random.default_rng(seed)
    while True:
        encoded = random.standard_normal((1, int(random.integers(2, HEARD + 1)), WIDTH)).astype(np.float32)
        lengths = (6, *[1] * 24)
        yield [{"encoded": encoded, "tokens": random.integers(0, TOKENS, (1, count))} for count in lengths]
