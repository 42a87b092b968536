"""Rewrites masking as Min and Mul, because an Ethos-U computes in integers, without infinity and without Where.

Before:
    y = Softmax(Where(mask, scores, -inf))      z = Where(mask, x, 0)
After:
    y = Softmax(Min(scores, limit))             z = Mul(x, Cast(mask))

`limit` is the largest score where the mask is 1 and the smallest where it is 0, as they were measured. Both are inputs
of the device: what makes them of a mask runs on the host.

Requires: masks that follow from inputs of the host alone.
Numerics: a hidden score is at least `HIDDEN` below the largest of its row, on the data that were measured, instead of
    infinitely far: its share of a row is at most exp(-HIDDEN), which integers of 8 and of 16 bits hold as 0. The
    product is exact for finite numbers.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs

STAMP = "ethos_u"

VERY_SMALL = -1e3
"""What models write for minus infinity is below; no score is."""

HIDDEN = 12.0
"""How far a hidden score is below the largest one of its row: exp(-12) is 6.1e-6, a fifth of a step of 16 bits."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Numbers that take the place of an infinity.

    Attributes:
        shown: at least every score that a mask shows.
        hidden: at least `HIDDEN` below the largest score of every row.
    """

    shown: float
    hidden: float

    @classmethod
    def of(cls, largest: np.ndarray) -> "Limits":
        """Return the limits for the largest scores of rows, as they were measured."""
        finite = largest[np.isfinite(largest)]
        return cls(float(finite.max()), float(finite.min()) - HIDDEN)


def hidden_scores(model: ir.Model) -> list[ir.Node]:
    """Return the nodes that write a very small number where a mask hides, for a softmax, in order."""
    return [node for node in model.graph if _hides_scores(node)]


def _hides_scores(node: ir.Node) -> bool:
    number = _number(node)
    readers = graphs.consumers_of(node.outputs[0])
    return number is not None and number <= VERY_SMALL and [each.op_type for each in readers] == ["Softmax"]


def _number(node: ir.Node) -> float | None:
    """Return the one number that a Where writes where its mask is false; None for another node."""
    if not graphs.is_op(node, "Where"):
        return None
    array = graphs.array_of(node.inputs[2])
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


def write_masks(model: ir.Model, limits: Mapping[str, Limits]) -> None:
    """Rewrite, in place, what hides with a mask.

    Args:
        model: a static graph.
        limits: by name of the node, for the nodes of `hidden_scores`; the others of them stay.
    """
    inputs = set(model.graph.inputs)
    for node in list(model.graph):
        mask, data = (*node.inputs, None, None)[:2]
        if mask is None or data is None:
            continue
        insert = graphs.Inserter(model, STAMP, before=node)
        if str(node.name) in limits and _hides_scores(node):
            bounds = limits[str(node.name)]
            shown, hidden = (
                insert.constant(np.array(number, np.float32), "score") for number in (bounds.shown, bounds.hidden)
            )
            stem = str(node.outputs[0].name)
            limit = insert.op(
                "Where", [mask, shown, hidden], name=f"{stem}_limit", shape=mask.shape, dtype=ir.DataType.FLOAT
            )
            new = insert.op("Min", [data, limit], name=f"{stem}_limited", shape=node.outputs[0].shape)
        elif _number(node) == 0.0 and data not in inputs:
            shown = insert.op("Cast", [mask], {"to": ir.DataType.FLOAT}, name=f"{mask.name}_number", shape=mask.shape)
            new = insert.op("Mul", [data, shown], name=f"{data.name}_shown", shape=node.outputs[0].shape)
        else:
            continue
        graphs.take_over(model, node.outputs[0], new)
    graphs.prune(model)
