"""Removes inputs that hold padding masks or lengths, and the masks computed from them; pad_axes adds its own.

Before:
    visible = And(causal, GatherND(attention_mask [batch, time])); p = Softmax(Where(visible, scores, -inf))
    seen = Less(Range(0, frames), Div(ReduceSum(attention_mask), 2)); y = Where(seen, x, 0)
    last = GatherND(x, Sub(ReduceSum(attention_mask, 1), 1))
After:
    p = Softmax(Where(causal, scores, -inf)); y = x
    last = GatherND(x, Sub(Expand(Shape(x)[1], [batch]), 1))

Requires: symbolic shapes; which inputs are masks of which axis, and which hold its length.
Ensures: no such input is left; pad_axes then masks what needs one, once.
Keeps: every mask that does not follow from masks and lengths alone, such as a causal one.
Numerics: exact; selecting by true, multiplying by one and adding zero change nothing.
Source: the unpadded program of one row alone is fed masks without padding and its length. What follows from masks and
    lengths alone is derived in symbols; what holds one number at every place and length is that number.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_entries import uniform_values
from compiler.graph.model import Dim
from compiler.graph.operators.traits import OF_POSITIONS, PICKING, RANDOM
from compiler.graph.runners.session import evaluate_node
from compiler.graph.stages import Lowered, Outcome, PaddedAxis
from compiler.proof.facts.layout import symbols_of
from compiler.proof.facts.lengths import infer_settled
from compiler.proof.padding.arithmetic import Arithmetic

MOVEMENT = PICKING | {"ReduceMax", "ReduceMean", "ReduceMin"}
"""A list of its own: every entry of the result is one of the first operand, or an average of equal ones."""

NEUTRAL = {"And": 1, "Or": 0, "Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
"""The operand that leaves the other one as it is."""


@dataclasses.dataclass(frozen=True)
class RemoveMaskInputs:
    """Take the masks of padding out of the graph."""

    name: ClassVar[str] = "remove_mask_inputs"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Remove the inputs that mask padding, and the masks computed from them; see the module docstring.

        Raises:
            Refused: such an input is the only one with its axes, so that no other shape gives it.
        """
        if not lowered.padded_axes and not lowered.caches:
            return Outcome(lowered)
        models = lowered.models if lowered.padded_axes else (lowered.model,)
        rewritten = sum(_folded(model, lowered.padded_axes) for model in models)
        return Outcome(lowered, rewritten, rewritten)


def _folded(model: ir.Model, axes: Sequence[PaddedAxis]) -> int:
    """Remove the mask and length inputs of these axes from a graph; return the number of changed nodes."""
    inputs = graphs.inputs_named(model)
    filled: dict[ir.Value, Dim] = {}
    for axis in axes:
        filled |= {inputs[name]: number for name, number in axis.masks.items() if name in inputs}
        filled |= {inputs[name]: graphs.symbol(axis.axis) for name in axis.length_inputs if name in inputs}
    infer = infer_settled if axes else graphs.infer_shapes
    infer(model)
    rewritten = _Folding(model, filled, frozenset(axis.axis for axis in axes)).run()
    if rewritten:
        graphs.prune(model)
        graphs.forget_shapes(model)
        infer(model)
    return rewritten


class _Folding:
    def __init__(self, model: ir.Model, filled: Mapping[ir.Value, Dim], lengths: frozenset[str]) -> None:
        self.model, self.filled, self.lengths = model, filled, lengths
        self.uniform: dict[ir.Value, np.ndarray] = {
            value: np.full((), number, _numpy(value)) for value, number in filled.items() if isinstance(number, int)
        }
        self.empty: set[ir.Value] = set()
        self.derived = self._derived()

    def _derived(self) -> dict[ir.Value, np.ndarray]:
        """Return values that depend on masks and lengths alone, or compare sizes, and are one number at all lengths."""
        fed: set[ir.Value] = set(self.filled)
        alone: set[ir.Value] = set(self.filled)
        wanted: list[ir.Value] = []
        for node in graphs.nodes_of(self.model):
            operands = [value for value in node.inputs if value is not None]
            fixed = [
                graphs.is_op(node, "Shape") or value in alone or graphs.array_of(value) is not None
                for value in operands
            ]
            if not all(fixed) or node.op_type in RANDOM or graphs.array_of(node.outputs[0]) is not None:
                continue
            alone.update(node.outputs)
            if any(value in fed for value in operands):
                fed.update(node.outputs)
                wanted += node.outputs
            elif node.outputs[0].dtype == ir.DataType.BOOL:
                wanted += node.outputs
        return uniform_values(wanted, self.filled)

    def run(self) -> int:
        """Remove every mask and length input; return the number of changed nodes."""
        changed = 0
        for node in graphs.nodes_of(self.model):
            known = False
            for output in node.outputs:
                number = self.derived.get(output)
                if number is not None:
                    known = True
                    self.empty |= {output} if number.size == 0 else set()
                    self.uniform |= {output: number.reshape(())} if number.size else {}
            if known or not any(value in self.uniform or value in self.empty for value in node.inputs):
                continue
            uniform_number = self._result(node)
            if uniform_number is not None:
                self.uniform |= dict.fromkeys(node.outputs, uniform_number)
            elif self._is_neutral(node) or self._is_count(node):
                changed += 1
        graphs.prune(self.model)
        for value in [*self.uniform]:
            if value in self.derived and self._is_read_by_others(value):
                changed += self._materialise_where_known(value)
        graphs.prune(self.model)
        for value in self.filled:
            if value.uses():
                self._materialise(value)
                changed += 1
            self.model.graph.inputs.remove(value)
        return changed + len(self.filled)

    def _is_read_by_others(self, value: ir.Value) -> bool:
        """Whether a node whose result is not a known number reads a value."""
        known = self.uniform.keys() | self.empty
        readers = graphs.consumers_of(value)
        return any(output not in known for node in readers for output in node.outputs)

    def _number(self, value: ir.Value | None) -> np.ndarray | None:
        """Return the number that a value holds everywhere; None where it is unknown or varies."""
        if value in self.uniform:
            return self.uniform[value]
        array = graphs.array_of(value)
        if array is None or array.size == 0 or not bool(np.all(array == array.reshape(-1)[0])):
            return None
        return np.asarray(array.reshape(-1)[0])

    def _result(self, node: ir.Node) -> np.ndarray | None:
        if node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type in MOVEMENT:
            return self._number(node.inputs[0])
        numbers = [self._number(value) for value in node.inputs]
        known = [number for number in numbers if number is not None]
        if node.op_type == "And" and any(not number for number in known):
            return np.zeros((), bool)
        if node.op_type == "Or" and any(bool(number) for number in known):
            return np.ones((), bool)
        if len(known) != len(numbers):
            return None
        if node.op_type == "Concat":
            return known[0] if all(bool(number == known[0]) for number in known) else None
        return evaluate_node(node, known)[0].reshape(()) if node.op_type in OF_POSITIONS else None

    def _is_neutral(self, node: ir.Node) -> bool:
        """Make readers of a node that changes nothing read its operand; return whether the node is one."""
        operand = self._kept(node)
        if operand is None or node.outputs[0].is_graph_output():
            return False
        output = node.outputs[0]
        wanted, have = graphs.dims_of(output), graphs.dims_of(operand)
        if wanted is None or have is None:
            return False
        if have != wanted:
            insert = graphs.Inserter(self.model, RemoveMaskInputs.name, before=node)
            shape = self._shape(insert, output)
            operand = insert.op(
                "Expand", [operand, shape], name=f"{output.name}_spread", shape=output.shape, dtype=operand.dtype
            )
        ir.convenience.replace_all_uses_with(output, operand)
        return True

    def _is_count(self, node: ir.Node) -> bool:
        """Replace a sum of equal numbers, as of a mask over frames, by number times size; return whether it is one."""
        output = node.outputs[0]
        number = self._number(node.inputs[0]) if graphs.is_op(node, "ReduceSum") and node.inputs[0] else None
        dims = graphs.dims_of(node.inputs[0]) if node.inputs[0] is not None else None
        axes = graphs.array_of(node.inputs[1]) if len(node.inputs) > 1 else None
        if number is None or dims is None or axes is None or output.is_graph_output() or graphs.dims_of(output) is None:
            return False
        size: Dim = math.prod(dims[int(axis)] for axis in axes.reshape(-1))
        if number != 1 or any(str(name) not in self.lengths for name in symbols_of(size)):
            return False
        insert = graphs.Inserter(self.model, RemoveMaskInputs.name, before=node)
        count = insert.op(
            "Cast", [self._size(insert, output, size)], {"to": output.dtype or ir.DataType.INT64}, name="count"
        )
        shape = self._shape(insert, output)
        spread = insert.op(
            "Expand", [count, shape], name=f"{output.name}_count", shape=output.shape, dtype=output.dtype
        )
        ir.convenience.replace_all_uses_with(output, spread)
        self._count_the_longest(spread, count)
        return True

    def _kept(self, node: ir.Node) -> ir.Value | None:
        """Return the operand that a node passes on unchanged; None for other nodes."""
        if graphs.is_op(node, "ScatterND", "ScatterElements") and node.inputs[1] in self.empty:
            return node.inputs[0]
        numbers = [self._number(value) if value in self.uniform else None for value in node.inputs]
        if node.op_type == "Where" and numbers[0] is not None:
            return node.inputs[1] if bool(numbers[0]) else node.inputs[2]
        neutral = NEUTRAL.get(node.op_type)
        if neutral is None or len(node.inputs) != 2:
            return None
        if numbers[1] is not None and bool(numbers[1] == neutral):
            return node.inputs[0]
        if numbers[0] is not None and bool(numbers[0] == neutral) and node.op_type not in ("Sub", "Div"):
            return node.inputs[1]
        return None

    def _materialise_where_known(self, value: ir.Value) -> int:
        """Write a value as its constant, where its shape depends on remaining inputs; return how many nodes changed."""
        dims = graphs.dims_of(value)
        known = {symbol for at in self._axes_left() for symbol in [graphs.symbol(at)]}
        if dims is None or any(not symbols_of(dim) <= known for dim in dims) or value.is_graph_output():
            return 0
        self._materialise(value)
        return 1

    def _axes_left(self) -> dict[str, tuple[ir.Value, int]]:
        """Return, by axis name, a remaining input and its dimension."""
        found: dict[str, tuple[ir.Value, int]] = {}
        for value in self.model.graph.inputs:
            if value not in self.filled:
                for axis, dim in enumerate(graphs.dims_of(value) or ()):
                    if not isinstance(dim, int) and dim.is_Symbol:
                        found.setdefault(str(dim), (value, axis))
        return found

    def _materialise(self, value: ir.Value) -> None:
        """Write a value as its constant, expanded to a shape computed from the remaining graph."""
        readers = list(value.uses())
        insert = graphs.Inserter(self.model, RemoveMaskInputs.name, before=next(iter(self.model.graph)))
        shape = self._shape(insert, value)
        number = self.filled.get(value, 1)
        if isinstance(number, int):
            single = insert.constant(self.uniform[value], "mask_number")
        else:
            length = self._size(insert, value, number)
            single = insert.op(
                "Cast", [length], {"to": value.dtype or ir.DataType.INT64}, name="length", dtype=value.dtype
            )
        spread = insert.op(
            "Expand", [single, shape], name=f"{value.name}_unpadded", shape=value.shape, dtype=value.dtype
        )
        for use in readers:
            use.node.replace_input_with(use.idx, spread)
        if not isinstance(number, int):
            self._count_the_longest(spread, single)

    def _count_the_longest(self, lengths: ir.Value, single: ir.Value) -> None:
        """Replace the maximum of lengths, or of values computed from them, by the length of the only row.

        A mask often has `lengths.max()` entries: of one unpadded row those are its own.
        """
        alike = {lengths: single}
        for node in graphs.nodes_of(self.model):
            numbers = [value if value is None else alike.get(value, value) for value in node.inputs]
            if not any(value in alike for value in node.inputs) or node.outputs[0].is_graph_output():
                continue
            output, insert = node.outputs[0], graphs.Inserter(self.model, RemoveMaskInputs.name, before=node)
            if graphs.is_op(node, "ReduceMax", "ReduceMin") and all(dim == 1 for dim in graphs.dims_of(output) or ()):
                shape = insert.int64s(*(1 for _ in graphs.dims_of(output) or ()))
                longest = insert.op(
                    "Reshape", [numbers[0], shape], name="longest", shape=output.shape, dtype=output.dtype
                )
                ir.convenience.replace_all_uses_with(output, longest)
            elif node.op_type in OF_POSITIONS and all(
                operand in alike.values() or _is_single(operand) for operand in numbers
            ):
                attributes = node.attributes.values()
                single_node = ir.Node(node.domain, node.op_type, numbers, attributes, num_outputs=1)
                insert.place(single_node)
                alike[output] = single_node.outputs[0]
                alike[output].shape, alike[output].type = ir.Shape([1]), output.type

    def _shape(self, insert: graphs.Inserter, value: ir.Value) -> ir.Value:
        dims = graphs.dims_of(value)
        assert dims is not None
        sizes = [self._size(insert, value, dim) for dim in dims]
        if not sizes:
            return insert.constant(np.zeros(0, np.int64), "scalar")
        return insert.op("Concat", sizes, {"axis": 0}, name=f"{value.name}_shape", dtype=ir.DataType.INT64)

    def _size(self, insert: graphs.Inserter, value: ir.Value, dim: Dim) -> ir.Value:
        """Return a size as a value, int64 [1].

        Raises:
            Refused: no other input has the axes of the size.
        """
        if isinstance(dim, int):
            return insert.int64s(dim)
        axes = self._axes_left()
        sizes = {}
        for name in sorted(map(str, symbols_of(dim))):
            if name not in axes:
                raise Refused(
                    f"the mask {value.name!r} is the only input with an axis of {dim} entries",
                    cure="give the graph another input with that axis",
                    place=Location(tensor=str(value.name)),
                )
            other, axis = axes[name]
            span = {"start": axis, "end": axis + 1}
            sizes[name] = insert.op("Shape", [other], span, name=f"{other.name}_size", dtype=ir.DataType.INT64)
        return (
            insert.op("Reshape", [Arithmetic(insert, sizes).value(dim), insert.int64s(1)], name="size")
            if not dim.is_Symbol
            else sizes[str(dim)]
        )


def _is_single(value: ir.Value | None) -> bool:
    """Whether a value is a single number, which broadcasts to a row of equal ones."""
    return value is not None and graphs.dims_of(value) in ((), (1,))


def _numpy(value: ir.Value) -> np.dtype[np.generic]:
    return np.dtype(value.dtype.numpy() if value.dtype is not None else np.float32)
