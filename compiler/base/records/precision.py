"""Defines records of passes that round values: the nodes kept in higher precision, with reasons, and the chosen ranges.

A pass returns these in `Outcome.precision`; they explain, they prove nothing, and no checker reads them.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

KIND = "kind"
"""Key of a record's kind in its JSON form."""


@dataclasses.dataclass(frozen=True)
class Pin:
    """A node that stays more precise than the pass would make it.

    Attributes:
        node: name of the node, as it is called in the graph after the pass.
        op: its operator.
        reason: why, in one phrase that a person reads: `its output reaches 90112, above 65504`.
        tensor: the value that decides, or an empty string.
        value: the measured or proved number, in its own unit; None where there is none.
        source: the model's source line, or an empty string.
        cost: the cost of the pin in the unit of `cost_unit`; None where unknown.
        cost_unit: of `cost`, such as `bytes` or `dB`.
        kept: element type that the node keeps, as in `float32`.
    """

    node: str
    op: str
    reason: str
    tensor: str = ""
    value: float | None = None
    source: str = ""
    cost: float | None = None
    cost_unit: str = ""
    kept: str = "float32"


@dataclasses.dataclass(frozen=True)
class TensorRange:
    """The range that a pass has chosen for a tensor; what lies outside is clipped to its ends.

    Attributes:
        tensor: value name in the graph after the pass.
        low: smallest representable value; over all channels the smallest.
        high: largest representable value; over all channels the largest.
        method: how it was chosen, as in `proved`, `min-max`, `percentile 99.9`, `mse`.
        clipped: share of the measured elements outside, 0..1.
        channels: how many scales of its own the tensor has.
        type: element type that the range is for, as in `int8` or `float16`.
    """

    tensor: str
    low: float
    high: float
    method: str
    clipped: float = 0.0
    channels: int = 1
    type: str = "int8"


PrecisionRecord = Pin | TensorRange

_KINDS: Mapping[str, type[Pin] | type[TensorRange]] = {"pin": Pin, "range": TensorRange}


def to_json(records: Iterable[PrecisionRecord]) -> list[dict[str, Any]]:
    """Return the records as dictionaries, each with its kind."""
    names = {made: name for name, made in _KINDS.items()}
    return [{KIND: names[type(record)], **dataclasses.asdict(record)} for record in records]


def from_json(content: Iterable[Mapping[str, Any]]) -> tuple[PrecisionRecord, ...]:
    """Return the records that `to_json` wrote."""
    return tuple(_KINDS[each[KIND]](**{key: value for key, value in each.items() if key != KIND}) for each in content)
