"""Denoisers, codecs and vocoders."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.streams.family import StepFamily, data, state


class DualPath(nn.Module):
    """Across bands in both directions, along time in one."""

    def __init__(self) -> None:
        super().__init__()
        self.intra = nn.GRU(4, 4, batch_first=True, bidirectional=True)
        self.inter = nn.GRU(8, 4, batch_first=True)

    def forward(self, x: Any, h: Any) -> Any:
        b, t, f, d = x.shape
        y, _ = self.intra(x.reshape(b * t, f, d))
        y = y.view(b, t, f, 8).transpose(1, 2).reshape(b * f, t, 8)
        z, h = self.inter(y, h.reshape(1, b * f, 4))
        return (x + z.view(b, f, t, 4).transpose(1, 2), h.view(b, f, 4))


class Dccrn(nn.Module):
    """A complex U-Net with an LSTM (Hu et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.er, self.ei = (nn.Conv2d(1, 4, (2, 3), (1, 2), (0, 1)), nn.Conv2d(1, 4, (2, 3), (1, 2), (0, 1)))
        self.dr, self.di = (
            nn.ConvTranspose2d(4, 1, (1, 3), (1, 2), (0, 1)),
            nn.ConvTranspose2d(4, 1, (1, 3), (1, 2), (0, 1)),
        )
        self.r = nn.LSTM(40, 40, batch_first=True)

    def forward(self, x: Any, ctx: Any, h: Any, c: Any) -> Any:
        j = torch.cat([ctx, x], 2)
        re, im = (j[:, :1], j[:, 1:])
        a = torch.tanh(self.er(re) - self.ei(im))
        b = torch.tanh(self.er(im) + self.ei(re))
        z = torch.cat([a, b], 1).transpose(1, 2)
        n, t = z.shape[:2]
        w, (h, c) = self.r(z.reshape(n, t, 40), (h, c))
        w = w.view(n, t, 8, 5).transpose(1, 2)
        a, b = w.chunk(2, 1)
        mr, mi = (torch.sigmoid(self.dr(a) - self.di(b)), torch.sigmoid(self.dr(b) + self.di(a)))
        re, im = (x[:, :1], x[:, 1:])
        return (torch.cat([re * mr - im * mi, re * mi + im * mr], 1), j[:, :, -1:], h, c)


class RnNoise(nn.Module):
    """Three recurrences (Valin, 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.d = nn.Linear(10, 6)
        self.v, self.n, self.o = (
            nn.GRU(6, 6, batch_first=True),
            nn.GRU(22, 6, batch_first=True),
            nn.GRU(22, 8, batch_first=True),
        )
        self.g = nn.Linear(8, 10)

    def forward(self, x: Any, hv: Any, hn: Any, ho: Any) -> Any:
        d = torch.tanh(self.d(x))
        v, hv = self.v(d, hv)
        n, hn = self.n(torch.cat([d, v, x], -1), hn)
        o, ho = self.o(torch.cat([v, n, x], -1), ho)
        return (torch.sigmoid(self.g(o)) * x, hv, hn, ho)


class DeepFilter(nn.Module):
    """Filters over the last frames of a spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.r = nn.GRU(10, 10, batch_first=True)
        self.o = nn.Linear(10, 2 * 3 * 5)

    def forward(self, x: Any, past: Any, h: Any) -> Any:
        j = torch.cat([past, x], 1)
        y, h = self.r(x.flatten(2), h)
        w = self.o(y).view(x.size(0), x.size(1), 3, 5, 2)
        f = torch.stack([j[:, i : i + x.size(1)] for i in range(3)], 2)
        re = (w[..., 0] * f[..., 0] - w[..., 1] * f[..., 1]).sum(2)
        im = (w[..., 0] * f[..., 1] + w[..., 1] * f[..., 0]).sum(2)
        return (torch.stack([re, im], -1), j[:, -2:], h)


class CodecDecoder(nn.Module):
    """Codes to audio by transposed convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.e = nn.Embedding(32, 8)
        self.c = nn.Conv1d(8, 8, 3)
        self.t1, self.t2 = (nn.ConvTranspose1d(8, 6, 8, 4), nn.ConvTranspose1d(6, 4, 4, 2))
        self.o = nn.Conv1d(4, 1, 3)

    def over(self, t: Any, x: Any, tail: Any, n: Any) -> Any:
        y = t(x) - t.bias[:, None]
        y = torch.cat([y[..., :n] + tail, y[..., n:]], -1)
        return (y[..., :-n] + t.bias[:, None], y[..., -n:])

    def forward(self, code: Any, c: Any, a: Any, b: Any, d: Any) -> Any:
        j = torch.cat([c, self.e(code).transpose(1, 2)], 2)
        x = functional.elu(self.c(j))
        x, a = self.over(self.t1, x, a, 4)
        x, b = self.over(self.t2, functional.elu(x), b, 2)
        k = torch.cat([d, functional.elu(x)], 2)
        return (torch.tanh(self.o(k)), j[..., -2:], a, b, k[..., -2:])


class CodecEncoder(nn.Module):
    """Audio to the nearest codes."""

    book: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv1d(1, 4, 7), nn.Conv1d(4, 8, 8, 4))
        self.register_buffer("book", torch.randn(16, 8))

    def forward(self, wav: Any, x0: Any, x1: Any) -> Any:
        j = torch.cat([x0, wav], 2)
        h = functional.elu(self.a(j))
        k = torch.cat([x1, h], 2)
        z = self.b(k).transpose(1, 2)
        d = (z**2).sum(-1, keepdim=True) - 2 * z @ self.book.t() + (self.book**2).sum(-1)
        return (z, d.argmin(-1), j[..., -6:], k[..., -4:])


class WaveNet(nn.Module):
    """Dilated gates with a list of queues."""

    def __init__(self) -> None:
        super().__init__()
        self.f: Any = nn.ModuleList(nn.Conv1d(6, 12, 2, dilation=2**i) for i in range(3))
        self.i = nn.Conv1d(1, 6, 1)
        self.o = nn.Conv1d(6, 4, 1)

    def forward(self, x: Any, queues: Any) -> Any:
        h = self.i(x)
        skip: Any = 0
        new = []
        for f, q in zip(self.f, queues, strict=True):
            j = torch.cat([q, h], 2)
            new.append(j[:, :, x.size(2) :])
            a, b = f(j).chunk(2, 1)
            z = torch.tanh(a) * torch.sigmoid(b)
            skip = skip + z
            h = h + z
        return (self.o(torch.relu(skip)), new)


class WaveRnn(nn.Module):
    """A sample at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.i = nn.Linear(9, 8)
        self.c = nn.GRUCell(8, 8)
        self.o = nn.Linear(8, 16)

    def forward(self, sample: Any, mel: Any, h: Any) -> Any:
        h = self.c(torch.relu(self.i(torch.cat([sample, mel], -1))), h)
        return (torch.log_softmax(self.o(h), -1), h)


FAMILIES = (
    StepFamily(
        "dual_path_recurrent", DualPath, {"x": data("batch", 2, 5, 4), "h": state("hn", "batch", 5, 4)}, ("y", "hn")
    ),
    StepFamily(
        "dccrn",
        Dccrn,
        {
            "x": data("batch", 2, 3, 9),
            "ctx": state("ctxn", "batch", 2, 1, 9),
            "h": state("hn", 1, "batch", 40),
            "c": state("cn", 1, "batch", 40),
        },
        ("y", "ctxn", "hn", "cn"),
    ),
    StepFamily(
        "rnnoise",
        RnNoise,
        {
            "x": data("batch", 2, 10),
            "hv": state("hvn", 1, "batch", 6),
            "hn": state("hnn", 1, "batch", 6),
            "ho": state("hon", 1, "batch", 8),
        },
        ("y", "hvn", "hnn", "hon"),
    ),
    StepFamily(
        "deep_filter",
        DeepFilter,
        {"x": data("batch", 2, 5, 2), "past": state("pn", "batch", 2, 5, 2), "h": state("hn", 1, "batch", 10)},
        ("y", "pn", "hn"),
    ),
    StepFamily(
        "codec_decoder",
        CodecDecoder,
        {
            "code": data("batch", 2, dtype="int64", below=32),
            "c": state("cn", "batch", 8, 2),
            "a": state("an", "batch", 6, 4),
            "b": state("bn", "batch", 4, 2),
            "d": state("dn", "batch", 4, 2),
        },
        ("y", "cn", "an", "bn", "dn"),
    ),
    StepFamily(
        "codec_encoder",
        CodecEncoder,
        {"wav": data("batch", 1, 16), "x0": state("x0n", "batch", 1, 6), "x1": state("x1n", "batch", 4, 4)},
        ("z", "code", "x0n", "x1n"),
    ),
    StepFamily(
        "wavenet_queues",
        WaveNet,
        {
            "x": data("batch", 1, 3),
            "queues.0": state("q0", "batch", 6, 1),
            "queues.1": state("q1", "batch", 6, 2),
            "queues.2": state("q2", "batch", 6, 4),
        },
        ("y", "q0", "q1", "q2"),
    ),
    StepFamily(
        "wavernn",
        WaveRnn,
        {"sample": data("batch", 1), "mel": data("batch", 8), "h": state("hn", "batch", 8)},
        ("y", "hn"),
    ),
)
