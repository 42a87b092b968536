"""The vocabulary of facts about padded axes: segments, what lies in the padding, and one verdict per node.

An axis is described in logical order as a list of segments. `Segment(cache, 128)` holds `cache` valid entries at the
end of 128 slots; `Segment(16, 16)` is full. All padded segments are right-aligned: the newest entries are where the
reader expects them, and a window moves by a static slice.
"""

import dataclasses
import enum
from typing import Any

from compiler.errors import Place, Refused
from compiler.ir import Dim


@dataclasses.dataclass(frozen=True)
class Segment:
    """`length` valid entries, right-aligned in `slots` slots; full when both are equal."""

    length: Dim
    slots: int

    @property
    def is_full(self) -> bool:
        """Whether every slot is valid whatever the input."""
        return bool(self.length == self.slots)


Segments = tuple[Segment, ...]


def logical_length(segments: Segments) -> Dim:
    """The number of valid entries, as an expression over axis lengths."""
    total: Dim = 0
    for segment in segments:
        total = total + segment.length
    return total


def length_symbols(segments: Segments) -> set[Any]:
    """The axis names that the lengths of the segments mention, as SymPy symbols."""
    return {name for segment in segments if not isinstance(segment.length, int) for name in segment.length.free_symbols}


def physical_length(segments: Segments) -> int:
    """The number of slots."""
    return sum(segment.slots for segment in segments)


def joined(first: Segments, second: Segments) -> Segments:
    """Concatenation. Neighbours that are both full merge."""
    if first and second and first[-1].is_full and second[0].is_full:
        slots = first[-1].slots + second[0].slots
        return (*first[:-1], Segment(slots, slots), *second[1:])
    return first + second


class Kind(enum.Enum):
    """What may lie in the padded places, from best to worst known."""

    CONSTANT = "constant"
    FINITE = "finite"
    ANYTHING = "anything"


@dataclasses.dataclass(frozen=True)
class Fill:
    """Content of the padded places; `value` only with CONSTANT."""

    kind: Kind
    value: float = 0.0

    @property
    def is_zero(self) -> bool:
        """Whether the padding is known to be zero."""
        return self.kind is Kind.CONSTANT and self.value == 0.0

    @property
    def is_finite(self) -> bool:
        """Whether NaN and infinity are excluded."""
        return self.kind is not Kind.ANYTHING

    def __str__(self) -> str:
        return f"constant({self.value:g})" if self.kind is Kind.CONSTANT else self.kind.value


ZERO = Fill(Kind.CONSTANT, 0.0)
FINITE = Fill(Kind.FINITE)
ANYTHING = Fill(Kind.ANYTHING)


def worst(*fills: Fill) -> Fill:
    """The weakest statement that covers all of them."""
    if len(set(fills)) == 1:
        return fills[0]
    return FINITE if all(fill.is_finite for fill in fills) else ANYTHING


@dataclasses.dataclass(frozen=True)
class Fact:
    """What is known of one value.

    Attributes:
        axis: the padded axis, or None when no axis of the value is padded.
        segments: its segments; empty when no axis is padded.
        fill: what lies in the padded places.
        is_length: the value is an integer computed from the length of the tracked axis.
    """

    axis: int | None = None
    segments: Segments = ()
    fill: Fill = ZERO
    is_length: bool = False

    def __str__(self) -> str:
        if self.is_length:
            return "length"
        if self.axis is None:
            return "plain"
        parts = " ++ ".join(f"[{s.length} of {s.slots}]" for s in self.segments)
        return f"axis {self.axis}: {parts}, padding {self.fill}"


PLAIN = Fact()


class Action(enum.Enum):
    """What a node needs so that padding keeps its meaning."""

    NONE = "none"
    MASK_SOFTMAX = "mask softmax"
    LOOK_UP_POSITIONS = "look up positions per segment"
    LOOK_UP_NEW_ROWS = "look up positions of the new frames"
    SLICE_LAST_ROWS = "slice the last rows of a table"
    FILL_INPUT = "fill an input's padding with zero"
    SPLIT_SLICE = "move the slice to segment boundaries"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a rule says of one node.

    Attributes:
        rule: identifier of the rule, stable in certificates.
        fact: the fact of the first output (others are plain).
        reason: why, in one clause.
        action: the rewrite the node needs.
        operand: the input that the action concerns.
        bounds: physical start and end, for slices.
        pointwise: each output entry along the axis depends on the same entry of the inputs alone, so the op commutes
            with concatenation and lookup along it.
    """

    rule: str
    fact: Fact
    reason: str
    action: Action = Action.NONE
    operand: int = 0
    bounds: tuple[int, int] = (0, 0)
    pointwise: bool = False


def refuse(reason: str, cure: str, **place: Any) -> Refused:
    """A refusal to raise; the caller adds node and source line."""
    return Refused(reason, cure=cure, place=Place(**place))
