"""Writes values that depend on axis lengths alone again for every row, computed from its true length.

Before:
    last = Min(Range(0, 2*time), time - 1)   [2*time], of all slots
After:
    last = Min(Range(0, 2*time), time_length[:, None] - 1)   [batch, 2*time]: row i as the row alone has it
"""

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, changed_axes, perm_of
from compiler.graph.operators.traits import OF_POSITIONS
from compiler.proof.padding.valid_slots import ValidSlots
from compiler.proof.rules.row_values import sizes_held


class RowValues:
    """Writes values per row, each once.

    Args:
        valid_slots: of the graph, with true sizes.
    """

    def __init__(self, valid_slots: ValidSlots) -> None:
        self.valid_slots, self.insert = valid_slots, valid_slots.insert

    def of(self, value: ir.Value) -> ir.Value:
        """Return a value [...] computed per row, [batch or 1, ...]; `compiler.proof.rules.row_values` allowed it."""
        key = ("row_values", value)
        if key not in self.valid_slots.made:
            made = self._made(value)
            if value.dtype is not None:
                made.dtype = value.dtype
            self.valid_slots.made[key] = made
        return self.valid_slots.made[key]

    def _made(self, value: ir.Value) -> ir.Value:
        array = graphs.array_of(value)
        if array is not None:
            return self.insert.constant(array[None], "for_all_rows")
        sizes = sizes_held(value)
        if sizes is not None:
            return self._sizes(value, sizes)
        node = value.producer()
        assert node is not None
        if node.op_type in OF_POSITIONS:
            return self._entry_by_entry(node)
        name = f"{value.name}_per_row"
        match node.op_type:
            case "Range":
                return self._range(node)
            case "Reshape":
                return self._shaped(self._first(node), [0, *(graphs.dims_of(value) or ())], name)
            case "Expand":
                first = self._aligned(self._input(node, 0), self._rank(value))
                return self.insert.op(
                    "Expand", [first, self._sizes_of_slots([1, *(graphs.dims_of(value) or ())])], name=name
                )
            case "Squeeze" | "Unsqueeze":
                behind = self.insert.int64s(*(axis + 1 for axis in changed_axes(node, graphs.integers_of) or ()))
                return self.insert.op(node.op_type, [self._first(node), behind], name=name)
            case "Transpose":
                perm = perm_of(node, self._rank(value))
                return self.insert.op(
                    "Transpose", [self._first(node)], {"perm": [0, *(axis + 1 for axis in perm)]}, name=name
                )
            case "Gather":
                axis = axis_of(node, self._rank(self._input(node, 0))) + 1
                return self.insert.op("Gather", [self._first(node), self._input(node, 1)], {"axis": axis}, name=name)
        return self._concat(node)

    def _input(self, node: ir.Node, at: int) -> ir.Value:
        value = node.inputs[at]
        assert value is not None
        return value

    def _first(self, node: ir.Node) -> ir.Value:
        return self.of(self._input(node, 0))

    def _rank(self, value: ir.Value) -> int:
        dims = graphs.dims_of(value)
        assert dims is not None
        return len(dims)

    def _sizes(self, value: ir.Value, sizes: tuple[Dim, ...]) -> ir.Value:
        """Return true sizes, [batch, ...]."""
        assert value.dtype is not None
        counts = [self.valid_slots.count(size, 2) for size in sizes]
        rows = [
            self.insert.op("Reshape", [count, self.insert.int64s(1, 1)], name="size")
            if isinstance(size, int)
            else count
            for count, size in zip(counts, sizes, strict=True)
        ]
        joined = rows[0] if len(rows) == 1 else self._side_by_side(rows, 1)
        shaped = self._shaped(joined, [0, *(graphs.dims_of(value) or ())], "true_sizes")
        if value.dtype == ir.DataType.INT64:
            return shaped
        return self.insert.op("Cast", [shaped], {"to": value.dtype}, name="true_sizes", dtype=value.dtype)

    def _entry_by_entry(self, node: ir.Node) -> ir.Value:
        rank = self._rank(node.outputs[0])
        operands = [None if value is None else self._aligned(value, rank) for value in node.inputs]
        if node.op_type == "Clip":  # bounds are scalars there
            return self._clipped(operands, str(node.outputs[0].name))
        attributes = {name: each.value for name, each in node.attributes.items()}
        name = f"{node.outputs[0].name}_per_row"
        return self.insert.op(node.op_type, operands, attributes, name=name, dtype=node.outputs[0].dtype)

    def _clipped(self, operands: list[ir.Value | None], name: str) -> ir.Value:
        (value, *bounds) = operands
        for op, bound in zip(("Max", "Min"), bounds, strict=False):
            if bound is not None:
                value = self.insert.op(op, [value, bound], name=f"{name}_per_row")
        assert value is not None
        return value

    def _aligned(self, value: ir.Value, rank: int) -> ir.Value:
        """Return the value with axes of size 1 behind the rows, to broadcast to `rank` axes."""
        tensor, missing = self.of(value), rank - self._rank(value)
        if missing <= 0:
            return tensor
        axes = self.insert.int64s(*range(1, missing + 1))
        return self.insert.op("Unsqueeze", [tensor, axes], name="rows_aligned", dtype=value.dtype)

    def _range(self, node: ir.Node) -> ir.Value:
        """Return start + index * step, for every slot."""
        (output,) = node.outputs
        dims = graphs.dims_of(output)
        assert dims is not None and output.dtype is not None
        start, step = (self._aligned(self._input(node, at), 1) for at in (0, 2))
        numbers = self.valid_slots.iota(dims[0])
        if output.dtype != ir.DataType.INT64:
            numbers = self.insert.op("Cast", [numbers], {"to": output.dtype}, name="numbers", dtype=output.dtype)
        row = self._shaped(numbers, [1, -1], "numbers")
        return self.insert.op("Add", [start, self.insert.op("Mul", [row, step], name="steps")], name="counted")

    def _concat(self, node: ir.Node) -> ir.Value:
        axis = axis_of(node, self._rank(node.outputs[0])) + 1
        return self._side_by_side([self.of(value) for value in node.inputs if value is not None], axis)

    def _side_by_side(self, parts: list[ir.Value], axis: int) -> ir.Value:
        """Return a Concat of values of which some have one row for all."""
        rows = [self.valid_slots.all_rows(part) for part in parts]
        return self.insert.op("Concat", rows, {"axis": axis}, name="joined")

    def _shaped(self, value: ir.Value, sizes: list[Dim], name: str) -> ir.Value:
        return self.insert.op("Reshape", [value, self._sizes_of_slots(sizes)], name=name, dtype=value.dtype)

    def _sizes_of_slots(self, sizes: list[Dim]) -> ir.Value:
        """Return numbers, and sizes in slots, as one int64 vector."""
        if all(isinstance(size, int) for size in sizes):
            return self.insert.int64s(*(int(str(size)) for size in sizes))
        parts = [
            self.insert.int64s(size)
            if isinstance(size, int)
            else self.insert.op("Reshape", [self.valid_slots.slot_count(size), self.insert.int64s(1)], name="slots")
            for size in sizes
        ]
        return self.insert.op("Concat", parts, {"axis": 0}, name="sizes", dtype=ir.DataType.INT64)
