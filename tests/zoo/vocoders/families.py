"""The vocoders and decoders of the table, in its order."""

from collections.abc import Mapping
from types import MappingProxyType

from tests.zoo.derived.family import BATCH, TIME, Given
from tests.zoo.vocoders.decoders import (
    BINS,
    BOOKS,
    CODES,
    Bidirectional,
    BigVgan,
    Dac,
    HifiGan,
    MelGan,
    Mimi,
    MultiBand,
    ParallelWaveGan,
    Seanet,
    SourceFilter,
    Vocos,
    WaveRnn,
)
from tests.zoo.vocoders.family import Vocoder
from tests.zoo.vocoders.layers import Snake

MEL: Mapping[str, Given] = MappingProxyType({"mel": Given((BATCH, BINS, TIME))})
QUANTISED: Mapping[str, Given] = MappingProxyType({"codes": Given((BATCH, TIME, BOOKS), "int64", CODES)})


def _noise(samples: int) -> dict[str, Given]:
    return {"noise": Given((BATCH, TIME, samples))}


FAMILIES = (
    Vocoder("HiFi-GAN, causal", "transposed and residual dilated convolutions", lambda: HifiGan(causal=True), MEL),
    Vocoder("HiFi-GAN", "the same, centred", lambda: HifiGan(causal=False), MEL),
    Vocoder("MelGAN", "entries mirrored at the edges", MelGan, MEL),
    Vocoder("multi-band MelGAN, causal", "four bands, a bank of filters", lambda: MultiBand(causal=True), MEL),
    Vocoder("multi-band MelGAN", "the same, centred", lambda: MultiBand(causal=False), MEL),
    Vocoder(
        "Parallel WaveGAN, causal", "noise, nearest upsampling, gates", lambda: ParallelWaveGan(causal=True),
        {**MEL, **_noise(8)},
    ),
    Vocoder("Parallel WaveGAN", "the same, centred", lambda: ParallelWaveGan(causal=False), {**MEL, **_noise(8)}),
    Vocoder("BigVGAN", "filtered snake, edges repeated", BigVgan, MEL),
    Vocoder(
        "BigVGAN without filters, causal", "snake, residual blocks", lambda: HifiGan(causal=True, act=Snake), MEL
    ),
    Vocoder("SoundStream", "ELU, residual units", Seanet, QUANTISED),
    Vocoder("EnCodec, zeros in front", "two LSTM layers", lambda: Seanet(lstm=True), QUANTISED),
    Vocoder("EnCodec", "entries mirrored in front", lambda: Seanet(lstm=True, mirrored=True), QUANTISED),
    Vocoder("EnCodec of 48 kHz", "norms over time", lambda: Seanet(normed=True), QUANTISED),
    Vocoder("DAC, causal", "snake, dilations 1, 3 and 9", lambda: Dac(causal=True), QUANTISED),
    Vocoder("DAC", "the same, centred", lambda: Dac(causal=False), QUANTISED),
    Vocoder(
        "SNAC, causal", "snake, noise scaled by what it is added to", lambda: Dac(causal=True),
        {**QUANTISED, **_noise(4)},
    ),
    Vocoder("Mimi", "attention at twice the rate", lambda: Mimi(doubled_first=True), QUANTISED),
    Vocoder("Mimi, attention first", "windows of attention over frames", lambda: Mimi(doubled_first=False), QUANTISED),
    Vocoder("Vocos, causal", "ConvNeXt, spectra overlapped and added", lambda: Vocos(causal=True), MEL),
    Vocoder("Vocos", "the same, centred", lambda: Vocos(causal=False), MEL),
    Vocoder("WaveRNN", "a GRU over samples", WaveRnn, {**MEL, "samples": Given((BATCH, TIME, 8))}),
    Vocoder(
        "source-filter, causal", "summed phases, noise, dilations", lambda: SourceFilter(causal=True),
        {**MEL, "pitch": Given((BATCH, TIME)), **_noise(8)},
    ),
    Vocoder(
        "source-filter", "the same, centred", lambda: SourceFilter(causal=False),
        {**MEL, "pitch": Given((BATCH, TIME)), **_noise(8)},
    ),
    Vocoder("two-way conditioning", "recurrences in both directions", Bidirectional, MEL),
)  # fmt: skip
