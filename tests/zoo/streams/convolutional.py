"""Convolution contexts, buffers, overlap-add tails and running statistics."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.streams.family import StepFamily, data, state


class Tcn(nn.Module):
    """Dilated causal convolutions, a context for each."""

    def __init__(self) -> None:
        super().__init__()
        self.d = [1, 2, 4]
        self.c: Any = nn.ModuleList(nn.Conv1d(8, 8, 3, dilation=d) for d in self.d)

    def forward(self, x: Any, c0: Any, c1: Any, c2: Any) -> Any:
        new = []
        for conv, d, c in zip(self.c, self.d, (c0, c1, c2), strict=True):
            j = torch.cat([c, x], 2)
            new.append(j[:, :, -2 * d :])
            x = x + torch.relu(conv(j))
        return (x, *new)


class TcnOneBuffer(nn.Module):
    """The same with one buffer for all contexts."""

    def __init__(self) -> None:
        super().__init__()
        self.d = [1, 2, 4]
        self.c: Any = nn.ModuleList(nn.Conv1d(8, 8, 3, dilation=d) for d in self.d)

    def forward(self, x: Any, buf: Any) -> Any:
        new = []
        at = 0
        for conv, d in zip(self.c, self.d, strict=True):
            j = torch.cat([buf[:, :, at : at + 2 * d], x], 2)
            at += 2 * d
            new.append(j[:, :, -2 * d :])
            x = x + torch.relu(conv(j))
        return (x, torch.cat(new, 2))


class Fsmn(nn.Module):
    """Memory blocks (DFSMN, Zhang et al., 2018), contexts of all layers stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.p: Any = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.m: Any = nn.ModuleList(nn.Conv1d(8, 8, 5, groups=8, bias=False) for _ in range(3))

    def forward(self, x: Any, cache: Any) -> Any:
        new = []
        for i in range(3):
            h = torch.relu(self.p[i](x))
            j = torch.cat([cache[i], h.transpose(1, 2)], 2)
            new.append(j[..., -4:])
            x = h + self.m[i](j).transpose(1, 2)
        return (x, torch.stack(new))


class ConvStride(nn.Module):
    """Strided convolutions whose contexts keep their phase."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(4, 8, 6, stride=2)
        self.d = nn.Conv1d(8, 8, 4, stride=2)

    def forward(self, x: Any, a: Any, b: Any) -> Any:
        j = torch.cat([a, x], 2)
        y = torch.relu(self.c(j))
        k = torch.cat([b, y], 2)
        return (self.d(k), j[:, :, -4:], k[:, :, -2:])


class Roll(nn.Module):
    """A keyword spotter over a buffer that is rolled and written to."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Linear(8 * 10, 6)

    def forward(self, x: Any, buf: Any) -> Any:
        buf = torch.roll(buf, -x.size(1), 1).clone()
        buf[:, -x.size(1) :] = x
        return (self.c(buf.flatten(1)), buf)


class Kws2d(nn.Module):
    """A keyword spotter with a convolution over time and bands."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(1, 4, (5, 3), padding=(0, 1))
        self.o = nn.Linear(40, 4)

    def forward(self, x: Any, ctx: Any) -> Any:
        j = torch.cat((ctx, x), 1)
        y = torch.relu(self.c(j.unsqueeze(1))).permute(0, 2, 1, 3).flatten(2)
        return (torch.softmax(self.o(y), -1), j[:, j.size(1) - 4 :])


class Decoder(nn.Module):
    """A transposed convolution whose tail is added to the next chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.t = nn.ConvTranspose1d(6, 1, 8, stride=4, bias=False)

    def forward(self, x: Any, tail: Any) -> Any:
        y = self.t(x)
        y = torch.cat([y[:, :, :4] + tail, y[:, :, 4:]], 2)
        return (y[:, :, :-4], y[:, :, -4:])


class InPlaceTail(Decoder):
    """The same, added in place."""

    def forward(self, x: Any, tail: Any) -> Any:
        y = self.t(x).clone()
        y[:, :, :4] += tail
        return (y[..., :-4], y[..., -4:])


class Istft(nn.Module):
    """A mask on a spectrum, put together again with overlapping windows."""

    w: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.hann_window(16))
        self.net = nn.Linear(9, 9)

    def forward(self, x: Any, past: Any, tail: Any) -> Any:
        wav = torch.cat([past, x], 1)
        spec = torch.fft.rfft(wav * self.w)
        m = torch.sigmoid(self.net(spec.abs()))
        out = torch.fft.irfft(spec * m, n=16) * self.w
        out = out + tail
        return (out[:, :8], wav[:, 8:], torch.cat([out[:, 8:], torch.zeros_like(x)], 1))


class StftVad(nn.Module):
    """Speech activity (as Silero's): spectrum, recurrence, stacked states."""

    w: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.hann_window(16))
        self.r = nn.LSTM(9, 8, 2, batch_first=True)
        self.o = nn.Linear(8, 1)

    def forward(self, x: Any, ctx: Any, state: Any) -> Any:
        x = torch.cat([ctx, x], 1)
        spec = torch.stft(x, 16, 8, window=self.w, center=False, return_complex=True).abs().transpose(1, 2)
        y, (h, c) = self.r(spec, (state[0], state[1]))
        return (torch.sigmoid(self.o(y)).mean(1), x[:, -8:], torch.stack([h, c]))


class RunningNorm(nn.Module):
    """The mean so far is taken off."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(8, 5)

    def forward(self, x: Any, mean: Any, count: Any) -> Any:
        n = count + x.size(1)
        mean = mean + (x - mean.unsqueeze(1)).sum(1) / n
        return (self.layers(x - mean.unsqueeze(1)), mean, n)


class Ema(nn.Module):
    """Per-channel energy normalisation by moving averages."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(8, 5)

    def forward(self, x: Any, m: Any, v: Any) -> Any:
        ys = []
        for t in range(x.size(1)):
            m = 0.9 * m + 0.1 * x[:, t]
            v = 0.9 * v + 0.1 * (x[:, t] - m) ** 2
            ys.append((x[:, t] - m) * torch.rsqrt(v + 0.001))
        return (self.layers(torch.stack(ys, 1)), m, v)


class CumNorm(nn.Module):
    """Cumulative layer norm, with an integer count."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(8, 5)

    def forward(self, x: Any, total: Any, square: Any, count: Any) -> Any:
        total = total + x.sum(-1).cumsum(1)[:, -1:]
        square = square + (x**2).sum(-1).sum(1, keepdim=True)
        count = count + x.size(1) * x.size(2)
        mean = total / count
        return (
            self.layers((x - mean.unsqueeze(-1)) / torch.sqrt(square / count - mean**2 + 0.01).unsqueeze(-1)),
            total,
            square,
            count,
        )


class Counter(nn.Module):
    """Rows of a table at a step that the model counts."""

    pe: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Linear(8, 5)
        self.register_buffer("pe", torch.randn(4096, 8))

    def forward(self, x: Any, step: Any) -> Any:
        i = step.unsqueeze(1) + torch.arange(x.size(1))
        return (self.layers(x + self.pe[i]), step + x.size(1))


class LookAhead(nn.Module):
    """An output that lags two frames."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(8, 8, 5)

    def forward(self, x: Any, buf: Any) -> Any:
        j = torch.cat([buf, x], 2)
        return (j[:, :, 2:-2] * torch.sigmoid(self.c(j)), j[:, :, -4:])


class Squeeze(nn.Module):
    """Every second frame into a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv1d(8, 8, 3, 2)
        self.r = nn.GRU(8, 8, batch_first=True)

    def forward(self, x: Any, ctx: Any, h: Any) -> Any:
        j = torch.cat([ctx, x], 1)
        y, h = self.r(self.c(j.transpose(1, 2)).transpose(1, 2), h)
        return (y, j[:, -1:], h)


FAMILIES = (
    StepFamily(
        "tcn",
        Tcn,
        {
            "x": data("batch", 8, 4),
            "c0": state("n0", "batch", 8, 2),
            "c1": state("n1", "batch", 8, 4),
            "c2": state("n2", "batch", 8, 8),
        },
        ("y", "n0", "n1", "n2"),
    ),
    StepFamily(
        "tcn_one_buffer", TcnOneBuffer, {"x": data("batch", 8, 4), "buf": state("bufn", "batch", 8, 14)}, ("y", "bufn")
    ),
    StepFamily(
        "dfsmn_stacked", Fsmn, {"x": data("batch", 3, 8), "cache": state("next", 3, "batch", 8, 4)}, ("y", "next")
    ),
    StepFamily(
        "conv_stride",
        ConvStride,
        {"x": data("batch", 4, 8), "a": state("an", "batch", 4, 4), "b": state("bn", "batch", 8, 2)},
        ("y", "an", "bn"),
    ),
    StepFamily(
        "spotter_rolled_buffer", Roll, {"x": data("batch", 3, 8), "buf": state("bufn", "batch", 10, 8)}, ("y", "bufn")
    ),
    StepFamily(
        "spotter_conv2d", Kws2d, {"x": data("batch", 2, 10), "ctx": state("ctxn", "batch", 4, 10)}, ("y", "ctxn")
    ),
    StepFamily("overlap_add", Decoder, {"x": data("batch", 6, 3), "tail": state("tn", "batch", 1, 4)}, ("y", "tn")),
    StepFamily(
        "overlap_add_in_place", InPlaceTail, {"x": data("batch", 6, 3), "tail": state("tn", "batch", 1, 4)}, ("y", "tn")
    ),
    StepFamily(
        "istft_mask",
        Istft,
        {"x": data("batch", 8), "past": state("pn", "batch", 8), "tail": state("tn", "batch", 16)},
        ("y", "pn", "tn"),
    ),
    StepFamily(
        "vad_stft",
        StftVad,
        {"x": data("batch", 32), "ctx": state("cn", "batch", 8), "state": state("sn", 2, 2, "batch", 8)},
        ("y", "cn", "sn"),
    ),
    StepFamily(
        "running_mean",
        RunningNorm,
        {"x": data("batch", 3, 8), "mean": state("mn", "batch", 8), "count": state("nn", "batch", 1)},
        ("y", "mn", "nn"),
    ),
    StepFamily(
        "pcen_like",
        Ema,
        {"x": data("batch", 3, 8), "m": state("mn", "batch", 8), "v": state("vn", "batch", 8)},
        ("y", "mn", "vn"),
    ),
    StepFamily(
        "cumulative_norm",
        CumNorm,
        {
            "x": data("batch", 3, 8),
            "total": state("t1", "batch", 1),
            "square": state("s1", "batch", 1),
            "count": state("c1", "batch", 1, dtype="int64"),
        },
        ("y", "t1", "s1", "c1"),
    ),
    StepFamily(
        "step_counter",
        Counter,
        {"x": data("batch", 3, 8), "step": state("stepn", "batch", dtype="int64")},
        ("y", "stepn"),
    ),
    StepFamily(
        "look_ahead_frames", LookAhead, {"x": data("batch", 8, 4), "buf": state("bn", "batch", 8, 4)}, ("y", "bn")
    ),
    StepFamily(
        "time_reduction",
        Squeeze,
        {"x": data("batch", 4, 8), "ctx": state("cn", "batch", 1, 8), "h": state("hn", 1, "batch", 8)},
        ("y", "cn", "hn"),
    ),
)
