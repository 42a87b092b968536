"""What every target has: a name, the options it takes, `emit`, and what stands for an artefact on this machine."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from compiler.runners.session import Session
from compiler.stages import Lowered
from runtime_lite.format.manifest import Engine


@dataclasses.dataclass(frozen=True)
class Emitted:
    """One artefact: a graph at one combination of bucket sizes.

    Attributes:
        sizes: size per bucketed axis.
        file: its main file, relative to the bundle.
        files: other files it reads.
        lowered: the graph that was written, for verification.
    """

    sizes: Mapping[str, int]
    file: str
    files: tuple[str, ...]
    lowered: Lowered


@dataclasses.dataclass(frozen=True)
class Built:
    """What a target made of one graph.

    Attributes:
        artifacts: one per combination of buckets.
        files: content by path relative to the bundle.
        versions: opset and IR version of the graphs.
        engine: for a target with a compiler of its vendor, what is to come of it.
    """

    artifacts: tuple[Emitted, ...]
    files: Mapping[str, bytes]
    versions: Mapping[str, int]
    engine: Engine | None = None


class Target(Protocol):
    """A named frozen record; options are its fields."""

    name: ClassVar[str]
    ships: ClassVar[bool]

    def emit(self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> Built:
        """Write the graph for every combination of bucket sizes.

        Raises:
            Refused: the graph is not legal for this target.
        """
        ...

    def open(self, path: Path) -> Session:
        """What stands for an artefact when it is verified on this machine.

        Args:
            path: its main file, the files it reads beside it.
        """
        ...

    def absent(self) -> str | None:
        """Why the vendor's compiler cannot run here; None where it can, or where the target has none."""
        ...


Options = dict[str, Any]
