"""Defines the record of an error's growth over many chained calls of a stream, for receipts and charts."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

NOISE = 2.0**-23
"""Errors of this size relative to the signal are as good as none: growth from them counts from here."""


@dataclasses.dataclass(frozen=True)
class DriftCurve:
    """The error of one output or state over chained calls.

    Attributes:
        tensor: its name.
        is_state: whether it is handed to the next call.
        steps: calls.
        warm: calls until the caches were full, which are not judged.
        signal: root mean square of the reference over all calls.
        early: root mean square of the error in the first half of the other calls.
        late: the same in the second half.
        errors: root mean square of the error, largest of every `steps / len(errors)` calls.
    """

    tensor: str
    is_state: bool
    steps: int
    warm: int
    signal: float
    early: float
    late: float
    errors: tuple[float, ...]

    @property
    def growth(self) -> float:
        """Return the ratio of the late error to the early error; infinite where the late error is not finite."""
        if not math.isfinite(self.late):
            return float("inf")
        least = max(self.early, NOISE * self.signal)
        return self.late / least if least else (float("inf") if self.late else 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain data: numbers with four digits, non-finite ones as text."""
        found = dataclasses.asdict(self) | {"growth": self.growth}
        return {
            key: [_short(each) for each in value] if isinstance(value, tuple) else _short(value)
            for key, value in found.items()
        }


def _short(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def curve_of(content: Mapping[str, Any]) -> DriftCurve:
    """Return the curve that `DriftCurve.to_json` wrote."""
    return DriftCurve(
        content["tensor"],
        bool(content["is_state"]),
        int(content["steps"]),
        int(content["warm"]),
        float(content["signal"]),
        float(content["early"]),
        float(content["late"]),
        tuple(float(each) for each in content["errors"]),
    )
