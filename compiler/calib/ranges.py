"""Computes candidate quantisation ranges of a tensor from its histogram: min-max, percentiles, least squares, entropy.

Which of them is best depends on the tensor's consumers: see `compiler.numerics.quantization.choice`. Source: the
entropy method is that of Migacz, 8-bit inference (2017).
"""

import dataclasses

import numpy as np

from compiler.calib.grid import Array
from compiler.calib.histogram import Histogram

PERCENTILES = (99.9, 99.99, 99.999)

SHARES = np.linspace(0.1, 1.0, 37)
"""Shares of the extremes that the search for the least square error tries."""

LEVELS = 128
"""Levels of one sign of an 8-bit grid, for the entropy method."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A range and how it was found."""

    low: float
    high: float
    method: str


def ranges_of(tensor: Histogram) -> tuple[Range, ...]:
    """Return all candidate ranges of one tensor, the widest first; each includes zero."""
    if not tensor.entries or tensor.low == tensor.high:
        return (Range(tensor.low, tensor.high, "min-max"),)
    found = [Range(tensor.low, tensor.high, "min-max")]
    found += [_percentile(tensor, percent) for percent in reversed(PERCENTILES)]
    return (*found, least_square(tensor), _entropy(tensor))


def _within(tensor: Histogram, low: float, high: float, method: str) -> Range:
    return Range(min(max(low, tensor.low), 0.0), max(min(high, tensor.high), 0.0), method)


def _percentile(tensor: Histogram, percent: float) -> Range:
    """Return a range without the tails beyond a percentile on either side."""
    shares = np.cumsum(tensor.counts) / tensor.entries
    tail = 1 - percent / 100
    edges = np.append(tensor.centres - tensor.radius / len(tensor.counts), tensor.radius)
    low = edges[int(np.searchsorted(shares, tail, side="right"))]
    high = edges[int(np.searchsorted(shares, 1 - tail, side="left")) + 1]
    return _within(tensor, float(low), float(high), f"percentile {percent:g}")


def least_square(tensor: Histogram) -> Range:
    """Return the range of least expected square error on a grid of 256 codes: first its upper end, then its lower."""
    occupied = tensor.counts > 0
    centres, counts = tensor.centres[occupied], tensor.counts[occupied]
    lows, highs = SHARES * min(tensor.low, 0.0), SHARES * max(tensor.high, 0.0)
    high = highs[int(np.argmin(_square_errors(centres, counts, lows[-1:], highs)))]
    low = lows[int(np.argmin(_square_errors(centres, counts, lows, np.array([high]))))]
    return _within(tensor, float(low), float(high), "least square error")


def _square_errors(centres: Array, counts: Array, lows: Array, highs: Array) -> Array:
    """Return the expected square error of each range, up to a factor; rounding alone gives step^2 / 12."""
    step = (highs - lows)[:, None] / 255
    inside = np.clip(centres, lows[:, None], highs[:, None])
    found: Array = ((centres - inside) ** 2 + np.where(inside == centres, step**2 / 12, 0.0)) @ counts
    return found


def _entropy(tensor: Histogram) -> Range:
    """Return the range whose 128 levels lose the least information on the distribution of absolute values."""
    half = len(tensor.counts) // 2
    magnitudes = tensor.counts[half:] + tensor.counts[:half][::-1]
    last = int(np.flatnonzero(magnitudes)[-1]) + 1
    best, threshold = np.inf, last
    for count in range(LEVELS, last + 1, max((last - LEVELS) // 64, 1)):
        within = magnitudes[:count].astype(np.float64)
        clipped = within.copy()
        clipped[-1] += magnitudes[count:].sum()
        divergence = _divergence(clipped, _in_levels(within))
        if divergence < best:
            best, threshold = divergence, count
    bound = threshold * tensor.radius / half
    return _within(tensor, -bound, bound, "entropy")


def _in_levels(counts: Array) -> Array:
    """Return counts merged into levels, each spread evenly over its occupied bins."""
    level = np.arange(len(counts)) * LEVELS // len(counts)
    total = np.bincount(level, counts, LEVELS)
    occupied = np.bincount(level, counts > 0, LEVELS)
    return np.where(counts > 0, total[level] / np.maximum(occupied[level], 1), 0.0)


def _divergence(exact: Array, coarse: Array) -> float:
    p, q = exact / exact.sum(), coarse / max(coarse.sum(), 1.0)
    held = p > 0
    return float(np.sum(p[held] * np.log(p[held] / np.maximum(q[held], 1e-9))))
