"""A neural speech codec, as researchers train one: encoder, residual quantiser, causal decoder to the waveform.

    waveform [batch, samples] -> log-mel frames, 2 per code frame -> ConvNeXt blocks -> latents [batch, time, 32]
        -> 4 residual codebooks of 512 entries: codes [batch, time, 4], one frame per 20 ms (50 Hz, 1.8 kbit/s)
        -> causal ConvNeXt blocks -> pitch, and gains of a pulse train and of noise -> waveform [batch, time * 320]

The decoder reads earlier frames only: the sound of a code frame is complete 10 ms after its position, when the overlap
with the next one is added. Nothing in it is prepared for deployment; it takes all frames of an utterance at once.

Sources: residual quantisers with a random number of codebooks in training (Zeghidour et al. 2021, arXiv 2107.03312);
ConvNeXt blocks and an inverse Fourier transform in place of upsampling (Siuzdak 2023, arXiv 2306.00814); a harmonic
source steered by a predicted pitch (Wang et al. 2019, arXiv 1904.12088), filtered as in Engel et al. 2020
(arXiv 2001.04643); codebooks that follow running means and replace unused entries (van den Oord et al. 2017,
arXiv 1711.00937, appendix A.1).
"""

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLE_RATE_HZ = 16000
HOP = 160
"""Samples per half of a code frame: pitch and gains are held that long."""

DELAY_SAMPLES = 160
"""The decoder's waveform is this much later than what was encoded."""

WINDOW = 2 * HOP
BINS = HOP + 1
ENCODER_WINDOW = 640
MEL_BINS = 80
PULSE_HZ = 3500.0
"""Width of the spectrum of a pulse (standard deviation of a Gaussian)."""

NEUTRAL_HZ = 130.0
"""The pitch that the decoder's output 0 means."""

OCTAVES = 2.0
"""The pitch stays within this many octaves of `NEUTRAL_HZ`."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of one codec.

    Attributes:
        width: hidden channels of encoder and decoder.
        blocks: ConvNeXt blocks in each of them.
        kernel: taps of their depthwise convolutions.
        latent: channels of the quantised latents.
        codebooks: residual codebooks.
        entries: entries of each codebook.
    """

    width: int = 128
    blocks: int = 4
    kernel: int = 5
    latent: int = 32
    codebooks: int = 4
    entries: int = 512


def fourier_basis(window: int) -> Tensor:
    """Return real and imaginary parts of a Fourier transform: float32 [window, 2 * (window / 2 + 1)]."""
    angles = torch.arange(window)[:, None] * torch.arange(window // 2 + 1) % window * (2 * math.pi / window)
    return torch.cat([angles.cos(), -angles.sin()], dim=1)


def inverse_basis(window: int) -> Tensor:
    """Return the inverse of `fourier_basis`: float32 [2 * (window / 2 + 1), window]."""
    weights = torch.full((window // 2 + 1, 1), 2.0 / window)
    weights[0] = weights[-1] = 1.0 / window
    return fourier_basis(window).T * weights.repeat(2, 1)


def mel_matrix(bins: int, window: int) -> Tensor:
    """Return triangular filters, evenly spaced on the mel scale: float32 [window / 2 + 1, bins]."""
    highest = 2595.0 * math.log10(1.0 + SAMPLE_RATE_HZ / 2 / 700.0)
    edges = 700.0 * (10.0 ** (torch.linspace(0.0, highest, bins + 2) / 2595.0) - 1.0)
    places = torch.linspace(0.0, SAMPLE_RATE_HZ / 2, window // 2 + 1)[:, None]
    rising = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0.0)


class ConvNextBlock(nn.Module):
    """One ConvNeXt block over [batch, time, width]; a causal one reads earlier frames only."""

    def __init__(self, config: Config, *, causal: bool) -> None:
        super().__init__()
        reach = config.kernel - 1
        self.pads = (reach, 0) if causal else (reach // 2, reach - reach // 2)
        self.mix = nn.Conv1d(config.width, config.width, config.kernel, groups=config.width)
        self.norm = nn.LayerNorm(config.width)
        self.wide, self.narrow = nn.Linear(config.width, 3 * config.width), nn.Linear(3 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.mix(functional.pad(x.transpose(1, 2), self.pads)).transpose(1, 2)
        added: Tensor = self.narrow(functional.gelu(self.wide(self.norm(mixed))))
        return x + added


class Encoder(nn.Module):
    """Encodes a waveform as latents; reads the whole utterance."""

    basis: Tensor
    mel: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        window = torch.hann_window(ENCODER_WINDOW)[:, None]
        self.register_buffer("basis", (fourier_basis(ENCODER_WINDOW) * window).T[:, None], persistent=False)
        self.register_buffer("mel", mel_matrix(MEL_BINS, ENCODER_WINDOW), persistent=False)
        self.enter = nn.Linear(2 * MEL_BINS, config.width)
        self.blocks = nn.ModuleList(ConvNextBlock(config, causal=False) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.leave = nn.Linear(config.width, config.latent)

    def forward(self, waveform: Tensor) -> Tensor:
        """Encode a waveform [batch, time * 320] as latents [batch, time, latent]."""
        around = (ENCODER_WINDOW - HOP) // 2
        padded = functional.pad(waveform, (around, around))[:, None]
        real, imaginary = functional.conv1d(padded, self.basis, stride=HOP).transpose(1, 2).chunk(2, dim=-1)
        mel = ((real.square() + imaginary.square()) @ self.mel + 1e-5).log()
        x = self.enter(mel.reshape(mel.shape[0], -1, 2 * MEL_BINS) / 4.0)
        for block in self.blocks:
            x = block(x)
        latents: Tensor = self.leave(self.norm(x))
        return latents


class Quantiser(nn.Module):
    """Residual codebooks [codebooks, entries, latent]: each encodes the remainder of those before it."""

    tables: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.register_buffer("tables", torch.randn(config.codebooks, config.entries, config.latent))

    def scores(self, residual: Tensor, book: int) -> Tensor:
        """Return a score per entry of a codebook, highest for the nearest: [..., latent] to [..., entries]."""
        table = self.tables[book]
        return residual @ table.T - 0.5 * table.square().sum(dim=-1)

    def nearest(self, residual: Tensor, book: int) -> Tensor:
        """Return the index of the nearest entry of a codebook: [..., latent] to int64 [...]."""
        return self.scores(residual, book).argmax(dim=-1)

    def forward(self, latents: Tensor) -> Tensor:
        """Quantise latents [batch, time, latent] to codes int64 [batch, time, codebooks]."""
        codes = []
        for book, table in enumerate(self.tables):
            codes.append(self.nearest(latents, book))
            latents = latents - functional.embedding(codes[-1], table)
        return torch.stack(codes, dim=-1)

    def look_up(self, codes: Tensor) -> Tensor:
        """Return the sum of the entries of codes [batch, time, 1 to codebooks]: [batch, time, latent]."""
        looked_up = [functional.embedding(codes[..., book], self.tables[book]) for book in range(codes.shape[-1])]
        return torch.stack(looked_up).sum(dim=0)


class Decoder(nn.Module):
    """Decodes latents and noise to a waveform; every frame depends on earlier frames and itself only."""

    forward_basis: Tensor
    backward_basis: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        window = torch.hann_window(WINDOW).sqrt()
        self.register_buffer("forward_basis", window[:, None] * fourier_basis(WINDOW), persistent=False)
        self.register_buffer("backward_basis", inverse_basis(WINDOW) * window, persistent=False)
        self.enter = nn.Linear(config.latent, config.width)
        self.blocks = nn.ModuleList(ConvNextBlock(config, causal=True) for _ in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)
        self.leave = nn.Linear(config.width, 2 * (2 * BINS + 1))

    def controls(self, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pitch and the gains that control the sound.

        Args:
            latents: [batch, time, latent].

        Returns:
            Octaves above `NEUTRAL_HZ`, [batch, 2 * time]; natural logarithms of the gains of the pulses and of the
            noise, [batch, 2 * time, 2 * 161].
        """
        x = self.enter(latents)
        for block in self.blocks:
            x = block(x)
        halves = self.leave(self.norm(x)).reshape(x.shape[0], -1, 2 * BINS + 1)
        octaves = OCTAVES * torch.tanh(halves[..., 0] / OCTAVES)
        return octaves, halves[..., 1:].clamp(max=8.0) - 4.0

    def forward(self, latents: Tensor, noise: Tensor) -> Tensor:
        """Decode latents [batch, time, latent] and noise [batch, time, 320] to a waveform [batch, time * 320]."""
        octaves, gains = self.controls(latents)
        return self.sound(octaves, gains, noise)

    def sound(self, octaves: Tensor, gains: Tensor, noise: Tensor) -> Tensor:
        """Filter pulses and noise by the results of `controls`; return the waveform [batch, time * 320]."""
        advance = NEUTRAL_HZ / SAMPLE_RATE_HZ * torch.exp2(octaves)[..., None]
        turns = (advance * HOP).cumsum(dim=1) - advance * HOP + advance * torch.arange(HOP)
        sharpness = (PULSE_HZ / SAMPLE_RATE_HZ / advance).square()
        pulses = torch.exp(-2.0 * sharpness * torch.sin(math.pi * turns).square())
        pulse_gains, noise_gains = gains.exp().chunk(2, dim=-1)
        spectra = self.spectra(pulses) * pulse_gains.repeat(1, 1, 2)
        spectra = spectra + self.spectra(noise.reshape(noise.shape[0], -1, HOP)) * noise_gains.repeat(1, 1, 2)
        begun, ended = (spectra @ self.backward_basis).chunk(2, dim=-1)
        return (ended_before(ended) + begun).flatten(1)

    def spectra(self, pieces: Tensor) -> Tensor:
        """Return the spectrum of every piece of 160 samples joined with the one before: [batch, n, 2 * 161]."""
        return torch.cat([ended_before(pieces), pieces], dim=-1) @ self.forward_basis


def ended_before(pieces: Tensor) -> Tensor:
    """Return the predecessor of each piece, zeros before the first: [batch, n, width], same shape."""
    return functional.pad(pieces, (0, 0, 1, 0))[:, :-1]


class Codec(nn.Module):
    """The whole codec; `forward` is the training form, from waveform to waveform."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or Config()
        self.encoder = Encoder(self.config)
        self.quantiser = Quantiser(self.config)
        self.decoder = Decoder(self.config)

    def encode(self, waveform: Tensor) -> Tensor:
        """Encode a waveform [batch, time * 320] of 16 kHz as codes int64 [batch, time, codebooks]."""
        codes: Tensor = self.quantiser(self.encoder(waveform))
        return codes

    def decode(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Decode codes [batch, time, 1 to codebooks] and noise [batch, time, 320] to a waveform [batch, time * 320]."""
        waveform: Tensor = self.decoder(self.quantiser.look_up(codes), noise)
        return waveform

    def forward(self, waveform: Tensor, noise: Tensor) -> Tensor:
        """Encode and decode with all codebooks."""
        return self.decode(self.encode(waveform), noise)
