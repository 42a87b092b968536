"""The fundamental frequency of recorded speech, by the peak of the normalised autocorrelation.

Source: Boersma 1993, "Accurate short-term analysis of the fundamental frequency", without its path search: the first
peak that comes near the highest is taken, which avoids octaves below.
"""

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 16000
HOP = 160
"""Samples per value: 10 ms."""

WINDOW = 640
LOWEST_HZ, HIGHEST_HZ = 60.0, 400.0
VOICED = 0.55
"""Least normalised autocorrelation at the pitch period of a voiced frame."""

NEAR_THE_HIGHEST = 0.88
QUIET = 0.01
"""Frames whose loudest sample is below this are unvoiced."""

NEUTRAL_HZ = 120.0
"""What a recording without a voiced frame is given."""

Samples = npt.NDArray[np.float32]


def track(samples: Samples) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Return the pitch of every 10 ms.

    Args:
        samples: float32 [samples], 16 kHz, a multiple of 160.

    Returns:
        Pitch in Hz, float32 [samples / 160], unvoiced stretches filled from their neighbours; and what was voiced,
        bool [samples / 160].
    """
    frames = len(samples) // HOP
    padded = np.pad(samples, ((WINDOW - HOP) // 2, (WINDOW - HOP) // 2))
    cut = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames] if frames else np.empty((0, WINDOW))
    window = np.hanning(WINDOW)
    spectra = np.fft.rfft((cut - cut.mean(axis=1, keepdims=True)) * window, 2 * WINDOW)
    correlation = np.fft.irfft(np.abs(spectra) ** 2)[:, :WINDOW]
    of_window = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * WINDOW)) ** 2)[:WINDOW]
    correlation /= np.maximum(correlation[:, :1], 1e-9) * (of_window / of_window[0])
    shortest, longest = int(SAMPLE_RATE_HZ / HIGHEST_HZ), int(SAMPLE_RATE_HZ / LOWEST_HZ)
    inner = correlation[:, shortest : longest + 1]
    peaks = (inner > correlation[:, shortest - 1 : longest]) & (inner >= correlation[:, shortest + 1 : longest + 2])
    heights = np.where(peaks, inner, -1.0)
    highest = heights.max(axis=1, initial=-1.0)
    lags = shortest + (heights >= NEAR_THE_HIGHEST * highest[:, None]).argmax(axis=1)
    voiced = (highest > VOICED) & (np.abs(cut).max(axis=1, initial=0.0) > QUIET)
    if not voiced.any():
        return np.full(frames, NEUTRAL_HZ, np.float32), voiced
    places = np.flatnonzero(voiced)
    logarithms = np.interp(np.arange(frames), places, np.log(SAMPLE_RATE_HZ / lags[places]))
    around = np.pad(logarithms, 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(around, 5), axis=1)
    return np.exp(smooth).astype(np.float32), voiced
