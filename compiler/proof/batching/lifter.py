"""Rewrites a graph from one row to many, and records which values differ between rows and where their batch axis is."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, axis_operand
from compiler.proof.batching.form import INSERTED, RowLayout, in_place, moved
from compiler.proof.facts.facts import refuse


class Lifter:
    """Writes the values of all rows beside those of one row.

    Args:
        model: the graph, with symbolic shapes; it is changed in place to one for many rows.
        batch: name of the batch axis.
        stamp: name of the pass.
        inputs: layout of each input that has rows; the inputs get their new shapes here.
    """

    def __init__(self, model: ir.Model, batch: str, stamp: str, inputs: dict[ir.Value, RowLayout]) -> None:
        self.model, self.batch, self.stamp = model, batch, stamp
        self.dims = {
            value: graphs.dims_of(value)
            for value in (*model.graph.inputs, *(output for node in model.graph for output in node.outputs))
        }
        self.layouts: dict[ir.Value, dict[RowLayout, ir.Value]] = {}
        self._first = next(iter(model.graph), None)
        self._count: ir.Value | None = None
        self._inputs = inputs
        for value, layout in inputs.items():
            self.layouts[value] = {layout: value}
            shape = list(value.shape or ())
            if layout.dropped is not None:
                del shape[layout.dropped]
            shape.insert(layout.at, ir.SymbolicDim(batch))
            value.shape = ir.Shape(shape)

    def has_rows(self, value: ir.Value | None) -> bool:
        """Whether a value of the original differs from row to row."""
        return value in self.layouts

    def dims_of(self, value: ir.Value) -> tuple[Dim, ...]:
        """Return the shape of a value in the original.

        Raises:
            Refused: its rank is unknown.
        """
        found = self.dims[value] if value in self.dims else graphs.dims_of(value)
        if found is None:
            raise refuse(
                f"the rank of {value.name!r} is unknown", "reshape the value to a fixed number of axes in front of it"
            )
        return found

    def layout_of(self, value: ir.Value) -> RowLayout:
        """Return the layout in which a value with rows was first computed."""
        return next(iter(self.layouts[value]))

    def count(self) -> ir.Value:
        """Return the number of rows, int64 [1]."""
        if self._count is None:
            value, layout = next(iter(self._inputs.items()))
            insert = graphs.Inserter(self.model, self.stamp, before=self._first)
            span = {"start": layout.at, "end": layout.at + 1}
            self._count = insert.op("Shape", [value], span, name="rows", shape=[1], dtype=ir.DataType.INT64)
        return self._count

    def convert(self, insert: graphs.Inserter, value: ir.Value, layout: RowLayout) -> ir.Value:
        """Return the tensor of a value in a layout, shared by all later readers; a value without rows is repeated.

        Args:
            insert: inserter in front of all readers of the result.
            value: a value of the original.
            layout: the layout; its dropped axis has size 1.
        """
        known = self.layouts.get(value)
        if known is None:
            return self._spread(insert, value, layout)
        if layout not in known:
            source, tensor = next(iter(known.items()))
            known[layout] = self._converted(insert, tensor, len(self.dims_of(value)), source, layout)
        return known[layout]

    def _converted(
        self, insert: graphs.Inserter, tensor: ir.Value, rank: int, source: RowLayout, layout: RowLayout
    ) -> ir.Value:
        if source.dropped == layout.dropped:
            return self._transposed(insert, tensor, rank + (layout.dropped is None), source.at, layout.at)
        if source.dropped is not None:
            tensor = self._transposed(insert, tensor, rank, source.at, 0)
            tensor = insert.op("Unsqueeze", [tensor, insert.int64s(source.dropped + 1)], name=f"{tensor.name}_in_front")
            return self._converted(insert, tensor, rank, INSERTED, layout)
        assert layout.dropped is not None
        tensor = self._transposed(insert, tensor, rank + 1, source.at, 0)
        tensor = insert.op("Squeeze", [tensor, insert.int64s(layout.dropped + 1)], name=f"{tensor.name}_in_place")
        return self._transposed(insert, tensor, rank, 0, layout.at)

    def _transposed(self, insert: graphs.Inserter, tensor: ir.Value, rank: int, source: int, target: int) -> ir.Value:
        if source == target:
            return tensor
        order = moved(rank, source, target)
        return insert.op("Transpose", [tensor], {"perm": order}, name=f"{tensor.name}_rows_at_{target}")

    def _spread(self, insert: graphs.Inserter, value: ir.Value, layout: RowLayout) -> ir.Value:
        """Return a value with the same content in every row."""
        rank = len(self.dims_of(value))
        tensor = value
        whole = INSERTED if layout.dropped is None else in_place(layout.dropped)
        ones = [1] * (rank + 1 if layout.dropped is None else rank)
        shape = self.joined(insert, [*ones[: whole.at], self.count(), *ones[whole.at + 1 :]])
        tensor = insert.op("Expand", [tensor, shape], name=f"{value.name}_for_all_rows")
        return self._transposed(insert, tensor, len(ones), whole.at, layout.at)

    def joined(self, insert: graphs.Inserter, parts: Sequence[int | ir.Value]) -> ir.Value:
        """Return numbers and int64 vectors concatenated to one int64 vector."""
        values: list[ir.Value] = []
        numbers: list[int] = []
        for part in [*parts, None]:
            if isinstance(part, int):
                numbers.append(part)
                continue
            if numbers:
                values.append(insert.int64s(*numbers))
                numbers = []
            if part is not None:
                values.append(part)
        if len(values) == 1:
            return values[0]
        return insert.op("Concat", values, {"axis": 0}, name="sizes", dtype=ir.DataType.INT64)


class LiftedNode:
    """One node while it is being lifted.

    Args:
        lifter: the graph.
        node: the node; at least one of its inputs has rows.
    """

    def __init__(self, lifter: Lifter, node: ir.Node) -> None:
        self.lifter, self.node = lifter, node
        self.insert = graphs.Inserter(lifter.model, lifter.stamp, before=node)
        self.values = list(node.inputs)

    @property
    def op(self) -> str:
        """Return the operator's name."""
        return self.node.op_type

    @property
    def present(self) -> list[int]:
        """Return the indices of the inputs that are given."""
        return [index for index, value in enumerate(self.values) if value is not None]

    @property
    def rows(self) -> list[int]:
        """Return the indices of the inputs that have rows."""
        return [index for index, value in enumerate(self.values) if self.lifter.has_rows(value)]

    def has(self, operand: int) -> bool:
        """Whether an optional input is given."""
        return operand < len(self.values) and self.values[operand] is not None

    def value(self, operand: int) -> ir.Value:
        """Return an input of the original."""
        value = self.values[operand]
        assert value is not None
        return value

    def dims(self, operand: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an input in the original."""
        return self.lifter.dims_of(self.value(operand))

    def rank(self, operand: int = 0) -> int:
        """Return the number of axes of an input in the original."""
        return len(self.dims(operand))

    def out_dims(self, output: int = 0) -> tuple[Dim, ...]:
        """Return the shape of an output in the original."""
        return self.lifter.dims_of(self.node.outputs[output])

    def place(self, operand: int = 0) -> int | None:
        """Return the axis of an input that the batch replaces, or None."""
        return self.lifter.layout_of(self.value(operand)).dropped

    def require_shared(self, *operands: int, what: str) -> None:
        """Refuse inputs that differ from row to row where all rows must share them.

        Raises:
            Refused: an input has rows.
        """
        for operand in operands:
            if self.has(operand) and self.lifter.has_rows(self.values[operand]):
                raise refuse(
                    f"{self.op} takes {what} from {self.value(operand).name!r}, which differs from row to row",
                    f"compute {what} from shapes or constants, which all rows share, or mask what a row leaves out",
                )

    def constants(self, operand: int, what: str) -> tuple[int, ...]:
        """Return the elements of an integer input that are known numbers.

        Raises:
            Refused: an element is unknown.
        """
        self.require_shared(operand, what=what)
        found = graphs.integers_of(self.value(operand))
        numbers = tuple(number for number in found or () if isinstance(number, int))
        if found is None or len(numbers) != len(found):
            raise refuse(f"{self.op} with computed {what}", f"give {what} as constants")
        return numbers

    def axis(self) -> int:
        """Return the axis that the original works along, counted from the front."""
        operand = axis_operand(self.node)
        named = None if operand is None else self.constants(self.node.inputs.index(operand), "axis")[0]
        return axis_of(self.node, self.rank(), named)

    def read(self, operand: int, layout: RowLayout) -> ir.Value:
        """Make the node read an input in a layout, and return that tensor."""
        tensor = self.lifter.convert(self.insert, self.value(operand), layout)
        self.node.replace_input_with(operand, tensor)
        return tensor

    def tensor(self, operand: int, layout: RowLayout) -> ir.Value:
        """Return an input in a layout, for new nodes."""
        return self.lifter.convert(self.insert, self.value(operand), layout)

    def keep(self, *layouts: RowLayout) -> None:
        """Keep the node, and record the layouts of its outputs; a single layout holds for all."""
        for index, output in enumerate(self.node.outputs):
            self.lifter.layouts[output] = {layouts[min(index, len(layouts) - 1)]: output}

    def become(self, tensor: ir.Value, layout: RowLayout) -> None:
        """Record a tensor in place of the node's only output."""
        (output,) = self.node.outputs
        self.lifter.layouts[output] = {layout: tensor}

    def set(self, name: str, number: int | Sequence[int]) -> None:
        """Write an attribute."""
        attribute = ir.AttrInt64(name, number) if isinstance(number, int) else ir.AttrInt64s(name, list(number))
        self.node.attributes[name] = attribute

    def give(self, operand: int, array: np.ndarray) -> None:
        """Write a constant input; an absent one is added."""
        if operand >= len(self.node.inputs):
            self.node.resize_inputs(operand + 1)
        self.node.replace_input_with(operand, self.insert.constant(array, "settings"))

    def aligned(self, operand: int, rank: int) -> ir.Value:
        """Return an input with the batch first, in a shape that broadcasts to `rank` axes of the original."""
        tensor = self.tensor(operand, INSERTED)
        missing = rank - self.rank(operand)
        if missing <= 0:
            return tensor
        axes = self.insert.int64s(*range(1, missing + 1))
        return self.insert.op("Unsqueeze", [tensor, axes], name=f"{tensor.name}_aligned")
