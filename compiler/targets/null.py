"""Defines a target that accepts every graph and writes no file, to run the whole compiler without a device."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compiler.errors import InternalError
from compiler.graph.runners.session import Session
from compiler.graph.stages import Lowered
from compiler.targets.base import Built, Target
from compiler.targets.weights_file import WeightsFile


@dataclasses.dataclass(frozen=True)
class Null(Target):
    """Passes and their verification run; there is no bundle."""

    name: ClassVar[str] = "null"
    ships: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Emit nothing."""
        return Built((), {}, {})

    def open(self, path: Path) -> Session:
        """Raise, as this target writes no artefacts."""
        raise InternalError(f"expected an artefact, got {path} of a target that writes none")
