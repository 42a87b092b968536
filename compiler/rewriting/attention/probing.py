"""Finds the matrix that a subgraph applies to channels, by running the subgraph on unit vectors.

The subgraph between two values reads unit vectors in place of the first value; its results give the matrix. Further
inputs show whether the map is affine, and the same for every frame and head.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.runners.instrumented import values_named
from compiler.graph.runners.part import Part
from compiler.graph.stages import Feed
from compiler.rewriting.attention.attention import Attention, Heads
from compiler.rewriting.attention.rows import rows_projected
from compiler.rewriting.attention.shared_maps import Channels

Real = npt.NDArray[np.float64]

CLOSE = 1e-4
"""Largest relative difference between what a matrix says and what float32 nodes give."""


class Probed:
    """The part of a graph behind a value, up to another.

    Args:
        model: the whole graph.
        given: name of the value to give.
        wanted: name of the value to get; the same one where nothing lies between.
        feed: the other inputs of the graph, one row.
    """

    def __init__(self, model: ir.Model, given: str, wanted: str, feed: Feed) -> None:
        values = values_named(model, [given, wanted])
        self.given = given
        self.shape = _shape_in(model, values[given], feed)
        self.part = Part(model.graph, [values[wanted]], [values[given]])
        self.feed = {name: feed[name] for name in self.part.inputs if name != given}

    def __call__(self, array: Real) -> Real:
        """Run the part on an array of `shape` and return its result."""
        (result,) = self.part.run({**self.feed, self.given: array.astype(np.float32)})
        return result.astype(np.float64)


def _shape_in(model: ir.Model, value: ir.Value, feed: Feed) -> tuple[int, ...]:
    """Return the shape of a value for one feed."""
    sizes: dict[Dim, int] = {}
    for name, graph_input in graphs.inputs_named(model).items():
        if name in feed:
            sizes |= {
                dim: size
                for dim, size in zip(graphs.dims_of(graph_input) or (), feed[name].shape, strict=False)
                if not isinstance(dim, int) and dim.is_Symbol
            }
    dims = graphs.dims_of(value)
    shape = () if dims is None else tuple(dim if isinstance(dim, int) else dim.subs(sizes) for dim in dims)
    if dims is None or not all(isinstance(size, int) or size.is_Integer for size in shape):
        raise Refused(f"expected the size of {value.name} to follow from the inputs, got {value.shape}")
    return tuple(int(size) for size in shape)


@dataclasses.dataclass(frozen=True)
class Affine:
    """y = x W + b for every frame.

    Attributes:
        weights: float64 [in, out].
        bias: float64 [out].
    """

    weights: Real
    bias: Real


def projection(model: ir.Model, heads: Heads, feed: Feed) -> Affine:
    """Return the affine map from the source to all heads, channels of a head side by side.

    Raises:
        Refused: the map differs between frames, or is not affine.
    """
    part = Probed(model, str(rows_projected(heads).value.name), str(heads.value.name), feed)

    def run(rows: Real) -> Real:
        result = part(rows.reshape(part.shape))
        ordered = result.transpose(heads.batch_axis, heads.time_axis, heads.heads_axis, 3)
        return ordered.reshape(rows.shape[0], -1)

    return _affine(run, part.shape, str(heads.value.name))


def output_projection(model: ir.Model, attention: Attention, feed: Feed) -> Affine:
    """Return the affine map from the context [batch, heads, time, d] to the output, channels of a head side by side."""
    part = Probed(model, str(attention.context.outputs[0].name), str(attention.output.outputs[0].name), feed)
    _, count, frames, size = part.shape

    def run(rows: Real) -> Real:
        given = rows.reshape(1, frames, count, size).transpose(0, 2, 1, 3)
        return part(given).reshape(frames, -1)

    return _affine(run, (1, frames, count * size), str(attention.output.name))


def _affine(run: "_Map", shape: Sequence[int], name: str) -> Affine:
    frames, width = int(np.prod(shape[:-1])), shape[-1]
    bias = run(np.zeros((frames, width)))
    rows = []
    for start in range(0, width, frames):
        unit_rows = np.zeros((frames, width))
        count = min(frames, width - start)
        unit_rows[np.arange(count), start + np.arange(count)] = 1
        rows.append((run(unit_rows) - bias)[:count])
    weights = np.concatenate(rows)
    drawn = np.random.default_rng(0).standard_normal((frames, width))
    expected, got = drawn @ weights + bias[0], run(drawn)
    if not np.allclose(got, expected, rtol=0, atol=CLOSE * max(float(np.abs(expected).max()), 1e-6)):
        raise Refused(f"expected every frame of {name} to be one affine map of its input, got another result")
    return Affine(weights, bias[0])


class _Map(Protocol):
    """Frames in, frames out: [frames, in] -> [frames, out]."""

    def __call__(self, rows: Real, /) -> Real: ...


OPERAND, TURNED = (1, 2, 3), (1, 3, 2)
"""Axes of heads, frames and channels: [batch, heads, time, d] and [batch, heads, d, time]."""


def turning(model: ir.Model, heads: Heads, feed: Feed, axes: tuple[int, int, int] = OPERAND) -> Real:
    """Return the linear map of the path behind the heads on each frame's channels, float64 [frames, d in, d out].

    Args:
        model: the graph.
        heads: the path.
        feed: one row.
        axes: the operand's axes of heads, frames and channels.

    Raises:
        Refused: the map differs between heads, or is not linear.
    """
    part = Probed(model, str(heads.value.name), str(heads.operand.name), feed)

    laid_out = (heads.batch_axis, heads.heads_axis, heads.time_axis)

    def run(array: Real) -> Real:
        """Run the path on [heads, frames, d], and return its result in that layout."""
        result = part(np.moveaxis(array[np.newaxis], (0, 1, 2), laid_out))[0]
        laid: Real = result.transpose([axis - 1 for axis in axes])
        return laid

    count = part.shape[heads.heads_axis]
    frames, size = part.shape[heads.time_axis], part.shape[3]
    columns = []
    for channel in range(size):
        unit = np.zeros((count, frames, size))
        unit[:, :, channel] = 1
        columns.append(run(unit))
    if any(column.shape != (count, frames, size) for column in columns):
        got = columns[0].shape
        raise Refused(f"expected {heads.operand.name} to have {count} heads of {frames} frames, got {got}")
    table: Real = np.stack([column[0] for column in columns], axis=1)
    drawn = np.random.default_rng(0).standard_normal((count, frames, size))
    expected, got_ = np.einsum("hti,tij->htj", drawn, table), run(drawn)
    if not np.allclose(got_, expected, rtol=0, atol=CLOSE * max(float(np.abs(expected).max()), 1e-6)):
        raise Refused(
            f"expected {heads.operand.name} to be the same linear map of the channels of every head, got another",
            cure="heads that are normalised or treated one by one cannot share keys",
        )
    return table


def channels_of(queries: Real, keys: Real) -> Channels:
    """Return which channels may be mixed freely, and in which pairs, between projections and scores.

    Args:
        queries: the path's map on queries, [frames, d, d].
        keys: the path's map on keys, [frames, d, d].

    Raises:
        Refused: a path mixes channels in another way than position by position in pairs.
    """
    parts = _parts(queries)
    if parts != _parts(keys):
        raise Refused("expected queries and keys to be turned in the same pairs of channels, got different ones")
    free, pairs = [], []
    for inside, outside in parts:
        if len(inside) == 1 == len(outside):
            free.append(inside[0])
        elif len(inside) == 2 == len(outside) and all(_turns(maps, inside, outside) for maps in (queries, keys)):
            pairs.append((inside[0], inside[1]))
        else:
            raise Refused(f"expected positions to turn channels in pairs, got channels {list(inside)} mixed")
    scales = [maps[:, i, o] for maps in (queries, keys) for (i,), (o,) in [p for p in parts if len(p[0]) == 1]]
    half = len(scales) // 2
    for side in (scales[:half], scales[half:]):
        if side and not np.allclose(np.stack(side), side[0][0], rtol=CLOSE, atol=0):
            raise Refused("expected channels that no position turns to be scaled alike at all frames, got factors")
    return Channels(tuple(free), tuple(pairs))


def _parts(table: Real) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the connected components of channels, as input and output channels."""
    joined = np.abs(table).max(axis=0) > CLOSE * np.abs(table).max()
    left = set(range(joined.shape[0]))
    parts = []
    while left:
        inside, outside = {min(left)}, set[int]()
        while True:
            more_out = {int(o) for i in inside for o in np.flatnonzero(joined[i])}
            more_in = {int(i) for o in more_out for i in np.flatnonzero(joined[:, o])} | inside
            if more_in == inside and more_out == outside:
                break
            inside, outside = more_in, more_out
        left -= inside
        parts.append((tuple(sorted(inside)), tuple(sorted(outside))))
    return parts


def _turns(table: Real, inside: tuple[int, ...], outside: tuple[int, ...]) -> bool:
    """Whether every frame's 2 x 2 block is a rotation times a factor, so that complex factors commute with it."""
    block = table[:, inside][:, :, outside]
    close = CLOSE * np.abs(block).max()
    return bool(
        np.abs(block[:, 0, 0] - block[:, 1, 1]).max() <= close
        and np.abs(block[:, 0, 1] + block[:, 1, 0]).max() <= close
    )
