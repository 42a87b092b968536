"""Front ends, spotters, speaker encoders, denoisers and vocoders, as a paper's reader writes them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from tests.zoo.streams.family import StepFamily, data, state


class ContextNet(nn.Module):
    """Convolutions with squeeze-and-excitation over the mean of all frames so far (Han et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 5, groups=8)
        self.point = nn.Conv1d(8, 8, 1)
        self.norm = nn.BatchNorm1d(8)
        self.squeeze = nn.Sequential(nn.Linear(8, 2), nn.SiLU(), nn.Linear(2, 8), nn.Sigmoid())

    def forward(self, x: Any, context: Any, total: Any, seen: Any) -> Any:
        padded = torch.cat([context, x], -1)
        y = functional.silu(self.norm(self.point(self.conv(padded))))
        total = total + y.sum(-1)
        seen = seen + y.shape[-1]
        gate = self.squeeze(total / seen)
        return x + y * gate.unsqueeze(-1), padded[..., -4:], total, seen


class QuartzNet(nn.Module):
    """Blocks of separable convolutions; contexts in a dictionary (Kriman et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: Any = nn.ModuleList(
            nn.Sequential(nn.Conv1d(6, 6, k, dilation=d, groups=6), nn.Conv1d(6, 6, 1), nn.BatchNorm1d(6))
            for k, d in ((5, 1), (3, 2))
        )

    def forward(self, x: Any, caches: dict[str, Tensor]) -> Any:
        new = {}
        for i, block in enumerate(self.blocks):
            context = caches[f"block{i}"]
            joined = torch.cat((context, x), dim=2)
            new[f"block{i}"] = joined[:, :, -context.size(2) :]
            x = torch.relu(block(joined) + x)
        return x, new


class TdnnF(nn.Module):
    """Spliced frames through a factor of low rank, bypassed by 0.66 (Povey et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.down: Any = nn.ModuleList(nn.Linear(16, 3, bias=False) for _ in range(2))
        self.up: Any = nn.ModuleList(nn.Linear(6, 8) for _ in range(2))
        self.norm: Any = nn.ModuleList(nn.BatchNorm1d(8, affine=False) for _ in range(2))

    def forward(self, x: Any, inputs: list[Tensor], factors: list[Tensor]) -> Any:
        new_inputs, new_factors = [], []
        for i in range(2):
            frames = torch.cat([inputs[i], x], 1)
            low = self.down[i](torch.cat([frames[:, :-3], frames[:, 3:]], -1))
            lows = torch.cat([factors[i], low], 1)
            y = torch.relu(self.up[i](torch.cat([lows[:, :-3], lows[:, 3:]], -1)))
            y = self.norm[i](y.transpose(1, 2)).transpose(1, 2)
            new_inputs.append(frames[:, -3:])
            new_factors.append(lows[:, -3:])
            x = 0.66 * x + y
        return x, new_inputs, new_factors


class SincNet(nn.Module):
    """Band-pass filters made of their cut-off frequencies in every call (Ravanelli, Bengio, 2018)."""

    times: Tensor
    window: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Parameter(torch.tensor([0.01, 0.05, 0.1, 0.2]))
        self.band = nn.Parameter(torch.tensor([0.05, 0.05, 0.1, 0.1]))
        self.register_buffer("times", torch.arange(-8, 9).float())
        self.register_buffer("window", torch.hamming_window(17, periodic=False))
        self.norm = nn.LayerNorm(4)

    def forward(self, wave: Any, tail: Any) -> Any:
        low = torch.abs(self.low)
        high = torch.clamp(low + torch.abs(self.band), max=0.5)
        bands = 2 * high[:, None] * torch.sinc(2 * high[:, None] * self.times)
        bands = bands - 2 * low[:, None] * torch.sinc(2 * low[:, None] * self.times)
        filters = (bands * self.window)[:, None]
        samples = torch.cat([tail, wave], -1)
        y = functional.max_pool1d(torch.abs(functional.conv1d(samples.unsqueeze(1), filters)), 4)
        y = functional.leaky_relu(self.norm(torch.log1p(y).transpose(1, 2)), 0.2)
        return y, samples[:, -16:]


class TimeDepth(nn.Module):
    """Time-depth separable blocks of wav2letter's streaming recogniser (Pratap et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, (5, 1))
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)
        self.norm1, self.norm2 = nn.LayerNorm([3, 4]), nn.LayerNorm([3, 4])

    def forward(self, x: Any, past: Any) -> Any:
        joined = torch.cat([past, x], 2)
        x = x + torch.relu(self.conv(joined))
        x = self.norm1(x.permute(0, 2, 1, 3))
        flat = x.flatten(2)
        y = self.second(torch.relu(self.first(flat))).unflatten(2, (3, 4))
        return self.norm2(x + y).permute(0, 2, 1, 3), joined[:, :, -4:]


class SoundStream(nn.Module):
    """A residual unit, a strided convolution and a quantizer of two residual books (Zeghidour et al., 2021)."""

    books: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(1, 4, 7))
        self.wide, self.point = weight_norm(nn.Conv1d(4, 4, 7, dilation=3)), weight_norm(nn.Conv1d(4, 4, 1))
        self.down = weight_norm(nn.Conv1d(4, 6, 8, stride=4))
        self.register_buffer("books", torch.randn(2, 16, 6))

    def forward(self, wave: Any, a: Any, b: Any, c: Any) -> Any:
        a = torch.cat([a, wave], 2)
        x = self.first(a)
        b = torch.cat([b, functional.elu(x)], 2)
        x = x + self.point(functional.elu(self.wide(b)))
        c = torch.cat([c, functional.elu(x)], 2)
        rest = self.down(c).transpose(1, 2)
        codes, total = [], torch.zeros_like(rest)
        for book in self.books:
            index = torch.cdist(rest, book.expand(rest.size(0), -1, -1)).argmin(-1)
            chosen = functional.embedding(index, book)
            total, rest = total + chosen, rest - chosen
            codes.append(index)
        return torch.stack(codes, 1), total, a[:, :, -6:], b[:, :, -18:], c[:, :, -4:]


class GtCrn(nn.Module):
    """Bands merged, grouped recurrences across bands, attention along time by a recurrence (Rong et al., 2024)."""

    bands: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bands", torch.rand(9, 6))
        self.conv = nn.Conv2d(3, 4, (3, 3), padding=(0, 1))
        self.act = nn.PReLU(4)
        self.norm = nn.BatchNorm2d(4)
        self.energy = nn.GRU(4, 8, batch_first=True)
        self.gate = nn.Linear(8, 4)
        self.left, self.right = nn.GRU(2, 2, batch_first=True), nn.GRU(2, 2, batch_first=True)
        self.out = nn.ConvTranspose2d(4, 2, (1, 3), padding=(0, 1))

    def forward(self, spec: Any, conv: Any, gate: Any, inter: Any) -> Any:
        real, imag = spec[..., 0], spec[..., 1]
        x = torch.stack([torch.sqrt(real**2 + imag**2 + 1e-12), real, imag], 1) @ self.bands
        joined = torch.cat([conv, x], 2)
        y = self.act(self.norm(self.conv(joined)))
        attention, gate = self.energy(y.square().mean(-1).transpose(1, 2), gate)
        y = y * torch.sigmoid(self.gate(attention)).transpose(1, 2)[..., None]
        b, c, t, f = y.shape
        rows = y.permute(0, 3, 2, 1).reshape(b * f, t, c)
        one, two = torch.chunk(rows, 2, dim=-1)
        h1, h2 = torch.chunk(inter.reshape(1, b * f, 4), 2, dim=-1)
        one, h1 = self.left(one, h1.contiguous())
        two, h2 = self.right(two, h2.contiguous())
        rows = torch.cat([one, two], -1).reshape(b, f, t, c).permute(0, 3, 2, 1)
        mask = torch.tanh(self.out(y + rows) @ self.bands.T)
        s_real = real * mask[:, 0] - imag * mask[:, 1]
        s_imag = real * mask[:, 1] + imag * mask[:, 0]
        hidden = torch.cat([h1, h2], -1).reshape(b, f, 4)
        return torch.stack([s_real, s_imag], -1), joined[:, :, -2:], gate, hidden


class HifiGan(nn.Module):
    """Transposed convolutions overlapped and added, receptive fields fused (Kong et al., 2020), causal."""

    def __init__(self) -> None:
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(8, 6, 7))
        self.up = weight_norm(nn.ConvTranspose1d(6, 4, 8, stride=4, bias=False))
        self.up_bias = nn.Parameter(torch.randn(4))
        self.fields: Any = nn.ModuleList(weight_norm(nn.Conv1d(4, 4, k, dilation=d)) for k, d in ((3, 1), (5, 3)))
        self.post = weight_norm(nn.Conv1d(4, 1, 7))

    @staticmethod
    def _conv(layer: Any, x: Any, context: Any) -> Any:
        joined = torch.cat([context, x], dim=-1)
        return layer(joined), joined[..., joined.size(-1) - context.size(-1) :]

    def forward(self, mel: Any, states: Any) -> Any:
        pre, tail, first, second, post = states
        x, pre = self._conv(self.pre, mel, pre)
        y = functional.conv_transpose1d(functional.leaky_relu(x, 0.1), self.up.weight, None, stride=4)
        y = functional.pad(tail, (0, y.size(-1) - 4)) + y
        tail, x = y[..., -4:], y[..., :-4] + self.up_bias[:, None]
        a, first = self._conv(self.fields[0], functional.leaky_relu(x, 0.1), first)
        b, second = self._conv(self.fields[1], functional.leaky_relu(x, 0.1), second)
        y, post = self._conv(self.post, functional.leaky_relu((a + b) / 2 + x), post)
        return torch.tanh(y), (pre, tail, first, second, post)


class WakeWord(nn.Module):
    """Two-dimensional convolutions, a recurrence, attention over its last outputs (Shan et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, (8, 5), stride=(4, 3))
        self.rnn = nn.GRU(12, 6, batch_first=True)
        self.score, self.out = nn.Linear(6, 1), nn.Linear(6, 2)

    def forward(self, mel: Any, conv: Any, h: Any, heard: Any) -> Any:
        joined = torch.cat([conv, mel], 1)
        x = torch.relu(self.conv(joined.unsqueeze(1)))
        x = x.permute(0, 2, 1, 3).flatten(2)
        y, h = self.rnn(x, h)
        heard = torch.cat([heard, y], 1)[:, -20:]
        weights = torch.softmax(self.score(torch.tanh(heard)), dim=1)
        return torch.softmax(self.out((weights * heard).sum(1)), -1), joined[:, -4:], h, heard


class AttentiveStatistics(nn.Module):
    """A speaker's mean and deviation weighted by attention, over all that was heard (Okabe et al., 2018)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3)
        self.score = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
        self.out = nn.Linear(16, 6)

    def forward(self, x: Any, context: Any, sums: dict[str, Tensor]) -> Any:
        joined = torch.cat([context, x.transpose(1, 2)], 2)
        h = torch.relu(self.conv(joined)).transpose(1, 2)
        score = self.score(h)
        top = torch.maximum(sums["top"], score.amax(1))
        keep = torch.exp(sums["top"] - top)
        weight = torch.exp(score - top.unsqueeze(1))
        total = sums["total"] * keep + weight.sum(1)
        first = sums["first"] * keep + (weight * h).sum(1)
        second = sums["second"] * keep + (weight * h**2).sum(1)
        mean = first / total
        deviation = torch.sqrt(torch.clamp(second / total - mean**2, min=1e-6))
        embedding = functional.normalize(self.out(torch.cat([mean, deviation], -1)), dim=-1)
        return embedding, joined[:, :, -2:], {"top": top, "total": total, "first": first, "second": second}


class TasnetStates(NamedTuple):
    """What one block of Conv-TasNet hands on."""

    context: Tensor
    total: Tensor
    squares: Tensor
    seen: Tensor


class ConvTasnet(nn.Module):
    """A block with cumulative normalization, frame by frame (Luo, Mesgarani, 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.conv, self.out = (
            nn.Conv1d(6, 8, 1),
            nn.Conv1d(8, 8, 3, dilation=2, groups=8),
            nn.Conv1d(8, 6, 1),
        )
        self.act = nn.PReLU()
        self.gain, self.bias = nn.Parameter(torch.ones(8, 1)), nn.Parameter(torch.zeros(8, 1))

    def forward(self, x: Any, states: TasnetStates) -> Any:
        y = self.act(self.into(x))
        steps = torch.arange(1, y.size(-1) + 1) * y.size(1)
        total = states.total[:, None] + y.sum(1).cumsum(-1)
        squares = states.squares[:, None] + y.pow(2).sum(1).cumsum(-1)
        count = states.seen[:, None] + steps
        mean = total / count
        scale = torch.rsqrt(squares / count - mean**2 + 1e-5)
        y = (y - mean[:, None]) * scale[:, None] * self.gain + self.bias
        joined = torch.cat([states.context, y], -1)
        z = x + self.out(self.conv(joined))
        return z, TasnetStates(joined[..., -4:], total[:, -1], squares[:, -1], count[:, -1])


class Biquad(nn.Module):
    """Filters of second order with learned poles, gain control behind them, a sample at a time inside."""

    def __init__(self) -> None:
        super().__init__()
        self.radius, self.angle = nn.Parameter(torch.rand(4)), nn.Parameter(torch.rand(4) * 3)
        self.gain = nn.Parameter(torch.rand(4))

    def forward(self, wave: Any, z: Any, level: Any) -> Any:
        radius = torch.sigmoid(self.radius)
        a1, a2 = -2 * radius * torch.cos(self.angle), radius**2
        z1, z2 = z.unbind(-1)
        out = []
        for t in range(wave.shape[1]):
            y = self.gain * wave[:, t : t + 1] + z1
            z1, z2 = z2 - a1 * y, -a2 * y
            level = torch.where(y.abs() > level, 0.7 * level + 0.3 * y.abs(), 0.99 * level)
            out.append(y / (level + 1e-2))
        return torch.stack(out, 1), torch.stack([z1, z2], -1), level


class SileroLike(nn.Module):
    """Spectrum by a convolution with a context of samples, states of both kinds in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.stft = nn.Conv1d(1, 18, 16, stride=8, bias=False)
        self.enc = nn.Conv1d(9, 8, 3, padding=1)
        self.rnn = nn.LSTMCell(8, 8)
        self.out = nn.Conv1d(8, 1, 1)

    def forward(self, wave: Any, state: Any, context: Any) -> Any:
        x = torch.cat([context, wave], 1)
        y = self.stft(functional.pad(x[:, None], (0, 8), mode="reflect"))
        magnitude = torch.sqrt(y[:, :9] ** 2 + y[:, 9:] ** 2)
        z = torch.relu(self.enc(magnitude)).mean(-1)
        h, c = self.rnn(z, (state[0], state[1]))
        score = torch.sigmoid(self.out(torch.relu(h).unsqueeze(-1))).mean((1, 2))
        return score.unsqueeze(1), torch.stack([h, c]), x[:, -8:]


class Demucs(nn.Module):
    """A U-Net on samples scaled by the running deviation of what was heard (Defossez et al., 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.enc, self.gate = nn.Conv1d(1, 4, 8, 4), nn.Conv1d(4, 8, 1)
        self.rnn = nn.LSTM(4, 4, 2)
        self.ungate: Any = nn.Conv1d(4, 8, 1)
        self.dec: Any = nn.ConvTranspose1d(4, 1, 8, 4)

    def forward(self, wave: Any, tail: Any, lstm: Any, over: Any, variance: Any, frames: Any) -> Any:
        frames = frames + 1
        variance = wave.pow(2).mean(-1, keepdim=True) / frames + (1 - 1 / frames) * variance
        scale = 1e-3 + torch.sqrt(variance)
        x = torch.cat([tail, wave], -1)
        skip = functional.glu(self.gate(torch.relu(self.enc(x[:, None] / scale[..., None]))), 1)
        y, (h, c) = self.rnn(skip.permute(2, 0, 1), lstm)
        z = functional.glu(self.ungate(y.permute(1, 2, 0) + skip), 1)
        out = self.dec(z)
        out[..., :4] = out[..., :4] + over
        over = out[..., -4:] - self.dec.bias[:, None]
        return (out[..., :-4] * scale[..., None])[:, 0], x[:, -4:], (h, c), over, variance, frames


class FullSubNet(nn.Module):
    """Every band with its neighbours through one recurrence, means kept over time (Hao et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.full, self.sub = nn.GRU(6, 6, batch_first=True), nn.GRU(4, 5, batch_first=True)
        self.out = nn.Linear(5, 2)

    def forward(self, spec: Any, mean: Any, count: Any, full: Any, sub: Any) -> Any:
        steps = torch.arange(1, spec.size(1) + 1)
        running = mean[:, None] * count[:, None] + torch.cumsum(spec.mean(-1), 1)
        running = running / (count[:, None] + steps)
        x = spec / (running[..., None] + 1e-5)
        y, full = self.full(x, full)
        around = functional.pad(x, (1, 1), mode="reflect").unfold(-1, 3, 1)
        units = torch.cat([around, y.unsqueeze(-1)], -1)
        b, t, f, w = units.shape
        z, sub = self.sub(units.transpose(1, 2).reshape(b * f, t, w), sub.view(1, b * f, 5))
        mask = self.out(z).view(b, f, t, 2).permute(0, 3, 2, 1)
        return mask, running[:, -1], count + spec.size(1), full, sub.view(b, f, 5)


class Pitch(nn.Module):
    """Autocorrelation over the newest samples, a path's best states handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.jump = nn.Parameter(torch.randn(8, 8))

    def forward(self, wave: Any, samples: Any, best: Any) -> Any:
        samples = torch.cat([samples[:, wave.shape[1] :], wave], 1)
        spectrum = torch.stack([(samples[:, : 24 - lag] * samples[:, lag:24]).sum(1) for lag in range(1, 9)], 1)
        spectrum = spectrum / (samples.square().sum(1, keepdim=True) + 1e-3)
        scores, came = (best[:, :, None] + self.jump).max(1)
        best = torch.log_softmax(scores + spectrum, -1)
        return best.argmax(-1, keepdim=True), came, samples, best


FAMILIES = (
    StepFamily(
        "contextnet",
        ContextNet,
        {
            "x": data("batch", 8, 4),
            "context": state("nc", "batch", 8, 4),
            "total": state("nt", "batch", 8),
            "seen": state("ns", "batch", 1),
        },
        ("y", "nc", "nt", "ns"),
    ),
    StepFamily(
        "quartznet",
        QuartzNet,
        {
            "x": data("batch", 6, 4),
            "caches.block0": state("n0", "batch", 6, 4),
            "caches.block1": state("n1", "batch", 6, 4),
        },
        ("y", "n0", "n1"),
    ),
    StepFamily(
        "tdnn_f",
        TdnnF,
        {
            "x": data("batch", 3, 8),
            "inputs.0": state("i0", "batch", 3, 8),
            "inputs.1": state("i1", "batch", 3, 8),
            "factors.0": state("f0", "batch", 3, 3),
            "factors.1": state("f1", "batch", 3, 3),
        },
        ("y", "i0", "i1", "f0", "f1"),
    ),
    StepFamily("sincnet", SincNet, {"wave": data("batch", 16), "tail": state("nt", "batch", 16)}, ("y", "nt")),
    StepFamily(
        "time_depth_separable",
        TimeDepth,
        {"x": data("batch", 3, 4, 4), "past": state("np", "batch", 3, 4, 4)},
        ("y", "np"),
    ),
    StepFamily(
        "soundstream",
        SoundStream,
        {
            "wave": data("batch", 1, 16),
            "a": state("na", "batch", 1, 6),
            "b": state("nb", "batch", 4, 18),
            "c": state("nc", "batch", 4, 4),
        },
        ("codes", "quantized", "na", "nb", "nc"),
    ),
    StepFamily(
        "gtcrn",
        GtCrn,
        {
            "spec": data("batch", 2, 9, 2),
            "conv": state("nc", "batch", 3, 2, 6),
            "gate": state("ng", 1, "batch", 8),
            "inter": state("ni", "batch", 6, 4),
        },
        ("y", "nc", "ng", "ni"),
    ),
    StepFamily(
        "hifigan",
        HifiGan,
        {
            "mel": data("batch", 8, 2),
            "states.0": state("n0", "batch", 8, 6),
            "states.1": state("n1", "batch", 4, 4),
            "states.2": state("n2", "batch", 4, 2),
            "states.3": state("n3", "batch", 4, 12),
            "states.4": state("n4", "batch", 4, 6),
        },
        ("y", "n0", "n1", "n2", "n3", "n4"),
    ),
    StepFamily(
        "wake_word_crnn",
        WakeWord,
        {
            "mel": data("batch", 8, 11),
            "conv": state("nc", "batch", 4, 11),
            "h": state("nh", 1, "batch", 6),
            "heard": state("no", "batch", "cached", 6),
        },
        ("y", "nc", "nh", "no"),
        windows={"cached": 20},
    ),
    StepFamily(
        "attentive_statistics",
        AttentiveStatistics,
        {
            "x": data("batch", 4, 8),
            "context": state("nc", "batch", 8, 2),
            "sums.top": state("n0", "batch", 1),
            "sums.total": state("n1", "batch", 1),
            "sums.first": state("n2", "batch", 8),
            "sums.second": state("n3", "batch", 8),
        },
        ("y", "nc", "n0", "n1", "n2", "n3"),
    ),
    StepFamily(
        "conv_tasnet",
        ConvTasnet,
        {
            "x": data("batch", 6, 4),
            "states.context": state("nc", "batch", 8, 4),
            "states.total": state("nt", "batch"),
            "states.squares": state("nq", "batch"),
            "states.seen": state("ns", "batch"),
        },
        ("y", "nc", "nt", "nq", "ns"),
    ),
    StepFamily(
        "biquad_gain_control",
        Biquad,
        {"wave": data("batch", 6), "z": state("nz", "batch", 4, 2), "level": state("nl", "batch", 4)},
        ("y", "nz", "nl"),
    ),
    StepFamily(
        "vad_context_of_samples",
        SileroLike,
        {"wave": data("batch", 32), "state": state("ns", 2, "batch", 8), "context": state("nc", "batch", 8)},
        ("y", "ns", "nc"),
    ),
    StepFamily(
        "demucs",
        Demucs,
        {
            "wave": data("batch", 16),
            "tail": state("nt", "batch", 4),
            "lstm.0": state("nh", 2, "batch", 4),
            "lstm.1": state("nc", 2, "batch", 4),
            "over": state("no", "batch", 1, 4),
            "variance": state("nv", "batch", 1),
            "frames": state("nf", "batch", 1),
        },
        ("y", "nt", "nh", "nc", "no", "nv", "nf"),
    ),
    StepFamily(
        "fullsubnet",
        FullSubNet,
        {
            "spec": data("batch", 2, 6),
            "mean": state("nm", "batch"),
            "count": state("nc", "batch"),
            "full": state("nf", 1, "batch", 6),
            "sub": state("ns", "batch", 6, 5),
        },
        ("y", "nm", "nc", "nf", "ns"),
    ),
    StepFamily(
        "pitch_tracker",
        Pitch,
        {"wave": data("batch", 6), "samples": state("ns", "batch", 24), "best": state("nb", "batch", 8)},
        ("pitch", "came", "ns", "nb"),
    ),
)
