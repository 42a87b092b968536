"""Accumulates statistics of a tensor in constant memory: a histogram, extremes, figures per channel, a few rows.

Bins are equal over [-R, R] with R the smallest power of two above every entry, so counts do not depend on the
order in which arrays come. Entries that are NaN or infinite are padding, by the promise that valid entries never see
padding and the original's are finite: they are dropped, and counted.
"""

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BINS = 4096
"""Bins over [-R, R]: at least eight per step of an 8-bit grid, also when the range takes up half of R."""

KEPT_ROWS = 128
"""Rows kept of each tensor, spread evenly over all that came."""


class Histogram:
    """A running record of one tensor whose entries along one axis are its channels.

    Args:
        channel_axis: position of the channels.
        keep_rows: most rows to keep; the smallest memory that still shows what a consumer makes of an error.
    """

    def __init__(self, channel_axis: int, keep_rows: int = KEPT_ROWS) -> None:
        self.channel_axis, self.keep_rows = channel_axis, keep_rows
        self.radius = 0.0
        self.counts = np.zeros(BINS, np.int64)
        self.low, self.high = 0.0, 0.0
        self.entries, self.dropped = 0, 0
        self._largest: Array | None = None
        self._squares: Array | None = None
        self._rows: list[Array] = []
        self._seen, self._stride = 0, 1

    def add(self, array: Array) -> None:
        """Count the entries of an array, float [..., channels, ...]."""
        rows = np.moveaxis(array, self.channel_axis, -1).reshape(-1, array.shape[self.channel_axis])
        finite = np.isfinite(rows)
        self.dropped += int(rows.size - np.count_nonzero(finite))
        whole = finite.all(axis=1)
        values = rows.ravel() if whole.all() else rows[finite]
        if values.size:
            self._count(values)
        self._keep(rows[whole])

    def add_entries(self, array: Array) -> None:
        """Count the entries of an array of any shape, without channels and rows."""
        values = array[np.isfinite(array)]
        self.dropped += array.size - values.size
        if values.size:
            self._count(values)

    def _count(self, values: Array) -> None:
        low, high = float(values.min()), float(values.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self._widen(max(-low, high))
        self.entries += values.size
        if self.radius:
            places = values.astype(np.float64) * (BINS / (2 * self.radius)) + BINS / 2
            self.counts += np.bincount(places.astype(np.int64), minlength=BINS)
        else:
            self.counts[BINS // 2] += values.size

    def _widen(self, largest: float) -> None:
        """Double the radius until it contains an entry; bins merge in pairs, exactly."""
        if not self.radius and largest > 0.0:
            self.radius = 2.0 ** (math.floor(math.log2(largest)) + 1)  # earlier zeros lie in the middle of every radius
        while self.radius and self.radius <= largest:
            half = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = np.concatenate([np.zeros(BINS // 4, np.int64), half, np.zeros(BINS // 4, np.int64)])
            self.radius *= 2

    def _keep(self, rows: Array) -> None:
        if not len(rows):
            return
        largest, squares = np.abs(rows).max(axis=0), np.square(rows, dtype=np.float64).sum(axis=0)
        self._largest = largest if self._largest is None else np.maximum(self._largest, largest)
        self._squares = squares if self._squares is None else self._squares + squares
        first = -self._seen % self._stride
        self._rows += [row.copy() for row in rows[first :: self._stride]]
        self._seen += len(rows)
        while len(self._rows) > self.keep_rows:
            self._rows, self._stride = self._rows[::2], self._stride * 2

    @property
    def centres(self) -> Array:
        """Return the middle of every bin."""
        return (np.arange(BINS) + 0.5) * (2 * self.radius / BINS) - self.radius

    @property
    def rows(self) -> Array:
        """Return the kept rows, float32 [rows, channels], none of which contains padding."""
        return np.stack(self._rows).astype(np.float32) if self._rows else np.zeros((0, 0), np.float32)

    @property
    def largest(self) -> Array:
        """Return the largest absolute value per channel."""
        return np.zeros(0, np.float32) if self._largest is None else self._largest

    @property
    def mean_squares(self) -> Array:
        """Return the mean square per channel."""
        return np.zeros(0) if self._squares is None else self._squares / self._seen

    def share_outside(self, low: float, high: float) -> float:
        """Return the share of entries outside a range, to the width of a bin."""
        centres = self.centres
        return float(self.counts[(centres < low) | (centres > high)].sum()) / max(self.entries, 1)


@dataclasses.dataclass(frozen=True)
class Table:
    """What calibration has seen.

    Attributes:
        tensors: record by value name.
        calls: calls of the graph that were recorded.
    """

    tensors: Mapping[str, Histogram]
    calls: int

    @property
    def digest(self) -> str:
        """Return SHA-256 over everything that choices depend on."""
        hashed = hashlib.sha256(str(self.calls).encode())
        for name, tensor in sorted(self.tensors.items()):
            hashed.update(f"{name} {tensor.channel_axis} {tensor.radius} {tensor.low} {tensor.high}".encode())
            for array in (tensor.counts, tensor.largest, tensor.mean_squares, tensor.rows):
                hashed.update(np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()
