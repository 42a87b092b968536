"""Rewrites a computation on the entries that a boolean mask selects as the same computation on all entries.

    f(GatherND(z [batch, time, 8], the places of a mask))  ->  f(Reshape(z, [-1, 8])), of which the mask chooses

Every node of f is asked of the rule table: it has to compute each entry of its result from that entry of its operands
alone. What it computes are floating-point numbers and truths, of which no operator fails on an entry that is not
chosen, as a lookup and a division of whole numbers may.
"""

from collections.abc import Callable

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.proof.propagation.pointwise import pointwise_axes
from compiler.rewriting.simplification.rules import Candidate

MOST = 64
"""Values between chosen entries and what is computed of them."""

Source = Callable[[ir.Node], ir.Value | None]
"""What a GatherND takes its entries from, where it takes them at the places of the mask; else None."""


class NotByEntry(Exception):
    """Entries mix, or are of another kind."""


class _Computation:
    """The nodes between chosen entries and the results computed from them.

    Args:
        source: of the chosen entries.
        count: of axes that the mask has.

    Attributes:
        axes: of every value, the axis along which chosen entries lie; None where it hangs on none of them.
        nodes: that compute it, in order, with their operands that have that axis.
        sources: of the values that are chosen entries.
    """

    def __init__(self, source: Source, count: int) -> None:
        self.source, self.count = source, count
        self.axes: dict[ir.Value, int | None] = {}
        self.nodes: list[tuple[ir.Node, tuple[int, ...]]] = []
        self.sources: dict[ir.Value, ir.Value] = {}

    def axis_of(self, value: ir.Value) -> int | None:
        """Return the axis of entries in a value.

        Raises:
            NotByEntry: the value is not computed from each entry separately.
        """
        if value not in self.axes:
            if len(self.axes) > MOST:
                raise NotByEntry
            self.axes[value] = self._followed(value)
        return self.axes[value]

    def _followed(self, value: ir.Value) -> int | None:
        node = value.producer()
        if node is None or graphs.array_of(value) is not None:
            return None
        if graphs.is_op(node, "GatherND", "NonZero"):
            self.sources[value] = self._require_source(node)
            return 0
        axis_of_operand = {
            number: self.axis_of(operand) for number, operand in enumerate(node.inputs) if operand is not None
        }
        operands = {number: axis for number, axis in axis_of_operand.items() if axis is not None}
        if not operands:
            return None
        others = [
            graphs.dims_of(operand)
            for number, operand in enumerate(node.inputs)
            if operand is not None and number not in operands
        ]
        is_sized = all(dims is not None and all(isinstance(dim, int) for dim in dims) for dims in others)
        axes = pointwise_axes(node, operands) if is_sized and node.domain in ("", "ai.onnx") else None
        if axes is None or len(node.outputs) != 1 or not _cannot_fail(value):
            raise NotByEntry
        self.nodes.append((node, tuple(operands)))
        return axes[0]

    def _require_source(self, node: ir.Node) -> ir.Value:
        source = self.source(node) if graphs.is_op(node, "GatherND") else None
        behind = None if source is None else (graphs.dims_of(source) or ())[self.count :]
        if source is None or behind is None or not _cannot_fail(source):
            raise NotByEntry
        if not all(isinstance(dim, int) for dim in behind):
            raise NotByEntry
        return source

    def of_all(self, candidate: Candidate, value: ir.Value) -> ir.Value:
        """Return the value computed from all entries, on one merged axis."""
        insert, copies = candidate.insert, dict[ir.Value, ir.Value]()
        for chosen, source in self.sources.items():
            behind = [int(str(dim)) for dim in (source.shape or ())[self.count :]]
            sizes = insert.int64s(-1, *behind)
            copies[chosen] = insert.op("Reshape", [source, sizes], name="entries", dtype=source.dtype)
        for node, operands in self.nodes:
            inputs = [copies[operand] if operand is not None and number in operands else operand
                      for number, operand in enumerate(node.inputs)]  # fmt: skip
            attributes = {name: attribute.value for name, attribute in node.attributes.items()}
            (output,) = node.outputs
            copies[output] = insert.op(
                node.op_type, inputs, attributes, name=f"{output.name}_of_all", dtype=output.dtype
            )
        return copies[value]


def _cannot_fail(value: ir.Value) -> bool:
    return value.dtype is not None and (value.dtype.is_floating_point() or value.dtype == ir.DataType.BOOL)


def of_all_entries(
    candidate: Candidate, chosen: ir.Value, source: Source, like: ir.Value, count: int
) -> ir.Value | None:
    """Return a value computed from chosen entries [chosen, ..], for all entries, in the shape of `like`; else None.

    Args:
        candidate: the node in front of which it is computed.
        chosen: the value computed from entries at the positions of a mask.
        source: returns the data of a GatherND at those positions, or None.
        like: a value of the mask's axes, followed by the result's.
        count: number of axes of the mask.
    """
    computation = _Computation(source, count)
    try:
        axis = computation.axis_of(chosen)
    except NotByEntry:
        return None
    if axis != 0:
        return None
    entries = computation.of_all(candidate, chosen)
    shape = candidate.insert.op("Shape", [like], name="sizes", dtype=ir.DataType.INT64)
    return candidate.insert.op("Reshape", [entries, shape], name="all_entries", dtype=chosen.dtype)
