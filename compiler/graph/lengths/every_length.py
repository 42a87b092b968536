"""Computes, for every true length of a cache, the values of a graph that depend on that length alone."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.part import Part
from compiler.graph.stages import Array
from runtime_lite.format.cache_axis import CacheAxis


class EveryLength:
    """Values of a graph at every length of a cache, from none to all of its slots.

    Args:
        model: the graph.
        cache: whose lengths, and the mask that goes with each, are tried.
        settled: other inputs that hold one number for all rows and calls.
    """

    def __init__(self, model: ir.Model, cache: CacheAxis, settled: Mapping[str, int]) -> None:
        self.model, self.cache, self.settled = model, cache, settled
        self.known: dict[ir.Value, Array | None] = {}

    @property
    def count(self) -> int:
        """Return the number of cache lengths, from 0 to all slots."""
        return self.cache.slots + 1

    def of(self, value: ir.Value) -> Array | None:
        """Return the first row of a value at every cache length, [lengths, ...]; all rows are equal.

        None where the value depends on something else, or its rows differ.
        """
        if value not in self.known:
            self.known[value] = self._computed(value)
        return self.known[value]

    def _computed(self, value: ir.Value) -> Array | None:
        if value.graph is not self.model.graph or value.is_initializer():
            return None
        part, by_length = Part(self.model.graph, [value]), list[Array]()
        if part.inputs.keys() - {*self.settled, self.cache.length_input, self.cache.mask_input}:
            return None
        for length in range(self.count):
            by_length += part.run({name: self._feed(fed, length) for name, fed in part.inputs.items()})
        if not by_length[0].ndim or not all(
            np.array_equal(array, np.broadcast_to(array[:1], array.shape)) for array in by_length
        ):
            return None
        return np.concatenate([array[:1] for array in by_length])

    def _feed(self, value: ir.Value, length: int) -> Array:
        """Return the content of an input at a cache length, equal for every row; one row where their number is open."""
        dims, dtype = graphs.dims_of(value) or (), value.dtype
        assert dtype is not None
        sizes = [dim if isinstance(dim, int) else 1 for dim in dims]
        if value.name == self.cache.mask_input:
            mask = self.cache.mask(np.array([length]))
            return np.broadcast_to(mask, (sizes[0], mask.shape[1])).astype(dtype.numpy())
        numbers = {**self.settled, self.cache.length_input: length}
        return np.full(sizes, numbers[str(value.name)], dtype.numpy())
