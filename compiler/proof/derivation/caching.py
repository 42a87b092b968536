"""Chooses the states of derived calls: frames that later calls read, states of recurrences, and counts of frames."""

import dataclasses

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.model import Dim
from compiler.graph.operators.traits import ENTRYWISE, VIEWS
from compiler.proof.derivation.dependence import HERE, Reach
from compiler.proof.derivation.judging import Judging
from compiler.proof.derivation.written_sizes import written_size


@dataclasses.dataclass(frozen=True)
class CachedValue:
    """A value that later calls read.

    Attributes:
        value: of the whole graph.
        axis: its time axis.
        input: of the derived graph, with the frames of earlier calls.
        output: of the derived graph, with all frames.
        reach: the frames that its entries read.
        before: entries of the value in front of the frames, which are not cached.
        kept: how many entries of the newest frames are kept, zeros in front of the first; 0 where all frames are.
        is_state: whether it is a recurrence's state behind the last frame, instead of frames.
        is_count: whether it is how many frames there were, of each row, and none of them.
        begins: one row of a state's value before the first frame, or a zero for all of it.
    """

    value: ir.Value
    axis: int
    input: str
    output: str
    reach: Reach = HERE
    before: Dim = 0
    kept: int = 0
    is_state: bool = False
    is_count: bool = False
    begins: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(()), compare=False)

    @property
    def is_joined(self) -> bool:
        """Whether a call keeps all frames along an axis that grows."""
        return not (self.kept or self.is_state or self.is_count)


class Caches:
    """The caches of one derived graph.

    Args:
        judging: the analysis of the whole graph.
        graph: the derived graph, to which an input is added for each cache.
        past: name of the axis of cached frames.

    Attributes:
        cached: the cached values, in the order of their inputs.
        left: the value that the call leaves for the next one, of each; until it is written, the value that the call
            read.
    """

    def __init__(self, judging: Judging, graph: ir.Graph, past: str) -> None:
        self.judging, self.graph, self.past = judging, graph, past
        self.cached: list[CachedValue] = []
        self.left: list[ir.Value] = []

    def cached_source(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the value to cache so that all frames of a value are known: itself, or a smaller one it comes from.

        Among values of equal size the last one is chosen, so that nothing behind it is computed again.
        """
        chosen, current, current_axis = value, value, axis
        while True:
            node = current.producer()
            source = None if node is None else self._moved_from(node, current, current_axis)
            if source is None:
                return chosen
            current, current_axis = source
            is_better = not self.can_hold(chosen) or self._frame_size(current) < self._frame_size(chosen)
            if self.can_hold(current) and is_better:
                chosen = current

    def _moved_from(self, node: ir.Node, value: ir.Value, axis: int) -> tuple[ir.Value, int] | None:
        """Return the operand that a node maps or moves frame by frame, and its time axis; None for other nodes."""
        timed = [operand for operand in node.inputs if self.judging.of(operand).along]
        others = [operand for operand in node.inputs if operand is not None and operand not in timed]
        if len(timed) != 1 or node.op_type not in ENTRYWISE | {"Expand", "Transpose", *VIEWS}:
            return None
        if node.op_type in ENTRYWISE and any(graphs.array_of(operand) is None for operand in others):
            return None
        operand = timed[0]
        assert operand is not None
        along = self.judging.of(operand).along
        if len(along) != 1 or not all(along_axis.is_alone for along_axis in along.values()):
            return None
        return operand, next(iter(along))

    def can_hold(self, value: ir.Value) -> bool:
        """Whether a value can be cached: every axis but that of frames is a number or an axis of some input."""
        if value.dtype == ir.DataType.BOOL:  # no truths are selected by row
            return False
        return all(
            isinstance(dim, int) or dim.is_Symbol or self._is_of_frames(value, at) for at, dim in enumerate(dims(value))
        )

    def _is_of_frames(self, value: ir.Value, axis: int) -> bool:
        """Whether an axis has entries of frames alone, of which the newest can be kept, behind a prefix at most."""
        along = self.judging.of(value).along
        return axis in along and (along[axis].is_alone or along[axis].rate is not None)

    def _is_alone(self, value: ir.Value, axis: int) -> bool:
        along = self.judging.of(value).along
        return axis in along and along[axis].is_alone

    def _frame_size(self, value: ir.Value) -> float:
        sizes = [1 if self._is_alone(value, at) else dim for at, dim in enumerate(dims(value))]
        entries = sympy.sympify(sympy.prod(sizes))
        width = 4 if value.dtype is None else value.dtype.itemsize
        return float(entries.subs(dict.fromkeys(entries.free_symbols, 1))) * width

    def carry(self, value: ir.Value, axis: int, kept: int = 0) -> ir.Value:
        """Add a cache input that holds frames of earlier calls, and return it.

        Args:
            value: the value to cache, of the graph over whole sequences.
            axis: its axis of frames.
            kept: number of the newest frames' entries to keep; 0 keeps all frames.
        """
        along = self.judging.of(value).along[axis]
        shape = [
            kept or self.past if position == axis else written_size(dim) for position, dim in enumerate(dims(value))
        ]
        name, output = self._names()
        return self._given(
            ir.Shape(shape), CachedValue(value, axis, name, output, along.reach, along.before, kept=kept)
        )

    def carry_state(self, value: ir.Value, begins: np.ndarray) -> ir.Value:
        """Add a cache input that holds the state of a recurrence after earlier calls, and return it.

        Args:
            value: the state after the last frame, of the graph over whole sequences.
            begins: one row of the state before the first frame.
        """
        name, output = self._names()
        assert value.shape is not None
        begins = begins if begins.any() else np.zeros((), begins.dtype)
        return self._given(value.shape, CachedValue(value, 0, name, output, is_state=True, begins=begins))

    def carry_count(self, value: ir.Value, axis: int) -> ir.Value:
        """Add an input that counts frames of earlier calls, int64 [rows], or [1] without rows, and return it.

        Args:
            value: a value of the graph over whole sequences.
            axis: its axis of frames.
        """
        rows = [written_size(dim) for at, dim in enumerate(dims(value)) if at != axis]
        name, output = self._names()
        counted = CachedValue(value, axis, name, output, is_count=True)
        return self._given(ir.Shape(rows or [1]), counted, ir.TensorType(ir.DataType.INT64))

    def _names(self) -> tuple[str, str]:
        number = len(self.cached)
        return graphs.fresh_name(self.graph, f"cache_{number:02}"), graphs.fresh_name(
            self.graph, f"next_cache_{number:02}"
        )

    def _given(self, shape: ir.Shape, cached: CachedValue, kind: ir.TypeProtocol | None = None) -> ir.Value:
        old = ir.Value(name=cached.input, shape=shape, type=kind or cached.value.type)
        self.cached.append(cached)
        self.left.append(old)
        self.graph.inputs.append(old)
        return old
