"""Writes the static graphs of `onnx_static` for OpenVINO on CPUs, and the element type in which it computes them.

What ships are ONNX files: a compiled graph holds for one processor and one version alone. float32 is float32 on every
CPU; bfloat16 rounds every operand of a product where the processor has instructions for it, and is held to the lossy
limits everywhere. Integers come from Q/DQ. Tried with OpenVINO 2026.4.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import onnx_ir as ir

from compiler.errors import Location, RecipeError, Refused
from compiler.graph import model as graphs
from compiler.graph.runners.session import Session
from compiler.graph.stages import Lowered
from compiler.numerics.quantization.placement import CPU, Placement
from compiler.targets.base import Built, Part, Target
from compiler.targets.openvino.kernels import integer_products
from compiler.targets.openvino.parts import parts_of
from compiler.targets.openvino.session import open_graph
from compiler.targets.static_graphs import write_static
from compiler.targets.weights_file import WeightsFile
from runtime_lite.executors.openvino_graph import PRECISIONS


@dataclasses.dataclass(frozen=True)
class Openvino(Target):
    """Write the files of `onnx_static`, and OpenVINO's options into the manifest.

    Attributes:
        precision: what products and convolutions of real numbers are computed in, float32 or bfloat16.
    """

    name: ClassVar[str] = "openvino"
    packages: ClassVar[tuple[str, ...]] = (*Target.packages, "openvino")
    pass_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"pack_states": {"most": None}}
    placement: ClassVar[Placement | None] = CPU

    precision: str = "float32"

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            RecipeError: an option is wrong; the message names it.
        """
        super().__post_init__()
        if self.precision not in PRECISIONS:
            raise RecipeError(
                f"precision: expected one of {', '.join(PRECISIONS)}, got {self.precision!r}",
                cure="change the option of the target; integers come from the pass quantize_static",
            )

    @property
    def rounds(self) -> bool:
        """Whether the target computes in bfloat16."""
        return self.precision != "float32"

    def unrounded(self) -> Self:
        """Return the target in float32."""
        return dataclasses.replace(self, precision="float32")

    @property
    def opens_rows(self) -> bool:
        """Whether one file may serve all numbers of rows."""
        return True

    def emit(
        self, lowered: Lowered, buckets: Mapping[str, tuple[int, ...]], weights: WeightsFile | None = None
    ) -> Built:
        """Freeze, check and write every combination of bucket sizes, all numbers of rows in one file where that holds.

        Raises:
            Refused: a dimension stays symbolic, or a value is float64.
        """
        _refuse_doubles(lowered)
        built = write_static(self, lowered, buckets, opens_rows=self.opens_rows, weights=weights)
        return dataclasses.replace(built, options={"precision": self.precision})

    def open(self, path: Path) -> Session:
        """Open an artefact in OpenVINO, as the runtime does."""
        return open_graph(path, self.precision)

    def integer_products(self, path: Path) -> frozenset[str]:
        """Return the products that the graph compiled by OpenVINO computes in integers."""
        return integer_products(open_graph(path, self.precision).graph.compiled.get_runtime_model())

    def parts(self) -> tuple[Part, ...]:
        """Return the OpenVINO library as a part."""
        return parts_of()


def _refuse_doubles(lowered: Lowered) -> None:
    """Raise if a value is float64, which OpenVINO silently computes in float32."""
    graph = lowered.model.graph
    inputs: list[tuple[ir.Node | None, ir.Value]] = [(None, value) for value in graph.inputs]
    for node, value in [*inputs, *((maker, result) for maker in graph for result in maker.outputs)]:
        if value.dtype == ir.DataType.DOUBLE:
            raise Refused(
                f"expected no float64, which OpenVINO computes in float32, got {value.name}",
                cure="convert it to float32 in the model, or build for onnx_static",
                place=Location(
                    stage="openvino",
                    graph=lowered.graph,
                    node=str(node.name) if node is not None else "",
                    op=node.op_type if node is not None else "",
                    tensor=str(value.name),
                    source=graphs.source_of(node),
                ),
            )
