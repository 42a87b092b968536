"""Multiplies by a whole position table and looks up the scores, instead of multiplying by looked-up positions.

Before:
    rows = Gather(table [144, 256], index [batch, 144]);  p = Transpose(Reshape(rows))  # [batch, 4, 64, 144]
    scores = MatMul(q [batch, 4, 16, 64], p)
After:
    all = MatMul(q, P [1, 4, 64, 144]);  scores = GatherElements(all, index spread to [batch, 4, 16, 144])

Each row of the batch looks up other positions. There are fewer scores than looked-up values as long as a call has fewer
frames than a head has channels.

Requires: known sizes but for the rows; a table with as many rows as there are places.
Ensures: no product with looked-up rows of such a table.
Keeps: lookups in larger tables, those that something else reads, and products with more frames than channels.
Numerics: exact where a backend sums in one order whatever the column; order of summation else.
Source: a column of a product depends on that column of the operand alone.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of, perm_of
from compiler.graph.operators.repeats import expand_of
from compiler.graph.operators.reshapes import target_of
from compiler.graph.stages import Array, Lowered, Outcome

TRIALS = 4
"""Drawn indices at which the way from a lookup to a product is followed; movement is the same for all of them."""


@dataclasses.dataclass(frozen=True)
class FoldTableProduct:
    """Lookups of scores in the place of lookups of positions."""

    name: ClassVar[str] = "fold_table_product"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Multiply by a whole table of positions and look up the scores afterwards, in place."""
        model, matched, rewritten = lowered.model, 0, 0
        graphs.infer_shapes(model)
        for node in graphs.nodes_of(model):
            lookup = _Lookup.behind(node)
            if lookup is None:
                continue
            matched += 1
            if lookup.is_worth_it() and lookup.moves_columns():
                lookup.write(model)
                rewritten += 1
        if rewritten:
            graphs.prune(model)
            graphs.infer_shapes(model)
        return Outcome(lowered, matched, rewritten)


@dataclasses.dataclass(frozen=True)
class _Lookup:
    """A product with rows of a table.

    Attributes:
        product: the MatMul; its second operand is looked up.
        moves: Reshape and Transpose nodes between lookup and product, in order.
        table: all rows.
        index: int [rows of the batch, places].
    """

    product: ir.Node
    moves: Sequence[ir.Node]
    table: Array
    index: ir.Value

    @classmethod
    def behind(cls, product: ir.Node) -> "_Lookup | None":
        """Return the lookup whose result a product reads, with only movements between; None for other products."""
        value, moves = product.inputs[1] if graphs.is_op(product, "MatMul") else None, list[ir.Node]()
        while value is not None and len(value.uses()) == 1 and not value.is_graph_output():
            node = value.producer()
            if node is None or node.inputs[0] is None:
                return None
            if not graphs.is_op(node, "Reshape", "Transpose"):
                table, index = (graphs.array_of(node.inputs[0]), node.inputs[1]) if _is_lookup(node) else (None, None)
                return None if table is None or index is None else cls(product, moves[::-1], table, index)
            moves.append(node)
            value = node.inputs[0]
        return None

    def is_worth_it(self) -> bool:
        """Whether there are as many positions as table rows, sizes are known, and frames are fewer than channels."""
        data, result = self.product.inputs[0], self.product.outputs[0]
        dims, places = graphs.dims_of(result), graphs.dims_of(self.index)
        operand = None if data is None else graphs.dims_of(data)
        if dims is None or places is None or operand is None or len(dims) < 3 or len(operand) != len(dims):
            return False
        if len(places) != 2 or places[1] != len(self.table) or places[0] != dims[0] or dims[-1] != len(self.table):
            return False
        frames, channels = dims[-2], operand[-1]
        if not isinstance(frames, int) or not isinstance(channels, int) or frames > channels:
            return False
        return all(isinstance(dim, int) for dim in dims[1:])

    def moved(self, rows: Array) -> Array | None:
        """Return looked-up rows [batch, places, ...] after the movements; None where they are not constant."""
        for node in self.moves:
            if graphs.is_op(node, "Transpose"):
                rows = np.transpose(rows, perm_of(node, rows.ndim))
                continue
            target = None if graphs.array_of(node.inputs[1]) is None else target_of(node, graphs.integers_of)
            if target is None or not target.copies:
                return None
            try:
                rows = rows.reshape([int(str(size)) for size in target.of(rows.shape)])
            except ValueError:
                return None
        return rows

    def moves_columns(self) -> bool:
        """Whether looking up rows first equals looking up columns of the moved table, row by row.

        Movement does not depend on numbers, so distinct entries show where each goes.
        """
        numbers = np.arange(self.table.size).reshape(self.table.shape)
        first, places, rng = (graphs.dims_of(self.index) or (1,))[0], len(self.table), np.random.default_rng(0)
        count = first if isinstance(first, int) else 3
        whole = self.moved(np.broadcast_to(numbers, (count, *numbers.shape)))
        if whole is None or whole.shape[0] != count:
            return False
        for _ in range(TRIALS):
            index = rng.integers(0, places, (count, places))
            moved = self.moved(numbers[index])
            expected = np.stack([whole[row][..., index[row]] for row in range(count)])
            if moved is None or not np.array_equal(moved, expected):
                return False
        return True

    def write(self, model: ir.Model) -> None:
        """Write the product with the whole table, followed by the lookup."""
        old, dims = self.product.outputs[0], graphs.dims_of(self.product.outputs[0])
        first = (graphs.dims_of(self.index) or (1,))[0]
        count = first if isinstance(first, int) else 1
        whole = self.moved(np.broadcast_to(self.table, (count, *self.table.shape)))
        assert dims is not None and whole is not None
        insert = graphs.Inserter(model, FoldTableProduct.name, before=self.product)
        table = insert.constant(np.ascontiguousarray(whole[:1]), f"{old.name}_table")
        product = insert.op("MatMul", [self.product.inputs[0], table], name=f"{old.name}_all")
        scores = insert.op(
            "GatherElements", [product, self._spread(model, dims[1:-1])], {"axis": -1}, name=f"{old.name}_looked_up"
        )
        scores.shape = old.shape
        graphs.take_over(model, old, scores)

    def _spread(self, model: ir.Model, sizes: Sequence[graphs.Dim]) -> ir.Value:
        """Return the index expanded over the axes between rows and positions, shared by lookups of equal shape."""
        target = (1, *(int(size) for size in sizes), 1)
        for reader in graphs.consumers_of(self.index):
            for spread in graphs.consumers_of(reader.outputs[0]) if graphs.is_op(reader, "Unsqueeze") else ():
                view = expand_of(spread, graphs.integers_of, rank=len(target))
                if view is not None and view.sizes == target:
                    return spread.outputs[0]
        insert = graphs.Inserter.behind(model, FoldTableProduct.name, self.index)
        axes = insert.int64s(*range(1, len(sizes) + 1))
        apart = insert.op("Unsqueeze", [self.index, axes], name=f"{self.index.name}_apart")
        return insert.op("Expand", [apart, insert.int64s(*target)], name=f"{self.index.name}_spread")


def _is_lookup(node: ir.Node) -> bool:
    """Whether a node looks up rows of a constant table."""
    if not graphs.is_op(node, "Gather"):
        return False
    table = graphs.array_of(node.inputs[0])
    is_of_rows = table is not None and table.ndim > 1 and axis_of(node, table.ndim) == 0
    return is_of_rows and graphs.array_of(node.inputs[1]) is None
