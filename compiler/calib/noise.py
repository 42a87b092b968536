"""Computes the ratio of noise to signal: the power of an error relative to that of the correct values.

Integers and booleans are classes, which have no noise and are left out.

share   sum of squared errors / sum of squares of the right numbers
dB      -10 log10(share), as recipes and people write it
"""

import dataclasses
import math

import numpy as np

from compiler.calib.classes import are_classes
from compiler.graph.stages import Array

SILENT_DB = 300.0
"""What an error of nothing counts as in decibels."""


@dataclasses.dataclass
class Noise:
    """Sums over all arrays that were added.

    Attributes:
        signal: of the squares of the right numbers, those that are not finite left out.
        noise: of the squared errors; infinite where one side alone is NaN or infinite, or the shapes differ.
    """

    signal: float = 0.0
    noise: float = 0.0

    def add(self, got: Array, right: Array) -> None:
        """Add one more array; classes are ignored."""
        if are_classes(right):
            return
        exact = right.astype(np.float64).reshape(-1)
        self.signal += _power(exact)
        if got.shape != right.shape:
            self.noise = math.inf
            return
        shipped = got.astype(np.float64).reshape(-1)
        with np.errstate(invalid="ignore", over="ignore"):
            error = shipped - exact
            power = float(np.sum(error**2))
            if not math.isfinite(power):
                alike = (shipped == exact) | (np.isnan(shipped) & np.isnan(exact))
                power = float(np.sum(np.where(alike, 0.0, error) ** 2))
        self.noise += math.inf if math.isnan(power) else power

    @property
    def share(self) -> float:
        """Return noise as a share of the signal's power; without a signal any noise is infinite."""
        return self.noise / self.signal if self.signal > 0.0 else (math.inf if self.noise > 0.0 else 0.0)

    @property
    def sqnr_db(self) -> float | None:
        """Return the signal-to-noise ratio in dB; None without noise or without signal."""
        if self.noise == 0.0 or self.signal == 0.0:
            return None
        return 10.0 * math.log10(self.signal / self.noise) if math.isfinite(self.noise) else -math.inf


def _power(exact: Array) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        power = float(np.sum(exact**2))
        return power if math.isfinite(power) else float(np.sum(np.where(np.isfinite(exact), exact, 0.0) ** 2))


def decibels(share: float) -> float:
    """Return the signal-to-noise ratio in dB for a noise share."""
    return -10.0 * math.log10(max(share, 10.0 ** (-SILENT_DB / 10.0)))


def share_of(decibels: float) -> float:
    """Return the noise share for a signal-to-noise ratio in dB."""
    return float(10.0 ** (-decibels / 10.0))


def rms(array: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(array.astype(np.float64) ** 2))) if array.size else 0.0
