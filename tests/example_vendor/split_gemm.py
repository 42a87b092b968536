"""Gemm becomes MatMul and Add, which the device has: a pass that comes with the target."""

import dataclasses
from typing import ClassVar

import onnx_ir as ir

from compiler.graph.stages import Lowered, Outcome


@dataclasses.dataclass(frozen=True)
class SplitGemm:
    """Split every Gemm without factors and transposition; others stay, and are refused by name."""

    name: ClassVar[str] = "split_gemm"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ()
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite the graph in place."""
        graph, split = lowered.model.graph, 0
        for node in list(graph):
            if node.op_type != "Gemm" or node.attributes or len(node.inputs) != 3:
                continue
            a, b, bias = node.inputs
            result = node.outputs[0]
            product = ir.Value(name=f"{result.name}_product", type=result.type, shape=result.shape)
            multiply = ir.node("MatMul", [a, b], outputs=[product], name=f"{node.name}_matmul")
            multiply.metadata_props.update(node.metadata_props)
            graph.insert_before(node, multiply)
            added = ir.node("Add", [product, bias], name=f"{node.name}_add")
            added.metadata_props.update(node.metadata_props)
            added.outputs[0].name, added.outputs[0].shape = result.name, result.shape
            added.outputs[0].type = result.type
            graph.insert_before(node, added)
            ir.convenience.replace_all_uses_with(result, added.outputs[0], replace_graph_outputs=True)
            graph.remove(node, safe=True)
            split += 1
        return Outcome(lowered, matched=split, rewritten=split)
