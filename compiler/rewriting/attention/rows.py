"""Finds whether a projection's operand has the batch first, time first, or both merged into one axis.

[batch, time, width] -> MatMul
[time, batch, width] -> MatMul
[batch, time, ..] -> Reshape [batch * time, width] -> MatMul  read as the MatMul over separate axes
"""

import dataclasses
import math

import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.model import Dim
from compiler.rewriting.attention.attention import Attention, Heads

BATCH_AND_TIME = (1, 0, 2)
"""Swaps these two axes."""

KEEP_ORDER = ("Reshape", "Flatten", "Squeeze", "Identity")
"""A list of its own: operators that leave the entries in their order."""


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of an operand.

    Attributes:
        value: the operand with its first two axes apart, [batch, time, ..] or [time, batch, ..].
        time_first: which of the two it is.
        merged: whether the operand itself has them merged.
    """

    value: ir.Value
    time_first: bool
    merged: bool


def rows_of(operand: ir.Value, batch: Dim, time: Dim) -> Rows:
    """Find the rows that a projection reads.

    Args:
        operand: [batch, time, width], [time, batch, width], or either of them with the first two axes merged.
        batch: number of sequences.
        time: number of frames of each sequence.

    Raises:
        Refused: the operand has another layout, or its axes are not known to be merged before it.
    """
    apart = operand
    while len(graphs.dims_of(apart) or ()) == 2 and graphs.is_op(apart.producer(), *KEEP_ORDER):
        maker = apart.producer()
        assert maker is not None and maker.inputs[0] is not None
        apart = maker.inputs[0]
    dims = graphs.dims_of(apart) or ()
    if len(dims) > 2 and math.prod(dims[2:]) == (graphs.dims_of(operand) or ())[-1]:
        batch_first = dims[0] == batch or dims[1] == time  # one of both may be unknown
        if batch_first or dims[0] == time or dims[1] == batch:
            return Rows(apart, not batch_first, apart is not operand)
    expected = f"[{batch}, {time}, width] or [{time}, {batch}, width], as it is or reshaped to two axes"
    raise Refused(f"expected {operand.name} to be {expected}, got {operand.shape}")


def rows_projected(heads: Heads) -> Rows:
    """Return the rows that are projected to queries, keys or values, [batch, time, width] or [time, batch, width].

    Raises:
        Refused: they have another layout.
    """
    operand, dims = heads.product.inputs[0], graphs.dims_of(heads.value)
    assert operand is not None and dims is not None
    rows = rows_of(operand, dims[heads.batch_axis], dims[heads.time_axis])
    if len(graphs.dims_of(rows.value) or ()) != 3:
        raise Refused(f"expected {rows.value.name} to be [batch, time, width], got {rows.value.shape}")
    return rows


def rows_behind(attention: Attention) -> Rows:
    """Return the rows that the output projection reads.

    Raises:
        Refused: they have another layout.
    """
    operand, dims = attention.output.inputs[0], graphs.dims_of(attention.query.value)
    assert operand is not None and dims is not None
    return rows_of(operand, dims[attention.query.batch_axis], dims[attention.query.time_axis])
