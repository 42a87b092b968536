"""Defines quantisation grids of 8 or 16 bits, x ~ (code - zero point) * scale, and quantises weights to them.

Values are rounded to the nearest code, halves to the even one.

Source: QuantizeLinear and DequantizeLinear of ONNX opset 13. Weights stay within -127..127, so that a grid is
symmetric and a product of two codes never reaches 2^14.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

TINY = 1e-12
"""The smallest scale: a tensor of zeros has one, too."""

CLIPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Shares of the largest weight at which a channel may be clipped."""


@dataclasses.dataclass(frozen=True)
class Grid:
    """The codes of a tensor with one scale.

    Attributes:
        scale: the step, float32.
        zero_point: the code of zero.
        low_code: smallest code.
        high_code: largest code.
        type: `uint8`, `int8` or `uint16`.
    """

    scale: float
    zero_point: int
    low_code: int
    high_code: int
    type: str

    @property
    def low(self) -> float:
        """Return the smallest number on the grid."""
        return (self.low_code - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        """Return the largest number on the grid."""
        return (self.high_code - self.zero_point) * self.scale

    def rounded(self, array: Array) -> Array:
        """Return the numbers of the grid closest to an array's, float32."""
        codes = np.rint(array / np.float32(self.scale)) + np.float32(self.zero_point)
        np.clip(codes, self.low_code, self.high_code, out=codes)
        return ((codes - np.float32(self.zero_point)) * np.float32(self.scale)).astype(np.float32)


def grid_of(low: float, high: float, *, signed: bool, bits: int = 8) -> Grid:
    """Return the grid for a range; zero is always on it, since padding and zero weights must stay exact.

    Args:
        low: smallest number to represent.
        high: largest number to represent.
        signed: int8 around zero point 0, else codes from 0 with any zero point.
        bits: of a code without a sign, 8 or 16.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if signed:
        return Grid(float(np.float32(max(-low, high, TINY) / 127)), 0, -127, 127, "int8")
    largest = 2**bits - 1
    scale = float(np.float32(max(high - low, TINY) / largest))
    return Grid(scale, int(np.clip(round(-low / scale), 0, largest)), 0, largest, f"uint{bits}")


@dataclasses.dataclass(frozen=True)
class Weights:
    """Quantised weights.

    Attributes:
        codes: int8, within -127..127.
        scales: float32, one per output channel.
        axis: position of the output channels.
    """

    codes: Array
    scales: Array
    axis: int

    @property
    def rounded(self) -> Array:
        """Return the numbers that the codes stand for, float32."""
        return (self.codes * self.along(self.scales)).astype(np.float32)

    def along(self, numbers: Array) -> Array:
        """Return one number per output channel, in a shape that broadcasts to the weights."""
        return _along(numbers, self.axis, self.codes.ndim)


def quantize_weights(weights: Array, axis: int, importance: Array | None = None) -> Weights:
    """Return symmetric codes with one scale per output channel, clipped where the weighted square error is smallest.

    Args:
        weights: floats.
        axis: position of the output channels.
        importance: of the square error of each weight, in a shape that broadcasts to `weights`; the mean square of the
            input that the weight is multiplied with, since E[(x dw)^2] = E[x^2] dw^2 for inputs without correlation.
    """
    others = tuple(index for index in range(weights.ndim) if index != axis)
    exact = weights.astype(np.float64)
    largest = np.maximum(np.abs(exact).max(axis=others), 127 * TINY)
    best: Array | None = None
    scales = largest / 127
    for share in CLIPS:
        tried = (largest * share / 127).astype(np.float32)
        codes = _codes(exact, tried, axis)
        squares = (codes * _along(tried, axis, exact.ndim) - exact) ** 2
        error = (squares if importance is None else squares * importance).sum(axis=others)
        if best is None:
            best, scales = error, tried
        else:
            better = error < best
            best, scales = np.where(better, error, best), np.where(better, tried, scales)
    return Weights(_codes(exact, scales, axis).astype(np.int8), scales.astype(np.float32), axis)


def _codes(weights: Array, scales: Array, axis: int) -> Array:
    codes: Array = np.clip(np.rint(weights / _along(scales, axis, weights.ndim)), -127, 127)
    return codes


def _along(scales: Array, axis: int, rank: int) -> Array:
    shape = [1] * rank
    shape[axis] = -1
    return scales.reshape(shape)
