"""Accepts everything and emits nothing: the whole compiler runs without a device."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compiler.errors import InternalError
from compiler.runners.session import Session
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

    def open(self, path: Path) -> Session:
        """There is nothing to open."""
        raise InternalError(f"expected an artefact, got {path} of a target that writes none")

    def absent(self) -> str | None:
        """No compiler of a vendor is needed."""
        return None
