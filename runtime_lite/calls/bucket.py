"""Holds the buffers of one bucket: static shapes, and arrays that are made once and used by every run.

A run takes a set of buffers and gives it back when it has succeeded; a set is never given out twice. Runs beside each
other have sets of their own, and the set that was used last goes out first. What a run that failed had is left to it.
Runs of fewer rows than a bucket has, where a graph takes any number of them, use the memory of that bucket.
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
    """Arrays in their static shapes by tensor name, made when they are first asked for.

    Args:
        tensors: of the graph.
        sizes: of every axis.
        within: arrays at sizes as large or larger, in whose memory they lie; None for memory of their own.
    """

    def __init__(self, tensors: tuple[Tensor, ...], sizes: Mapping[str, int], within: "Places | None" = None) -> None:
        """Make nothing yet."""
        super().__init__()
        self._tensors, self._sizes, self._within = tensors, sizes, within

    def __missing__(self, name: str) -> Array:
        """Make an array, which holds anything."""
        tensor = next(tensor for tensor in self._tensors if tensor.name == name)
        shape = static_shape(tensor.shape, self._sizes)
        memory = None if self._within is None else self._within[name]
        self[name] = np.empty(shape, tensor.dtype) if memory is None else np.ndarray(shape, tensor.dtype, memory)
        return self[name]


@dataclass(frozen=True, eq=False)
class Buffers:
    """What one run at a time writes to; whatever lay there before is there until it is written over.

    Attributes:
        inputs: what is gathered from several feeds and states, or padded.
        outputs: what is cut before a caller gets it.
        within: the set in whose memory they lie; None where that is their own.
    """

    inputs: Places
    outputs: Places
    within: "Buffers | None" = None


class Bucket:
    """One combination of buckets.

    Args:
        graph: the graph.
        sizes: bucket of every axis.
        within: the bucket of more rows in whose memory runs of these lie; None for a bucket that was built.

    Attributes:
        rows: of the batch axis; 1 without one.
        room: rows that its memory has.
        shapes: static shape of every input by name.
        answered: outputs of role data, each with its static shape.
        given: outputs of role state, each with its static shape.
        joined: inputs that rows of feeds or states are joined to; where those lie, or None; and what free places hold,
            None where the caller of a run says it.
        counted: inputs that take the true length of rows, each with its axis.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int], within: "Bucket | None" = None) -> None:
        """Make no buffers yet."""
        self.graph, self.sizes, self._within = graph, dict(sizes), within
        self.rows = 1 if graph.batch_axis is None else self.sizes[graph.batch_axis]
        self.room: int = self.rows if within is None else within.room
        self.shapes = {tensor.name: static_shape(tensor.shape, self.sizes) for tensor in graph.inputs}
        shapes = [(tensor, static_shape(tensor.shape, self.sizes)) for tensor in graph.outputs]
        self.answered = tuple(each for each in shapes if each[0].role == "data")
        self.given = tuple(each for each in shapes if each[0].role == "state")
        self.joined = tuple((t, graph.rows_at(t), _filler(graph, t)) for t in graph.inputs if t.role in FILLED_BY_ROWS)
        axis_of = {axis.length_input: name for name, axis in graph.axes.items()}
        self.counted = tuple((tensor, axis_of[tensor.name]) for tensor in graph.inputs if tensor.name in axis_of)
        self._made = 0
        self._free: list[Buffers] = []

    @property
    def made(self) -> int:
        """Sets of buffers that there are: as many as there were runs at once."""
        return self._made if self._within is None else self._within.made

    def take(self) -> Buffers:
        """Return a set of buffers that no other run has."""
        graph, sizes = self.graph, self.sizes
        if self._within is not None:
            whole = self._within.take()
            inputs, outputs = whole.inputs, whole.outputs
            return Buffers(Places(graph.inputs, sizes, inputs), Places(graph.outputs, sizes, outputs), whole)
        try:
            return self._free.pop()
        except IndexError:
            self._made += 1
            return Buffers(Places(graph.inputs, sizes), Places(graph.outputs, sizes))

    def give_back(self, buffers: Buffers) -> None:
        """Take a set back: the run has ended well, and nobody has any of it."""
        if self._within is None:
            self._free.append(buffers)
        else:
            assert buffers.within is not None
            self._within.give_back(buffers.within)

    def trim(self) -> None:
        """Let go of the sets that no run has."""
        self._made -= len(self._free)
        self._free.clear()

    def lose(self) -> None:
        """Note that a set does not come back: its run has failed, and whoever was in it may still write there."""
        if self._within is None:
            self._made -= 1
        else:
            self._within.lose()


def _filler(graph: Graph, tensor: Tensor) -> Number | Array | None:
    if tensor.role == "state":
        initial = next(state.initial for state in graph.states if state.input == tensor.name)
        return array_of_initial(initial, tensor.dtype) if isinstance(initial, tuple) else initial
    return None if tensor.dtype.startswith("float") else 0
