"""Transposes the state of a convolution to the order of axes in which its new frames are computed.

Before:
    joined = Concat(context [batch, 256, 14], Transpose(x [batch, 16, 256]));  next_context = joined[:, :, -14:]
    y = Conv(joined)
After:
    joined = Concat(context [batch, 14, 256], x);  next_context = joined[:, -14:];  y = Conv(Transpose(joined))

New frames are joined as they come, and the transpose is where backends that compute convolutions with channels last
have none to make.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, order_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.stages import Array, Lowered, State, StateMap
from runtime_lite.format.initial_value import Initial, array_of_initial, initial_of_array

Permutation = tuple[int, ...]
"""Of axes, as the attribute of a Transpose."""


def permutation_alone(value: ir.Value, reader: ir.Node) -> Permutation | None:
    """Return the permutation of a Transpose whose output is read by this node only, else None."""
    if value.is_graph_output() or graphs.consumers_of(value) != [reader]:
        return None
    return order_of(value.producer())


def in_front(value: ir.Value | None) -> ir.Value | None:
    """Return the first input of the node that computes a value, None where there is no node."""
    maker = None if value is None else value.producer()
    return None if maker is None else maker.inputs[0]


@dataclasses.dataclass(frozen=True)
class Transposed(StateMap):
    """State map: states in another order of axes.

    Attributes:
        orders: by input.
    """

    permutations: tuple[tuple[str, Permutation], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Transpose the values of the transposed states, given by input name."""
        return dict(states) | {name: np.transpose(states[name], permutation) for name, permutation in self.permutations}


def transpose_states(lowered: Lowered, stamp: str) -> tuple[Lowered, int]:
    """Transpose every state that is the context of a convolution; the graph is rewritten in place.

    Args:
        lowered: the graph; the ranks of its values are known.
        stamp: name of the pass.

    Returns:
        The lowered graph with its new states, and the number of transposed states.
    """
    transposed, permutations = dict[str, State](), list[tuple[str, Permutation]]()
    for state in lowered.states if lowered.first_call is None else ():
        context = _Context.of(lowered, state)
        if context is not None:
            context.write(lowered.model, stamp)
            transposed[state.input] = dataclasses.replace(state, initial=_transposed(state.initial, context))
            permutations.append((state.input, context.back))
    if not transposed:
        return lowered, 0
    states = tuple(transposed.get(state.input, state) for state in lowered.states)
    maps = (*lowered.state_maps, Transposed(tuple(permutations)))
    return dataclasses.replace(lowered, states=states, state_maps=maps), len(transposed)


@dataclasses.dataclass(frozen=True)
class _Context:
    """A context that is joined with transposed frames.

    Attributes:
        old: the graph input.
        joined: the Concat.
        cut: the Slice that gives the next one.
        order: in which the new frames are transposed; rows stay in front.
    """

    old: ir.Value
    joined: ir.Node
    slice_node: ir.Node
    permutation: Permutation

    @classmethod
    def of(cls, lowered: Lowered, state: State) -> "_Context | None":
        """Return the convolution context held by a state; None for other states, or without a transpose to move."""
        old, next_state = (
            graphs.inputs_named(lowered.model)[state.input],
            graphs.outputs_named(lowered.model)[state.output],
        )
        joined, slice_node = graphs.only_reader(old), next_state.producer()
        if state.frames_axis is not None or joined is None or not graphs.is_op(joined, "Concat") or next_state.uses():
            return None
        value = joined.outputs[0]
        if (
            slice_node is None
            or not graphs.is_op(slice_node, "Slice")
            or slice_node.inputs[0] is not value
            or value.is_graph_output()
        ):
            return None
        readers = [node for node in graphs.consumers_of(value) if node is not slice_node]
        permutations = {
            permutation_alone(operand, joined)
            for operand in joined.inputs
            if operand is not None and operand is not old
        }
        permutation = permutations.pop() if len(permutations) == 1 else None
        if (
            permutation is None
            or permutation[0] != 0
            or len(permutation) != len(old.shape or ())
            or _axes(slice_node) is None
        ):
            return None
        convolved = [graphs.is_op(node, "Conv") and node.inputs[0] is value for node in readers]
        return cls(old, joined, slice_node, permutation) if convolved and all(convolved) else None

    @property
    def back(self) -> Permutation:
        """Return the permutation that takes the context's old axes to its new ones."""
        return tuple(int(at) for at in np.argsort(self.permutation))

    def write(self, model: ir.Model, stamp: str) -> None:
        """Move the Concat of old and new frames in front of the Transpose, and slice the new state there."""
        value, next_state = self.joined.outputs[0], self.slice_node.outputs[0]
        insert = graphs.Inserter(model, stamp, before=self.joined)
        self.old.shape = self._transposed(self.old)
        parts = [operand if operand is self.old else in_front(operand) for operand in self.joined.inputs]
        axis = self.permutation[axis_of(self.joined, len(self.permutation))]
        joined = insert.op("Concat", parts, {"axis": axis}, name=f"{value.name}_in_order", dtype=value.dtype)
        joined.shape = self._transposed(value)
        view = slice_of(self.slice_node)
        assert view is not None
        axes = insert.integers(view.kind, (self.permutation[axis] for axis in _axes(self.slice_node) or ()))
        slice_node = insert.op(
            "Slice", view.along(joined, axes), name=f"{next_state.name}_in_order", dtype=next_state.dtype
        )
        slice_node.shape = self._transposed(next_state)
        transposed = insert.op(
            "Transpose", [joined], {"perm": self.permutation}, name=f"{value.name}_turned", dtype=value.dtype
        )
        transposed.shape = value.shape
        graphs.take_over(model, next_state, slice_node)
        graphs.take_over(model, value, transposed, except_in=[self.slice_node])

    def _transposed(self, value: ir.Value) -> ir.Shape | None:
        return None if value.shape is None else ir.Shape([value.shape[at] for at in self.back])


def _axes(slice_node: ir.Node) -> Permutation | None:
    """Return the axes of a Slice, counted from the front."""
    view = slice_of(slice_node)
    return None if view is None or view.data.shape is None else view.sliced_axes(graphs.integers_of)


def _transposed(initial: Initial, context: _Context) -> Initial:
    """Return a state's initial value with transposed axes."""
    dtype = context.old.dtype
    assert dtype is not None
    numbers = array_of_initial(initial, dtype.numpy().name)
    return initial if numbers.ndim == 0 else initial_of_array(np.transpose(numbers, context.back))
