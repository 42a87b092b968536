"""Proves how padding and batching act on quantization and on products of quantized values (rules QT).

Rule ids: QT1 one scale for all, QT2 entries one by one, QT3 products of quantised numbers.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from onnx_ir import DataType

from compiler.graph.model import Dim
from compiler.proof.facts import interval as iv
from compiler.proof.facts import transfer
from compiler.proof.facts.case import Case
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import NO_NAN, VALID, Fact, Fill, Need, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, ZERO, Interval
from compiler.proof.facts.registry import Table
from compiler.proof.facts.transfer import limits_of, stored
from compiler.proof.rules.contraction import matmul

UNKNOWN_TYPE = "export the model with known types"


def quantize(case: Case) -> Verdict:
    """Judge QuantizeLinear, which rounds every entry by itself."""
    scale, zero = _parameters(case)
    dtype = case.node.outputs[0].dtype
    if dtype is None:
        raise refuse(f"{case.op} to an unknown type", UNKNOWN_TYPE)
    limits = limits_of(dtype)

    def content(x: Interval) -> Interval:
        if limits is None:
            return transfer.cast(transfer.divide(x, scale), case.dtype(), dtype)
        return _levels(x, scale, zero, limits)

    return _mapped(case, content)


def _levels(x: Interval, scale: Interval, zero: Interval, limits: Interval) -> Interval:
    """Return bounds of x / scale + zero, rounded and clamped; widened by one level for the quotient's rounding."""
    quotient = transfer.divide(x, scale)
    if quotient.nan or scale.low <= 0:
        return limits
    room = 0.0 if x.is_zero else 1.0
    low, high = quotient.low + zero.low - room, quotient.high + zero.high + room
    return Interval(min(max(math.floor(low) if math.isfinite(low) else low, limits.low), limits.high),
                    max(min(math.ceil(high) if math.isfinite(high) else high, limits.high), limits.low))  # fmt: skip


def dequantize(case: Case) -> Verdict:
    """Judge DequantizeLinear, which scales every entry by itself."""
    scale, zero = _parameters(case)
    source, dtype = case.dtype(), case.dtype(1)
    limits = limits_of(source) or ANYTHING

    def content(x: Interval) -> Interval:
        within = Interval(max(x.low, limits.low), min(x.high, limits.high), limits.nan and x.nan)
        return stored(iv.multiply(transfer.subtract(within, zero), scale), dtype)

    return _mapped(case, content)


def _mapped(case: Case, image: Callable[[Interval], Interval]) -> Verdict:
    fact = case.fact()
    out = case.output(fact.tracked, lambda region: image(fact.content(region)))
    return case.verdict("QT2", "entries are scaled one by one", out, pointwise=True)


def _parameters(case: Case) -> tuple[Interval, Interval]:
    """Return the intervals of scale and zero point.

    Raises:
        Refused: they differ from row to row, or along a padded axis or the batch.
    """
    parameters = [case.fact(operand) for operand in case.present[1:]]
    if any(not fact.is_plain for fact in parameters):
        raise refuse(f"{case.op} with a scale of its own for each row", "multiply by the scale instead")
    dims = case.dims(1)
    if len(dims) > 1 and case.fact().axes:
        raise refuse(f"{case.op} of a padded value in blocks", "scale by channel")
    if len(dims) == 1 and dims[0] != 1 and case.fact().axis(case.axis()) is not None:
        raise refuse(f"{case.op} with one scale per entry of a tracked axis", "scale by channel")
    return case.fact(1).valid, case.fact(2).valid if case.has(2) else ZERO


def dynamic_quantize(case: Case) -> Verdict:
    """Judge DynamicQuantizeLinear, which takes one scale from all entries; zeros do not change it."""
    for axis in case.fact().padded:
        if case.fact().rows_axis is None:
            case.fill(0, axis, 0.0)
    fact = case.fact()
    if fact.rows_axis is not None:
        raise refuse(
            f"{case.op} takes one scale from all rows: rows of one batch would mix",
            "quantise per token, or with constant scales",
        )
    level = Interval(0.0, 255.0)
    quantized = case.output(fact.tracked, lambda region: level)
    scale, zero = Fact(), Fact(contents=((VALID, level),))
    reason = "the range holds 0 in any case"
    return case.verdict("QT1", reason, quantized, scale, zero, assumes=NO_NAN if fact.padded else ())


# Products


class _Factors(Case):
    """The two factors of a product of quantised numbers, as a plain product sees them: zero points are zeros.

    Args:
        case: the node.
        factors: positions of the factors among its inputs.
        zeros: positions of their zero points.
    """

    def __init__(self, case: Case, factors: Sequence[int], zeros: Sequence[int]) -> None:
        self.positions = factors
        self.zeros = [case.fact(operand).valid if case.has(operand) else ZERO for operand in zeros]
        facts = [_shifted(case, operand, zero) for operand, zero in zip(factors, self.zeros, strict=True)]
        super().__init__(case.node, facts, case.batch, case.sides, case.seen)

    def dims(self, operand: int = 0) -> tuple[Dim, ...]:
        return super().dims(self.positions[operand])

    def dtype(self, operand: int = 0) -> DataType:
        """Return the element type of sums, 32-bit integers."""
        return DataType.INT32

    def array(self, operand: int) -> None:
        """Return None: the zero point of a constant factor is not included in its entries."""

    def needs_of_node(self) -> list[Need]:
        """Return the needs, with padding filled with zero points in place of zeros."""
        return [self._need(need) for need in self.needs]

    def _need(self, need: Need) -> Need:
        assert isinstance(need, Fill) and need.value == 0.0
        zero = self.zeros[need.operand]
        if not zero.is_constant:
            raise refuse(f"{self.op} sums over padding with a computed zero point", "use one constant zero point")
        return Fill(self.positions[need.operand], need.axis, zero.low)


def _shifted(case: Case, operand: int, zero: Interval) -> Fact:
    """Return the fact of an operand minus its zero point."""
    fact = case.fact(operand)
    limits = limits_of(case.dtype(operand)) or ANYTHING

    def content(x: Interval) -> Interval:
        return transfer.subtract(Interval(max(x.low, limits.low), min(x.high, limits.high)), zero)

    contents = tuple((region, content(fact.content(region))) for region in fact.regions)
    return dataclasses.replace(fact, contents=contents, index=None)


def quantized_product(case: Case, factors: Sequence[int], zeros: Sequence[int]) -> tuple[Verdict, Fact]:
    """Return the verdict on a quantized product before scales are applied, and the fact of its sums.

    Raises:
        Refused: a plain product would be refused, or parameters differ from row to row.
    """
    for operand in case.present:
        if operand not in factors and not case.fact(operand).is_plain:
            raise refuse(f"{case.op} with scales or zero points of their own for each row", "dequantise first")
    plain = _Factors(case, factors, zeros)
    verdict = matmul(plain)
    case.needs += plain.needs_of_node()
    return verdict, verdict.outputs[0]


def matmul_integer(case: Case) -> Verdict:
    """Judge MatMulInteger: sums of (a - zero of a) * (b - zero of b)."""
    verdict, sums = quantized_product(case, (0, 1), (2, 3))
    return case.verdict("QT3", verdict.reason, sums, pointwise=verdict.pointwise)


def quantized_matmul(case: Case) -> Verdict:
    """Judge QLinearMatMul: the sums, scaled and rounded to a quantized type."""
    verdict, sums = quantized_product(case, (0, 3), (2, 5))
    dtype = case.dtype(7)
    limits = limits_of(dtype)
    if limits is None:
        raise refuse(f"{case.op} to {dtype.name}", "dequantise first")
    out = case.output(sums.tracked, lambda region: limits)
    return case.verdict("QT3", verdict.reason, out, pointwise=verdict.pointwise)


TABLE: Table = {
    ("", "DequantizeLinear"): on_data(dequantize),
    ("", "DynamicQuantizeLinear"): on_data(dynamic_quantize),
    ("", "MatMulInteger"): on_data(matmul_integer),
    ("", "QLinearMatMul"): on_data(quantized_matmul),
    ("", "QuantizeLinear"): on_data(quantize),
}
