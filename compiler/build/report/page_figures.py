"""Defines the records behind a build's HTML report: tensor histograms, the graph by precision, the original's costs."""

import dataclasses
import enum

from compiler.build.report.graph_drawing import Box


class Precision(enum.Enum):
    """The number type that a node computes in; the value is for people."""

    FLOAT32 = "float32"
    HALF = "float16"
    INT8 = "int8"
    PINNED = "kept precise on purpose"
    OTHER = "sizes, indices and masks"


@dataclasses.dataclass(frozen=True)
class TensorHistogram:
    """What one tensor holds over some calls, in the reference and in what ships.

    Attributes:
        tensor: its name.
        source: the model's source line of what makes it, or an empty string.
        low: left end of the first bin.
        high: right end of the last bin.
        reference: elements by bin.
        shipped: elements by bin.
        max_abs: largest absolute difference.
        sqnr_db: signal to quantisation noise; None where nothing differs.
    """

    tensor: str
    source: str
    low: float
    high: float
    reference: tuple[int, ...]
    shipped: tuple[int, ...]
    max_abs: float
    sqnr_db: float | None


@dataclasses.dataclass(frozen=True)
class OriginalCosts:
    """The graph as it was captured, in ONNX Runtime with its own optimisations.

    Attributes:
        nodes: of the graph.
        weight_bytes: of its constants.
        p50_ms: median of one call of one row, caches full.
        threads: of the runtime.
    """

    nodes: int
    weight_bytes: int
    p50_ms: float
    threads: int


@dataclasses.dataclass(frozen=True)
class GraphFigures:
    """One graph.

    Attributes:
        graph: its name.
        boxes: what ships, node by node, in the colours of `Precision`.
        histograms: of the tensors that differ most, the worst first.
        original: its costs before any pass.
        nodes: of what ships.
    """

    graph: str
    boxes: tuple[Box, ...]
    histograms: tuple[TensorHistogram, ...]
    original: OriginalCosts
    nodes: int
