"""Static ONNX graphs, one file per combination of bucket sizes, with one shared weights file per graph.

Tried with ONNX Runtime 1.31 on CPUs. Refuses graphs with a symbolic dimension anywhere.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compiler.quantization.placement import CPU, Placement
from compiler.runners.session import Session, open_session
from compiler.stages import Lowered
from compiler.targets.base import Built, Target
from compiler.targets.static_graphs import write_static


@dataclasses.dataclass(frozen=True)
class OnnxStatic(Target):
    """Write `graphs/<graph>.<sizes>.onnx` and `graphs/<graph>.weights`."""

    name: ClassVar[str] = "onnx_static"
    placement: ClassVar[Placement | None] = CPU

    def emit(self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]]) -> Built:
        """Freeze, check and write every combination of bucket sizes.

        Raises:
            Refused: a dimension stays symbolic.
        """
        return write_static(self, lowered, buckets)

    def open(self, path: Path) -> Session:
        """ONNX Runtime as it runs what ships."""
        session: Session = open_session(str(path), optimize=True)
        return session
