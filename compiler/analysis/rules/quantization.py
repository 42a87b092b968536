"""Rules QT: quantised numbers."""

import math

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import Interval
from compiler.analysis.registry import Table, named_refusal


def quantize(case: Case) -> Verdict:
    """QuantizeLinear with constant parameters: rounds every entry by itself."""
    _require_constants(case)
    fact = case.fact()
    out = case.output(fact.tracked, lambda region: Interval(-128.0, 255.0))
    return case.verdict("QT2", "constant scale", out, pointwise=True)


def dequantize(case: Case) -> Verdict:
    """DequantizeLinear with constant parameters."""
    _require_constants(case)
    fact = case.fact()
    scale = case.fact(1).valid.magnitude
    zero = case.fact(2).valid.magnitude if case.has(2) else 0.0

    def content(region: Region) -> Interval:
        size = (fact.content(region).magnitude + zero) * scale
        return iv.bounded(size) if math.isfinite(size) else iv.ANYTHING

    return case.verdict("QT2", "constant scale", case.output(fact.tracked, content), pointwise=True)


def _require_constants(case: Case) -> None:
    arrays = [case.array(operand) for operand in case.present[1:]]
    if any(array is None for array in arrays):
        raise refuse(f"{case.op} with computed parameters", "use constant scales")
    axis = case.int_attribute("axis", 1) % max(case.rank(), 1)
    if any(array is not None and array.size > 1 for array in arrays) and case.fact().axis(axis) is not None:
        raise refuse(f"{case.op} with one scale per entry of a tracked axis", "scale by channel")


def dynamic_quantize(case: Case) -> Verdict:
    """DynamicQuantizeLinear takes one scale from everything it sees."""
    fact = case.fact()
    if fact.rows_axis is not None:
        raise refuse(
            "DynamicQuantizeLinear takes one scale from all rows: rows of one batch would mix",
            "quantise per token, or with constant scales",
        )
    for axis in fact.padded:
        case.fill(0, axis, 0.0)
    fact = case.fact()
    quantized = case.output(fact.tracked, lambda region: Interval(0.0, 255.0))
    scalar = case.output({}, lambda region: iv.ACTIVATION)
    return case.verdict("QT1", "the range holds 0 in any case", quantized, scalar, scalar)


INTEGER = ("sums quantised numbers, for which no rule is proved", "dequantise before the product")

TABLE: Table = {
    ("", "QuantizeLinear"): quantize,
    ("", "DequantizeLinear"): dequantize,
    ("", "DynamicQuantizeLinear"): dynamic_quantize,
    **{("", op): named_refusal(*INTEGER) for op in ("MatMulInteger", "QLinearMatMul", "ConvInteger", "QLinearConv")},
}
