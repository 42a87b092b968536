"""What a run in one bucket writes to: static shapes, and arrays that are made once and used by run after run.

A run takes a set of buffers and gives it back when it has succeeded; a set is never given out twice. Runs beside each
other have sets of their own, and the set that was used last goes out first. What a run that failed had is left to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runtime_lite.format.arrays import Array
from runtime_lite.format.initial_value import Number, array_of_initial
from runtime_lite.format.manifest import Graph, Tensor, static_shape

FILLED_BY_ROWS = ("data", "state")
"""Roles of inputs that hold rows of feeds or of states."""


class Places(dict[str, Array]):
    """Arrays in their static shapes by tensor name, made when they are first asked for."""

    def __init__(self, tensors: tuple[Tensor, ...], sizes: Mapping[str, int]) -> None:
        """Make nothing yet."""
        super().__init__()
        self._tensors, self._sizes = tensors, sizes

    def __missing__(self, name: str) -> Array:
        """Make an array, which holds anything."""
        tensor = next(tensor for tensor in self._tensors if tensor.name == name)
        self[name] = np.empty(static_shape(tensor.shape, self._sizes), tensor.dtype)
        return self[name]


@dataclass(frozen=True, eq=False)
class Buffers:
    """What one run at a time writes to; whatever lay there before is there until it is written over.

    Attributes:
        inputs: what is gathered from several feeds and states, or padded.
        outputs: what is cut before a caller gets it.
    """

    inputs: Places
    outputs: Places


class Bucket:
    """One combination of buckets.

    Args:
        graph: the graph.
        sizes: bucket of every axis.

    Attributes:
        rows: bucket of the batch axis; 1 without one.
        shapes: static shape of every input by name.
        answered: outputs of role data, each with its static shape.
        joined: inputs that rows of feeds or states are joined to; where those lie, or None; and what free places hold,
            None where the caller of a run says it.
        counted: inputs that take the true length of rows, each with its axis.
        made: sets of buffers that there are: as many as there were runs at once.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int]) -> None:
        """Make no buffers yet."""
        self.graph, self.sizes = graph, dict(sizes)
        self.rows = 1 if graph.batch_axis is None else self.sizes[graph.batch_axis]
        self.shapes = {tensor.name: static_shape(tensor.shape, self.sizes) for tensor in graph.inputs}
        answered = [tensor for tensor in graph.outputs if tensor.role == "data"]
        self.answered = tuple((tensor, static_shape(tensor.shape, self.sizes)) for tensor in answered)
        self.joined = tuple((t, graph.rows_at(t), _filler(graph, t)) for t in graph.inputs if t.role in FILLED_BY_ROWS)
        axis_of = {axis.length_input: name for name, axis in graph.axes.items()}
        self.counted = tuple((tensor, axis_of[tensor.name]) for tensor in graph.inputs if tensor.name in axis_of)
        self.made = 0
        self._free: list[Buffers] = []

    def take(self) -> Buffers:
        """Return a set of buffers that no other run has."""
        try:
            return self._free.pop()
        except IndexError:
            self.made += 1
            return Buffers(Places(self.graph.inputs, self.sizes), Places(self.graph.outputs, self.sizes))

    def give_back(self, buffers: Buffers) -> None:
        """Take a set back: the run has ended well, and nobody has any of it."""
        self._free.append(buffers)

    def trim(self) -> None:
        """Let go of the sets that no run has."""
        self.made -= len(self._free)
        self._free.clear()

    def lose(self) -> None:
        """Note that a set does not come back: its run has failed, and whoever was in it may still write there."""
        self.made -= 1


def _filler(graph: Graph, tensor: Tensor) -> Number | Array | None:
    if tensor.role == "state":
        initial = next(state.initial for state in graph.states if state.input == tensor.name)
        return array_of_initial(initial, tensor.dtype) if isinstance(initial, tuple) else initial
    return None if tensor.dtype.startswith("float") else 0
