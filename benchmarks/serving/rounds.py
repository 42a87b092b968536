"""Runs contenders in turn, and computes ratios with their spread."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np


def times_us(call: Callable[[], object], count: int) -> list[float]:
    """Return the microseconds of consecutive calls."""
    found = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        found.append((time.perf_counter_ns() - start) / 1e3)
    return found


Measured = TypeVar("Measured")


def in_turns(measures: Mapping[str, Callable[[], Measured]], rounds: int) -> dict[str, list[Measured]]:
    """Return the results of each contender, measured round after round."""
    found: dict[str, list[Measured]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the 10th and 90th percentile, as text."""
    low, high = np.percentile(values, (10, 90))
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"


def ratios(values: Sequence[float], to: Sequence[float]) -> list[float]:
    """Return the ratios per round."""
    return [value / other for value, other in zip(values, to, strict=True)]
