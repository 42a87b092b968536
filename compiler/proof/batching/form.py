"""Describes where the batch axis lies in a tensor that holds one value of the original graph for all rows."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The original's axes without `dropped`, whose size is 1, and the batch at `at` among what is left.

    For a value [1, T, C] of the original: RowLayout(0, 0) is [batch, T, C], RowLayout(0, None) is [batch, 1, T, C].
    With one row all layouts of a value hold the same entries in the same order.

    Attributes:
        at: position of the batch in the tensor.
        dropped: axis of the original that the batch takes the place of, or None.
    """

    at: int
    dropped: int | None


INSERTED = RowLayout(0, None)
"""The batch in front of all axes of the original: every value has this layout."""


def in_place(axis: int) -> RowLayout:
    """Return the layout with the batch in place of a 1 of the original: rank and other axes stay."""
    return RowLayout(axis, axis)


def moved(rank: int, source: int, target: int) -> list[int]:
    """Return the permutation that moves one axis and keeps the order of the others."""
    order = [axis for axis in range(rank) if axis != source]
    order.insert(target, source)
    return order
