"""Checks that a lowering keeps the weights of a quantised graph, by comparing their dequantised values.

A lowering that confuses two tensors of equal names, or their scales, gives a graph that runs without an error.
"""

import collections
import hashlib
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from compiler.errors import InternalError
from compiler.graph import model as graphs
from compiler.graph.stages import Array
from compiler.numerics.quantization.integer_products import factor_of

INTEGER_PRODUCT = "MatMulIntegerToFloat"
"""ONNX Runtime's operator, domain com.microsoft: a, b, scale of a, scales of b, zero of a, zeros of b, bias."""


def held_weights(model: ir.Model) -> collections.Counter[str]:
    """Return digests of dequantized constants, with the number of nodes that multiply by each."""
    return collections.Counter(
        hashlib.sha256(repr(numbers.shape).encode() + numbers.tobytes()).hexdigest()
        for node in model.graph
        for numbers in _numbers(node)
    )


def _numbers(node: ir.Node) -> Iterator[Array]:
    if node.op_type == INTEGER_PRODUCT:
        codes, scales, zeros = (graphs.array_of(node.inputs[at]) for at in (1, 3, 5))
        if codes is not None and scales is not None and zeros is not None:
            yield (codes.astype(np.int32) - zeros.astype(np.int32)).astype(np.float32) * scales
        return
    for value in node.inputs:
        found = factor_of(value)
        if found is not None and found.is_constant:
            yield found.numbers


def require_same_weights(before: collections.Counter[str], model: ir.Model) -> None:
    """Require that a rewritten graph multiplies by the same weights as before.

    Raises:
        InternalError: its weights differ.
    """
    after = held_weights(model)
    if after != before:
        lost, new = (before - after).total(), (after - before).total()
        raise InternalError(f"expected the weights of the graph before lowering, got {new} others for {lost} of them")
