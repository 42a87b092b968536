"""Measures the shapes of a captured graph's outputs by running the graph, where shape inference fails."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.session import open_model
from compiler.recipe.graph import Graph

SIZE = 2
"""Of every axis that has no size: not 1, which stands for rows."""


def shapes_at_work(
    model: ir.Model, spec: Graph, sizes: Mapping[str, int] = MappingProxyType({})
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all outputs in one call, by name; empty where the graph does not run.

    Args:
        model: the captured graph.
        spec: the graph's record, for fixed sizes and the range of each input.
        sizes: sizes of axes, by name.
    """
    feeds = {str(value.name): _numbers(value, spec, sizes) for value in model.graph.inputs}
    names = list(graphs.outputs_named(model))
    try:
        results = open_model(model).run(names, feeds)
    except Exception:  # noqa: BLE001 - nothing is known then
        return {}
    return {name: array.shape for name, array in zip(names, results, strict=True)}


def _numbers(value: ir.Value, spec: Graph, sizes: Mapping[str, int]) -> np.ndarray:
    """Return an array of the number closest to zero in the input's declared range."""
    assert value.dtype is not None
    known = {name: axis.fixed for name, axis in spec.axes.items() if axis.fixed is not None} | dict(sizes)
    shape = [dim if isinstance(dim, int) else known.get(str(dim), SIZE) for dim in graphs.dims_of(value) or ()]
    given = spec.inputs.get(str(value.name))
    low, high = given.range if given is not None and given.range is not None else (0, 0)
    return np.full(shape, min(max(low, 0), high), value.dtype.numpy())
