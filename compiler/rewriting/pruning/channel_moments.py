"""Sums the second moments C^T C of every inner axis's channels C over calibration streams, [channels, channels]."""

from collections.abc import Sequence

import numpy as np

from compiler.calib.watched_streams import run_streams
from compiler.graph.runners.instrumented import exposed
from compiler.graph.stages import Array as Numbers
from compiler.graph.stages import Feed, Lowered
from compiler.rewriting.least_squares import Array
from compiler.rewriting.pruning.inner_axes import InnerAxis

TOGETHER = 1024
"""Frames that are multiplied at once: a product of matrices is many times as fast as one of vectors for each."""


def channel_moments(lowered: Lowered, axes: Sequence[InnerAxis], streams: Sequence[Sequence[Feed]]) -> dict[str, Array]:
    """Return C^T C of every axis, by its name; of a product with a bias a 1 stands behind the channels of a frame.

    Frames with NaN are padding and are left out.

    Args:
        lowered: the graph.
        axes: its inner axes.
        streams: feeds of one row.
    """
    sums = {axis.name: _Sum(len(axis.weights), with_ones=axis.bias is not None) for axis in axes}
    for call in run_streams(exposed(lowered, [str(axis.read.name) for axis in axes]), streams):
        for axis in axes:
            sums[axis.name].add(call.outputs[str(axis.read.name)])
    return {name: each.total() for name, each in sums.items()}


class _Sum:
    """A sum of outer products, frames gathered before they are multiplied."""

    def __init__(self, channels: int, *, with_ones: bool) -> None:
        self.channels, self.with_ones = channels, with_ones
        inside = channels + with_ones
        self.moments: Array = np.zeros((inside, inside))
        self.waiting: list[Numbers] = []

    def add(self, array: Numbers) -> None:
        """Add the frames of a call, [.., channels]."""
        frames = array.reshape(-1, self.channels)
        self.waiting.append(frames[np.isfinite(frames).all(axis=1)])
        if sum(map(len, self.waiting)) >= TOGETHER:
            self._multiply()

    def total(self) -> Array:
        """Return the sum."""
        self._multiply()
        return self.moments

    def _multiply(self) -> None:
        if not self.waiting:
            return
        frames = np.concatenate(self.waiting).astype(np.float64)
        frames = np.column_stack([frames, np.ones(len(frames))]) if self.with_ones else frames
        self.moments += frames.T @ frames
        self.waiting = []
