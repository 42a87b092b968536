"""Proves how padding and batching act on com.microsoft operators, which ONNX Runtime's tools write into graphs.

Each is judged as the standard operators it stands for. Kernels that hold a whole attention are refused: they multiply
masked probabilities of 0 with what lies in the padding, and one NaN there reaches every entry.
"""

import math
from collections.abc import Sequence

from compiler.proof.facts import interval as iv
from compiler.proof.facts import transfer
from compiler.proof.facts.case import Case, broadcast, read
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import Region, Verdict, make_fact, refuse
from compiler.proof.facts.interval import ANYTHING, Interval
from compiler.proof.facts.registry import Table, named_refusal
from compiler.proof.facts.transfer import EXACT, ROUNDED, Unary, approximated, limits_of, stored
from compiler.proof.rules.attention import rotated
from compiler.proof.rules.contraction import gemm, product
from compiler.proof.rules.convolution import convolution
from compiler.proof.rules.elementwise import mapped, number_attribute
from compiler.proof.rules.quantization import dequantize, quantize, quantized_product

DOMAIN = "com.microsoft"


# Activations


def gelu(case: Case) -> Verdict:
    """Judge Gelu, FastGelu and BiasGelu: the activation of the sum of the operands."""
    return _activated(case, _sum(case) if case.has(1) else None, ROUNDED["Gelu"])


def _sum(case: Case) -> Verdict:
    """Return the verdict on the sum of two broadcast operands."""
    rank, dtype = len(case.out_dims()), case.dtype()
    axes = broadcast(case, (0, 1), rank)

    def content(region: Region) -> Interval:
        return stored(iv.add(read(case, 0, region, rank), read(case, 1, region, rank)), dtype)

    return case.verdict("EW2", "elementwise on equal layouts", case.output(axes, content), pointwise=True)


def quick_gelu(case: Case) -> Verdict:
    """Judge QuickGelu: x * sigmoid(alpha * x)."""
    alpha = number_attribute(case, "alpha", 1.702)
    return _activated(case, None, transfer.gated(-0.279 / alpha if alpha > 0 else -math.inf))


def _activated(case: Case, before: Verdict | None, activation: Unary) -> Verdict:
    """Return the verdict on an activation of the only operand, or of another rule's result."""
    dtype = case.dtype()

    def image(x: Interval) -> Interval:
        return stored(approximated(activation)(x), dtype)

    if before is None:
        return mapped(case, "EW1", image)
    (fact,) = before.outputs
    out = case.output(fact.tracked, lambda region: image(fact.content(region)))
    return case.verdict(before.rule, before.reason, out, pointwise=before.pointwise, at_least_one=before.at_least_one)


def _named_activation(case: Case) -> Unary | None:
    """Return the activation that an attribute names, unbounded for one with parameters; None without a name."""
    name = str(case.attribute("activation", "") or "")
    if not name:
        return None
    return EXACT.get(name) or ROUNDED.get(name) or (lambda x: ANYTHING)


# Products and convolutions


def fused_matmul(case: Case) -> Verdict:
    """Judge FusedMatMul: a product of matrices that may be transposed, times a factor."""
    if case.int_attribute("transBatchA", 0) or case.int_attribute("transBatchB", 0):
        raise refuse(f"{case.op} that moves its batch axes", "transpose before the product")
    ranks = case.rank(0), case.rank(1)
    if min(ranks) < 2:
        raise refuse(f"{case.op} of a vector", "use MatMul")
    batch = [f"batch {number}" for number in range(max(ranks) - 2)]
    first, second = ["row", "summed"], ["summed", "column"]
    if case.int_attribute("transA", 0):
        first.reverse()
    if case.int_attribute("transB", 0):
        second.reverse()
    terms = [[*batch[len(batch) - rank + 2 :], *matrix] for rank, matrix in zip(ranks, (first, second), strict=True)]
    return product(case, terms, [*batch, "row", "column"], alpha=number_attribute(case, "alpha", 1.0))


def fused_gemm(case: Case) -> Verdict:
    """Judge FusedGemm: a Gemm and an activation."""
    return _activated(case, gemm(case), _named_activation(case) or (lambda x: x))


def fused_convolution(case: Case) -> Verdict:
    """Judge FusedConv: a convolution and an activation."""
    if case.has(3):
        raise refuse(f"{case.op} that adds a fourth operand", "add it after the convolution")
    return _activated(case, convolution(case), _named_activation(case) or (lambda x: x))


def integers_to_float(case: Case) -> Verdict:
    """Judge MatMulIntegerToFloat: a product of quantized numbers, scaled, with a bias."""
    verdict, sums = quantized_product(case, (0, 1), (4, 5))
    scales = iv.multiply(case.fact(2).valid, case.fact(3).valid)
    dtype = case.dtype(2)
    bias = case.fact(6).valid if case.has(6) else iv.ZERO
    out = case.output(
        sums.tracked, lambda region: stored(iv.add(iv.multiply(sums.content(region), scales), bias), dtype)
    )
    return case.verdict("QT3", verdict.reason, out, pointwise=verdict.pointwise)


def packed_matmul(case: Case) -> Verdict:
    """Judge MatMulNBits: the product of every row of the first operand with a packed matrix."""
    _plain(case, case.present[1:])
    if case.fact().axis(case.rank() - 1) is not None:
        raise refuse(f"{case.op} sums over a padded axis or the batch", "keep frames and channels apart")
    levels = 2.0 ** case.int_attribute("bits", 4)
    count = case.int_attribute("K", 0) * levels * case.fact(2).valid.magnitude * 1.1  # rounded activations
    bias = case.fact(5).valid.magnitude if case.has(5) else 0.0
    fact, dtype = case.fact(), case.dtype()

    def content(region: Region) -> Interval:
        row = fact.content(region)
        held = stored(iv.bounded(row.magnitude * count + bias), dtype) if row.is_finite else ANYTHING
        return held if held.is_finite else ANYTHING

    return case.verdict("MM1", "no padded axis is summed over", case.output(fact.tracked, content), pointwise=True)


def _plain(case: Case, operands: Sequence[int]) -> None:
    """Refuse parameters that differ from row to row or are padded."""
    for operand in operands:
        if case.has(operand) and not case.fact(operand).is_plain:
            raise refuse(f"{case.op} whose parameter {operand} is padded or has the batch", "use constant parameters")


# Normalisation


def skip_normalization(case: Case) -> Verdict:
    """Judge SkipLayerNormalization and SkipSimplifiedLayerNormalization of two summed operands and a bias.

    Outputs: the normalized sum, mean and deviation for training, the sum.
    """
    simple = case.op.startswith("SkipSimplified")
    _plain(case, range(2, 5))
    rank, dtype = case.rank(), case.dtype()
    axes = broadcast(case, (0, 1), rank)
    if rank - 1 in axes:
        raise refuse(f"{case.op} over a padded axis or the batch", "use LayerNormalization")
    bias_at = 3 if simple else 4
    bias = case.fact(bias_at).valid if case.has(bias_at) else iv.ZERO
    width = case.dims()[-1]
    shift = case.fact(3).valid.magnitude if not simple and case.has(3) else 0.0
    size = math.sqrt(width) * case.fact(2).valid.magnitude + shift if isinstance(width, int) else math.inf
    epsilon = number_attribute(case, "epsilon", 1e-12)

    def total(region: Region) -> Interval:
        return stored(iv.add(iv.add(read(case, 0, region, rank), read(case, 1, region, rank)), bias), dtype)

    def content(region: Region) -> Interval:
        held = stored(iv.bounded(size), dtype)
        return held if total(region).magnitude < 1e18 and epsilon > 1e-30 and held.is_finite else ANYTHING

    statistics = make_fact(axes, lambda region: ANYTHING)
    outputs = [case.output(axes, content), statistics, statistics, case.output(axes, total)]
    return case.verdict("NM1", "normalises over other axes", *outputs[: len(case.node.outputs)], pointwise=True)


def rotary(case: Case) -> Verdict:
    """Judge RotaryEmbedding: every frame is rotated by the angles of its position."""
    if case.int_attribute("is_packed_batching", 0):
        raise refuse(f"{case.op} of packed rows", "keep the batch an axis of its own")
    return rotated(case, (2, 3), 1)


# Quantised numbers


def quantized_elementwise(case: Case) -> Verdict:
    """Judge QLinearAdd, QLinearMul, QLinearWhere, QLinearSigmoid, QLinearLeakyRelu: elementwise, rounded to a type."""
    factors = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3), "QLinearWhere": (0, 1, 4)}.get(case.op, (0,))
    _plain(case, [operand for operand in case.present if operand not in factors])
    limits = limits_of(case.dtype(factors[-1]))
    if limits is None:
        raise refuse(f"{case.op} of {case.dtype(factors[-1]).name}", "dequantise first")
    rank = max(case.rank(operand) for operand in factors)
    out = case.output(broadcast(case, factors, rank), lambda region: limits)
    return case.verdict("QT2", "entries are scaled one by one", out, pointwise=True)


WHOLE_ATTENTION = (
    "holds a whole attention, in which padding meets valid entries",
    "export attention as single operators",
)
INSIDE = ("has no rule: its kernel looks along axes that may be padded", "export the model before it is fused")
DYNAMIC = ("takes one scale from all rows: rows of one batch would mix", "quantise per token, or with constant scales")

REFUSED = {
    WHOLE_ATTENTION: (
        "Attention", "DecoderAttention", "DecoderMaskedMultiHeadAttention", "DecoderMaskedSelfAttention",
        "GroupQueryAttention", "LinearAttention", "LongformerAttention", "MultiHeadAttention", "PackedAttention",
        "PackedMultiHeadAttention", "PagedAttention", "QAttention", "SparseAttention",
    ),
    INSIDE: (
        "BiasSoftmax", "EmbedLayerNormalization", "GatedRelativePositionBias", "NhwcConv", "NhwcFusedConv",
        "NhwcMaxPool", "QEmbedLayerNormalization", "QGemm", "QLinearAveragePool", "QLinearConcat", "QLinearConv",
        "QLinearGlobalAveragePool", "QLinearReduceMean", "QLinearSoftmax", "RelativePositionBias",
    ),
    DYNAMIC: ("DynamicQuantizeLSTM", "DynamicQuantizeMatMul"),
}  # fmt: skip

TABLE: Table = {
    (DOMAIN, "BiasGelu"): on_data(gelu),
    (DOMAIN, "DequantizeLinear"): on_data(dequantize),
    (DOMAIN, "FastGelu"): on_data(gelu),
    (DOMAIN, "FusedConv"): on_data(fused_convolution),
    (DOMAIN, "FusedGemm"): on_data(fused_gemm),
    (DOMAIN, "FusedMatMul"): on_data(fused_matmul),
    (DOMAIN, "Gelu"): on_data(gelu),
    (DOMAIN, "MatMulIntegerToFloat"): on_data(integers_to_float),
    (DOMAIN, "MatMulNBits"): on_data(packed_matmul),
    (DOMAIN, "QuantizeLinear"): on_data(quantize),
    (DOMAIN, "QuickGelu"): quick_gelu,
    (DOMAIN, "RotaryEmbedding"): on_data(rotary),
    (DOMAIN, "SkipLayerNormalization"): on_data(skip_normalization),
    (DOMAIN, "SkipSimplifiedLayerNormalization"): on_data(skip_normalization),
    (DOMAIN, "TransposeMatMul"): on_data(fused_matmul),
    **{
        (DOMAIN, op): on_data(quantized_elementwise)
        for op in ("QLinearAdd", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearWhere")
    },
    **{(DOMAIN, op): named_refusal(*why) for why, ops in REFUSED.items() for op in ops},
}
