"""Masks, evaluated: which pairs of places have weight zero, or so low a score that a softmax makes it zero.

A mask is computed of places alone, so for a shorter sequence it is the upper left part of the longest one's, which is
what is evaluated: whatever wrote it (comparisons, a table, a triangle, sums of ones), its support is read off. Where a
prefix is joined to the frames, that is done for every number of entries that it may have.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from compiler import ir as house
from compiler.analysis.shape_only import ShapeOnly
from compiler.derivation.dependence import Dependence, Kind, Outside
from compiler.derivation.links import Links, dims

LOW = -1.0e4
"""A score of this or less is masked: behind a softmax it is exactly zero if valid scores differ by less."""

KEEPING = frozenset({"Cast", "Expand", "Identity", "Slice", "Softmax", "Transpose", "Trilu"})
"""A list of its own: operators behind which entries outside of a mask may still be what they were."""

COMBINING = frozenset({"Add", "Sub", "Mul", "Div", "And"})
"""A list of its own: operators that mask by their second operand."""


class Known(Protocol):
    """What has been found out so far."""

    def of(self, value: ir.Value | None) -> Dependence:
        """What is known of a value."""
        ...

    def is_number(self, value: ir.Value | None) -> bool:
        """Whether a value is computed of sizes alone."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Inside:
    """What a mask leaves of frames.

    Attributes:
        support: bool [longest, longest], of their rows and columns.
        is_closed: whether rows in front of them have nothing in their columns.
        level: the largest of the low numbers; -inf where there is none.
    """

    support: npt.NDArray[np.bool_]
    is_closed: bool
    level: float


class Masks:
    """Evaluates what is computed of places.

    Args:
        frames: the number of frames.
        longest: for which it is evaluated.
        most: the largest sizes of axes that count entries of prefixes, by name.
    """

    def __init__(self, frames: house.Dim, longest: int, most: Mapping[str, int]) -> None:
        self.frames, self.longest, self.most = frames, longest, most
        self.evaluated: dict[ir.Value, npt.NDArray[Any] | None] = {}

    def array(self, value: ir.Value) -> npt.NDArray[Any] | None:
        """The entries of a value that depends on no data, for the longest sequence; None where they are not known."""
        constant = house.array_of(value)
        if constant is not None:
            return constant
        if value not in self.evaluated:
            self.evaluated[value] = self._computed(value)
        return self.evaluated[value]

    def _computed(self, value: ir.Value) -> npt.NDArray[Any] | None:
        try:
            made = ShapeOnly([value])
            return made.at({name: self.longest if name == self.frames else 1 for name in made.names})[0]
        except ValueError:
            return None

    def inside(
        self, value: ir.Value, judging: Known, kept: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
    ) -> Inside | None:
        """What a value leaves of frames, by its first and its second axis of them; None where that is not known.

        Args:
            value: computed of places alone, along two axes of frames.
            judging: what has been found out.
            kept: of its entries, which are inside.
        """
        along = judging.of(value).along
        row, column = sorted(along)
        support = np.zeros((self.longest, self.longest), np.bool_)
        is_closed, level, count = True, -np.inf, 0
        for array, befores in self._arrays(value, along[row].before, along[column].before):
            if array is None:
                return None
            left = np.any(kept(array), axis=tuple(at for at in range(array.ndim) if at not in (row, column)))
            if left.shape != tuple(self.longest + each for each in befores):
                return None
            support |= left[befores[0] :, befores[1] :]
            is_closed &= not left[: befores[0], befores[1] :].any()
            low = array[array <= LOW]
            level, count = max(level, float(low.max()) if low.size else -np.inf), count + 1
        return Inside(support, is_closed, level) if count else None

    def _arrays(self, value: ir.Value, *befores: house.Dim) -> Iterator[tuple[npt.NDArray[Any] | None, list[int]]]:
        """The entries of a value for the longest sequence and every number of entries in front of it."""
        names = sorted({name for each in befores if not isinstance(each, int) for name in each.free_symbols}, key=str)
        if not names:
            yield self.array(value), [int(each) for each in befores]
            return
        try:
            made = ShapeOnly([value])
        except ValueError:
            return
        if any(str(name) not in self.most for name in names):
            return
        for sizes in itertools.product(*(range(1, self.most[str(name)] + 1) for name in names)):
            given = dict(zip(names, sizes, strict=True))
            lengths = {name: self.longest if name == self.frames else given.get(name, 1) for name in made.names}
            try:
                array = made.at(lengths)[0]
            except ValueError:
                array = None
            yield array, [int(each if isinstance(each, int) else each.subs(given)) for each in befores]

    def outside_of(self, node: ir.Node, judging: Known, links: Links) -> Outside | None:
        """What a node leaves outside of a mask, its own or one in front of it."""
        if node.op_type == "Where":
            return self._selected(node, judging)
        if node.op_type in COMBINING:
            return self._combined(node, judging, links)
        if node.op_type in ("Max", "Clip"):
            return self._bounded(node, judging)
        found = self._carried(node, judging, links) if node.op_type in KEEPING else None
        if found is None or found.kind == "zero":
            return found if node.op_type != "Softmax" else None
        if node.op_type == "Softmax":
            axis = house.int_attribute(node, "axis", -1) % len(dims(node.outputs[0]))
            return dataclasses.replace(found, kind="zero", level=0.0) if axis == found.column else None
        is_real = node.outputs[0].dtype is not None and node.outputs[0].dtype.is_floating_point()
        return found if node.op_type != "Trilu" and is_real else None

    def _carried(self, node: ir.Node, judging: Known, links: Links) -> Outside | None:
        given = judging.of(node.inputs[0]).outside
        back = {pairs[0]: at for at, pairs in links.axes.items() if 0 in pairs}
        return None if given is None else _at(given, back)

    def _bounded(self, node: ir.Node, judging: Known) -> Outside | None:
        """Low numbers that are not let fall below another low number stay low."""
        for value, others in (
            (node.inputs[0], node.inputs[1:2]),
            *((each, node.inputs[:1]) for each in node.inputs[1:]),
        ):
            given = judging.of(value).outside
            bounds = [house.array_of(each) for each in others]
            if given is None or given.kind != "low" or (node.op_type == "Clip" and value is not node.inputs[0]):
                continue
            if all(each is not None and each.size == 1 and float(each.reshape(-1)[0]) <= LOW for each in bounds):
                level = max(given.level, *(float(each.reshape(-1)[0]) for each in bounds if each is not None))
                spread = len(dims(node.outputs[0])) - len(dims(value))
                return _spread(dataclasses.replace(given, level=level), spread)
        return None

    def _selected(self, node: ir.Node, judging: Known) -> Outside | None:
        """A selection of scores under a mask, of zeros or low numbers elsewhere."""
        condition, rank = node.inputs[0], len(dims(node.outputs[0]))
        found: Outside | None = None
        for chosen, other in ((1, 2), (2, 1)):
            kind = self._kind(node.inputs[chosen])
            value = node.inputs[other]
            if kind is None or value is None or condition is None:
                continue
            given = _spread(judging.of(value).outside, rank - len(dims(value)))
            given = given if given is not None and given.kind == kind[0] else None
            own = None if judging.of(condition).is_data else self._of_condition(condition, rank, judging, chosen == 1)
            if own is not None:
                own = dataclasses.replace(own, kind=kind[0], level=kind[1], made_by=(str(node.name),))
            found = found or _both(given, own)
        return found

    def _of_condition(self, condition: ir.Value, rank: int, judging: Known, turned: bool) -> Outside | None:
        """Where a condition selects the scores: bool support; `turned` where it selects the other operand."""
        along = sorted(judging.of(condition).along)
        if judging.of(condition).whole is not None or len(along) != 2:
            return None
        inside = self.inside(condition, judging, lambda array: array.astype(bool) != turned)
        if inside is None:
            return None
        row, column = (rank + at - len(dims(condition)) for at in along)
        return Outside("zero", row, column, inside.support, is_closed=inside.is_closed)

    def _kind(self, value: ir.Value | None) -> tuple[Kind, float] | None:
        array = None if value is None else self.array(value)
        if array is None or array.size == 0 or array.dtype.kind not in "fiub":
            return None
        if bool((array == 0).all()):
            return "zero", 0.0
        return ("low", float(array.max())) if bool((array <= LOW).all()) else None

    def _combined(self, node: ir.Node, judging: Known, links: Links) -> Outside | None:
        """A mask that is added, or a factor of zero and one; a mask in front of either stays what it is."""
        first, second = node.inputs[0], node.inputs[1]
        assert first is not None and second is not None
        rank = len(dims(node.outputs[0]))
        is_sum = node.op_type in ("Add", "Sub")
        found: Outside | None = None
        for value, other in ((first, second), (second, first)):
            if value is second and node.op_type in ("Sub", "Div"):
                continue
            given = _spread(judging.of(value).outside, rank - len(dims(value)))
            if given is not None and given.kind == ("low" if is_sum else "zero"):
                found = _both(found, given)
            elif given is not None and not is_sum:  # a positive factor leaves low numbers low
                found = _both(found, self._scaled(given, other, node.op_type == "Div"))
            found = _both(found, self._added(node, value, rank, judging, is_sum))
        return found

    def _scaled(self, given: Outside, other: ir.Value, divided: bool) -> Outside | None:
        factor = house.array_of(other)
        if factor is None or factor.size != 1 or not float(factor.reshape(-1)[0]) > 0:
            return None
        times = 1 / float(factor.reshape(-1)[0]) if divided else float(factor.reshape(-1)[0])
        level = given.level * times
        return dataclasses.replace(given, level=level) if level <= LOW else None

    def _added(self, node: ir.Node, value: ir.Value, rank: int, judging: Known, is_sum: bool) -> Outside | None:
        """What an operand that is computed of places masks by itself."""
        fact = judging.of(value)
        along = sorted(fact.along)
        if fact.is_data or fact.whole is not None or len(along) != 2 or judging.is_number(value):
            return None
        inside = self.inside(value, judging, lambda array: ~(array <= LOW) if is_sum else array != 0)
        if inside is None or inside.support.all():
            return None
        row, column = (rank + at - len(dims(value)) for at in along)
        kind: Kind = "low" if is_sum else "zero"
        level = inside.level if is_sum else 0.0
        return Outside(kind, row, column, inside.support, level, (str(node.name),), inside.is_closed)


def _spread(outside: Outside | None, shift: int) -> Outside | None:
    if outside is None:
        return None
    return dataclasses.replace(outside, row=outside.row + shift, column=outside.column + shift)


def _at(outside: Outside, back: dict[int, int]) -> Outside | None:
    if outside.row not in back or outside.column not in back:
        return None
    return dataclasses.replace(outside, row=back[outside.row], column=back[outside.column])


def _both(first: Outside | None, second: Outside | None) -> Outside | None:
    """What is left inside of two masks."""
    if first is None or second is None:
        return first or second
    if first.kind != second.kind:
        return first
    turned = (second.row, second.column) == (first.column, first.row)
    if not turned and (second.row, second.column) != (first.row, first.column):
        return first
    support = first.support & (second.support.T if turned else second.support)
    made = (*first.made_by, *(name for name in second.made_by if name not in first.made_by))
    is_closed = first.is_closed or (second.is_closed and not turned)
    return dataclasses.replace(
        first, support=support, level=max(first.level, second.level), made_by=made, is_closed=is_closed
    )
