"""Reads and writes golden files: recorded feeds and outputs of a graph that `verify` runs again on any machine.

It is an `.npz` with `step{i:04d}/feed/<input>` for every input of role data and `step{i:04d}/output/<output>` for every
output of role data. The last step also has the final value of every state, under the name of its output. Arrays have
one row if the graph has a batch axis, and true lengths without padding; steps are chained from the initial states if
the graph has states. The float32 scalar `tolerance` is the largest accepted `max|got - expected| / max(1,
max|expected|)` of floating-point outputs. Integers and booleans are classes: the float32 scalar `min_equal`, 1 if it is
missing, is the smallest accepted share of equal entries.

Wired graphs have one more golden file, for all of them together, with inputs and outputs by the names that callers use,
and without states.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping

import numpy as np

from runtime_lite.errors import BundleRefused, show
from runtime_lite.format.arrays import Array, arrays_from_npz, npz_from_arrays
from runtime_lite.format.checked_json import refuse
from runtime_lite.format.manifest import Graph, Tensor, static_shape

TOGETHER = "golden/wired/together.npz"
"""Name of the golden file of all wired graphs together."""

_KEY = re.compile(r"step(\d{4})/(feed|output)/(.+)")


@dataclasses.dataclass(frozen=True)
class GoldenStep:
    """One recorded run.

    Attributes:
        feeds: arrays by input of role data.
        outputs: arrays by output of role data; in the last step also the states.
    """

    feeds: Mapping[str, Array]
    outputs: Mapping[str, Array]


@dataclasses.dataclass(frozen=True)
class Golden:
    """Recorded runs of one graph.

    Attributes:
        steps: recorded runs in order; chained if the graph has states.
        tolerance: largest accepted error of floating-point outputs relative to `max(1, max|expected|)`.
        min_equal: smallest accepted share of equal entries of integer and boolean outputs.
    """

    steps: tuple[GoldenStep, ...]
    tolerance: float
    min_equal: float = 1.0


def npz_from_golden(golden: Golden) -> bytes:
    """Return the golden file; equal recordings give equal bytes."""
    arrays: dict[str, Array] = {"tolerance": np.array(golden.tolerance, np.float32)}
    if golden.min_equal < 1.0:
        arrays["min_equal"] = np.array(golden.min_equal, np.float32)
    for index, step in enumerate(golden.steps):
        arrays |= {f"step{index:04d}/feed/{name}": array for name, array in step.feeds.items()}
        arrays |= {f"step{index:04d}/output/{name}": array for name, array in step.outputs.items()}
    return npz_from_arrays(arrays)


def golden_from_npz(content: bytes, where: str, graph: Graph) -> Golden:
    """Read the recorded runs of a graph and check each array against the manifest.

    Raises:
        BundleRefused: an array is missing, unknown or not finite, or its shape or dtype differs from the manifest.
    """
    golden = _recorded(content, where)
    carried = {state.output: state.shape for state in graph.states}
    outputs = tuple(
        dataclasses.replace(tensor, shape=carried.get(tensor.name, tensor.shape)) for tensor in graph.outputs
    )
    for index, step in enumerate(golden.steps):
        roles = ("data", "state") if index == len(golden.steps) - 1 else ("data",)
        sizes: dict[str, int] = {} if graph.batch_axis is None else {graph.batch_axis: 1}
        _check_arrays(f"{where}[step{index:04d}/feed]", step.feeds, graph, graph.inputs, ("data",), sizes)
        _check_arrays(f"{where}[step{index:04d}/output]", step.outputs, graph, outputs, roles, sizes)
    return golden


def golden_of_pipeline(content: bytes, where: str, outputs: Collection[str]) -> Golden:
    """Read the recorded runs of all wired graphs together; feeds are checked later, like a caller's.

    Args:
        content: content of the file.
        where: its name, for messages.
        outputs: names of all outputs.

    Raises:
        BundleRefused: an output is missing or unknown, or not finite.
    """
    golden = _recorded(content, where)
    for index, step in enumerate(golden.steps):
        if set(step.outputs) != set(outputs):
            refuse(
                f"{where}[step{index:04d}/output]", f"the arrays {show(sorted(outputs))}", show(sorted(step.outputs))
            )
        for name, array in step.outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                refuse(f"{where}[step{index:04d}/output][{name!r}]", "finite values", "NaN or infinity")
    return golden


def _recorded(content: bytes, where: str) -> Golden:
    """Return the recorded runs in order."""
    arrays = arrays_from_npz(content, where, BundleRefused)
    tolerance = arrays.pop("tolerance", None)
    if tolerance is None or tolerance.shape != () or tolerance.dtype != np.float32 or not 0 <= tolerance <= 1e6:
        refuse(where, "a float32 scalar 'tolerance' from 0 to 1e6", "none" if tolerance is None else show(tolerance))
    min_equal = arrays.pop("min_equal", np.array(1.0, np.float32))
    if min_equal.shape != () or min_equal.dtype != np.float32 or not 0 <= min_equal <= 1:
        refuse(where, "a float32 scalar 'min_equal' from 0 to 1", show(min_equal))
    steps: dict[int, tuple[dict[str, Array], dict[str, Array]]] = {}
    for key, array in arrays.items():
        match = _KEY.fullmatch(key)
        if match is None:
            refuse(where, "arrays 'step<4 digits>/feed/<input>' and 'step<4 digits>/output/<output>'", show(key))
        feeds, outputs = steps.setdefault(int(match[1]), ({}, {}))
        (feeds if match[2] == "feed" else outputs)[match[3]] = array
    if not steps or sorted(steps) != list(range(len(steps))):
        refuse(where, "steps 0000, 0001, ... without gaps", show(sorted(steps)[:5]))
    return Golden(tuple(GoldenStep(*steps[index]) for index in range(len(steps))), float(tolerance), float(min_equal))


def _check_arrays(
    where: str,
    arrays: Mapping[str, Array],
    graph: Graph,
    tensors: tuple[Tensor, ...],
    roles: tuple[str, ...],
    sizes: dict[str, int],
) -> None:
    """Check the feeds or the outputs of one step; the first array with an axis determines its size."""
    expected = {tensor.name: tensor for tensor in tensors if tensor.role in roles}
    if set(arrays) != set(expected):
        refuse(where, f"the arrays {show(sorted(expected))}", show(sorted(arrays)))
    for name, tensor in expected.items():
        array = arrays[name]
        if array.dtype != np.dtype(tensor.dtype) or array.ndim != len(tensor.shape):
            refuse(f"{where}[{name!r}]", f"{tensor.dtype} of shape {show(list(tensor.shape))}", _describe(array))
        for size, array_size in zip(tensor.shape, array.shape, strict=True):
            if size in graph.axes:
                sizes.setdefault(str(size), array_size)
        if array.shape != static_shape(tensor.shape, sizes) or not _were_built(graph, sizes):
            refuse(f"{where}[{name!r}]", f"shape {show(list(tensor.shape))} at one row", _describe(array))
        if not np.isfinite(array).all():
            refuse(f"{where}[{name!r}]", "finite values", "NaN or infinity")


def _were_built(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Return whether sizes are buckets, or within the buckets of an axis with a length per row."""
    axes = {name: graph.axes[name] for name in sizes if name != graph.batch_axis}
    return all(
        sizes[name] in axis.buckets if axis.length_input is None else axis.minimum <= sizes[name] <= axis.buckets[-1]
        for name, axis in axes.items()
    )


def _describe(array: Array) -> str:
    return f"{array.dtype} of shape {show(list(array.shape))}"
