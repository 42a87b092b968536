"""Chooses the order in which channels of a product go: each time the one whose loss is least once the others make up.

    Y = C O,  C [frames, channels],  G = C^T C:     score(j) = |O_j|^2 / [G^-1]_jj

is by how much the smallest |Y - C O'|^2 grows without channel j, the weights of the others fitted anew. O is then that
fit, G^-1 the inverse without j's row and column, both by one update of rank 1; so scores stay exact however many
channels are gone, and their sum is the error. Frames themselves are not needed, G alone is.

Source: the increase by a variable that is left out of a least squares fit; as in optimal brain surgeon (Hassibi and
Stork 1993) and SlimGPT (Ling et al. 2024), for channels.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from compiler.rewriting.least_squares import Array

RIDGE = 1e-7
"""Added to the diagonal of G, as a share of its mean: channels that are always 0 have no inverse otherwise."""


@dataclasses.dataclass(frozen=True, eq=False)
class Left:
    """What is left of the channels of a product.

    Attributes:
        kept: indices of the channels, ascending, int64.
        share: squared error of the product as a share of its energy |C O|^2, the weights fitted to what is left.
    """

    kept: npt.NDArray[np.int64]
    share: float


def removed(moments: Array, weights: Array, channels: int, widths: Sequence[int]) -> dict[int, Left]:
    """Return what is left of a product's channels, by width.

    Args:
        moments: C^T C, float64 [inside, inside].
        weights: O, float64 [inside, results].
        channels: how many may go; what stands behind them (the 1 of a bias) stays.
        widths: descending, each smaller than `channels` and at least 1.
    """
    inner = weights[:channels]
    energy = float(np.sum(inner * (moments[:channels, :channels] @ inner)))
    fit, left = _Fit(with_ridge(moments, channels), weights, channels), dict[int, Left]()
    for width in widths:
        fit.remove(int(np.count_nonzero(fit.may_go)) - width)
        left[width] = Left(fit.channels[fit.may_go], fit.lost / energy if energy > 0 else 0.0)
    return left


def fitted(moments: Array, weights: Array, channels: int, kept: npt.NDArray[np.int64]) -> Array:
    """Return the weights that give what all channels give as nearly as the kept ones can, float64 [kept, results].

    Args:
        moments: C^T C, float64 [inside, inside].
        weights: O, float64 [inside, results].
        channels: how many may go; what stands behind them stays, and is part of the result.
        kept: indices of the channels that stay.
    """
    stays = np.concatenate([kept, np.arange(channels, len(moments))])
    ridged = with_ridge(moments, channels)
    return np.asarray(np.linalg.solve(ridged[np.ix_(stays, stays)], ridged[stays] @ weights), np.float64)


def with_ridge(moments: Array, channels: int) -> Array:
    """Return moments that have an inverse; `channels` is how many of their rows are channels."""
    scale = float(np.trace(moments[:channels, :channels])) / channels
    return moments + RIDGE * max(scale, _TINY) * np.eye(len(moments))


_TINY = float(np.finfo(float).tiny)


class _Fit:
    """A fit that loses channels.

    Args:
        moments: with an inverse.
        weights: of all of them.
        channels: how many may go.

    Attributes:
        channels: index of every row that is left, int64.
        may_go: which of them are channels, bool.
        lost: by how much the squared error has grown.
    """

    def __init__(self, moments: Array, weights: Array, channels: int) -> None:
        self.channels = np.arange(len(moments))
        self.may_go = self.channels < channels
        self.lost = 0.0
        self._inverse, self._weights = np.linalg.inv(moments), weights

    def remove(self, count: int) -> None:
        """Remove the next channels, one after the other; the inverse is brought up to date behind the last."""
        diagonal, updates = np.diag(self._inverse).copy(), np.zeros((len(self.channels), count))
        stays = np.ones(len(self.channels), np.bool_)
        for step in range(count):
            scores = np.sum(np.square(self._weights), axis=1) / np.maximum(diagonal, _TINY)
            gone = int(np.argmin(np.where(self.may_go & stays, scores, np.inf)))
            column = self._inverse[:, gone] - updates[:, :step] @ updates[gone, :step]
            self.lost += float(scores[gone])
            self._weights = self._weights - np.outer(column / column[gone], self._weights[gone])
            diagonal -= np.square(column) / column[gone]
            updates[:, step] = column / np.sqrt(column[gone])
            stays[gone] = False
        self._inverse = self._inverse[np.ix_(stays, stays)] - updates[stays] @ updates[stays].T
        self._weights, self.channels, self.may_go = self._weights[stays], self.channels[stays], self.may_go[stays]
