"""A node to attack, alone in a graph, with operands declared by shape, layout and content."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim, Inserter
from compiler.graph.stages import Array
from compiler.proof.facts.facts import NUMBER, VALID, Fact, Index, Region, make_fact
from compiler.proof.facts.interval import ANYTHING, Interval, of_array
from compiler.proof.facts.layout import Axis, Frames, Plain, Rows, Segment, Side, symbols_of
from compiler.proof.padding.arithmetic import Arithmetic
from tests.kit.slots import clipped_to

BATCH = "batch"
ANCHOR = "anchor"
"""Graph input [batch, one axis per length], of whose shape numbers are computed."""


@dataclasses.dataclass(frozen=True)
class Operand:
    """One input of the node under attack.

    Attributes:
        shape: sizes; texts such as "batch", "time" or "2*time - 1" are expressions over axis names.
        dtype: element type.
        valid: what valid entries may be; by default anything of an integer type, finite numbers of others.
        padding: what padded entries may be: one interval for all regions, or one per region.
        axes: layouts where they are not one factor per axis; by position.
        index: the value counts positions; `valid` and `padding` have to agree.
        array: the content of an initializer; `shape`, `dtype` and `valid` follow from it.
        number: an expression over axis names: the one entry, of `dtype` and `shape`, computed of it. Several, apart by
            `;`, are the entries of a vector.
    """

    shape: tuple[int | str, ...] = ()
    dtype: ir.DataType = ir.DataType.FLOAT
    valid: Interval | None = None
    padding: Interval | Mapping[Region, Interval] = ANYTHING
    axes: Mapping[int, Axis] | None = None
    index: Index | None = None
    array: Array | None = None
    number: str | None = None


def constant(content: Any, dtype: Any = np.float32) -> Operand:
    """An initializer."""
    array = np.asarray(content, dtype)
    return Operand(array.shape, ir.DataType.from_numpy(array.dtype), array=array)


HERE = Operand()
"""In the operands of a movement behind the node: what comes in front of it."""


def number(expression: str, dtype: ir.DataType = ir.DataType.INT64, shape: tuple[int, ...] = ()) -> Operand:
    """One entry computed from axis lengths."""
    return Operand(shape, dtype, number=expression)


@dataclasses.dataclass(frozen=True)
class Node:
    """The node under attack.

    Attributes:
        op: operator.
        operands: one per input, None for an absent optional one.
        attributes: plain values.
        outputs: how many.
        domain: of the operator.
        opset: of the operator's domain.
        right: names of right-aligned axes.
        least: smallest true length per axis name where it is not 1.
        most: largest number of slots per axis name where it is not 6.
        then: movements behind it that are judged with it as one; their operands are `HERE`, constants and numbers.
    """

    op: str
    operands: Sequence[Operand | None]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: int = 1
    domain: str = ""
    opset: int = 20
    right: Iterable[str] = ()
    least: Mapping[str, int] = dataclasses.field(default_factory=dict)
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    then: Sequence["Node"] = ()


def size_at(dim: int | str) -> Dim:
    """A declared size."""
    return dim if isinstance(dim, int) else graphs.expression(dim)


def axis_names(node: Node) -> list[str]:
    """The axis names of all operands but the batch."""
    operands = [operand for each in (node, *node.then) for operand in each.operands if operand]
    dims = [dim for operand in operands for dim in (*operand.shape, *_expressions(operand))]
    names = {str(name) for dim in dims for name in symbols_of(size_at(dim))}
    for operand in node.operands:
        for axis in (operand.axes or {}).values() if operand else ():
            names |= {str(name) for factor in axis for name in symbols_of(factor.size)}
    return sorted(names - {BATCH})


def _expressions(operand: Operand) -> list[str]:
    return [] if operand.number is None else operand.number.split(";")


def model_of(node: Node) -> ir.Model:
    """The node alone in a graph: operand i is `x{i}`, output i `y{i}`, the true lengths of an axis `{name}_length`."""
    names = axis_names(node)
    anchor = ir.val(ANCHOR, ir.DataType.FLOAT, [BATCH, *names])
    opsets = {"": node.opset, **({node.domain: node.opset} if node.domain else {})}
    if node.domain:
        opsets[""] = 20
    graph = ir.Graph([anchor], [], nodes=[], opset_imports=opsets, name="attack")
    model = ir.Model(graph, ir_version=10)
    lengths = [ir.val(f"{name}_length", ir.DataType.INT64, [BATCH]) for name in names]
    graph.inputs.extend(lengths)
    target = _appended(model, names, node, "target", "x", None)
    for at, each in enumerate(node.then):
        target = _appended(model, names, each, f"then{at}", f"then{at}_x", target.outputs[0])
    for at, output in enumerate(target.outputs):
        output.name = f"y{at}"
    graph.outputs.extend(target.outputs)
    return model


def _appended(
    model: ir.Model, names: Sequence[str], node: Node, name: str, prefix: str, before: ir.Value | None
) -> ir.Node:
    values = [
        before if operand is HERE else _value(model, names, f"{prefix}{at}", operand)
        for at, operand in enumerate(node.operands)
    ]
    outputs = [ir.Value(name=f"{name}_y{at}") for at in range(node.outputs)]
    attributes = [ir.convenience.convert_attribute(key, value) for key, value in node.attributes.items()]
    made = ir.Node(node.domain, node.op, values, attributes, outputs=outputs, name=name)
    model.graph.append(made)
    return made


def _value(model: ir.Model, names: Sequence[str], name: str, operand: Operand | None) -> ir.Value | None:
    if operand is None:
        return None
    if operand.array is not None:
        value = ir.Value(name=name, const_value=ir.tensor(operand.array, name=name))
        value.shape, value.dtype = ir.Shape(operand.array.shape), operand.dtype
        model.graph.register_initializer(value)
        return value
    if operand.number is not None:
        return _number(model, names, operand)
    shape = ir.Shape([dim if isinstance(dim, int) else str(size_at(dim)) for dim in operand.shape])
    value = ir.val(name, operand.dtype, shape)
    model.graph.inputs.append(value)
    return value


def _number(model: ir.Model, names: Sequence[str], operand: Operand) -> ir.Value:
    insert = Inserter(model, "kit")
    anchor = model.graph.inputs[0]
    scalars = {}
    for at, name in enumerate([BATCH, *names]):
        size = insert.op("Shape", [anchor], {"start": at, "end": at + 1}, name=name, dtype=ir.DataType.INT64)
        scalars[name] = insert.op("Squeeze", [size, insert.int64s(0)], name=name, dtype=ir.DataType.INT64)
    sizes = Arithmetic(insert, scalars)
    values = [sizes.value(size_at(each)) for each in _expressions(operand)]
    value = values[0]
    if len(values) > 1:
        parts = [insert.op("Reshape", [each, insert.int64s(1)], name="shaped", dtype=value.dtype) for each in values]
        value = insert.op("Concat", parts, {"axis": 0}, name="joined", dtype=value.dtype)
    elif operand.shape:
        value = insert.op(
            "Reshape", [value, insert.int64s(*[1] * len(operand.shape))], name="shaped", dtype=ir.DataType.INT64
        )
    if operand.dtype == ir.DataType.INT64:
        return value
    return insert.op("Cast", [value], {"to": operand.dtype}, name="number", dtype=operand.dtype)


def fact_of(operand: Operand, sides: Mapping[str, Side]) -> Fact:
    """What an operand is declared to be."""
    if operand.number is not None:
        return NUMBER
    if operand.array is not None:
        return Fact(contents=((VALID, of_array(operand.array)),))
    given = operand.axes or {}
    single = {at: dim for at, dim in enumerate(operand.shape) if at not in given}
    axes = {at: axis for at, dim in single.items() if (axis := _layout(size_at(dim), sides)) is not None} | dict(given)
    valid = ANYTHING if operand.valid is None else operand.valid

    def content(region: Region) -> Interval:
        if not region:
            return clipped_to(operand.dtype, valid)
        given = operand.padding
        return clipped_to(operand.dtype, given if isinstance(given, Interval) else given.get(region, ANYTHING))

    return make_fact(axes, content, operand.index)


def _layout(size: Dim, sides: Mapping[str, Side]) -> Axis | None:
    names = {str(name) for name in symbols_of(size)}
    if not names:
        return None
    if BATCH in names:
        rows = graphs.symbol(BATCH)
        times = size / rows
        return (Rows(rows),) if times == 1 else (Rows(rows), Plain(int(times)))
    return (Frames((Segment(size, sides[names.pop()]),)),)
