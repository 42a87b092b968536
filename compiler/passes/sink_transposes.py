"""Move transposes behind what is computed entry by entry, until two of them meet and are one or none.

Before:
    a = Transpose(x, (0, 2, 1)); b, c = Split(a, axis 1); d = Mul(b, Sigmoid(c)); y = Transpose(d, (0, 2, 1))
After:
    b, c = Split(x, axis 2); y = Mul(b, Sigmoid(c))

Parts of a Concat that are not transposed alike are transposed in front of it where fewer entries are moved then, as
those of a short cache. The context of a convolution is carried in the order in which its new frames are computed.

Requires: known ranks.
Ensures: no operator that works entry by entry, and no Concat, Slice or Split, reads transposed values alone.
Keeps: transposes that something else reads, too; operators of which one operand is not transposed alike.
Numerics: exact; only movement.
Source: what is done to every entry alike does not depend on where it lies.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler import ir as house
from compiler.carrying.turned import Order, in_front, order_alone, order_of, turn_states
from compiler.operator_traits import OF_ALIKE_SHAPES
from compiler.stages import Lowered, Outcome

ALONG_AN_AXIS = frozenset({"Concat", "Slice", "Split"})
"""A list of its own: take whole parts along an axis that they name."""


@dataclasses.dataclass(frozen=True)
class SinkTransposes:
    """Transposes as late as can be, each at most once.

    Attributes:
        turns_states: whether contexts may be carried in another order of axes; see `compiler.carrying.turned`.
    """

    name: ClassVar[str] = "sink_transposes"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False
    turns_states: bool = True

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the graph in place."""
        model = lowered.model
        house.infer_shapes(model)
        matched = sum(order_of(node) is not None for node in model.graph)
        count, turned = _sunk(model), 0
        if self.turns_states:
            lowered, turned = turn_states(lowered, self.name)
        if turned:
            house.prune(model)
            count += turned + _sunk(model)
        detail = f"{turned} states turned" if turned else ""
        return Outcome(lowered, max(matched, count), count, detail=detail)


def _sunk(model: ir.Model) -> int:
    """Move transposes until none can be; how many moves that were."""
    count = 0
    house.infer_shapes(model)
    while moved := sum(_join(model, node) or _sink(model, node) for node in house.nodes_of(model)):
        count += moved
        house.prune(model)
        house.infer_shapes(model)
    return count


def _join(model: ir.Model, node: ir.Node) -> bool:
    """Two transposes, one behind the other, as one or none."""
    order, value = order_of(node), node.inputs[0] if node.inputs else None
    first = None if value is None else value.producer()
    before = order_of(first)
    if order is None or before is None or first is None or first.inputs[0] is None:
        return False
    source, old = first.inputs[0], node.outputs[0]
    joined = tuple(before[at] for at in order)
    if joined == tuple(range(len(joined))):
        if old.is_graph_output() and (source.is_graph_input() or source.is_graph_output() or source.is_initializer()):
            return False
        house.take_over(model, old, source)
    else:
        house.take_over(model, old, _turned(model, node, source, joined, old))
    return True


def _turned(model: ir.Model, behind: ir.Node, source: ir.Value, order: Order, old: ir.Value) -> ir.Value:
    """A transpose right behind a node, in the place of a value."""
    insert = house.Inserter(model, SinkTransposes.name, after=behind)
    turned = insert.op("Transpose", [source], {"perm": order}, name=f"{old.name}_turned", dtype=old.dtype)
    turned.shape = old.shape
    return turned


def _sink(model: ir.Model, node: ir.Node) -> bool:
    """Compute in the order in front of the transposes, and transpose what comes of it."""
    if not house.is_op(node, *ALONG_AN_AXIS, *OF_ALIKE_SHAPES):
        return False
    order = next((found for value in node.inputs if value is not None and (found := order_alone(value, node))), None)
    if order is None or any(len(house.dims_of(value) or ()) != len(order) for value in node.outputs):
        return False
    operands = _operands(model, node, order)
    if operands is None:
        return False
    outputs = [
        ir.Value(name=house.fresh_name(model.graph, f"{old.name}_before"), type=old.type) for old in node.outputs
    ]
    attributes = {name: value for name, value in node.attributes.items() if name != "axis"}
    if house.is_op(node, "Concat", "Split"):
        attributes["axis"] = ir.AttrInt64("axis", order[house.int_attribute(node, "axis", 0)])
    made = ir.Node(
        "", node.op_type, operands, list(attributes.values()), outputs=outputs, name=f"{outputs[0].name}_node"
    )
    house.Inserter(model, SinkTransposes.name, before=node).place(made)
    for old, new in zip(node.outputs, outputs, strict=True):
        house.take_over(model, old, _turned(model, node, new, order, old))
    return True


def _operands(model: ir.Model, node: ir.Node, order: Order) -> list[ir.Value | None] | None:
    """What a node reads as it was in front of the transposes; None where they differ."""
    insert = house.Inserter(model, SinkTransposes.name, before=node)
    if house.is_op(node, "Slice"):
        axes = house.integers_of(node.inputs[3]) if len(node.inputs) > 3 else None
        numbers = [axis for axis in axes or () if isinstance(axis, int)]
        if not numbers:
            return None
        places = insert.int64s(*(order[axis] for axis in numbers))
        return [in_front(node.inputs[0]), *node.inputs[1:3], places, *node.inputs[4:]]
    if house.is_op(node, "Clip", "Split"):
        return [in_front(node.inputs[0]), *node.inputs[1:]]
    values = [value for value in node.inputs if value is not None]
    rest = [value for value in values if order_alone(value, node) != order]
    if len(values) < len(node.inputs):
        return None
    if house.is_op(node, "Concat"):
        if rest and not _saves(node, order, rest):
            return None
        back = tuple(int(at) for at in np.argsort(order))
        return [
            insert.op("Transpose", [value], {"perm": back}, name=f"{value.name}_turned", dtype=value.dtype)
            if value in rest
            else in_front(value)
            for value in values
        ]
    if any(house.array_of(value) is None for value in rest):
        return None
    return [_spread(insert, value, order) if value in rest else in_front(value) for value in values]


def _spread(insert: house.Inserter, value: ir.Value, order: Order) -> ir.Value:
    """A constant as it is spread over values in front of their transpose."""
    array = house.array_of(value)
    assert array is not None
    if array.size == 1:
        return value
    whole = array.reshape((1,) * (len(order) - array.ndim) + array.shape)
    return insert.constant(np.ascontiguousarray(np.transpose(whole, np.argsort(order))), "spread")


def _saves(node: ir.Node, order: Order, rest: Sequence[ir.Value]) -> bool:
    """Whether fewer entries are turned if the other parts of a Concat are, and what turns its result back is not."""
    back = tuple(int(at) for at in np.argsort(order))
    result = node.outputs[0]
    readers = house.consumers_of(result)
    turns = [reader for reader in readers if order_of(reader) == back]
    others = [reader for reader in readers if reader not in turns]
    saved = sum(_entries(value) for value in node.inputs if value is not None and value not in rest)
    saved += sum(_entries(turn.outputs[0]) for turn in turns)
    paid = sum(_entries(value) for value in rest)
    if others or result.is_graph_output():
        alone = len(others) == 1 and house.is_op(others[0], "Slice") and not result.is_graph_output()
        paid += _entries(others[0].outputs[0] if alone else result)
    return saved > paid


def _entries(value: ir.Value) -> int:
    """Entries of a row: sizes that are no numbers count as one."""
    return math.prod(dim for dim in house.dims_of(value) or () if isinstance(dim, int))
