"""Patterns of public bug reports about speech models, each as a small module with random weights.

`build(name)` is what a recipe names: a module of this file, with weights of a fixed seed.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own name for it

FEATURES, WIDTH, SLOTS, CHUNK, LABELS = 40, 32, 16, 8, 30
"""Sizes of all models: features of a frame, channels, slots of a cache, frames of a chunk, tokens."""


def build(name: str) -> nn.Module:
    """A module of this file by its name."""
    torch.manual_seed(0)
    kind = globals()[name]
    assert issubclass(kind, nn.Module)
    module: nn.Module = kind()
    return module


class Attention(nn.Module):
    """One head over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(FEATURES, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def scores(self, rows: Tensor, columns: Tensor) -> Tensor:
        found: Tensor = self.query(rows) @ self.key(columns).transpose(1, 2)
        return found

    def mixed(self, scores: Tensor, columns: Tensor) -> Tensor:
        found: Tensor = torch.softmax(scores, -1) @ self.value(columns)
        return found


class MaskIgnored(nn.Module):
    """Lengths mask the answers alone; the encoder attends to padding."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(FEATURES, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True, dropout=0.0)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        x: Tensor = self.layer(self.front(features))
        kept = torch.arange(x.shape[1])[None] < lengths[:, None]
        return x * kept[..., None]


class MaskOfLongest(Attention):
    """The mask is as long as the longest row, whatever the features are padded to."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        x = self.front(features)
        hidden = torch.arange(int(lengths.max()))[None] >= lengths[:, None]
        return self.mixed(self.scores(x, x).masked_fill(hidden[:, None], float("-inf")), x)


class MaskOfHalves(Attention):
    """Frames behind a stride are masked by lengths of the features, halved and rounded down: one frame too few."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(FEATURES, WIDTH, 3, 2, 1)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        x = self.down(features.transpose(1, 2)).transpose(1, 2)
        kept = torch.arange(x.shape[1])[None] < torch.div(lengths, 2, rounding_mode="floor")[:, None]
        return self.mixed(self.scores(x, x).masked_fill(~kept[:, None], float("-inf")), x)


class TableEnds(nn.Module):
    """A table of positions that ends before the largest bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Linear(FEATURES, WIDTH)
        self.table = nn.Parameter(torch.randn(1, 50, WIDTH))

    def forward(self, features: Tensor) -> Tensor:
        x: Tensor = self.front(features)
        return x + self.table[:, : x.shape[1]]


class Pairs(nn.Module):
    """Frames are joined in pairs by a Reshape, which an odd number of them does not allow."""

    def __init__(self) -> None:
        super().__init__()
        self.join = nn.Linear(2 * FEATURES, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        batch, time, width = features.shape
        joined: Tensor = self.join(features.reshape(batch, time // 2, 2 * width))
        return joined


class PairsOfPadded(Pairs):
    """The same behind a frame of zeros where the number is odd: the cure that such threads come to."""

    def forward(self, features: Tensor) -> Tensor:
        even = F.pad(features, (0, 0, 0, -features.shape[1] % 2))
        batch, _, width = even.shape
        joined: Tensor = self.join(even.reshape(batch, -1, 2 * width))
        return joined


class Linear(nn.Module):
    """Two layers, of which the scales of dynamic quantisation are taken of padding as well."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.back = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        answer: Tensor = self.back(torch.relu(self.front(features)))
        return answer


class CutToItself(Attention):
    """The cache is cut to its own length, which is 0 in the first call: nothing is cut, and later everything."""

    def forward(self, features: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        x = self.front(features)
        joined = torch.cat([cache, x], 1)
        return self.mixed(self.scores(x, joined), joined), joined[:, -cache.shape[1] :]


class CausalFlag(Attention):
    """A causal flag beside a cache that is joined outside: rows are aligned with the first columns."""

    def forward(self, features: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        x = self.front(features)
        joined = torch.cat([cache, x], 1)
        q, k, v = (each[:, None] for each in (self.query(x), self.key(joined), self.value(joined)))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0], joined


class CountedBefore(Attention):
    """Valid keys are counted before the write: the newest is never seen."""

    def forward(
        self, features: Tensor, keys: Tensor, values: Tensor, position: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x = self.front(features)
        slots = torch.arange(SLOTS)[None]
        written = (slots == position[:, None])[..., None]
        keys, values = torch.where(written, self.key(x), keys), torch.where(written, self.value(x), values)
        unseen = slots >= position[:, None]
        scores = (self.query(x) @ keys.transpose(1, 2)).masked_fill(unseen[:, None], -1e9)
        return torch.softmax(scores, -1) @ values, keys, values, position + 1


class ContextOfChunk(nn.Module):
    """The context of a causal convolution is cut from the chunk alone, which may be shorter."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, WIDTH, 5)

    def forward(self, features: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        x = features.transpose(1, 2)
        return self.conv(torch.cat([context, x], 2)).transpose(1, 2), x[:, :, -4:]


class Lagging(ContextOfChunk):
    """The context as it should be; answers lag by two frames, and the last come when the stream is flushed."""

    def forward(self, features: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([context, features.transpose(1, 2)], 2)
        return self.conv(joined).transpose(1, 2), joined[:, :, -4:]


class BlankKeepsState(nn.Module):
    """The state of a predictor stays what it was where the token is a blank."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.back = (
            nn.Embedding(LABELS, WIDTH),
            nn.LSTMCell(WIDTH, WIDTH),
            nn.Linear(WIDTH, LABELS),
        )

    def forward(self, token: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new_hidden, new_cell = self.cell(self.table(token), (hidden, cell))
        is_blank = (token == 0)[:, None]
        hidden, cell = torch.where(is_blank, hidden, new_hidden), torch.where(is_blank, cell, new_cell)
        return self.back(hidden), hidden, cell


class LowMask(Attention):
    """A causal mask of -1e9, which half precision does not have."""

    def forward(self, features: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        x = self.front(features)
        joined = torch.cat([cache, x], 1)
        rows, columns = x.shape[1], joined.shape[1]
        late = torch.arange(columns)[None] > torch.arange(rows)[:, None] + columns - rows
        return self.mixed(self.scores(x, joined).masked_fill(late, -1e9), joined), joined


class LoudNorm(nn.Module):
    """The squares of a norm overflow in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.norm, self.back = nn.Linear(FEATURES, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = self.front(features) * 2000.0 + state
        return self.back(self.norm(x)), x[:, -1:] * 0.5


class OverlapAdd(nn.Module):
    """A transposed convolution keeps what sticks out of a chunk; without, samples are lost at every seam."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(FEATURES, 16, 8, 4)

    def forward(self, features: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        y = self.up(features.transpose(1, 2))
        y = torch.cat([y[:, :, :4] + tail, y[:, :, 4:]], 2)
        return y[:, :, :-4], y[:, :, -4:]


class NotFedBack(nn.Module):
    """A state of which a recipe says nothing: it is data, and nobody feeds it."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.cell = nn.Linear(FEATURES, WIDTH), nn.GRUCell(WIDTH, WIDTH)

    def forward(self, features: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.cell(self.front(features), hidden)
        return hidden.sigmoid(), hidden


class Durations(nn.Module):
    """Frames are repeated as often as a layer predicts: the number of answers depends on what is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.length = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, features: Tensor) -> Tensor:
        x = self.front(features)
        counts = self.length(x).squeeze(-1).exp().round().long()[0]
        return torch.repeat_interleave(x, counts, dim=1)
