"""What shapes the results of a captured graph have when it runs, where shape inference cannot tell."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.recipe.graph import Graph
from compiler.runners.session import open_model

SIZE = 2
"""Of every axis that has no size: not 1, which stands for rows."""


def shapes_at_work(model: ir.Model, spec: Graph) -> dict[str, tuple[int, ...]]:
    """The shapes of all outputs by name in one call, or nothing where the graph does not answer it.

    Args:
        model: the captured graph.
        spec: its record, for the range of each input.
    """
    feeds = {str(value.name): _numbers(value, spec) for value in model.graph.inputs}
    names = list(house.outputs_named(model))
    try:
        results = open_model(model).run(names, feeds)
    except Exception:  # noqa: BLE001 - nothing is known then
        return {}
    return {name: array.shape for name, array in zip(names, results, strict=True)}


def _numbers(value: ir.Value, spec: Graph) -> np.ndarray:
    """Zeros, or the number of the declared range that is next to zero."""
    assert value.dtype is not None
    sizes: Mapping[str, int | None] = {name: axis.fixed for name, axis in spec.axes.items()}
    shape = [dim if isinstance(dim, int) else sizes.get(str(dim)) or SIZE for dim in house.dims_of(value) or ()]
    given = spec.inputs.get(str(value.name))
    low, high = given.range if given is not None and given.range is not None else (0, 0)
    return np.full(shape, min(max(low, 0), high), value.dtype.numpy())
