"""Writes static ONNX graphs for ONNX Runtime on a CUDA device, one file per combination of sizes, rows included.

A run is captured as a CUDA graph, so that sizes are fixed and no node chooses between branches. Half precision is what
the recipe's passes choose, by the same search as for other targets. The graphs are verified in ONNX Runtime on the CPU;
where the device is, the runtime runs the gates on it, too. Written for ONNX Runtime 1.31.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import onnx_ir as ir

from compiler.errors import Location, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session, session_of
from compiler.graph.stages import Lowered
from compiler.targets.base import Built, Part, Target
from compiler.targets.static_graphs import write_static
from compiler.targets.weights_file import WeightsFile
from runtime_lite.errors import EngineAbsent
from runtime_lite.executors.onnx_cuda import INSTALL, device_here, library_here

BRANCHES = frozenset({"If", "Loop", "Scan"})
"""What chooses on the host what runs next; a CUDA graph holds one sequence of kernels."""

ROUNDED = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""The provider dequantises around products of real numbers: the noise of integers, in more time than half precision."""


@dataclasses.dataclass(frozen=True)
class OnnxCuda(Target):
    """Write `graphs/<graph>.<axes and sizes>.onnx` and `graphs/<graph>.weights`."""

    name: ClassVar[str] = "onnx_cuda"
    times_here: ClassVar[bool] = False
    pass_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "unstack_states": {"most": 0},  # each costs a call time
        "pack_states": {"most": 0},
    }

    def accept(self, artifacts: Sequence[Lowered]) -> None:
        """Check that the graphs can be captured, and compute in real numbers.

        Raises:
            Refused: a node chooses between branches or rounds to integers.
        """
        for lowered in artifacts:
            for node in ir.traversal.RecursiveGraphIterator(lowered.model.graph):
                _require_accepted(lowered.graph, node)

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, check and write every combination of bucket sizes.

        Raises:
            Refused: as `accept` does.
        """
        return write_static(self, lowered, buckets, weights=weights)

    def open(self, path: Path) -> Session:
        """Open a graph in ONNX Runtime on the CPU as written, with half precision rounded as the graph says."""
        return session_of(ir.external_data.load_to_model(ir.load(path)))

    def parts(self) -> tuple[Part, ...]:
        """Return the device with its driver, and the library, as parts."""
        return (_part("CUDA device", device_here, "run it on the machine with the device"),
                _part("ONNX Runtime with CUDA", library_here, INSTALL))  # fmt: skip

    def cannot_run(self) -> str | None:
        """Return why the graphs cannot run on this machine; None where they can."""
        return self.absent()


def _part(name: str, find: Any, cure: str) -> Part:
    """Return a part, as a function of the runtime finds it."""
    try:
        return Part(name, find())
    except EngineAbsent as error:
        return Part(name, str(error).partition("; ")[0].strip(), cure)


def _require_accepted(graph: str, node: ir.Node) -> None:
    """Refuse a node that cannot be captured, or that the provider would compute otherwise than planned.

    Raises:
        Refused: names the node and its line.
    """
    if node.domain or node.op_type not in BRANCHES | ROUNDED:
        return
    place = Location(
        stage="onnx_cuda", graph=graph, node=str(node.name), op=node.op_type, source=graphs.source_of(node)
    )
    if node.op_type in BRANCHES:
        raise Refused(
            f"expected a graph that a CUDA graph can hold, got {node.op_type}, which chooses what runs next",
            cure="leave out the pass that writes it (specialize_full_caches among them), or build for onnx_static",
            place=place,
        )
    raise Refused(
        f"expected real numbers, got {node.op_type}: the CUDA provider computes dequantised products in real numbers, "
        "with the noise of integers and slower than half precision",
        cure="replace the quantising passes of the recipe by lower_precision",
        place=place,
    )
