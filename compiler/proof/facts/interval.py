"""Bounds the entries of a region of a value by an interval that may include infinities, with a flag for NaN."""

import dataclasses
import math

import numpy as np

LARGEST = 1.0e37
"""Bounds beyond this count as infinite: a margin of 30 below the largest float32, for rounding and partial sums."""

LONGEST = 2.0**31 - 1
"""Slots that no axis exceeds, so that positions and their differences are exact in int32; part of every certificate."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """Every entry lies in [low, high], or is NaN when `nan`.

    `low` and `high` may be infinite: then infinite entries may occur. Booleans are 0 and 1.
    """

    low: float
    high: float
    nan: bool = False

    def __post_init__(self) -> None:
        if self.low < -LARGEST and self.low != -math.inf and self.low != self.high:
            object.__setattr__(self, "low", -math.inf)
        if self.high > LARGEST and self.high != math.inf and self.low != self.high:
            object.__setattr__(self, "high", math.inf)

    @property
    def is_finite(self) -> bool:
        """Whether NaN and infinities are excluded."""
        return not self.nan and math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def is_constant(self) -> bool:
        """Whether every entry is the same known number."""
        return self.low == self.high and not self.nan

    @property
    def is_zero(self) -> bool:
        """Whether every entry is 0."""
        return self.is_constant and self.low == 0.0

    @property
    def magnitude(self) -> float:
        """The largest absolute value; infinite when unbounded or NaN."""
        return math.inf if self.nan else max(abs(self.low), abs(self.high))

    def __str__(self) -> str:
        if self.is_constant:
            return f"constant({self.low:g})"
        if self.is_finite:
            return f"finite[{self.low:g}, {self.high:g}]"
        return "anything" if self.nan else f"no NaN[{self.low:g}, {self.high:g}]"


ANYTHING = Interval(-math.inf, math.inf, True)
ZERO = Interval(0.0, 0.0)
ONE = Interval(1.0, 1.0)
TRUTH = Interval(0.0, 1.0)


def constant(value: float) -> Interval:
    """Return the interval of one known number."""
    return ANYTHING if math.isnan(value) else Interval(value, value)


def bounded(magnitude: float) -> Interval:
    """Return [-magnitude, magnitude]."""
    return Interval(-magnitude, magnitude)


def hull(*intervals: Interval) -> Interval:
    """Return the smallest interval that contains all of them; zero for none."""
    if not intervals:
        return ZERO
    return Interval(
        min(each.low for each in intervals),
        max(each.high for each in intervals),
        any(each.nan for each in intervals),
    )


def of_array(array: np.ndarray) -> Interval:
    """Return the interval of a constant array."""
    if array.size == 0:
        return ZERO
    if array.dtype == np.bool_:
        return Interval(float(array.min()), float(array.max()))
    numbers = np.asarray(array, np.float64) if array.dtype.kind in "fiu" else array.astype(np.float64)
    nan = bool(np.isnan(numbers).any())
    kept = numbers[~np.isnan(numbers)] if nan else numbers
    return ANYTHING if kept.size == 0 else Interval(float(kept.min()), float(kept.max()), nan)


def add(a: Interval, b: Interval) -> Interval:
    """Entrywise sum."""
    opposite = (a.low == -math.inf and b.high == math.inf) or (a.high == math.inf and b.low == -math.inf)
    if opposite or a.nan or b.nan:
        return ANYTHING
    return Interval(a.low + b.low, a.high + b.high)


def negate(a: Interval) -> Interval:
    """Entrywise negation."""
    return Interval(-a.high, -a.low, a.nan)


def multiply(a: Interval, b: Interval) -> Interval:
    """Entrywise product; 0 times an infinity or NaN is NaN."""
    if a.nan or b.nan or (not a.is_finite and b.low <= 0 <= b.high) or (not b.is_finite and a.low <= 0 <= a.high):
        return ANYTHING
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Interval(min(corners), max(corners))
