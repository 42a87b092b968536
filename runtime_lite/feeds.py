"""Checks a caller's feed against a graph before anything runs: nothing is converted, guessed or silently cut.

A feed names every input of role data and no other, as NumPy arrays of exactly the stated dtype. Sizes must match; only
the batch axis may be smaller than a bucket. Any memory layout is accepted; the backend copies what is not contiguous.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from runtime_lite.arrays import Array
from runtime_lite.errors import BadInput, show
from runtime_lite.manifest import BATCH_AXIS, Graph, Tensor


@dataclass(frozen=True)
class Feed:
    """A checked feed.

    Attributes:
        arrays: by input of role data.
        sizes: size of every axis that the arrays have, `batch` being the number of rows.
    """

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]


def check_feed(where: str, graph: Graph, arrays: Mapping[str, Array], check_finite: bool) -> Feed:
    """Return a checked feed.

    Args:
        where: what to call the call in messages, e.g. `encoder.run`.
        graph: the graph it is for.
        arrays: what the caller gave.
        check_finite: refuse NaN and infinity.

    Raises:
        BadInput: anything about it is not as the graph states.
    """
    expected = {tensor.name: tensor for tensor in graph.inputs if tensor.role == "data"}
    if not isinstance(arrays, Mapping):
        _refuse(where, "a mapping of input names to arrays", f"a {type(arrays).__name__}", "write {'name': array}")
    _check_names(where, graph, expected, arrays)
    sizes: dict[str, int] = {}
    bound_by: dict[str, str] = {}
    for name, tensor in expected.items():
        place = f"{where}: {name!r}"
        _check_kind(place, name, tensor, arrays[name])
        for position, size in enumerate(tensor.shape):
            found = arrays[name].shape[position]
            axis = f"axis {position} of {_shape(tensor)}"
            if isinstance(size, int):
                if found != size:
                    _refuse(place, f"size {size} on {axis}", str(found), f"feed exactly {size}")
                continue
            _check_size(place, axis, size, graph.axes[size].buckets, found)
            if sizes.setdefault(size, found) != found:
                cure = f"feed the same size on axis {size!r} everywhere"
                _refuse(place, f"size {sizes[size]} on {axis} like {bound_by[size]!r}", str(found), cure)
            bound_by.setdefault(size, name)
        if check_finite:
            _check_finite(place, arrays[name])
    return Feed({name: arrays[name] for name in expected}, sizes)


def _check_names(where: str, graph: Graph, expected: Mapping[str, Tensor], arrays: Mapping[str, Array]) -> None:
    names = ", ".join(repr(name) for name in expected) or "none"
    roles = {tensor.name: tensor.role for tensor in graph.inputs}
    for name in arrays:
        if name in expected:
            continue
        if name in roles:
            _refuse(
                where,
                f"only the inputs {names}",
                f"{name!r} (role {roles[name]})",
                "leave it out, the runtime fills it",
            )
        missing = {right.lower(): right for right in expected if right not in arrays}
        near = [missing[word] for word in difflib.get_close_matches(str(name).lower(), missing, n=1, cutoff=0.5)]
        cure = f"did you mean {near[0]!r}?" if near else "leave it out"
        _refuse(where, f"the inputs {names}", f"unknown input {show(name)}", cure)
    for name, tensor in expected.items():
        if name not in arrays:
            _refuse(
                where, f"the inputs {names}", f"no {name!r}", f"add {name!r}, {tensor.dtype} of shape {_shape(tensor)}"
            )


def _check_kind(place: str, name: str, tensor: Tensor, array: object) -> None:
    expected = f"{tensor.dtype} of shape {_shape(tensor)}"
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        kind = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
        _refuse(
            place, f"a NumPy array, {expected}", kind, f"convert it with numpy.asarray({name}, numpy.{tensor.dtype})"
        )
    if array.dtype != np.dtype(tensor.dtype):
        cure = f"convert it with {name}.astype(numpy.{tensor.dtype}) if that is what you mean"
        _refuse(place, expected, f"dtype {array.dtype}", cure)
    if array.ndim != len(tensor.shape):
        got = f"{array.ndim} dimensions {list(array.shape)}"
        cure = f"add the missing axis, e.g. {name}[None]" if array.ndim == len(tensor.shape) - 1 else "reshape it"
        _refuse(place, f"{len(tensor.shape)} dimensions {_shape(tensor)}", got, cure)


def _check_size(place: str, axis: str, name: str, buckets: tuple[int, ...], found: int) -> None:
    known = ", ".join(str(size) for size in buckets)
    if name != BATCH_AXIS:
        if found not in buckets:
            _refuse(place, f"one of the sizes {known} on {axis}", str(found), "feed a size that was built")
    elif found < 1:
        _refuse(place, f"at least 1 row on {axis}", str(found), "leave empty feeds out")
    elif found > buckets[-1]:
        cure = f"split the feed or build the bucket {found}"
        _refuse(place, f"at most {buckets[-1]} rows on {axis} (buckets {known})", str(found), cure)


def _check_finite(place: str, array: Array) -> None:
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        cure = "clean the input, or open the runtime with check_finite=False"
        _refuse(place, "finite values", f"{array[index]} at {list(index)} ({int((~finite).sum())} such values)", cure)


def _shape(tensor: Tensor) -> str:
    return "[" + ", ".join(str(size) for size in tensor.shape) + "]"


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
