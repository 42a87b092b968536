"""Draws the streams of a recipe from the user's generators, checks every feed, and hashes the content."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.base.did_you_mean import did_you_mean
from compiler.errors import DataError, Location
from compiler.graph.stages import Array, Feed
from compiler.recipe.graph import Graph
from compiler.recipe.load import RecipeLocation
from compiler.recipe.record import Feeds
from compiler.recipe.tree.keys import Key
from compiler.recipe.user_code.callables import call, function_name, importable, resolve, shown_path

Streams = list[list[Feed]]


def draw_streams(location: RecipeLocation, key: str, feeds: Feeds, graph: str, spec: Graph) -> Streams:
    """Return the first `count` streams of a generator, every feed checked against the recipe.

    Args:
        location: paths and keys of the recipe.
        key: `verification`, `calibration` or `development`.
        feeds: the generator's record.
        graph: graph the feeds are for.
        spec: its inputs.

    Raises:
        RecipeError: the generator does not exist.
        DataError: the generator raises, yields nothing, or yields a feed that does not fit.
    """
    reference = feeds.for_graph(graph)
    where = location.where("data", key, "feeds")
    folders = location.search_path()
    function = resolve(reference, folders, where)
    name = function_name(function)
    with importable(folders):
        streams = call(take_streams, where, DataError, function, feeds.count, f"{where}: {name}", named=function)
    if not streams:
        raise DataError(f"{where}: expected {feeds.count} streams from {name}, got none", cure="yield streams of feeds")
    if len(streams) < feeds.count:
        raise DataError(
            f"{where}: expected {feeds.count} streams from {name}, got {len(streams)}",
            cure=f"write count: {len(streams)}, or yield more",
        )
    return [check_stream(stream, spec, f"{where}: stream {i} of {name}") for i, stream in enumerate(streams)]


def locate_files(location: RecipeLocation, files: Sequence[str], *keys: Key) -> list[Path]:
    """Return the files and folders that a recipe names below some key.

    Raises:
        DataError: a file does not exist.
    """
    paths = [location.locate(file) for file in files]
    for index, path in enumerate(paths):
        if not path.exists():
            where = location.where(*keys, "files", index)
            raise DataError(
                f"{where}: expected a file or folder, got nothing at {shown_path(path)}", cure="check the path"
            )
    return paths


def take_streams(function: Any, count: int, where: str) -> list[list[Any]]:
    """Return the first streams of a generator, as lists of feeds.

    Raises:
        DataError: the generator yields no streams of feeds.
    """
    streams = function()
    if not isinstance(streams, Iterable):
        raise DataError(f"{where}: expected streams, got {type(streams).__name__}", cure="yield streams of feeds")
    taken = []
    for index, stream in enumerate(itertools.islice(streams, count)):
        if not isinstance(stream, Iterable):
            kind = type(stream).__name__
            raise DataError(f"{where}: expected stream {index} to hold feeds, got {kind}", cure="yield lists of feeds")
        if isinstance(stream, Mapping):
            raise DataError(
                f"{where}: expected stream {index} to be a list of feeds, got one feed, {sorted(map(str, stream))}",
                cure="a stream is a list of dictionaries, one per call: yield [{...}, {...}, ...]",
            )
        taken.append(list(stream))
    return taken


def check_stream(stream: Sequence[Any], spec: Graph, where: str) -> list[Feed]:
    """Return the feeds of one stream, after checking them.

    Args:
        stream: the stream that the user's code yielded.
        spec: inputs and axes they must fit.
        where: start of error messages.

    Raises:
        DataError: there are no feeds, or one does not fit.
    """
    if not stream:
        raise DataError(f"{where}: expected feeds, got an empty stream", cure="yield at least one feed per stream")
    wanted = {name: input_spec for name, input_spec in spec.inputs.items() if input_spec.is_data}
    for index, feed in enumerate(stream):
        _check_feed(feed, wanted, spec, f"{where}, feed {index}")
    return list(stream)


def _check_feed(feed: Any, wanted: Mapping[str, Any], spec: Graph, where: str) -> None:
    if not isinstance(feed, Mapping):
        raise DataError(f"{where}: expected a mapping of arrays, got {type(feed).__name__}", cure="yield dictionaries")
    if set(feed) != set(wanted):
        raise DataError(
            f"{where}: expected inputs {sorted(wanted)}, got {sorted(map(str, feed))}",
            cure=_cure_of_names(set(map(str, feed)), set(wanted), spec),
        )
    sizes: dict[str, int] = {}
    for name, input_spec in wanted.items():
        array = feed[name]
        if not isinstance(array, np.ndarray):
            raise DataError(f"{where}, {name}: expected a numpy array, got {type(array).__name__}", cure="convert it")
        if str(array.dtype) != input_spec.dtype:
            raise DataError(
                f"{where}, {name}: expected {input_spec.dtype}, got {array.dtype}",
                cure=f"use .astype({input_spec.dtype!r}), or write dtype: {array.dtype} where the model takes that",
            )
        fixed = [_size(dim, spec) for dim in input_spec.shape]
        fits = array.ndim == len(fixed) and all(n in (None, m) for n, m in zip(fixed, array.shape, strict=True))
        if not fits or 0 in array.shape:
            raise DataError(
                f"{where}, {name}: expected shape [{', '.join(map(str, input_spec.shape))}], got {list(array.shape)}",
                cure=_cure_of_shape(array, input_spec.shape, fixed, spec),
            )
        _check_lengths(array, input_spec.shape, spec, sizes, f"{where}, {name}")
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise DataError(
                f"{where}, {name}: expected finite numbers, got NaN or infinity", cure="repair the features"
            )
        _check_range(array, input_spec.range, f"{where}, {name}")


def _cure_of_names(got: set[str], wanted: set[str], spec: Graph) -> str:
    """Return the cure for feeds with wrong names: change the feeds, or change the inputs in the recipe."""
    missing, more = sorted(wanted - got), sorted(got - wanted)
    carried = ", ".join(name for name in more if name in spec.inputs)
    if carried:
        told = "states, counts, masks and lengths are fed by the build alone"
        return f"leave {carried} out, or change what the recipe says of it: {told}"
    if missing and more:
        return f"write one name for the same input in the recipe and in the feeds; {did_you_mean(more[0], missing)}"
    if more:
        return f"leave {', '.join(more)} out, or list it under inputs; {did_you_mean(more[0], spec.inputs)}"
    return (
        f"yield {', '.join(missing)} in every feed; or write state: OUTPUT at what the model hands to its next call, "
        "and counts: AXIS at a number of frames that it has heard"
    )


def _cure_of_shape(array: Array, shape: Sequence[int | str], fixed: Sequence[int | None], spec: Graph) -> str:
    """Return the cure for a feed whose shape is not that of the recipe: change the feed, or change the recipe."""
    if 0 in array.shape:
        return "yield at least one entry along every axis"
    rows = spec.batch is not None and spec.batch in shape
    if rows and array.shape == tuple(fixed[1:]):
        return f"yield one row in front, array[None]: {spec.batch!r} is the axis of rows"
    if not rows and array.shape[1:] == tuple(fixed):
        return "write the axis of rows in front of the recipe's shape, or yield arrays without it"
    if array.ndim != len(fixed):
        return "yield as many axes as the recipe's shape has, or write the shape that the model takes"
    if rows and array.shape[shape.index(str(spec.batch))] != 1:
        return "yield whole chunks of one row: the build makes rows by itself"
    return "yield whole chunks, or write the sizes that the model takes into the recipe's shape"


def _check_range(array: Array, declared: Sequence[float] | None, where: str) -> None:
    if declared is None:
        return
    low, high = declared
    beyond = array[(array < low) | (array > high)]
    if beyond.size:
        raise DataError(
            f"{where}: expected numbers from {low:g} to {high:g}, the declared range, got {float(beyond[0]):g}",
            cure="declare the range that callers feed",
        )


def _check_lengths(array: Array, shape: Sequence[int | str], spec: Graph, sizes: dict[str, int], where: str) -> None:
    """Require that a padded axis has one length in all inputs of a feed, at most its largest bucket."""
    for dim, size in zip(shape, array.shape, strict=True):
        if not isinstance(dim, str) or dim not in spec.padded:
            continue
        most = (spec.padded[dim].buckets or (0,))[-1]
        if size > most:
            raise DataError(
                f"{where}: expected at most {most} along {dim}, the largest bucket, got {size}",
                cure="yield shorter ones, or add a bucket",
            )
        if sizes.setdefault(dim, size) != size:
            raise DataError(
                f"{where}: expected {sizes[dim]} along {dim} as in the other inputs, got {size}",
                cure="yield inputs of one length",
            )


def _size(dim: int | str, spec: Graph) -> int | None:
    """Return the size that a feed must have along a dimension, None where any is allowed; feeds are single rows."""
    if isinstance(dim, int):
        return dim
    return 1 if dim == spec.batch else spec.axes[dim].fixed


def completed(feed: Feed, spec: Graph) -> dict[str, Array]:
    """Return a feed together with the masks and lengths that the build computes: those of a row without padding.

    Args:
        feed: arrays of data inputs and of states, by input name.
        spec: the graph.
    """
    sizes = {name: axis.fixed for name, axis in spec.axes.items() if axis.fixed is not None}
    for name, array in feed.items():
        dims = spec.inputs[name].shape if name in spec.inputs else ()
        sizes |= {dim: size for dim, size in zip(dims, array.shape, strict=False) if isinstance(dim, str)}
    full = dict(feed)
    for name, input_spec in spec.inputs.items():
        number = input_spec.without_padding(sizes)
        if number is not None:
            shape = [dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in input_spec.shape]
            full[name] = np.full(shape, number, input_spec.dtype)
    return full


def digest_of(streams: Streams) -> str:
    """Return the SHA-256 over names, shapes and contents of all feeds."""
    digest = hashlib.sha256()
    for stream in streams:
        digest.update(f"stream {len(stream)}".encode())
        for feed in stream:
            for name in sorted(feed):
                array: Array = np.ascontiguousarray(feed[name])
                digest.update(f"{name} {array.dtype} {array.shape}".encode())
                digest.update(array.tobytes())
    return digest.hexdigest()


def check_streams(streams: Sequence[Sequence[Feed]], needed: int, graph: str) -> None:
    """Require enough verification data for the gates of a graph.

    Raises:
        DataError: there is no stream, one is empty, or none has `needed` chunks.
    """
    place = Location(stage="data", graph=graph)
    if not streams:
        raise DataError("expected streams from the verification generator, got none", cure="yield streams", place=place)
    for index, stream in enumerate(streams):
        if not stream:
            raise DataError(f"expected feeds in stream {index}, got none", cure="yield no empty stream", place=place)
    longest = max(len(stream) for stream in streams)
    if longest < needed:
        raise DataError(
            f"expected a stream of at least {needed} chunks for the parity gate, got {longest} at most",
            cure="yield a longer stream, or lower chained_steps",
            place=place,
        )
