"""Replaces MatMuls of dequantised values by MatMulIntegerToFloat, ONNX Runtime's own operator on integers.

Before:
    y = MatMul(DequantizeLinear(x [batch, 16, 256] uint8), DequantizeLinear(W [256, 2048] int8)) + b
After:
    y = MatMulIntegerToFloat(x, W, scale of x, scales of W, zero of x, zeros of W, b)

ONNX Runtime fuses the same pattern by itself, but adds the bias in a node behind it. A graph with QuantizeLinear and
DequantizeLinear runs on every runtime, so this pass, which serves ONNX Runtime alone, comes last.

Requires: QuantizeLinear and DequantizeLinear around products, as quantize_static writes them.
Ensures: the graph multiplies by the weights that it had, compared as numbers.
Keeps: pairs of types that the runtime has no fast kernel for, each named; products one operand of which is real.
Numerics: order of summation: integers are added without an error, and their sum is scaled once by the rounded product
    of both scales, where numbers that are dequantised first are rounded each.
Source: sum (a - z) s (b - w) t = s t sum (a - z) (b - w).
"""

import dataclasses
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from compiler.errors import Location
from compiler.graph import model as graphs
from compiler.graph.stages import Lowered, Outcome, Refusal
from compiler.numerics.quantization.held_weights import INTEGER_PRODUCT, held_weights, require_same_weights
from compiler.numerics.quantization.integer_products import Factor, IntegerProduct, products_of

DOMAIN = "com.microsoft"


@dataclasses.dataclass(frozen=True)
class LowerIntegers:
    """Products on integers, written out."""

    name: ClassVar[str] = "lower_integers"
    lossy: ClassVar[bool] = False
    after: ClassVar[tuple[str, ...]] = ("merge_first_call",)
    expensive: ClassVar[bool] = False

    def apply(self, lowered: Lowered) -> Outcome:
        """Rewrite products of dequantized values as integer operators of ONNX Runtime.

        Raises:
            InternalError: the rewritten graph has other weights.
        """
        model = lowered.model
        products = products_of(model)
        free = [product for product in products if product.hindrance is None]
        if not free:
            return Outcome(lowered, matched=len(products), refused=_refused(products))
        before = held_weights(model)
        for product in free:
            _write(model, product)
        graphs.prune(model)
        model.graph.opset_imports[DOMAIN] = 1
        require_same_weights(before, model)
        biased = sum(product.bias is not None for product in free)
        detail = f"{biased} with a bias inside"
        return Outcome(lowered, len(products), len(free), _refused(products), detail=detail)


def _refused(products: list[IntegerProduct]) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(
            product.hindrance,
            Location(node=str(product.node.name), op=product.node.op_type, source=graphs.source_of(product.node)),
        )
        for product in products
        if product.hindrance is not None
    )


def _write(model: ir.Model, product: IntegerProduct) -> None:
    """Replace a product and its bias by the integer operator."""
    maker = product.result.producer()
    insert = graphs.Inserter(model, LowerIntegers.name, after=maker, source=graphs.source_of(product.node))
    first, second = (_parameters(insert, factor) for factor in (product.first, product.second))
    inputs = [product.first.codes, product.second.codes, first[0], second[0], first[1], second[1]]
    if product.bias is not None:
        inputs.append(insert.constant(np.ascontiguousarray(product.bias), "bias"))
    result = ir.Value(
        name=graphs.fresh_name(model.graph, f"{product.node.name}_integers"),
        shape=product.result.shape,
        type=ir.TensorType(ir.DataType.FLOAT),
    )
    insert.place(ir.Node(DOMAIN, INTEGER_PRODUCT, inputs, outputs=[result], name=f"{result.name}_node"))
    graphs.take_over(model, product.result, result)


def _parameters(insert: graphs.Inserter, factor: Factor) -> tuple[ir.Value, ir.Value]:
    return insert.constant(factor.scales, "scales"), insert.constant(factor.zeros, "zeros")
