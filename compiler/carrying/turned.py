"""Carries the context of a convolution in the order of axes in which its new frames are computed.

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

from compiler import ir as graphs
from compiler.operator_views.axes import axis_of, order_of
from compiler.operator_views.slices import slice_of
from compiler.stages import Array, Lowered, State, StateMap
from runtime_lite.format.initial_value import Initial, array_of_initial, initial_of_array

Order = tuple[int, ...]
"""Of axes, as the attribute of a Transpose."""


def order_alone(value: ir.Value, reader: ir.Node) -> Order | None:
    """The order of a Transpose whose result one node alone reads."""
    if value.is_graph_output() or graphs.consumers_of(value) != [reader]:
        return None
    return order_of(value.producer())


def in_front(value: ir.Value | None) -> ir.Value | None:
    """What a Transpose reads."""
    maker = None if value is None else value.producer()
    return None if maker is None else maker.inputs[0]


@dataclasses.dataclass(frozen=True)
class Turned(StateMap):
    """State map: states in another order of axes.

    Attributes:
        orders: by input.
    """

    orders: tuple[tuple[str, Order], ...]

    def apply(self, states: Mapping[str, Array]) -> dict[str, Array]:
        """Map state values by input name."""
        return dict(states) | {name: np.transpose(states[name], order) for name, order in self.orders}


def turn_states(lowered: Lowered, stamp: str) -> tuple[Lowered, int]:
    """Turn every context that there is; the graph is rewritten in place.

    Args:
        lowered: the graph, of known ranks.
        stamp: name of the pass.

    Returns:
        The record with the turned states, and how many they are.
    """
    turned, orders = dict[str, State](), list[tuple[str, Order]]()
    for state in lowered.states if lowered.first_call is None else ():
        context = _Context.of(lowered, state)
        if context is not None:
            context.write(lowered.model, stamp)
            turned[state.input] = dataclasses.replace(state, initial=_turned(state.initial, context))
            orders.append((state.input, context.back))
    if not turned:
        return lowered, 0
    states = tuple(turned.get(state.input, state) for state in lowered.states)
    maps = (*lowered.state_maps, Turned(tuple(orders)))
    return dataclasses.replace(lowered, states=states, state_maps=maps), len(turned)


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
    cut: ir.Node
    order: Order

    @classmethod
    def of(cls, lowered: Lowered, state: State) -> "_Context | None":
        """A state as a context; None where something reads it that is no convolution, or the frames are not turned."""
        old, kept = (
            graphs.inputs_named(lowered.model)[state.input],
            graphs.outputs_named(lowered.model)[state.output],
        )
        joined, cut = graphs.only_reader(old), kept.producer()
        if state.frames_axis is not None or joined is None or not graphs.is_op(joined, "Concat") or kept.uses():
            return None
        value = joined.outputs[0]
        if cut is None or not graphs.is_op(cut, "Slice") or cut.inputs[0] is not value or value.is_graph_output():
            return None
        readers = [node for node in graphs.consumers_of(value) if node is not cut]
        orders = {order_alone(each, joined) for each in joined.inputs if each is not None and each is not old}
        order = orders.pop() if len(orders) == 1 else None
        if order is None or order[0] != 0 or len(order) != len(old.shape or ()) or _axes(cut) is None:
            return None
        convolved = [graphs.is_op(node, "Conv") and node.inputs[0] is value for node in readers]
        return cls(old, joined, cut, order) if convolved and all(convolved) else None

    @property
    def back(self) -> Order:
        """The order of the context's axes from now on, of those that it had."""
        return tuple(int(at) for at in np.argsort(self.order))

    def write(self, model: ir.Model, stamp: str) -> None:
        """Join in front of the transpose."""
        value, kept = self.joined.outputs[0], self.cut.outputs[0]
        insert = graphs.Inserter(model, stamp, before=self.joined)
        self.old.shape = self._turned(self.old)
        parts = [each if each is self.old else in_front(each) for each in self.joined.inputs]
        axis = self.order[axis_of(self.joined, len(self.order))]
        joined = insert.op("Concat", parts, {"axis": axis}, name=f"{value.name}_in_order", dtype=value.dtype)
        joined.shape = self._turned(value)
        view = slice_of(self.cut)
        assert view is not None
        axes = insert.integers(view.kind, (self.order[at] for at in _axes(self.cut) or ()))
        cut = insert.op("Slice", view.along(joined, axes), name=f"{kept.name}_in_order", dtype=kept.dtype)
        cut.shape = self._turned(kept)
        turned = insert.op("Transpose", [joined], {"perm": self.order}, name=f"{value.name}_turned", dtype=value.dtype)
        turned.shape = value.shape
        graphs.take_over(model, kept, cut)
        graphs.take_over(model, value, turned, except_in=[self.cut])

    def _turned(self, value: ir.Value) -> ir.Shape | None:
        return None if value.shape is None else ir.Shape([value.shape[at] for at in self.back])


def _axes(cut: ir.Node) -> Order | None:
    """The axes that a Slice names, counted from the front."""
    view = slice_of(cut)
    return None if view is None or view.data.shape is None else view.axes_cut(graphs.integers_of)


def _turned(initial: Initial, context: _Context) -> Initial:
    """What a state begins with, in its new order of axes."""
    dtype = context.old.dtype
    assert dtype is not None
    numbers = array_of_initial(initial, dtype.numpy().name)
    return initial if numbers.ndim == 0 else initial_of_array(np.transpose(numbers, context.back))
