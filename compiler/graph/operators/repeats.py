"""Decodes Expand and Tile: how often they repeat which axes, in every spelling that ONNX allows.

Expand(x, [2, 1, 4]), Expand(x, [2, 3, 4]) of 3 * 1:  sizes (2, 1, 4), (2, 3, 4), the first axis is added
Expand(x, [4]), Expand(x, [1, 4]) of 3 * 1:           sizes (1, 4), no axis is added
Tile(x, [1, 4]) of 3 * 1:                             repeats (1, 4)
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import onnx_ir as ir

from compiler.graph.operators.slices import Number, Reader

Size = TypeVar("Size")


@dataclasses.dataclass(frozen=True, eq=False)
class Expand:
    """ai.onnx Expand since operator set 8.

    Attributes:
        data: the value that is repeated.
        target: the operand that holds sizes of the result's last axes.
        sizes: the size that is asked for of every axis of the result; 1 where the data's stays, None where unknown.
        added: how many axes of the result stand in front of the data's.
        unnamed: how many axes of the result stand in front of those whose sizes `target` holds.
    """

    data: ir.Value
    target: ir.Value
    sizes: tuple[Number | None, ...]
    added: int
    unnamed: int

    def of(self, sizes: Sequence[Size]) -> tuple[Size | Number | None, ...]:
        """Return the sizes of the result for data of these sizes."""
        before = (*[1] * self.added, *sizes)
        return tuple(asked if size == 1 else size for size, asked in zip(before, self.sizes, strict=True))

    def entry(self, axis: int) -> int | None:
        """Return which entry of `target` is the size of an axis of the result; None where the data's size stays."""
        return axis - self.unnamed if axis >= self.unnamed else None


def expand_of(node: ir.Node | None, read: Reader, rank: int | None = None) -> Expand | None:
    """Return the view of an Expand; None for other nodes, and where the rank of data or result is unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
        rank: rank of the data; by default from their shape.
    """
    if node is None or node.op_type != "Expand" or node.domain not in ("", "ai.onnx") or len(node.inputs) != 2:
        return None
    data, target = node.inputs
    rank = len(data.shape) if rank is None and data is not None and data.shape is not None else rank
    if data is None or target is None or rank is None:
        return None
    count = target.shape[0] if target.shape is not None and len(target.shape) == 1 else None
    asked = read(target) or ([None] * count if isinstance(count, int) else None)
    if asked is None:
        return None
    unnamed = max(0, rank - len(asked))
    return Expand(data, target, (*[1] * unnamed, *asked), max(0, len(asked) - rank), unnamed)


@dataclasses.dataclass(frozen=True, eq=False)
class Tile:
    """ai.onnx Tile since operator set 6.

    Attributes:
        data: the value that is repeated.
        counts: the operand that holds the repeats.
        repeats: how often every axis comes; None where that is unknown.
    """

    data: ir.Value
    counts: ir.Value
    repeats: tuple[Number | None, ...]

    @property
    def known(self) -> tuple[Number, ...] | None:
        """Return how often every axis comes; None where one of these is unknown."""
        known = tuple(count for count in self.repeats if count is not None)
        return known if len(known) == len(self.repeats) else None


def tile_of(node: ir.Node | None, read: Reader, rank: int | None = None) -> Tile | None:
    """Return the view of a Tile; None for other nodes, and where the rank is unknown.

    Args:
        node: any node.
        read: returns the content of an operand.
        rank: rank of the data; by default from their shape, or from the repeats.
    """
    if node is None or node.op_type != "Tile" or node.domain not in ("", "ai.onnx") or len(node.inputs) != 2:
        return None
    data, counts = node.inputs
    if data is None or counts is None:
        return None
    rank = len(data.shape) if rank is None and data.shape is not None else rank
    repeats = read(counts) or (None if rank is None else [None] * rank)
    return None if repeats is None else Tile(data, counts, tuple(repeats))
