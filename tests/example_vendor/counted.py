"""Rows to count with."""

from collections.abc import Iterator

import numpy as np


def rows() -> Iterator[list[dict[str, np.ndarray]]]:
    """Streams of one call."""
    rng = np.random.default_rng(7)
    while True:
        yield [{"x": rng.standard_normal((1, 4)).astype(np.float32)}]
