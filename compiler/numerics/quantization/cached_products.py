"""Finds MatMuls with a state or a constant table, such as attention's MatMul of queries and cached keys.

Of a cached operand only the new frames have to be quantised, where the state carries codes (carry_codes): the rest was
quantised when it arrived. A product of two values that a call computes anew has no such gain, and stays.
"""

import dataclasses
from collections.abc import Collection

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.runners.coded_states import moved_by
from compiler.graph.stages import Lowered


@dataclasses.dataclass(frozen=True)
class CachedProduct:
    """MatMul(first, second), neither of them constant weights of a layer.

    Attributes:
        node: it.
        first: the factor that a call computes.
        second: the factor that is joined from a state, or picked from a constant.
        held: the state's input, or the constant.
    """

    node: ir.Node
    first: ir.Value
    second: ir.Value
    held: ir.Value

    @property
    def of_shares(self) -> bool:
        """Whether the data are results of a Softmax, most of which are close to 0."""
        return _origin_of(self.first) == "Softmax"


def cached_products(lowered: Lowered) -> list[CachedProduct]:
    """Return all such products, in graph order, except in subgraphs and with packed states, which share no grid."""
    model, packed = lowered.model, lowered.parts
    states = {graphs.inputs_named(model)[state.input] for state in lowered.states if state.input not in packed}
    return [found for node in model.graph if (found := _product(node, states)) is not None]


def _product(node: ir.Node, states: Collection[ir.Value]) -> CachedProduct | None:
    if not graphs.is_op(node, "MatMul"):
        return None
    first, second = node.inputs[:2]
    if first is None or second is None or graphs.array_of(first) is not None:
        return None
    if {first.dtype, second.dtype} != {ir.DataType.FLOAT} or len(second.shape or ()) < 3:
        return None
    held = _held(second, states)
    return None if held is None else CachedProduct(node, first, second, held)


def _held(value: ir.Value, states: Collection[ir.Value]) -> ir.Value | None:
    """Return the state, or table of several numbers, whose entries a value holds; None for other values."""
    pending, seen = [value], {value}
    while pending:
        value = pending.pop()
        array = graphs.array_of(value)
        if value in states or (array is not None and array.size > 1):
            return value
        maker = value.producer()
        moved = [] if maker is None else moved_by(maker)
        pending += [operand for operand in moved if operand not in seen]
        seen.update(moved)
    return None


def _origin_of(value: ir.Value) -> str:
    """Return the operator whose moved and masked results a value holds."""
    maker = value.producer()
    while maker is not None and (moved := [each for each in moved_by(maker) if graphs.array_of(each) is None]):
        maker = moved[0].producer()
    return "" if maker is None else maker.op_type
