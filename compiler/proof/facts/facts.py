"""Defines the records of facts about a value of the padded program, and of a rule's verdict on a node.

The positions of a value are divided into regions, by the axes in whose padding they lie: the region {} is valid, {2} is
padding of axis 2 only, {2, 3} padding of both. Entries of valid places equal those of the unpadded program.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, combinations
from typing import Any, Literal, TypeAlias

from compiler.errors import Location, Refused
from compiler.graph.model import Dim
from compiler.proof.facts.interval import ANYTHING, Interval, constant, hull
from compiler.proof.facts.layout import Axis, Frames, Rows, frames_of, has_rows, is_padded

Region: TypeAlias = frozenset[int]
"""The axes in whose padding a place lies."""

VALID: Region = frozenset()


@dataclasses.dataclass(frozen=True)
class Index:
    """The value holds, at every slot, `offset` plus the position of the slot along `axis`, counted in valid entries.

    Positions of padded slots go on in the same steps: negative before a right-aligned segment.
    """

    axis: int
    offset: Dim = 0


@dataclasses.dataclass(frozen=True)
class Fact:
    """The tracked axes of one value, and the content of its regions.

    Attributes:
        axes: (axis, its layout) of every axis that holds the batch or is padded, ascending.
        contents: (region, the possible content of its entries); a region that is absent may hold anything.
        is_number: the value follows from axis lengths alone and has no tracked axis. In the padded program it is
            computed from numbers of slots, so it may serve as a shape but differs as data.
        index: set when the value counts positions.
    """

    axes: tuple[tuple[int, Axis], ...] = ()
    contents: tuple[tuple[Region, Interval], ...] = ((VALID, ANYTHING),)
    is_number: bool = False
    index: Index | None = None

    def axis(self, position: int) -> Axis | None:
        """Return the layout of an axis; None where it is not tracked."""
        return next((axis for at, axis in self.axes if at == position), None)

    @property
    def tracked(self) -> dict[int, Axis]:
        """Return the layouts of all tracked axes, by position."""
        return dict(self.axes)

    @property
    def padded(self) -> tuple[int, ...]:
        """Return the positions of the padded axes."""
        return tuple(at for at, axis in self.axes if is_padded(axis))

    @property
    def rows_axis(self) -> int | None:
        """Return the position of the axis that holds the batch; None where all rows share the value."""
        return next((at for at, axis in self.axes if has_rows(axis)), None)

    def frames(self, position: int) -> Frames | None:
        """Return the segments of an axis that is padded and not merged; None for other axes."""
        axis = self.axis(position)
        return None if axis is None else frames_of(axis)

    def content(self, region: Iterable[int] = VALID) -> Interval:
        """Return the interval of the entries in a region."""
        wanted = frozenset(region)
        return next((content for at, content in self.contents if at == wanted), ANYTHING)

    @property
    def valid(self) -> Interval:
        """Return the interval of the valid entries."""
        return self.content(VALID)

    @property
    def regions(self) -> list[Region]:
        """Return all regions, the valid one first."""
        return regions_of(self.padded)

    @property
    def anywhere(self) -> Interval:
        """Return the interval of all entries, valid or padded."""
        return hull(*(self.content(region) for region in self.regions))

    def padding(self, axis: int) -> Interval:
        """Return the interval of the entries in the padding of one axis, in any region of the others."""
        return hull(*(self.content(region) for region in self.regions if axis in region))

    @property
    def is_plain(self) -> bool:
        """Whether no axis is tracked and the value is the same in the padded and the unpadded program."""
        return not self.axes and not self.is_number

    def filled(self, axis: int, value: float) -> "Fact":
        """Return the fact after the padding of one axis has been overwritten with a constant."""
        contents = {r: constant(value) if axis in r else self.content(r) for r in self.regions}
        return dataclasses.replace(self, contents=tuple(contents.items()), index=None)

    def __str__(self) -> str:
        if self.is_number:
            return "number"
        if not self.axes:
            return f"plain, {self.valid}"
        parts = ", ".join(f"{at}: {' * '.join(map(str, axis))}" for at, axis in self.axes)
        padding = "; ".join(f"{sorted(r) or 'valid'}: {self.content(r)}" for r in self.regions)
        return f"{{{parts}}} {padding}"


NUMBER = Fact(is_number=True)


def regions_of(padded: Iterable[int]) -> list[Region]:
    """Return every subset of the padded axes, the empty one first."""
    axes = sorted(padded)
    return [frozenset(each) for each in chain.from_iterable(combinations(axes, n) for n in range(len(axes) + 1))]


def make_fact(axes: Mapping[int, Axis], content: Callable[[Region], Interval], index: Index | None = None) -> Fact:
    """Return a fact with these layouts; `content` is called once per region."""
    kept = {at: axis for at, axis in sorted(axes.items()) if any(not _is_plain(factor) for factor in axis)}
    padded = [at for at, axis in kept.items() if is_padded(axis)]
    return Fact(tuple(kept.items()), tuple((r, content(r)) for r in regions_of(padded)), index=index)


def _is_plain(factor: object) -> bool:
    if isinstance(factor, Frames):
        return all(segment.is_full for segment in factor.segments)
    return not isinstance(factor, Rows)


@dataclasses.dataclass(frozen=True)
class Fill:
    """A need: the padding of one axis of one operand is to be overwritten with a constant.

    Attributes:
        operand: index of the node's input.
        axis: padded axis of that input.
        value: the constant.
    """

    operand: int
    axis: int
    value: float


@dataclasses.dataclass(frozen=True)
class Rewrite:
    """A need: the node is to be replaced by another form, named in `compiler/passes/pad_axes`.

    Attributes:
        kind: the form.
        details: parameters of the form; plain data, part of the certificate.
    """

    kind: str
    details: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Clamp:
    """A need: an operand that holds indices is to be clamped, which changes no legal index.

    Attributes:
        operand: index of the node's input.
        low: smallest legal index.
        high: largest legal index.
    """

    operand: int
    low: int
    high: int


@dataclasses.dataclass(frozen=True)
class Assumption:
    """What a verdict takes for granted of the valid entries of one operand, where kernels leave no other choice.

    Attributes:
        operand: index of the node's input.
        what: that no entry is NaN, which kernels that compare order by where it lies; or that all are finite.
    """

    operand: int
    what: Literal["no NaN", "finite"]

    def is_needed(self, valid: Interval) -> bool:
        """Whether the assumption is stronger than the known interval of the valid entries."""
        return valid.nan if self.what == "no NaN" else not valid.is_finite


NO_NAN = (Assumption(0, "no NaN"),)
FINITE = (Assumption(0, "finite"),)

Need: TypeAlias = Fill | Clamp | Rewrite


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a rule for one node.

    Attributes:
        rule: identifier of the rule, stable in certificates.
        outputs: one fact per output, after the needs are met.
        reason: why, in one clause.
        needs: the fills, masks and forms that keep the node right beside padding, in order.
        pointwise: along every tracked axis, each output entry depends on the same entry of the inputs alone, so the
            op commutes with concatenation and lookup along it.
        at_least_one: sizes that have to be 1 or more for the node to have a meaning, each named once.
        assumes: the verdict's assumptions about valid entries; part of the certificate.
    """

    rule: str
    outputs: tuple[Fact, ...]
    reason: str
    needs: tuple[Need, ...] = ()
    pointwise: bool = False
    at_least_one: tuple[Dim, ...] = ()
    assumes: tuple[Assumption, ...] = ()


def refuse(reason: str, cure: str, **place: Any) -> Refused:
    """Return a refusal to raise; the caller adds node and source line."""
    return Refused(reason, cure=cure, place=Location(**place))
