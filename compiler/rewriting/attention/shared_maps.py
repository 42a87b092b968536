"""Computes the linear maps by which several heads share one key or value: to the shared one, and back to each head.

Row vectors. Head h of a group has vectors x_h [frames, d]; the group shares m = sum_h x_h A_h, and x_h is read as
m B_h. What is lost is sum_h |(x_h - m B_h) R_h|^2, where the metric M_h = R_h R_h^T [d, d] is what reads the vectors:
O_h O_h^T for values, q_h^T q_h summed over frames for keys. Everything follows from the second moments of the vectors,
so no frames are kept.

Channels that a rotary position turns in pairs may only be multiplied by a complex number per pair, since only that
commutes with every rotation; the others may be mixed freely. `Channels` says which are which.

Source: the optimum without pairs is the truncated singular value decomposition of [x_1 R_1, .., x_n R_n] (Eckart and
Young 1936; the same residual as reduced-rank regression); with pairs, that of the n complex columns of each pair.
The mean is that of GQA (Ainslie et al. 2023); rotations before the mean are those of Jin et al. 2024, found by
generalised Procrustes analysis (Gower 1975).
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

PROCRUSTES_ROUNDS = 50
"""Rounds of turning every head to the mean of all; differences shrink geometrically."""

JITTER = 1e-10
"""Added to the diagonal of a metric, as a share of its mean: a head that nothing reads has none."""


@dataclasses.dataclass(frozen=True)
class Channels:
    """How the channels of a head may be mixed.

    Attributes:
        free: channels that may be mixed with each other.
        pairs: channels turned together, as real and imaginary part.
    """

    free: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """Return the number of channels of a head."""
        return len(self.free) + 2 * len(self.pairs)


@dataclasses.dataclass(frozen=True)
class Maps:
    """The maps of one group.

    Attributes:
        to_shared: A_h, float64 [heads, d, d].
        from_shared: B_h, float64 [heads, d, d].
    """

    to_shared: Array
    from_shared: Array


Method = Callable[[Array, Array, Channels], Maps]
"""(moments [n, d, n, d], metrics [n, d, d], channels) -> maps."""


def optimal(moments: Array, metrics: Array, channels: Channels) -> Maps:
    """Return the maps of least error, which keep the shared channels about as large as the heads' were.

    Args:
        moments: sum over frames of x_h[i] x_g[j], float64 [heads, d, heads, d].
        metrics: M_h, float64 [heads, d, d], positive semidefinite.
        channels: the channels that may be mixed.
    """
    heads, size = metrics.shape[:2]
    to_shared, from_shared = np.zeros((2, heads, size, size))
    free = np.array(channels.free, dtype=np.intp)
    if free.size:
        read = metrics[:, free[:, None], free]
        roots = _roots(read / max(float(np.trace(read, axis1=1, axis2=2).mean()) / free.size, np.finfo(float).tiny))
        part = moments[:, free][:, :, :, free]
        seen = np.einsum("hia,higj,gjb->hagb", roots, part, roots)
        basis = _leading(seen.reshape(heads * free.size, -1), free.size).reshape(heads, free.size, free.size)
        inverse = np.linalg.inv(roots)
        to_shared[:, free[:, None], free] = roots @ basis
        from_shared[:, free[:, None], free] = np.swapaxes(basis, 1, 2) @ inverse
    for pair in channels.pairs:
        turned = _complex_moments(moments, pair)
        powers = _power(metrics, pair)
        weights = np.sqrt(powers / powers.mean())
        vector = _leading(weights[:, None] * turned * weights, 1)[:, 0]
        _put(to_shared, pair, weights * vector)
        _put(from_shared, pair, np.conj(vector) / weights)
    return Maps(to_shared, from_shared)


def mean(moments: Array, metrics: Array, channels: Channels) -> Maps:
    """Return maps to the mean of the heads, read unchanged by each head."""
    del moments, channels
    heads, size = metrics.shape[:2]
    same = np.broadcast_to(np.eye(size), (heads, size, size))
    return Maps(same / heads, np.array(same))


def rotated_mean(moments: Array, metrics: Array, channels: Channels) -> Maps:
    """Return maps to the mean of aligned heads: rotations of the free channels, phases of the pairs."""
    heads, size = metrics.shape[:2]
    turns = np.zeros((heads, size, size))
    free = np.array(channels.free, dtype=np.intp)
    if free.size:
        part = moments[:, free][:, :, :, free]
        rotations = np.broadcast_to(np.eye(free.size), (heads, free.size, free.size)).copy()
        for _ in range(PROCRUSTES_ROUNDS):
            centre = np.einsum("higj,gjb->hib", part, rotations) / heads
            left, _, right = np.linalg.svd(centre)
            rotations = left @ right
        turns[:, free[:, None], free] = rotations
    for pair in channels.pairs:
        turned = _complex_moments(moments, pair)
        phases = np.ones(heads, dtype=complex)
        for _ in range(PROCRUSTES_ROUNDS):
            centre = turned @ phases
            phases = np.where(np.abs(centre) > 0, centre / np.maximum(np.abs(centre), np.finfo(float).tiny), 1)
        _put(turns, pair, phases)
    return Maps(turns / heads, np.swapaxes(turns, 1, 2))


METHODS: dict[str, Method] = {"optimal": optimal, "mean": mean, "rotated_mean": rotated_mean}


def lost(moments: Array, metrics: Array, maps: Maps) -> float:
    """Return the error sum_h |(x_h - m B_h) R_h|^2 over the frames of the moments."""
    heads, size = metrics.shape[:2]
    flat = moments.reshape(heads * size, heads * size)
    # x_h - m B_h as a map of all heads' channels, [heads * d, heads, d]
    rest = -np.einsum("gij,hjk->gihk", maps.to_shared, maps.from_shared)
    rest[np.arange(heads), :, np.arange(heads), :] += np.eye(size)
    columns = rest.reshape(heads * size, heads * size)
    errors = (columns.T @ flat @ columns).reshape(heads, size, heads, size)
    return float(max(np.einsum("hihj,hji->", errors, metrics), 0.0))


def energy(moments: Array, metrics: Array) -> float:
    """Return sum_h |x_h R_h|^2, the error when all heads are dropped."""
    return float(np.einsum("hihj,hji->", moments, metrics))


def of_group(moments: Array, metrics: Array, heads: Sequence[int]) -> tuple[Array, Array]:
    """Return the moments and metrics of some of the heads."""
    index = np.array(heads, dtype=np.intp)
    return moments[index][:, :, index], metrics[index]


def _roots(metrics: Array) -> Array:
    """Return R_h with R_h R_h^T = M_h, kept invertible."""
    size = metrics.shape[1]
    scale = np.trace(metrics, axis1=1, axis2=2) / size
    floor = np.maximum(scale * JITTER, np.finfo(np.float32).tiny)
    found: Array = np.linalg.cholesky(metrics + floor[:, None, None] * np.eye(size))
    return found


def _leading(hermitian: npt.NDArray[np.complexfloating] | Array, count: int) -> npt.NDArray[np.complexfloating] | Array:
    """Return the eigenvectors of the largest eigenvalues, [n, count], largest first."""
    _, vectors = np.linalg.eigh(hermitian)
    leading = vectors[:, ::-1][:, :count]
    # a sign, or phase, that does not hang on the library: the largest entry is positive
    largest = leading[np.argmax(np.abs(leading).round(9), axis=0), np.arange(count)]
    found: npt.NDArray[np.complexfloating] | Array = leading * np.conj(largest / np.abs(largest))
    return found


def _complex_moments(moments: Array, pair: tuple[int, int]) -> npt.NDArray[np.complexfloating]:
    """Return the sum over frames of conj(z_h) z_g, complex [heads, heads], where z = real + i imaginary channel."""
    real, imaginary = pair
    a = moments[:, real, :, real] + moments[:, imaginary, :, imaginary]
    b = moments[:, real, :, imaginary] - moments[:, imaginary, :, real]
    found: npt.NDArray[np.complexfloating] = a + 1j * b
    return found


def _power(metrics: Array, pair: tuple[int, int]) -> Array:
    found = metrics[:, pair[0], pair[0]] + metrics[:, pair[1], pair[1]]
    floor = max(float(found.mean()) * JITTER, float(np.finfo(np.float32).tiny))
    powers: Array = np.maximum(found, floor)
    return powers


def _put(maps: Array, pair: tuple[int, int], factors: npt.NDArray[np.complexfloating] | Array) -> None:
    """Write the multiplication by one complex number per head into real maps of row vectors."""
    real, imaginary = pair
    maps[:, real, real] = maps[:, imaginary, imaginary] = np.real(factors)
    maps[:, real, imaginary] = np.imag(factors)
    maps[:, imaginary, real] = -np.imag(factors)
