"""A neural codec: its encoder from samples to codes, and its decoder from codes to samples."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.family import StepFamily, data, state

WIDTH, BOOKS, CODES = 8, 3, 16


class Residual(nn.Module):
    """A dilated convolution over its context and one of single frames, added to what they are given."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.deep = nn.Conv1d(channels, channels // 2, 3, dilation=dilation)
        self.flat, self.kept = nn.Conv1d(channels // 2, channels, 1), 2 * dilation

    def forward(self, x: Any, past: Any) -> Any:
        heard = torch.cat([past, functional.elu(x)], 2)
        return x + self.flat(functional.elu(self.deep(heard))), heard[:, :, -self.kept :]


class Layer(nn.Module):
    """A transformer layer that looks back at the frames whose keys and values it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.into, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.ahead = nn.Sequential(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))
        self.scale = nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        rows, frames, _ = x.shape
        q, k, v = (each.transpose(1, 2) for each in self.into(self.first(x)).view(rows, frames, 6, 4).split(2, 2))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        places = torch.arange(keys.size(2))
        seen = places <= places[-frames:, None]
        y = functional.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        x = x + self.scale * self.out(y.transpose(1, 2).reshape(rows, frames, WIDTH))
        return x + self.scale * self.ahead(self.second(x)), keys, values


class Encoder(nn.Module):
    """Strided convolutions, residual units, a transformer, and codes of what codes before have left (Mimi)."""

    books: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.unit_a, self.down_a = nn.Conv1d(1, 4, 7), Residual(4, 1), nn.Conv1d(4, 6, 4, 2)
        self.unit_b, self.down_b, self.layer = Residual(6, 2), nn.Conv1d(6, WIDTH, 8, 4), Layer()
        self.register_buffer("books", torch.randn(BOOKS, CODES, WIDTH))

    def forward(self, wav: Any, c0: Any, c1: Any, c2: Any, c3: Any, c4: Any, keys: Any, values: Any) -> Any:
        x = torch.cat([c0, wav], 2)
        c0, x = x[:, :, -6:], self.first(x)
        x, c1 = self.unit_a(x, c1)
        x = torch.cat([c2, functional.elu(x)], 2)
        c2, x = x[:, :, -2:], self.down_a(x)
        x, c3 = self.unit_b(x, c3)
        x = torch.cat([c4, functional.elu(x)], 2)
        c4, x = x[:, :, -4:], self.down_b(x)
        left, keys, values = self.layer(x.transpose(1, 2), keys, values)
        codes = []
        for book in self.books:
            far = left.square().sum(-1, keepdim=True) - 2 * left @ book.t() + book.square().sum(-1)
            codes.append(far.argmin(-1))
            left = left - functional.embedding(codes[-1], book)
        return torch.stack(codes, 1), left, c0, c1, c2, c3, c4, keys, values


class Snake(nn.Module):
    """x + sin(ax)^2 / a, channel by channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Any) -> Any:
        return x + (self.alpha * x).sin().square() / (self.alpha + 1e-9)


class Decoder(nn.Module):
    """Tables that are summed, a transformer, transposed convolutions whose overlaps are kept, and residual units."""

    def __init__(self) -> None:
        super().__init__()
        self.books = nn.ModuleList(nn.Embedding(CODES, WIDTH) for _ in range(BOOKS))
        self.layer, self.first = Layer(), nn.Conv1d(WIDTH, WIDTH, 3)
        self.up_a, self.unit_a = nn.ConvTranspose1d(WIDTH, 6, 8, 4), Residual(6, 1)
        self.up_b, self.unit_b = nn.ConvTranspose1d(6, 4, 4, 2), Residual(4, 3)
        self.snake, self.last = Snake(WIDTH), nn.Conv1d(4, 1, 3)

    @staticmethod
    def _up(layer: Any, x: Any, tail: Any) -> Any:
        y = layer(x) - layer.bias[:, None]
        kept = tail.size(2)
        y = torch.cat([y[..., :kept] + tail, y[..., kept:]], -1)
        return y[..., :-kept] + layer.bias[:, None], y[..., -kept:]

    def forward(
        self, codes: Any, c0: Any, t0: Any, c1: Any, t1: Any, c2: Any, c3: Any, keys: Any, values: Any
    ) -> tuple[Tensor, ...]:
        x = torch.stack([book(codes[:, at]) for at, book in enumerate(self.books)]).sum(0)
        x, keys, values = self.layer(x, keys, values)
        x = torch.cat([c0, x.transpose(1, 2)], 2)
        c0, x = x[:, :, -2:], self.first(x)
        x, t0 = self._up(self.up_a, self.snake(x), t0)
        x, c1 = self.unit_a(x, c1)
        x, t1 = self._up(self.up_b, functional.elu(x), t1)
        x, c2 = self.unit_b(x, c2)
        x = torch.cat([c3, functional.elu(x)], 2)
        return torch.tanh(self.last(x)), c0, t0, c1, t1, c2, x[:, :, -2:], keys, values


CACHES = {
    "keys": state("new_keys", "batch", 2, "cached", 4),
    "values": state("new_values", "batch", 2, "cached", 4),
}

FAMILIES = (
    StepFamily(
        "codec_encoder_residual",
        Encoder,
        {
            "wav": data("batch", 1, 16),
            "c0": state("n0", "batch", 1, 6),
            "c1": state("n1", "batch", 4, 2),
            "c2": state("n2", "batch", 4, 2),
            "c3": state("n3", "batch", 6, 4),
            "c4": state("n4", "batch", 6, 4),
            **CACHES,
        },
        ("codes", "left", "n0", "n1", "n2", "n3", "n4", "new_keys", "new_values"),
        windows={"cached": 12},
    ),
    StepFamily(
        "codec_decoder_summed",
        Decoder,
        {
            "codes": data("batch", BOOKS, 2, dtype="int64", below=CODES),
            "c0": state("n0", "batch", WIDTH, 2),
            "t0": state("m0", "batch", 6, 4),
            "c1": state("n1", "batch", 6, 2),
            "t1": state("m1", "batch", 4, 2),
            "c2": state("n2", "batch", 4, 6),
            "c3": state("n3", "batch", 4, 2),
            **CACHES,
        },
        ("y", "n0", "m0", "n1", "m1", "n2", "n3", "new_keys", "new_values"),
        windows={"cached": 12},
    ),
)
