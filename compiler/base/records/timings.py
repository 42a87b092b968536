"""Defines records of two graphs' times, measured in alternating rounds, and of the ratio of these times."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Time of one graph over that of another, per round.

    Attributes:
        sizes: the bucket; empty for several together.
        median: over the rounds.
        low: 10th percentile.
        high: 90th percentile.
        least: the lower end of the interval that holds the median.
        most: the upper end.
        rounds: how many there were.
    """

    sizes: str
    median: float
    low: float
    high: float
    least: float
    most: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.sizes} {self.median:.2f} ({self.low:.2f}..{self.high:.2f})".strip()

    @property
    def certainty(self) -> str:
        """The certainty of the median, in words."""
        return f"median of {self.rounds} rounds within {self.least:.3f}..{self.most:.3f}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two graphs that were run in turns.

    Attributes:
        buckets: the ratio of each, the smallest bucket first.
        together: of all buckets, each of equal weight: the geometric mean of their ratios, round by round.
        saved_ms: milliseconds of a call that the first saves, by bucket.
    """

    buckets: tuple[Ratio, ...]
    together: Ratio
    saved_ms: tuple[float, ...]
