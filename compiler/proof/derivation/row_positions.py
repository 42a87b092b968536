"""Rewrites values computed from one position shared by all rows so that every row has its own position.

Before:
    heard [1]; places [n] = Range(0, n) + heard; y [batch, heads, n, size] = x * Cos(places [n, 1] * rates)
After:
    heard [batch]; places [batch, n] = Range(0, n) + heard [batch, 1]; y = x * Cos(.. [batch, 1, n, 1] * rates)

Rows of a call are streams of different ages. A value that follows from the position gets the rows in front, and where
data meet it, they lie where the data have theirs.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.axis_map import dims
from compiler.graph.model import Dim
from compiler.graph.operators.axes import axis_of, changed_axes, perm_of
from compiler.graph.operators.repeats import expand_of
from compiler.graph.operators.traits import ENTRYWISE
from compiler.proof.derivation.written_sizes import STAMP


class NotByRow(Exception):
    """No rule covers the computation of a value for each row; the text names the node."""


class RowPositions:
    """Writes what follows from a position for each row.

    Args:
        model: the graph; changed.
        rows: name of the axis of rows.
    """

    def __init__(self, model: ir.Model, rows: Dim) -> None:
        self.model, self.rows = model, rows
        self.moved: dict[ir.Value, ir.Value] = {}
        """By value that follows from the position, the same with rows in front: [rows, ...]."""

    def write(self, position: ir.Value, by_row: ir.Value) -> None:
        """Replace a position shared by all rows by a position for each row, in everything computed from it.

        Args:
            position: int64 [1].
            by_row: int64 [rows, 1].

        Raises:
            NotByRow: no rule rewrites a node that reads it.
        """
        self.moved[position] = by_row
        fed = _computed_of_data(self.model, position)
        for node in list(self.model.graph):
            taken = [number for number, value in enumerate(node.inputs) if value in self.moved]
            if not taken:
                continue
            if any(value in fed for value in node.outputs):
                for number in taken:
                    node.replace_input_with(number, self._beside_data(node, number))
            else:
                (output,) = node.outputs
                self.moved[output] = self._with_rows(node, output)
        if any(value in self.moved for value in self.model.graph.outputs):
            raise NotByRow("a result follows from positions alone")

    # Where data meet them

    def _beside_data(self, node: ir.Node, at: int) -> ir.Value:
        """Return an operand reshaped to broadcast to a result that has an axis of rows."""
        result, value = dims(node.outputs[0]), node.inputs[at]
        assert value is not None
        places = [axis for axis, dim in enumerate(result) if dim == self.rows]
        if node.op_type not in ENTRYWISE - {"Clip", "CastLike"} or len(places) != 1:
            raise NotByRow(self._text(node))
        (rows,), rank = places, len(dims(value))
        insert, moved, name = self._insert(node), self.moved[value], f"{value.name}_of_rows"
        row_position = rows - (len(result) - rank)
        if row_position < 0:
            axes = range(1, -row_position)
            return (
                insert.op("Unsqueeze", [moved, insert.int64s(*axes)], name=name, dtype=value.dtype) if axes else moved
            )
        if dims(value)[row_position] not in (1, self.rows):
            raise NotByRow(self._text(node))
        alone = insert.op("Squeeze", [moved, insert.int64s(row_position + 1)], name=name, dtype=value.dtype)
        perm = [*range(1, row_position + 1), 0, *range(row_position + 1, rank)]
        return insert.op("Transpose", [alone], {"perm": perm}, name=name, dtype=value.dtype) if row_position else alone

    # Of positions alone

    def _with_rows(self, node: ir.Node, output: ir.Value) -> ir.Value:
        rule = {
            **dict.fromkeys(ENTRYWISE - {"Clip", "CastLike"}, self._entrywise),
            "Unsqueeze": self._unsqueezed, "Squeeze": self._unsqueezed, "Transpose": self._transposed,
            "Expand": self._expanded, "Reshape": self._reshaped, "Gather": self._looked_up, "Concat": self._joined,
            "MatMul": self._product, "Slice": self._sliced,
        }.get(node.op_type) if node.domain in ("", "ai.onnx") else None  # fmt: skip
        if rule is None or (any(value in self.moved for value in node.inputs[1:]) and rule not in (
            self._entrywise, self._joined, self._product, self._looked_up,
        )):  # fmt: skip
            raise NotByRow(self._text(node))
        typed: Callable[[ir.Node, ir.Value], ir.Value] = rule
        return typed(node, output)

    def _same(
        self,
        node: ir.Node,
        operands: list[ir.Value | None],
        more: Mapping[str, int | Sequence[int]] = MappingProxyType({}),
    ) -> ir.Value:
        attributes = {name: each.value for name, each in node.attributes.items()} | dict(more)
        name = f"{node.outputs[0].name}_by_row"
        return self._insert(node).op(node.op_type, operands, attributes, name=name, dtype=node.outputs[0].dtype)

    def _aligned(self, node: ir.Node, value: ir.Value | None, rank: int) -> ir.Value | None:
        """Return an operand with axes of size 1 behind its rows, up to a rank; one without rows stays as it is."""
        found = None if value is None else self.moved.get(value)
        if value is None or found is None:
            return value
        missing = range(1, rank - len(dims(value)) + 1)
        insert = self._insert(node)
        return (
            insert.op("Unsqueeze", [found, insert.int64s(*missing)], name="aligned", dtype=value.dtype)
            if missing
            else found
        )

    def _entrywise(self, node: ir.Node, output: ir.Value) -> ir.Value:
        rank = len(dims(output))
        return self._same(node, [self._aligned(node, value, rank) for value in node.inputs])

    def _product(self, node: ir.Node, output: ir.Value) -> ir.Value:
        if any(len(dims(value)) < 2 for value in node.inputs):
            raise NotByRow(self._text(node))
        return self._entrywise(node, output)

    def _first(self, node: ir.Node) -> ir.Value:
        value = node.inputs[0]
        assert value is not None
        return self.moved[value]

    def _unsqueezed(self, node: ir.Node, output: ir.Value) -> ir.Value:
        axes = changed_axes(node, graphs.integers_of)
        if axes is None:
            raise NotByRow(self._text(node))
        behind = self._insert(node).int64s(*(axis + 1 for axis in axes))
        return self._same(node, [self._first(node), behind])

    def _transposed(self, node: ir.Node, output: ir.Value) -> ir.Value:
        perm = perm_of(node, len(dims(output)))
        return self._same(node, [self._first(node)], {"perm": [0, *(axis + 1 for axis in perm)]})

    def _expanded(self, node: ir.Node, output: ir.Value) -> ir.Value:
        """Write an Expand whose operand now has a row of its own for each row."""
        insert, one, view = self._insert(node), self._insert(node).int64s(1), expand_of(node, graphs.integers_of)
        if view is None:
            raise NotByRow(self._text(node))
        shape = view.target
        if view.unnamed:
            kept = insert.int64s(*[1] * view.unnamed)
            shape = insert.op("Concat", [kept, shape], {"axis": 0}, name="sizes", dtype=ir.DataType.INT64)
        parts, start = [one], 0
        for axis in [axis for axis, dim in enumerate(dims(output)) if dim == self.rows]:
            if axis > start:
                bounds = [insert.int64s(bound) for bound in (start, axis)]
                parts.append(insert.op("Slice", [shape, *bounds], name="sizes", dtype=ir.DataType.INT64))
            parts, start = [*parts, one], axis + 1
        if start < len(dims(output)):
            bounds = [insert.int64s(bound) for bound in (start, graphs.END)]
            parts.append(insert.op("Slice", [shape, *bounds], name="sizes", dtype=ir.DataType.INT64))
        sizes = insert.op("Concat", parts, {"axis": 0}, name="sizes_of_rows", dtype=ir.DataType.INT64)
        return self._same(node, [self._aligned(node, node.inputs[0], len(dims(output))), sizes])

    def _reshaped(self, node: ir.Node, output: ir.Value) -> ir.Value:
        before, after = ([dim for dim in dims(value) if dim != 1] for value in (node.inputs[0], output))
        if before != after or self.rows in after:
            raise NotByRow(self._text(node))
        given, old, insert = self._first(node), dims(node.inputs[0]), self._insert(node)
        ones = [axis + 1 for axis, dim in enumerate(old) if dim == 1]
        if ones:
            given = insert.op("Squeeze", [given, insert.int64s(*ones)], name="without_ones", dtype=output.dtype)
        more = [axis + 1 for axis, dim in enumerate(dims(output)) if dim == 1]
        if not more:
            return given
        return insert.op("Unsqueeze", [given, insert.int64s(*more)], name=f"{output.name}_by_row", dtype=output.dtype)

    def _looked_up(self, node: ir.Node, output: ir.Value) -> ir.Value:
        table, places = node.inputs
        assert table is not None and places is not None
        axis = axis_of(node, len(dims(table)))
        if table in self.moved and places in self.moved:
            raise NotByRow(self._text(node))
        if table in self.moved:
            return self._same(node, [self.moved[table], places], {"axis": axis + 1})
        looked_up = self._same(node, [table, self.moved[places]])
        perm = [axis, *(position for position in range(len(dims(output)) + 1) if position != axis)]
        return (
            self._insert(node).op("Transpose", [looked_up], {"perm": perm}, name="rows_first", dtype=output.dtype)
            if axis
            else looked_up
        )

    def _joined(self, node: ir.Node, output: ir.Value) -> ir.Value:
        if any(value not in self.moved for value in node.inputs):
            raise NotByRow(self._text(node))
        axis = axis_of(node, len(dims(output)))
        return self._same(node, [self.moved[value] for value in node.inputs if value is not None], {"axis": axis + 1})

    def _sliced(self, node: ir.Node, output: ir.Value) -> ir.Value:
        axes = graphs.integers_of(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
        if axes is None:
            raise NotByRow(self._text(node))
        behind = self._insert(node).int64s(*(int(axis) % len(dims(output)) + 1 for axis in axes))
        return self._same(node, [self._first(node), *node.inputs[1:3], behind, *node.inputs[4:5]])

    def _insert(self, node: ir.Node) -> graphs.Inserter:
        return graphs.Inserter(self.model, STAMP, node, graphs.source_of(node))

    @staticmethod
    def _text(node: ir.Node) -> str:
        return f"{node.name} ({node.op_type}) computes with positions, and no rule says how it does for each row"


def _computed_of_data(model: ir.Model, position: ir.Value) -> set[ir.Value]:
    """Return the values that depend on the contents of inputs, not on shapes or the position alone."""
    found = {value for value in model.graph.inputs if value is not position}
    for node in model.graph:
        if node.op_type not in ("Shape", "Size") and any(value in found for value in node.inputs):
            found |= set(node.outputs)
    return found
