"""Checks a caller's feed against a graph before anything runs; nothing is converted, guessed or truncated.

A feed has an array of exactly the stated dtype for every input of role data, and no others. Sizes must match; only the
batch axis, and axes with a length per row, may be smaller than a bucket. Any memory layout is accepted; the backend
copies arrays that are not contiguous. A feed that is used after its call is copied before its values are checked, so
that later writes of the caller do not reach the run.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NoReturn

import numpy as np

from runtime_lite.errors import BadInput, show
from runtime_lite.format.arrays import Array
from runtime_lite.format.manifest import Axis, Graph, Tensor

RowLengths = Sequence[int] | Array

MOST_KINDS = 1024
"""Number of combinations of shapes and dtypes that are remembered for a graph."""


@dataclass(frozen=True)
class Feed:
    """A checked feed whose rows all have the same sizes; rows of several lengths are several feeds.

    Attributes:
        arrays: arrays by input of role data.
        sizes: size of every axis: for the batch axis the number of rows, for an axis with a length per row the true
            length.
        rows: number of rows; always 1 for a graph without a batch axis.
    """

    arrays: Mapping[str, Array]
    sizes: Mapping[str, int]
    rows: int = 1


def check_feed(
    where: str,
    graph: Graph,
    arrays: Mapping[str, Array],
    check_finite: bool,
    rows: int = 1,
    wired: Mapping[str, Array] = MappingProxyType({}),
    copy: bool = False,
) -> Feed:
    """Check a caller's arrays against a graph and return them as a feed.

    Args:
        where: name of the call in messages, e.g. `encoder.run`.
        graph: the graph it is for.
        arrays: what the caller gave.
        check_finite: refuse NaN and infinity.
        rows: number of rows if no input has a batch axis.
        wired: placeholders of the right sizes for the inputs that another graph fills; their values are not checked.
        copy: whether to copy the caller's arrays; otherwise the feed refers to them.

    Raises:
        BadInput: anything about it is not as the graph states.
    """
    feed = _check_arrays(where, graph, {**arrays, **wired} if wired else arrays, graph.axes, rows)
    feed = copied(feed, arrays) if copy else feed
    _check_values(where, feed, wired, check_finite, ranges_of(graph))
    return feed


def copied(feed: Feed, names: Collection[str] | None = None) -> Feed:
    """Return a feed with copies of its arrays; with `names`, only the arrays of these inputs are copied."""
    arrays = {name: np.array(array) if names is None or name in names else array for name, array in feed.arrays.items()}
    return Feed(arrays, feed.sizes, feed.rows)


def ranges_of(graph: Graph) -> dict[str, tuple[float, float]]:
    """Return the smallest and the largest allowed number, by input, for the inputs that have a range."""
    return {tensor.name: tensor.range for tensor in graph.inputs if tensor.range is not None}


class FeedCheck:
    """Checks the feeds of one graph; shapes and dtypes that have passed once are not checked again.

    Args:
        graph: the graph of the feeds.
        check_finite: refuse NaN and infinity.
    """

    def __init__(self, graph: Graph, check_finite: bool) -> None:
        """Start without any remembered shapes."""
        self._graph, self._check_finite = graph, check_finite
        inputs = [tensor for tensor in graph.inputs if tensor.role == "data"]
        self._names = [tensor.name for tensor in inputs]
        self._ranges = ranges_of(graph)
        self._tell_rows = any(graph.rows_at(tensor) is not None for tensor in inputs)
        self._passed: dict[tuple[object, ...], Mapping[str, int]] = {}

    def check(
        self, where: str, arrays: Mapping[str, Array], rows: int, wired: Mapping[str, Array], copy: bool = False
    ) -> Feed:
        """Return a checked feed, as `check_feed` does.

        Raises:
            BadInput: anything about it is not as the graph states.
        """
        kind = None if wired else self._kind(arrays, rows)
        feed = self._known(arrays, kind)
        if feed is None:
            feed = check_feed(where, self._graph, arrays, self._check_finite, rows, wired, copy)
            if kind is not None and len(self._passed) < MOST_KINDS:
                self._passed[kind] = feed.sizes
            return feed
        return self.check_values(where, feed, copy)

    def check_values(self, where: str, feed: Feed, copy: bool) -> Feed:
        """Check the values of a feed whose shapes and dtypes have passed; return it, or a copy of it.

        Raises:
            BadInput: a value is out of the range of its input, or it is NaN or infinity and `check_finite` is set.
        """
        feed = copied(feed) if copy else feed
        _check_values(where, feed, (), self._check_finite, self._ranges)
        return feed

    def known(self, arrays: Mapping[str, Array]) -> Feed | None:
        """Return the feed with unchecked values; None if no feed of its shapes and dtypes has passed before."""
        return self._known(arrays, self._kind(arrays, 1))

    def _known(self, arrays: Mapping[str, Array], kind: tuple[object, ...] | None) -> Feed | None:
        """Return the feed of arrays whose `kind` has passed before, else None."""
        sizes = None if kind is None else self._passed.get(kind)
        return None if sizes is None else feed_of(self._graph, {name: arrays[name] for name in self._names}, sizes)

    def _kind(self, arrays: Mapping[str, Array], rows: int) -> tuple[object, ...] | None:
        """Return the shapes and dtypes of a feed as a key; None if it is no dict of arrays with the right names."""
        if type(arrays) is not dict or len(arrays) != len(self._names):
            return None
        kind: list[object] = [] if self._tell_rows else [rows]
        for name in self._names:
            array = arrays.get(name)
            if type(array) is not np.ndarray:
                return None
            kind += array.dtype, array.shape
        return tuple(kind)


def check_ragged_feed(
    where: str,
    graph: Graph,
    arrays: Mapping[str, Array],
    lengths: Mapping[str, RowLengths],
    check_finite: bool,
    copy: bool = False,
) -> list[Feed]:
    """Return one checked feed per row, sliced to its true length; entries behind that length are ignored.

    Args:
        where: what to call the call in messages.
        graph: the graph it is for.
        arrays: the caller's arrays; the rows of an array are as long as the longest one, or longer.
        lengths: true length of every row by axis; an axis that is left out is full in every row.
        check_finite: refuse NaN and infinity.
        copy: whether to copy the caller's arrays.

    Raises:
        BadInput: anything about it is not as the graph states.
    """
    ragged = _check_length_names(where, graph, lengths)
    limited = {name: axis for name, axis in graph.axes.items() if name not in ragged}
    whole = _check_arrays(where, graph, arrays, limited, 1)
    for axis in ragged:
        _check_lengths(f"{where}: lengths[{axis!r}]", graph.axes[axis], lengths[axis], whole.rows, whole.sizes[axis])
    feeds, ranges = [], ranges_of(graph)
    for row in range(whole.rows):
        cuts = {axis: slice(0, int(lengths[axis][row])) for axis in ragged}
        feed = part_of_feed(graph, whole, {str(graph.batch_axis): slice(row, row + 1), **cuts})
        feeds.append(copied(feed) if copy else feed)
        _check_values(f"{where}: row {row}", feeds[-1], (), check_finite, ranges)
    return feeds


def feed_of(graph: Graph, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> Feed:
    """Return the feed of checked arrays, given the sizes of all axes."""
    return Feed(arrays, sizes, 1 if graph.batch_axis is None else sizes[graph.batch_axis])


def part_of_feed(graph: Graph, feed: Feed, cuts: Mapping[str, slice]) -> Feed:
    """Return a view of a feed, sliced along some axes; inputs without these axes stay as they are."""
    arrays = {
        tensor.name: feed.arrays[tensor.name][tuple(cuts.get(str(size), slice(None)) for size in tensor.shape)]
        for tensor in graph.inputs
        if tensor.role == "data"
    }
    sizes = {axis: len(range(size)[cuts[axis]]) if axis in cuts else size for axis, size in feed.sizes.items()}
    return feed_of(graph, arrays, sizes)


def _check_arrays(
    where: str, graph: Graph, arrays: Mapping[str, Array], limited: Mapping[str, Axis], rows: int
) -> Feed:
    """Check all of a feed but its values; along the axes `limited`, sizes must fit a bucket."""
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
            fed = arrays[name].shape[position]
            if isinstance(size, int):
                if fed != size:
                    _refuse(place, f"size {size} on {_axis(tensor, position)}", str(fed), f"feed exactly {size}")
                continue
            if size == graph.batch_axis:
                _check_rows(place, tensor, position, graph, fed)
            elif size in limited:
                _check_size(place, tensor, position, limited[size], fed)
            if sizes.setdefault(size, fed) != fed:
                wanted = f"size {sizes[size]} on {_axis(tensor, position)} like {bound_by[size]!r}"
                _refuse(place, wanted, str(fed), f"feed the same size on axis {size!r} everywhere")
            bound_by.setdefault(size, name)
    if graph.batch_axis is not None:
        sizes.setdefault(graph.batch_axis, rows)
    return feed_of(graph, {name: arrays[name] for name in expected}, sizes)


def _check_names(where: str, graph: Graph, expected: Mapping[str, Tensor], arrays: Mapping[str, Array]) -> None:
    if arrays.keys() == expected.keys():
        return
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
    # only what is a subclass is asked further: the first look at `np.ma` imports it, for 50 ms of a first request
    if not isinstance(array, np.ndarray) or (type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray)):
        expected = f"a NumPy array, {tensor.dtype} of shape {_shape(tensor)}"
        kind = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
        _refuse(place, expected, kind, f"convert it with numpy.asarray({name}, numpy.{tensor.dtype})")
    if array.dtype != np.dtype(tensor.dtype):
        cure = f"convert it with {name}.astype(numpy.{tensor.dtype}) if that is what you mean"
        _refuse(place, f"{tensor.dtype} of shape {_shape(tensor)}", f"dtype {array.dtype}", cure)
    if array.ndim != len(tensor.shape):
        got = f"{array.ndim} dimensions {list(array.shape)}"
        cure = f"add the missing axis, e.g. {name}[None]" if array.ndim == len(tensor.shape) - 1 else "reshape it"
        _refuse(place, f"{len(tensor.shape)} dimensions {_shape(tensor)}", got, cure)


def _check_rows(place: str, tensor: Tensor, position: int, graph: Graph, found: int) -> None:
    if found < 1:
        _refuse(place, f"at least 1 row on {_axis(tensor, position)}", str(found), "leave empty feeds out")
    if found > 1 and not graph.rows_independent:
        cure = "feed them one after the other, the bundle does not prove that rows are independent"
        _refuse(place, f"1 row on {_axis(tensor, position)}", str(found), cure)


def _check_size(place: str, tensor: Tensor, position: int, axis: Axis, found: int) -> None:
    if found in axis.buckets or (axis.length_input is not None and axis.minimum <= found <= axis.buckets[-1]):
        return
    known, on = ", ".join(str(size) for size in axis.buckets), _axis(tensor, position)
    if axis.length_input is None:
        _refuse(place, f"one of the sizes {known} on {on}", str(found), "feed a size that was built")
    if found < axis.minimum:
        cure = "pad the input as the model was trained to, shorter ones are not proved"
        _refuse(place, f"at least {axis.minimum} on {on}", str(found), cure)
    cure = f"feed less at a time or build the bucket {found}"
    _refuse(place, f"at most {axis.buckets[-1]} on {on} (buckets {known})", str(found), cure)


def _check_length_names(where: str, graph: Graph, lengths: Mapping[str, RowLengths]) -> list[str]:
    """Return the axes whose lengths the caller passes, in the order of the manifest."""
    known = [name for name, axis in graph.axes.items() if axis.length_input is not None]
    names = ", ".join(repr(name) for name in known) or "none"
    if not isinstance(lengths, Mapping):
        _refuse(where, "lengths as a mapping", f"a {type(lengths).__name__}", "write {'axis': [length of every row]}")
    if not known or graph.batch_axis is None:
        got = "one whose rows have the same length" if known else "one without"
        _refuse(where, "a graph with rows and lengths of their own", got, "leave lengths out")
    if unknown := [name for name in lengths if name not in known]:
        _refuse(where, f"lengths of the axes {names}", show(unknown[0]), "correct the name or leave it out")
    return [name for name in known if name in lengths]


def _check_lengths(place: str, axis: Axis, lengths: RowLengths, rows: int, room: int) -> None:
    """Check the true lengths of all rows along an axis; `room` is the size of the arrays along it."""
    is_array = isinstance(lengths, np.ndarray) and lengths.ndim == 1 and lengths.dtype.kind in "iu"
    is_list = isinstance(lengths, list | tuple) and all(type(n) is int or isinstance(n, np.integer) for n in lengths)
    if not (is_array or is_list) or len(lengths) != rows:
        got = f"{lengths.dtype} of shape {list(lengths.shape)}" if isinstance(lengths, np.ndarray) else show(lengths)
        _refuse(place, f"{rows} integers, one per row", got, "give the number of valid places of every row")
    for row, length in enumerate(lengths):
        most = min(room, axis.buckets[-1])
        if not axis.minimum <= length <= most:
            limit = "what the arrays hold" if most == room else f"the largest of the buckets {show(axis.buckets)}"
            cure = f"{axis.minimum} is the smallest length that is proved, {most} {limit}"
            _refuse(f"{place}[{row}]", f"from {axis.minimum} to {most}", str(length), cure)


def _check_values(
    where: str,
    feed: Feed,
    unseen: Collection[str],
    check_finite: bool,
    ranges: Mapping[str, tuple[float, float]],
) -> None:
    """Check the values of a feed, except those of `unseen` inputs."""
    if check_finite:
        _check_finite(where, {name: array for name, array in feed.arrays.items() if name not in unseen})
    for name, (low, high) in ranges.items():
        if name in unseen:
            continue
        array = feed.arrays[name]
        outside = (array < low) | (array > high)
        if outside.any():
            index = tuple(int(i) for i in np.argwhere(outside)[0])
            got = f"{array[index]} at {list(index)} ({int(outside.sum())} such values)"
            expected = f"numbers from {low} to {high}, the range that the bundle was proved for"
            _refuse(
                f"{where}: {name!r}", expected, got, "correct the input, or declare a wider range: of it in the recipe"
            )


def _check_finite(where: str, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            continue
        finite = np.isfinite(array)
        if not finite.all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            got = f"{array[index]} at {list(index)} ({int((~finite).sum())} such values)"
            _refuse(
                f"{where}: {name!r}",
                "finite values",
                got,
                "clean the input, or open the runtime with check_finite=False",
            )


def _axis(tensor: Tensor, position: int) -> str:
    return f"axis {position} of {_shape(tensor)}"


def _shape(tensor: Tensor) -> str:
    return "[" + ", ".join(str(size) for size in tensor.shape) + "]"


def _refuse(where: str, expected: str, got: str, cure: str) -> NoReturn:
    raise BadInput(f"{where}: expected {expected}, got {got}; {cure}")
