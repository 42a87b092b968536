"""Makes random feeds for a model that comes without data, in the axis sizes that the caller gives."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import DataError, Location, RecipeError
from compiler.front.commands.onnx_signature import Tensor
from compiler.graph.sizes.expressions import Dim, symbol
from compiler.graph.stages import Array, Feed

OPTION = "--set-size"

MAX_ENTRIES = 2**28
"""Of one array: an hour of sound has 2**26."""


def require_sizes(
    shown: str,
    tensors: Sequence[Tensor],
    sizes: Mapping[str, int],
    find_alike: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Require a size for every axis, instead of guessing it.

    Args:
        shown: the model, for messages.
        tensors: the model's inputs.
        sizes: given sizes, by axis name.
        find_alike: returns, for axes, the axis that each equals; called only for the cure.

    Raises:
        RecipeError: an axis has no size, or a size has no axis.
    """
    known = dict.fromkeys(axis for tensor in tensors for axis in tensor.axes)
    for name in sizes:
        if name not in known:
            message = f"{OPTION} {name}: expected an axis of {shown}, got {name!r}"
            raise RecipeError(message, cure=did_you_mean(name, known))
    missing = [axis for axis in known if axis not in sizes]
    if missing:
        having = ", ".join(str(tensor) for tensor in tensors if not set(missing).isdisjoint(tensor.axes))
        raise RecipeError(
            f"{shown}: expected a size for {', '.join(missing)} of {having}, got none",
            cure="write " + " ".join(f"{OPTION} {axis}={size}" for axis, size in _fitting(known, sizes, find_alike())),
        )


def _fitting(known: Iterable[str], sizes: Mapping[str, int], alike: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield a size for every axis without one: equal for equal axes, 1 for the first, which is often the batch."""
    found = {alike.get(axis, axis): size for axis, size in sizes.items()}
    for at, axis in enumerate(known):
        size = found.setdefault(alike.get(axis, axis), 16 if at else 1)
        if axis not in sizes:
            yield axis, size


def shape_in(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a tensor with the given sizes of its axes.

    Raises:
        RecipeError: a size is negative, or the tensor is too large.
    """
    shape = tuple(_size(dim, sizes) for dim in tensor.dims)
    if math.prod(shape) > MAX_ENTRIES:
        raise RecipeError(
            f"{tensor}: expected at most {MAX_ENTRIES} entries, got {list(shape)}", cure=f"choose another {OPTION}"
        )
    if any(size < 0 for size in shape):
        raise RecipeError(
            f"{tensor}: expected sizes from 0, got {list(shape)} for {dict(sizes)}", cure=f"choose another {OPTION}"
        )
    return shape


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else int(dim.subs({symbol(name): size for name, size in sizes.items()}))


def random_feeds(tensors: Iterable[Tensor], sizes: Mapping[str, int], seed: int, calls: int) -> list[Feed]:
    """Return feeds of random numbers: normal ones, and 0 or 1 for integers, which may be indices.

    Args:
        tensors: tensors to feed.
        sizes: sizes of all their axes.
        seed: seed of the random numbers.
        calls: number of feeds.
    """
    shapes = {tensor.name: (shape_in(tensor, sizes), np.dtype(tensor.dtype)) for tensor in tensors}
    random = np.random.default_rng(seed)
    return [{name: _numbers(random, *wanted) for name, wanted in shapes.items()} for _ in range(calls)]


def _numbers(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    is_whole = dtype.kind in "iub"
    return np.asarray(random.integers(0, 2, shape) if is_whole else random.standard_normal(shape)).astype(dtype)


def unanswered(stage: str, shown: str, feed: Feed, error: Exception) -> DataError:
    """Return the error for a model that fails on a feed.

    Args:
        stage: the command.
        shown: the model's name in messages.
        feed: the feed.
        error: the backend's error.
    """
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in feed.items())
    return DataError(
        f"expected {shown} to answer {shapes}, got {' '.join(str(error).split())[:300]}",
        cure=f"choose sizes that the model takes with {OPTION}",
        place=Location(stage=stage),
    )
