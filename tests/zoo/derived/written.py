"""Decoders as their authors write them with torch alone: shifts, stacked recurrences, text in front, weights given out.

Sources: receptance-weighted recurrences shift their tokens by a pad of one frame in front and -1 behind (Peng et al.
2023, arXiv 2305.13048); a transducer predicts with two LSTM layers (Graves 2012, arXiv 1211.3711); a codec language
model joins the masks of text and audio by pads (Wang et al. 2023, arXiv 2301.02111).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.derived.family import MOST_LETTERS, WINDOW

LABELS, WIDTH, HEADS = 40, 32, 4
SLIDING = 12
"""Frames that a mask shows which slides along."""


class _Decoder(nn.Module):
    """Tokens to vectors, and vectors to scores."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.scores = nn.Embedding(LABELS, WIDTH), nn.Linear(WIDTH, LABELS)


class TokenShift(_Decoder):
    """The channel mixing of such a recurrence: every layer mixes a frame with the one before it."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.mixes = nn.ParameterList(torch.rand(WIDTH) for _ in range(4))
        self.keys = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(4))
        self.values = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time]; scores [batch, time, 40]."""
        x = self.embed(tokens)
        for norm, mix, key, value in zip(self.norms, self.mixes, self.keys, self.values, strict=True):
            y = norm(x)
            y = y * mix + self.shift(y) * (1 - mix)
            x = x + value(key(y).relu().square())
        found: Tensor = self.scores(x)
        return found


class Predictor(_Decoder):
    """The predictor of a transducer: two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time]; scores [batch, time, 40]."""
        heard, _ = self.layers(self.embed(tokens))
        found: Tensor = self.scores(heard)
        return found


class LearntPredictor(Predictor):
    """Its layers begin with states that were learnt, the same in all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(2, 2, 1, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time]; scores [batch, time, 40]."""
        hidden, cells = self.first.expand(-1, -1, tokens.shape[0], -1)
        heard, _ = self.layers(self.embed(tokens), (hidden, cells))
        found: Tensor = self.scores(heard)
        return found


class Sliding(_Decoder):
    """Rotary positions, and a mask that shows the newest frames alone, of those that are no padding."""

    def __init__(self, *, hides_padding: bool = False) -> None:
        super().__init__()
        self.hides_padding = hides_padding
        self.layers = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time], 0 where padding is; scores [batch, time, 40]."""
        x, (rows, time) = self.embed(tokens), tokens.shape
        places = torch.arange(time)
        behind = places[:, None] - places
        seen = (behind >= 0) & (behind < SLIDING)
        if self.hides_padding:
            seen = ((seen & (tokens != 0)[:, None]) | (behind == 0))[:, None]
        for layer in self.layers:
            heads = layer(x).view(rows, time, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            queries, keys, values = heads
            heard = functional.scaled_dot_product_attention(
                rotated(queries, places), rotated(keys, places), values, attn_mask=seen
            )
            x = x + heard.transpose(1, 2).reshape(rows, time, WIDTH)
        found: Tensor = self.scores(x)
        return found


def rotated(x: Tensor, places: Tensor) -> Tensor:
    """Frames [.., time, size] turned by the angles of their places."""
    half = x.shape[-1] // 2
    angles = torch.outer(places.float(), 10000.0 ** (-torch.arange(half) / half))
    angles = torch.cat([angles, angles], dim=-1)
    return x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * angles.sin()


class BehindText(_Decoder):
    """Audio behind a text: the masks of both are padded and joined, for torch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(LABELS, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )

    def forward(self, codes: Tensor, text: Tensor) -> Tensor:
        """Codes [batch, time] and text [batch, letters]; scores [batch, time, 40]."""
        letters, time = text.shape[1], codes.shape[1]
        of_text = functional.pad(torch.zeros((letters, letters), dtype=torch.bool), (0, time), value=True)
        of_audio = functional.pad(torch.triu(torch.ones(time, time, dtype=torch.bool), diagonal=1), (letters, 0))
        x = torch.cat([self.letters(text), self.embed(codes)], dim=1)
        for layer in self.layers:
            x = layer(x, src_mask=torch.cat([of_text, of_audio]))
        found: Tensor = self.scores(x[:, letters:])
        return found


class BehindPlacedText(BehindText):
    """The same with learned positions that go on behind the text, and a mask for every head and row."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(WINDOW + MOST_LETTERS, WIDTH)
        self.layers = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))

    def forward(self, codes: Tensor, text: Tensor) -> Tensor:
        """Codes [batch, time] and text [batch, letters]; scores [batch, time, 40]."""
        letters, time = text.shape[1], codes.shape[1]
        of_text = functional.pad(torch.zeros((letters, letters), dtype=torch.bool), (0, time), value=True)
        of_audio = functional.pad(torch.triu(torch.ones(time, time, dtype=torch.bool), diagonal=1), (letters, 0))
        hidden = torch.cat([of_text, of_audio]).repeat(HEADS * codes.shape[0], 1, 1)
        x = torch.cat([self.letters(text), self.embed(codes)], dim=1) + self.places(torch.arange(letters + time))
        for attend in self.layers:
            heard, _ = attend(x, x, x, attn_mask=hidden, need_weights=False)
            x = x + heard
        found: Tensor = self.scores(x[:, letters:])
        return found


class Weighted(_Decoder):
    """Attention that gives its weights, for which torch merges rows with heads."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time]; scores [batch, time, 40]."""
        x, hidden = self.embed(tokens), torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        for layer in self.layers:
            heard, _ = layer(x, x, x, attn_mask=hidden, need_weights=True)
            x = x + heard
        found: Tensor = self.scores(x)
        return found


class PairedHeads(_Decoder):
    """Torch's own attention, batch first and then time first; two and two heads have the same keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.MultiheadAttention(WIDTH, HEADS, batch_first=each) for each in (True, False))
        for layer in (self.first, self.second):
            nn.init.normal_(layer.in_proj_bias)
            nn.init.normal_(layer.out_proj.bias)
            for parameter in (layer.in_proj_weight, layer.in_proj_bias):
                for part in parameter.detach().chunk(3)[1:]:
                    part[len(part) // 2 :] = part[: len(part) // 2]

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens [batch, time]; scores [batch, time, 40]."""
        x, hidden = self.embed(tokens), torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        heard, _ = self.first(x, x, x, attn_mask=hidden, need_weights=False)
        x = (x + heard).transpose(0, 1)
        heard, _ = self.second(x, x, x, attn_mask=hidden, need_weights=False)
        x = (x + heard).transpose(0, 1)
        found: Tensor = self.scores(x)
        return found
