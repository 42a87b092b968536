"""Writes ONNX graphs that are static but for the batch size, one file per combination of the other buckets.

All files of a graph share one weights file. A session keeps its own packed copy of the weights, so one session for all
numbers of rows is what keeps memory small; it is as fast. A graph that needs their number has a file per bucket of the
batch axis, too. Tried with ONNX Runtime 1.31 on CPUs. Refuses graphs with a symbolic dimension anywhere else.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from compiler.graph.runners.session import Session, open_session
from compiler.graph.stages import Lowered
from compiler.numerics.quantization.placement import CPU, Placement
from compiler.passes.eliminate_fills import EliminateFills
from compiler.passes.flatten_channels_last import FlattenChannelsLast
from compiler.passes.fold_table_product import FoldTableProduct
from compiler.passes.fuse_attention import FuseAttention
from compiler.passes.lower_integers import LowerIntegers
from compiler.passes.lower_pointwise_convolutions import LowerPointwiseConvolutions
from compiler.passes.merge_rows import MergeRows
from compiler.passes.sink_transposes import SinkTransposes
from compiler.passes.specialize_full_caches import SpecializeFullCaches
from compiler.passes.split_hidden_channels import SplitHiddenChannels
from compiler.passes.widen_depthwise_convolutions import WidenDepthwiseConvolutions
from compiler.targets.base import Built, Target
from compiler.targets.forms import Variant
from compiler.targets.static_graphs import write_static
from compiler.targets.weights_file import WeightsFile


@dataclasses.dataclass(frozen=True)
class OnnxStatic(Target):
    """Write `graphs/<graph>.<axes and sizes>.onnx` and `graphs/<graph>.weights`."""

    name: ClassVar[str] = "onnx_static"
    placement: ClassVar[Placement | None] = CPU
    offers: ClassVar[tuple[Variant, ...]] = (
        Variant(LowerPointwiseConvolutions(), is_standard=True),
        Variant(WidenDepthwiseConvolutions(), is_standard=True),
        Variant(SinkTransposes(turns_states=False), is_standard=True),
        Variant(FlattenChannelsLast(), is_standard=True),
        Variant(FoldTableProduct(), is_standard=True),
        Variant(FuseAttention()),
        Variant(EliminateFills(), is_standard=True),
        Variant(MergeRows(), is_standard=True),
        Variant(SplitHiddenChannels()),
        Variant(LowerIntegers(), is_standard=True),
        Variant(SpecializeFullCaches(), is_standard=True),
    )

    @property
    def opens_rows(self) -> bool:
        """Whether one file may serve all numbers of rows."""
        return True

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, check and write every combination of bucket sizes, all numbers of rows in one file where that holds.

        Raises:
            Refused: a dimension stays symbolic.
        """
        return write_static(self, lowered, buckets, opens_rows=self.opens_rows, weights=weights)

    def open(self, path: Path) -> Session:
        """Open an artefact in ONNX Runtime, as it runs in production."""
        session: Session = open_session(str(path), optimize=True)
        return session
