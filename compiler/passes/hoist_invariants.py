"""Computes values that are equal in all calls of a stream in its first call only, and keeps them as states.

Before:
    keys = MatMul(encoded, weights)        in every call, of an input that a stream is fed alike each time
After:
    is_new = Equal(begun, 0)               per row; begun is a state that is 0 in front of the first call
    next_once = If(any row is new) {Where(is_new, MatMul(Pad(encoded, slots), weights), once)} else {once}
    keys = Slice(next_once, length);  next_begun = 1

Such values are found by their dependencies, e.g. keys and values of an encoder's output, or the result of a prefix.
Entries of such an input behind its true length are replaced by 0 in the first call, so that none of them is kept. The
input, and not the computed value, is filled with 0 up to all slots: a later call may lie in a larger bucket, whose
padding must have the proved content.

Requires: rows proved, and in front; inputs named in the recipe, which every call of a stream is fed alike.
Ensures: a state of one size for each value that is kept.
Keeps: everything else.
Numerics: exact.
Source: loop-invariant code motion: a value whose inputs do not change is the same in every iteration.
"""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.stages import Lowered, Outcome, PaddedAxis, State
from compiler.proof.facts.lookup_ranges import told_ranges
from compiler.states.same_every_call import SameEveryCall, same_every_call

CURE = "leave hoist_invariants out of the passes: it is computed in every call then"


@dataclasses.dataclass(frozen=True)
class HoistInvariants:
    """Values that are computed in the first call alone.

    Attributes:
        inputs: that every call of a stream is fed alike.
        slots: the largest size of their axes that have buckets; 0 where they have none.

    Raises:
        RecipeError: an option is of another kind.
    """

    name: ClassVar[str] = "hoist_invariants"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("pad_axes",)
    expensive: ClassVar[bool] = False
    inputs: tuple[str, ...] = ()
    slots: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, tuple) or not self.inputs or not all(isinstance(x, str) for x in self.inputs):
            raise RecipeError(f"inputs: expected a list of inputs, got {self.inputs!r}", cure="name one or several")
        if type(self.slots) is not int or self.slots < 0:
            raise RecipeError(f"slots: expected a size, got {self.slots!r}", cure="write the largest bucket")

    def apply(self, lowered: Lowered) -> Outcome:
        """Compute values that are the same in every call only once per stream; see the module docstring.

        Raises:
            Refused: an input is none, or nothing is computed of the inputs alone that can be kept.
        """
        model = lowered.model
        invariant_inputs = [self._named(lowered, name) for name in self.inputs]
        axes = {
            padded_axis.axis: padded_axis
            for padded_axis in lowered.padded_axes
            if any(_axis_of(value, padded_axis.axis) is not None for value in invariant_inputs)
        }
        if axes and not self.slots:
            raise Refused(
                f"expected slots for the axis {', '.join(axes)}, got none",
                cure=f"write slots: N beside inputs, with the largest bucket of {', '.join(axes)}",
                place=Location(graph=lowered.graph, axis=next(iter(axes))),
            )
        inputs = graphs.inputs_named(model)
        lengths = {
            inputs[padded_axis.length_input] for padded_axis in axes.values() if padded_axis.length_input in inputs
        }
        same = same_every_call(model, {*invariant_inputs, *lengths}, {str(lowered.batch_axis), *axes})
        invariants = same.read_by_others()
        to_keep = list(
            dict.fromkeys(
                kept_value for kept_value in (self._kept(lowered, same, v, axes) for v in invariants) if kept_value
            )
        )
        if not to_keep:
            raise Refused(
                f"expected something that is computed of {', '.join(self.inputs)} alone, with products and rows in "
                f"front, got {f'{invariants[0].name} {list(invariants[0].shape or ())}' if invariants else 'nothing'}",
                cure=CURE,
                place=Location(graph=lowered.graph, tensor=self.inputs[0]),
            )
        writing = _Writing(lowered, self.slots, axes)
        states = writing.write(invariant_inputs, to_keep)
        graphs.prune(model)
        graphs.infer_shapes(model)
        done = dataclasses.replace(
            lowered,
            states=(*lowered.states, *states),
            padded_axes=tuple(
                dataclasses.replace(padded_axis, maximum=self.slots, limited_by="")
                if padded_axis.axis in axes and (padded_axis.maximum is None or padded_axis.maximum > self.slots)
                else padded_axis
                for padded_axis in lowered.padded_axes
            ),
        )
        return Outcome(done, matched=len(invariants), rewritten=len(to_keep), records=(writing.record(states),))

    def _named(self, lowered: Lowered, name: str) -> ir.Value:
        """Return the named input of the recipe; refuses one without rows as first axis."""
        value = graphs.inputs_named(lowered.model).get(name)
        held = {state.input for state in lowered.states}
        wrong = {
            "the name of an input that callers feed": value is None or name in held,
            "an axis of rows, which are proved": not lowered.rows_independent,
            "a graph that carries states": not lowered.states,
            "rows in front": value is not None and (graphs.dims_of(value) or (0,))[0] != _rows(lowered),
        }
        for expected, is_so in wrong.items():
            if is_so:
                raise Refused(
                    f"expected {expected}, got {name!r}", cure=CURE, place=Location(graph=lowered.graph, tensor=name)
                )
        assert value is not None
        return value

    def _kept(
        self, lowered: Lowered, same: SameEveryCall, value: ir.Value, axes: Mapping[str, PaddedAxis]
    ) -> ir.Value | None:
        """Return the value to carry so that another is known: itself, or a smaller one that it is expanded from."""
        chosen: ir.Value | None = None
        current: ir.Value | None = value
        while current is not None:
            size = self._size(lowered, current, axes)
            if size is not None and (chosen is None or size < (self._size(lowered, chosen, axes) or 0)):
                chosen = current
            current = same.spread_from(current)
        return chosen

    def _size(self, lowered: Lowered, value: ir.Value, axes: Mapping[str, PaddedAxis]) -> int | None:
        """Return the number of entries per row of a value; None where rows are not first, or sizes are computed."""
        dims, names = graphs.dims_of(value) or (), {graphs.symbol(name) for name in axes}
        if len(dims) < 2 or dims[0] != _rows(lowered):
            return None
        if any(not isinstance(dim, int) and dim not in names for dim in dims[1:]):
            return None
        return int(np.prod([dim if isinstance(dim, int) else self.slots for dim in dims[1:]]))


class _Writing:
    """Writes the states of one graph.

    Args:
        lowered: the graph.
        slots: size of the axes that are kept.
        axes: of inputs that stay, with buckets, by name.
    """

    def __init__(self, lowered: Lowered, slots: int, axes: Mapping[str, PaddedAxis]) -> None:
        self.lowered, self.model, self.slots, self.axes = lowered, lowered.model, slots, axes
        self.insert = graphs.Inserter(self.model, HoistInvariants.name)
        self.given: Sequence[ir.Value] = ()
        self.stands: dict[str, str] = {}

    def record(self, states: Sequence[State]) -> dict[str, Any]:
        """Return the record of the rewrite for the checker; see `compiler.checker.once`."""
        input_names = [str(graph_input.name) for graph_input in self.given]
        *state_records, begun = [{"input": state.input, "output": state.output} for state in states]
        return {
            "kind": "once",
            "inputs": input_names,
            "batch": str(self.lowered.batch_axis),
            "lengths": {
                axis: {"input": padded_axis.length_input, "minimum": padded_axis.minimum}
                for axis, padded_axis in sorted(self.axes.items())
            },
            "slots": self.slots,
            "ranges": told_ranges({name: span for name, span in self.lowered.ranges.items() if name in input_names}),
            "begun": begun,
            "kept": [
                {"value": value, "stands": stands, **state}
                for (value, stands), state in zip(self.stands.items(), state_records, strict=True)
            ],
        }

    def write(self, given: Sequence[ir.Value], kept: Sequence[ir.Value]) -> list[State]:
        """Move the computation of kept values into a branch, and return the states that carry them."""
        self.given = given
        begun = self._carried("begun", [self.lowered.batch_axis, 1], ir.DataType.FLOAT)
        states = [self._carried("once", self._slots_of(kept_value), kept_value.dtype) for kept_value in kept]
        zero = self._number(0, ir.DataType.FLOAT)
        is_new = self._op("Equal", [begun, zero], "is_new", begun.shape, ir.DataType.BOOL)
        each_new = self._op("Cast", [is_new], "each_new", begun.shape, to=ir.DataType.FLOAT)
        some = self._op("ReduceMax", [each_new], "some_new", [], keepdims=0)
        is_any = self._op("Cast", [some], "is_any_new", [], to=ir.DataType.BOOL)
        first = self._branch("first_call", lambda: self._computed(kept, states, is_new))
        later = self._branch(
            "later_call", lambda: [self._op("Identity", [state], "as_before", state.shape) for state in states]
        )
        branches = [ir.AttrGraph("then_branch", first), ir.AttrGraph("else_branch", later)]
        left = [self._left(state) for state in states]
        self.insert.place(ir.Node("", "If", [is_any], branches, outputs=left, name="once_or_before"))
        for value, whole in zip(kept, left, strict=True):
            name, stands = str(value.name), self._sliced(value, whole)
            if value.is_graph_output():
                stands = self._op("Identity", [stands], f"{name}_kept", value.shape, value.dtype)
            graphs.take_over(self.model, value, stands)
            self.stands[name] = str(stands.name)
        next_begun = self._op("Max", [begun, each_new], f"next_{begun.name}", begun.shape)
        self.model.graph.outputs.extend([*left, next_begun])
        self.model.graph.sort()
        pairs = zip([*states, begun], [*left, next_begun], strict=True)
        return [State(str(state.name), str(after.name), None) for state, after in pairs]

    def _computed(self, kept: Sequence[ir.Value], states: Sequence[ir.Value], is_new: ir.Value) -> list[ir.Value]:
        """Return the kept values in a call with new rows: computed for those rows, carried for the others."""
        nodes = graphs.makers_of(kept)
        copies = {value: self._filled(value) for value in (*self.given, *self._measured(nodes))}
        for node in _reached(self.model, nodes, copies):
            outputs = [
                ir.Value(
                    name=graphs.fresh_name(self.model.graph, f"{old.name}_once"),
                    type=old.type,
                    shape=self._at_slots(old),
                )
                for old in node.outputs
            ]
            operands = [None if operand is None else copies.get(operand, operand) for operand in node.inputs]
            copy = ir.Node(node.domain, node.op_type, operands, list(node.attributes.values()), outputs=outputs,
                           name=f"{outputs[0].name}_node", version=node.version)  # fmt: skip
            copy.metadata_props.update(node.metadata_props)
            self.model.graph.append(copy)
            copies |= dict(zip(node.outputs, outputs, strict=True))
        selected = []
        for value, state in zip(kept, states, strict=True):
            rows = self._spread(is_new, range(2, len(state.shape or ())))
            selected.append(self._op("Where", [rows, copies[value], state], "kept", state.shape, state.dtype))
        return selected

    def _measured(self, nodes: Iterable[ir.Node]) -> list[ir.Value]:
        """Return other inputs whose sizes along kept axes are read, which are all slots in the branch."""
        read = {each for node in nodes for each in node.inputs}
        return [each for each in self.model.graph.inputs if each in read - set(self.given) and self._places(each)]

    def _at_slots(self, value: ir.Value) -> ir.Shape | None:
        """Return the shape of a value with inputs padded to all slots; None where unknown."""
        dims, all_slots = graphs.dims_of(value), {graphs.symbol(axis): self.slots for axis in self.axes}
        if dims is None:
            return None
        sizes = [dim if isinstance(dim, int) else dim.subs(all_slots) for dim in dims]
        return ir.Shape([int(size) if isinstance(size, int) or size.is_number else str(size) for size in sizes])

    def _filled(self, value: ir.Value) -> ir.Value:
        """Return an input padded with zeros behind its true length, up to all slots."""
        shape = list(value.shape or ())
        for axis in self._places(value):
            length = graphs.inputs_named(self.model)[self.axes[str(shape[axis])].length_input]
            size = self._op("Shape", [value], "size", [1], ir.DataType.INT64, start=axis, end=axis + 1)
            free = self._op("Sub", [self.insert.int64s(self.slots), size], "free", [1])
            pads = self._op("Concat", [self.insert.int64s(0), free], "pads", [2], axis=0)
            shape[axis] = self.slots
            value = self._op("Pad", [value, pads, None, self.insert.int64s(axis)], "in_slots", shape)
            lengths = self._op("Cast", [self._spread(length, [1])], "lengths", None, to=ir.DataType.INT64)
            places = self.insert.int64s(*range(self.slots))
            valid = self._op("Less", [places, lengths], "valid", None, ir.DataType.BOOL)
            valid = self._spread(valid, [position for position in range(1, len(shape)) if position != axis])
            assert value.dtype is not None
            value = self._op("Where", [valid, value, self._number(0, value.dtype)], "clean", shape, value.dtype)
        return value

    def _sliced(self, value: ir.Value, whole: ir.Value) -> ir.Value:
        """Return a state sliced to the size of the value that it replaces."""
        for axis in self._places(value):
            name = str((value.shape or ())[axis])
            told, at = next((each, _axis_of(each, name)) for each in self.given if _axis_of(each, name) is not None)
            assert at is not None
            size = self._op("Shape", [told], "size", [1], ir.DataType.INT64, start=at, end=at + 1)
            shape = [name if place == axis else dim for place, dim in enumerate(whole.shape or ())]
            operands = [whole, self.insert.int64s(0), size, self.insert.int64s(axis)]
            whole = self._op("Slice", operands, f"{value.name}_kept", shape)
        return whole

    def _branch(self, name: str, write: Callable[[], list[ir.Value]]) -> ir.Graph:
        """Return the nodes that a function writes, as a graph of a branch."""
        before = set(self.model.graph)
        results = write()
        nodes = [node for node in self.model.graph if node not in before]
        self.model.graph.remove(nodes)
        return ir.Graph([], results, nodes=nodes, name=name, opset_imports=dict(self.model.graph.opset_imports))

    def _carried(self, stem: str, shape: Iterable[int | str | None], kind: ir.DataType | None) -> ir.Value:
        name = graphs.fresh_name(self.model.graph, stem)
        assert kind is not None
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(kind))
        self.model.graph.inputs.append(value)
        return value

    def _left(self, state: ir.Value) -> ir.Value:
        name = graphs.fresh_name(self.model.graph, f"next_{state.name}")
        return ir.Value(name=name, shape=state.shape, type=state.type)

    def _places(self, value: ir.Value) -> list[int]:
        """Return the axes of a value that have buckets, besides the rows."""
        return [at for at, dim in enumerate(value.shape or ()) if str(dim) in self.axes]

    def _slots_of(self, value: ir.Value) -> list[int | str | None]:
        places = self._places(value)
        return [
            self.slots if at in places else dim if isinstance(dim, int) else dim.value
            for at, dim in enumerate(value.shape or ())
        ]

    def _spread(self, value: ir.Value, axes: Iterable[int]) -> ir.Value:
        places = list(axes)
        if not places:
            return value
        return self._op("Unsqueeze", [value, self.insert.int64s(*places)], f"{value.name}_spread", None, value.dtype)

    def _number(self, number: int, kind: ir.DataType) -> ir.Value:
        return self.insert.constant(np.array(number, kind.numpy()), "number")

    def _op(
        self,
        op_type: str,
        operands: Sequence[ir.Value | None],
        name: str,
        shape: Iterable[int | str | ir.SymbolicDim] | None,
        kind: ir.DataType | None = None,
        **attributes: int,
    ) -> ir.Value:
        return self.insert.op(op_type, operands, attributes, name=name, shape=shape, dtype=kind)


def _axis_of(value: ir.Value, name: str) -> int | None:
    """Return the index of a named axis of an input; None without one."""
    return next((at for at, dim in enumerate(value.shape or ()) if str(dim) == name), None)


def _reached(model: ir.Model, nodes: Collection[ir.Node], begun: Iterable[ir.Value]) -> list[ir.Node]:
    """Return, in order, the given nodes that depend on some values."""
    reached, found = set(begun), []
    for node in model.graph:
        if node in nodes and reached & set(node.inputs):
            found.append(node)
            reached |= set(node.outputs)
    return found


def _rows(lowered: Lowered) -> Dim:
    return graphs.symbol(str(lowered.batch_axis))
