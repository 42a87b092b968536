"""Orders the removal of a MatMul's input channels by least error, with the weights of the other channels refitted.

    Y = C O,  C [frames, channels],  G = C^T C:     score(k) = tr( O_k^T ([G^-1]_kk)^-1 O_k )

is by how much the smallest |Y - C O'|^2 grows without entry k, a block of d channels (one channel, or those of a head),
the weights of the others fitted anew. O is then that fit, G^-1 the inverse without the rows and columns of k, both by
one update of rank d; so scores stay exact however many entries are gone, and their sum is the error. Frames themselves
are not needed, G alone is.

Source: the increase by variables that are left out of a least squares fit; as in optimal brain surgeon (Hassibi and
Stork 1993) and SlimGPT (Ling et al. 2024), for channels and heads.
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
    """What is left of the entries that a product reads.

    Attributes:
        kept: indices of the entries, ascending, int64.
        share: squared error of the product as a share of its energy |C O|^2, the weights fitted to what is left.
    """

    kept: npt.NDArray[np.int64]
    share: float


def removed(moments: Array, weights: Array, count: int, block: int, left: Sequence[int]) -> dict[int, Left]:
    """Return what is left of a product's entries, by their number.

    Args:
        moments: C^T C, float64 [inside, inside].
        weights: O, float64 [inside, results].
        count: of entries, which begin with the first channel; what stands behind them (the 1 of a bias) stays.
        block: channels of each entry.
        left: numbers of entries, descending, each smaller than `count` and at least 1.
    """
    channels = count * block
    inner = weights[:channels]
    energy = float(np.sum(inner * (moments[:channels, :channels] @ inner)))
    fit, found = _Fit(with_ridge(moments, channels), weights, count, block), dict[int, Left]()
    for number in left:
        fit.remove(len(fit.entries) - number)
        found[number] = Left(fit.entries, fit.lost / energy if energy > 0 else 0.0)
    return found


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
    """A fit that loses entries.

    Args:
        moments: with an inverse.
        weights: of all channels.
        count: of entries.
        block: channels of each.

    Attributes:
        entries: index of every entry that is left, int64 ascending.
        lost: by how much the squared error has grown.
    """

    def __init__(self, moments: Array, weights: Array, count: int, block: int) -> None:
        self.entries, self.block, self.lost = np.arange(count), block, 0.0
        self._inverse, self._weights = np.linalg.inv(moments), weights

    def remove(self, count: int) -> None:
        """Remove the next entries, one after the other; the inverse is brought up to date behind the last."""
        block, number = self.block, len(self.entries)
        rows = np.arange(number * block).reshape(number, block)
        diagonal = self._inverse[rows[:, :, np.newaxis], rows[:, np.newaxis, :]]
        updates, stays = np.zeros((len(self._inverse), count * block)), np.ones(number, np.bool_)
        for step in range(0, count * block, block):
            own = self._weights[: number * block].reshape(number, block, -1)
            scores = np.sum(own * np.linalg.solve(diagonal, own), axis=(1, 2))
            gone = int(np.argmin(np.where(stays, scores, np.inf)))
            at = rows[gone]
            column = self._inverse[:, at] - updates[:, :step] @ updates[at, :step].T
            self.lost += float(scores[gone])
            self._weights = self._weights - column @ np.linalg.solve(column[at], self._weights[at])
            root = np.linalg.cholesky((column[at] + column[at].T) / 2)
            update = np.linalg.solve(root, column.T).T
            updates[:, step : step + block] = update
            parts = update[: number * block].reshape(number, block, block)
            diagonal = diagonal - parts @ parts.swapaxes(1, 2)
            stays[gone] = False
            diagonal[~stays] = np.eye(block)
        left = np.concatenate([rows[stays].reshape(-1), np.arange(number * block, len(self._inverse))])
        self._inverse = self._inverse[np.ix_(left, left)] - updates[left] @ updates[left].T
        self._weights, self.entries = self._weights[left], self.entries[stays]
