"""Checks that a graph with delayed outputs returns the outputs of the graph without delay, some frames later.

The checker knows no rule of what wrote it. It runs both on sequences of several lengths: the later one is fed the same
frames, then as many others, and a mark of 1 for every frame and of 0 for the others. Its answers are zeros, then those
of the other graph, and nothing in them moves with the numbers that are fed behind the end.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from compiler.checker.graph import STOPPED, Opened, Rejected, Weights, opened
from compiler.checker.steps import agree, drawn

Array = npt.NDArray[Any]

LENGTHS = (1, 2, 3, 5, 8, 17)
"""Frames of the sequences: shorter than what a layer reads, and longer."""

ROWS = 2
"""Of a batch, and the size of every other axis of which no largest is told."""


def check_later(
    early: onnx.ModelProto,
    late: onnx.ModelProto,
    certificate: Mapping[str, Any],
    weights: Weights = MappingProxyType({}),
) -> int:
    """Replay that a graph answers as another one does, some frames later.

    Args:
        early: the graph over whole sequences.
        late: the graph that answers later.
        certificate: `time`, `delay`, `marks` and `ranges`.
        weights: content of the weights that the graphs refer to.

    Returns:
        The number of answers that were compared.

    Raises:
        Rejected: an answer differs; the message names it.
    """
    time, delay, marks = certificate["time"], int(certificate["delay"]), certificate["marks"]
    names = [value.name for value in early.graph.output]
    inputs = {value.name: value for value in late.graph.input}
    if delay < 1 or sorted(inputs) != sorted([marks, *(value.name for value in early.graph.input)]):
        raise Rejected(f"a graph that answers {delay} frames later has inputs {sorted(inputs)}")
    graphs, random, compared = (opened(early, weights), opened(late, weights)), np.random.default_rng(0), 0
    for frames in LENGTHS:
        feeds = {}
        for name, value in inputs.items():
            sizes = [_size(dim, time, frames + delay) for dim in value.type.tensor_type.shape.dim]
            feeds[name] = drawn(late, value, sizes, certificate["ranges"], random)
        axes = {name: _axis(value, time) for name, value in inputs.items()}
        axis = axes[marks]
        if axis is None:
            raise Rejected(f"marks {marks!r} have no axis {time}")
        there = np.arange(frames + delay) < frames
        feeds[marks] = np.broadcast_to(
            there.reshape([-1 if at == axis else 1 for at in range(feeds[marks].ndim)]), feeds[marks].shape
        ).astype(feeds[marks].dtype)
        heard = {
            name: array if axes[name] is None else array.take(range(frames), axes[name])
            for name, array in feeds.items()
            if name != marks
        }
        expected = dict(zip(names, _run(graphs[0], names, heard), strict=True))
        for fed in (feeds, _with_others_behind(feeds, axes, marks, frames)):
            got = dict(zip(names, _run(graphs[1], names, fed), strict=True))
            for value in early.graph.output:
                _compare(value, expected[value.name], got[value.name], time, (frames, delay))
                compared += 1
    return compared


def _size(dim: onnx.TensorShapeProto.Dimension, time: str, frames: int) -> int:
    return int(dim.dim_value) if not dim.dim_param else frames if dim.dim_param == time else ROWS


def _axis(value: onnx.ValueInfoProto, time: str) -> int | None:
    names = [dim.dim_param for dim in value.type.tensor_type.shape.dim]
    return names.index(time) if time in names else None


def _run(graph: Opened, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    try:
        return graph.run(names, feeds)
    except STOPPED as error:
        raise Rejected(f"a graph does not run: {str(error)[:300]}") from None


def _with_others_behind(
    feeds: Mapping[str, Array], axes: Mapping[str, int | None], marks: str, frames: int
) -> dict[str, Array]:
    """Return feeds in which other numbers follow the end: the first ones, and large ones where they are floats."""
    others = dict(feeds)
    for name, array in feeds.items():
        axis = axes[name]
        if axis is None or name == marks:
            continue
        behind = array.take(np.arange(frames, array.shape[axis]) % max(frames, 1), axis)
        behind = behind * np.asarray(1000, array.dtype) if array.dtype.kind == "f" else behind
        others[name] = np.concatenate([array.take(range(frames), axis), behind], axis)
    return others


def _compare(value: onnx.ValueInfoProto, expected: Array, got: Array, time: str, lengths: tuple[int, int]) -> None:
    """Require that an answer is zeros, then what is expected."""
    frames, delay = lengths
    grown = [at for at in range(expected.ndim) if expected.ndim == got.ndim and expected.shape[at] != got.shape[at]]
    if len(grown) != 1 or expected.shape[grown[0]] % frames:
        raise Rejected(f"{value.name!r} has the shape {list(got.shape)} behind {list(expected.shape)}")
    (axis,) = grown
    front = delay * (expected.shape[axis] // frames)
    if got.shape[axis] != front + expected.shape[axis]:
        raise Rejected(f"{value.name!r} has {got.shape[axis]} entries along {time}, not {front} more than it had")
    before, behind = got.take(range(front), axis), got.take(range(front, got.shape[axis]), axis)
    if before.any() or not agree(expected, behind):
        difference = math.inf if before.any() else float(np.abs(expected.astype(np.float64) - behind).max())
        raise Rejected(f"{value.name!r} is not what it was, {delay} frames later: it differs by up to {difference:.3g}")
