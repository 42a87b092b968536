"""Accepts everything and emits nothing: the whole compiler runs without a device."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from compiler.stages import Lowered
from compiler.targets.base import Built


@dataclasses.dataclass(frozen=True)
class Null:
    """Passes and their verification run; there is no bundle."""

    name: ClassVar[str] = "null"
    ships: ClassVar[bool] = False

    def emit(self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> Built:
        """Emit nothing."""
        return Built((), {}, {})
