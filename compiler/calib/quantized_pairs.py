"""Removes int8 rounding from a graph, so that the loss of half precision can be measured without it.

Behind a QuantizeLinear a small difference either vanishes or moves an entry by a whole step. Such jumps are new draws
of the same quantisation noise, not noise of half precision.
"""

import dataclasses

import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.stages import Lowered


def without_quantized_pairs(lowered: Lowered) -> Lowered:
    """Return a copy without QuantizeLinear -> DequantizeLinear pairs; the graph itself where there is none."""
    if not any(graphs.is_op(node, "QuantizeLinear") for node in lowered.model.graph):
        return lowered
    return dataclasses.replace(lowered, model=without_pairs(lowered.model))


def without_pairs(quantized: ir.Model) -> ir.Model:
    """Return a copy of a graph without QuantizeLinear -> DequantizeLinear pairs."""
    model = graphs.clone(quantized)
    for node in graphs.nodes_of(model):
        quantize = node.inputs[0].producer() if graphs.is_op(node, "DequantizeLinear") and node.inputs[0] else None
        if quantize is not None and graphs.is_op(quantize, "QuantizeLinear") and quantize.inputs[0] is not None:
            graphs.take_over(model, node.outputs[0], quantize.inputs[0])
    graphs.prune(model)
    return model
