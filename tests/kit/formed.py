"""A target with toy forms: one that is exact, one that breaks parity, one that refuses, and one of each other kind."""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome
from compiler.targets.forms import Variant
from compiler.targets.onnx_static import OnnxStatic

STAMP = "toy"


@dataclasses.dataclass(frozen=True)
class Toy:
    """What toy forms have in common; each changes what makes the first output of the caller."""

    name: ClassVar[str] = ""
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite one node."""
        name = lowered.data_outputs[0] if lowered.data_outputs else str(lowered.model.graph.outputs[0].name)
        node = graphs.outputs_named(lowered.model)[name].producer()
        assert node is not None
        self.change(lowered.model, node)
        return Outcome(lowered, matched=2, rewritten=1, detail=f"{self.name} has been here")

    def change(self, model: ir.Model, node: ir.Node) -> None:
        """What is done to the node."""


@dataclasses.dataclass(frozen=True)
class SwapOperands(Toy):
    """Exact: a sum in the other order."""

    name: ClassVar[str] = "swap_operands"

    def change(self, model: ir.Model, node: ir.Node) -> None:
        first, second, *_ = node.inputs
        node.replace_input_with(0, second)
        node.replace_input_with(1, first)


@dataclasses.dataclass(frozen=True)
class ScaleOperand(Toy):
    """Multiplies an operand by a number: breaks parity with 2, is exact with 1."""

    name: ClassVar[str] = "scale_operand"
    factor: float = 2.0

    def change(self, model: ir.Model, node: ir.Node) -> None:
        inserter, value = graphs.Inserter(model, STAMP, before=node), node.inputs[0]
        assert value is not None
        factor = inserter.constant(np.array(self.factor, np.float32), "factor")
        scaled = inserter.op("Mul", [value, factor], name="scaled", shape=value.shape)
        node.replace_input_with(0, scaled)


@dataclasses.dataclass(frozen=True)
class RoundOperand(Toy):
    """Rounds an operand to half precision."""

    name: ClassVar[str] = "round_operand"
    lossy: ClassVar[bool] = True

    def change(self, model: ir.Model, node: ir.Node) -> None:
        inserter, value = graphs.Inserter(model, STAMP, before=node), node.inputs[0]
        assert value is not None
        half = inserter.op("Cast", [value], {"to": ir.DataType.FLOAT16.value}, name="half", shape=value.shape)
        back = inserter.op("Cast", [half], {"to": ir.DataType.FLOAT.value}, name="back", shape=value.shape)
        node.replace_input_with(0, back)


@dataclasses.dataclass(frozen=True)
class RefuseAll(Toy):
    """Changes the graph, and refuses it then."""

    name: ClassVar[str] = "refuse_all"

    def change(self, model: ir.Model, node: ir.Node) -> None:
        node.replace_input_with(0, node.inputs[1])
        raise Refused("expected something else")


@dataclasses.dataclass(frozen=True)
class ForgetShape(Toy):
    """Leaves a value of unknown shape behind."""

    name: ClassVar[str] = "forget_shape"

    def change(self, model: ir.Model, node: ir.Node) -> None:
        copy = graphs.Inserter(model, STAMP, before=node).op("Identity", [node.inputs[0]], name="copy")
        node.replace_input_with(0, copy)


@dataclasses.dataclass(frozen=True)
class LoseOutput(Toy):
    """Takes an output of the caller away."""

    name: ClassVar[str] = "lose_output"

    def change(self, model: ir.Model, node: ir.Node) -> None:
        node.outputs[0].name = "lost"


OFFERS = (
    Variant(SwapOperands(), is_standard=True),
    Variant(RefuseAll()),
    Variant(ScaleOperand()),
    Variant(ScaleOperand(1.0), "by_one", is_standard=True),
    Variant(RoundOperand(), is_standard=True),
    Variant(ForgetShape()),
    Variant(LoseOutput()),
)


@dataclasses.dataclass(frozen=True)
class LegalStatic(OnnxStatic):
    """ONNX Runtime with those toy forms that leave legal graphs and the original's numbers behind."""

    offers: ClassVar[tuple[Variant, ...]] = tuple(
        variant
        for variant in OFFERS
        if variant.name in ("swap_operands", "refuse_all", "scale_operand.by_one", "round_operand")
    )


@dataclasses.dataclass(frozen=True)
class ToyStatic(OnnxStatic):
    """ONNX Runtime with toy forms."""

    offers: ClassVar[tuple[Variant, ...]] = OFFERS
