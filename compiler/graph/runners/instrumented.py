"""Copies a graph with intermediate values as extra outputs, or with intermediate values replaced by inputs.

    exposed      values leave the graph under their own names
    measured     something that is computed of each value leaves it
    forced       what reads a value reads an input in its place
    correctable  what reads a value reads it plus an input, or the input in its place where a second input says so
    switched     what reads a value reads another form of it while an input is true

Inputs and outputs of the graph keep their names and their order; new ones follow behind them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered

FORCED = "forced."
"""Begins the name of the input that stands in for a value."""

ADDED, REPLACED = "added.", "replaced."
"""Begin the names of the inputs of a correction: what is added, and where it takes the place of the value."""

STAMP = "instrumented"


def values_named(model: ir.Model, names: Iterable[str]) -> dict[str, ir.Value]:
    """Return the inputs and computed values of these names, in the order of the graph."""
    wanted = set(names)
    values = (*model.graph.inputs, *(output for node in model.graph for output in node.outputs))
    return {str(value.name): value for value in values if str(value.name) in wanted}


def exposed(lowered: Lowered, names: Iterable[str]) -> Lowered:
    """Return a copy whose graph also outputs these computed values; without a first-call graph."""
    model = graphs.clone(lowered.model)
    _return(model, values_named(model, names).values())
    return dataclasses.replace(lowered, model=model, first_call=None)


def _return(model: ir.Model, values: Iterable[ir.Value]) -> None:
    present = set(model.graph.outputs)
    model.graph.outputs.extend(value for value in values if value not in present)


def measured(
    lowered: Lowered, names: Iterable[str], prefix: str, measure: Callable[[graphs.Inserter, ir.Value], ir.Value]
) -> Lowered:
    """Return a copy whose graph also outputs a measurement of values, named with a prefix.

    Args:
        lowered: the graph.
        names: names of inputs and computed values.
        prefix: prefix of the new outputs' names.
        measure: writes the measurement of a value.
    """
    model = graphs.clone(lowered.model)
    insert = graphs.Inserter(model, STAMP)
    for name, value in values_named(model, names).items():
        result = measure(insert, value)
        result.name = f"{prefix}{name}"
        model.graph.outputs.append(result)
    return dataclasses.replace(lowered, model=model)


def forced(lowered: Lowered, names: Iterable[str]) -> Lowered:
    """Return a copy of the graph that reads the named values from new inputs, and outputs its own results for them."""
    model = graphs.clone(lowered.model)
    values = values_named(model, names)
    _return(model, values.values())
    for name, value in values.items():
        given = _input(model, f"{FORCED}{name}", value.type, value.shape)
        for use in list(value.uses()):
            use.node.replace_input_with(use.idx, given)
    return dataclasses.replace(lowered, model=model, first_call=None)


def correctable(lowered: Lowered, names: Iterable[str]) -> Lowered:
    """Return a copy in which each of these computed values can be corrected by two further inputs."""
    model = graphs.clone(lowered.model)
    for name, value in values_named(model, names).items():
        added = _input(model, f"{ADDED}{name}", value.type)
        replaced = _input(model, f"{REPLACED}{name}", ir.TensorType(ir.DataType.BOOL))
        _stand_in(model, value, functools.partial(_corrected, model, added, replaced))
    return dataclasses.replace(lowered, model=model)


def _corrected(model: ir.Model, added: ir.Value, replaced: ir.Value, value: ir.Value) -> ir.Value:
    insert = graphs.Inserter.behind(model, STAMP, value)
    total = insert.op("Add", [value, added], name=f"{value.name}_corrected_all", shape=value.shape)
    operands = [replaced, added, total]
    return insert.op("Where", operands, name=f"{value.name}_corrected", shape=value.shape, dtype=value.dtype)


def switch(model: ir.Model) -> ir.Value:
    """Add an input, bool [], that decides in `switched`, and return it."""
    name = graphs.fresh_name(model.graph, "slipway.switch")
    return _input(model, name, ir.TensorType(ir.DataType.BOOL), ir.Shape(()))


def switched(model: ir.Model, value: ir.Value, by: ir.Value, other: Callable[[ir.Value], ir.Value]) -> None:
    """Make all readers of a computed value read another form of it while a switch is on; in place.

    Args:
        model: the graph.
        value: the value.
        by: the switch.
        other: writes the other form behind the value.
    """

    def chosen(value: ir.Value) -> ir.Value:
        form = other(value)
        insert = graphs.Inserter.behind(model, STAMP, form)
        return insert.op("Where", [by, form, value], name="chosen", shape=value.shape, dtype=value.dtype)

    _stand_in(model, value, chosen)


def _input(model: ir.Model, name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None = None) -> ir.Value:
    given = ir.Value(name=name, type=kind, shape=shape)
    model.graph.inputs.append(given)
    return given


def _stand_in(model: ir.Model, value: ir.Value, write: Callable[[ir.Value], ir.Value]) -> None:
    """Make all readers of a value read the result of `write`; a graph output keeps its name."""
    readers = {use.node for use in value.uses()}
    made = write(value)
    graphs.take_over(model, value, made, except_in={use.node for use in value.uses()} - readers)
