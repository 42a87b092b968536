"""Applies the rule table to one node and the facts of its operands, and returns a verdict or raises a refusal."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from compiler.errors import Refused
from compiler.graph.model import array_of, dims_of
from compiler.graph.operators.traits import MAKING, NEVER_EMPTY, RANDOM, SIZED_BY_OPERANDS, SLIDING
from compiler.graph.sizes.expressions import Dim
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import NUMBER, VALID, Fact, Verdict, refuse
from compiler.proof.facts.interval import of_array
from compiler.proof.facts.layout import Frames, has_rows
from compiler.proof.facts.length_data import row_value_layout, spread_per_row
from compiler.proof.facts.registry import Rule, Versioned
from compiler.proof.facts.transfer import whole_range
from compiler.proof.rules import RULES, elementwise
from compiler.proof.rules.length import is_known

ARITHMETIC = frozenset(
    {
        "Abs", "Add", "And", "Cast", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater", "GreaterOrEqual",
        "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "ReduceProd",
        "ReduceMax", "ReduceMin", "ReduceSum", "Reshape", "Round", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub",
        "Sum", "Unsqueeze", "Where",
    }
)  # fmt: skip
"""A list of its own: operators through which a number may pass and stay one whose contents shape inference follows."""


def judge(case: Case) -> Verdict:
    """Return the verdict on one node.

    Raises:
        Refused: there is no rule, or it does not hold; the caller adds node, operator and source line.
    """
    _require_type(case)
    _require_room(case)
    verdict = _ruled(case)
    sizes = (*verdict.at_least_one, *_never_empty(case))
    return dataclasses.replace(verdict, at_least_one=tuple(dict.fromkeys(sizes)))


def _never_empty(case: Case) -> Iterator[Dim]:
    """Yield the sizes that have to be 1 or more because the operator ends the process otherwise."""
    if case.op in NEVER_EMPTY and not case.node.domain:
        for operand in _data_operands(case):
            for _, axis in case.fact(operand).axes:
                yield from (factor.size for factor in axis if isinstance(factor, Frames))


def _require_type(case: Case) -> None:
    """Require element types that ONNX Runtime can return, as other values cannot be compared.

    Raises:
        Refused: an operand or a result has another type, such as bfloat16.
    """
    if not case.tracked:
        return
    for value in (*case.node.inputs, *case.node.outputs):
        if value is not None and value.dtype in UNSEEN and array_of(value) is None:
            raise refuse(
                f"{case.op} computes in {value.dtype}, whose values ONNX Runtime does not hand out",
                "load the model in float32, and leave it to the recipe to round (lower_precision)",
            )


UNSEEN = frozenset(
    {
        ir.DataType.BFLOAT16, ir.DataType.FLOAT4E2M1, ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FNUZ,
        ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ, ir.DataType.FLOAT8E8M0, ir.DataType.INT2, ir.DataType.INT4,
        ir.DataType.UINT2, ir.DataType.UINT4,
    }
)  # fmt: skip
"""Types for which NumPy has none of its own."""

MEETING = frozenset(
    {key for key, rule in elementwise.TABLE.items() if rule not in (elementwise.cast, elementwise.clip)}
)
"""Operators whose operands meet entry by entry."""


def _require_room(case: Case) -> None:
    """Require that the node is valid at some length.

    Raises:
        Refused: a size is negative, a kernel is larger than its input, or broadcast axes have different sizes.
    """
    if ("", case.op) in MEETING and not case.node.domain:
        shapes = [case.dims(operand)[::-1] for operand in case.present]
        for sizes in itertools.zip_longest(*shapes, fillvalue=1):
            known = {size for size in sizes if isinstance(size, int)} - {1}
            if len(known) > 1:
                raise refuse(
                    f"{case.op} of axes of {' and '.join(map(str, sorted(known)))} entries never runs",
                    "cut them to the same size",
                )
    is_never_empty = case.op in NEVER_EMPTY and not case.node.domain
    for value in (*case.node.outputs, *(case.node.inputs if is_never_empty else ())):
        for size in (None if value is None else dims_of(value)) or ():
            if isinstance(size, int) and size < (1 if case.op in SLIDING or is_never_empty else 0):
                raise refuse(
                    f"{case.op} needs more entries along an axis than there are at any length",
                    "keep enough entries for the operator, or make its kernel smaller",
                )


def _ruled(case: Case) -> Verdict:
    """Return the verdict of the rule of the node's operator."""
    if _is_arithmetic(case):
        return _arithmetic(case)
    opset = case.opset
    rule = rule_of(case.node.domain, case.op, opset)
    if rule is not None and not case.node.domain and case.op in RANDOM:
        return rule(case)
    if rule is None:
        if not case.tracked:
            return _untracked(case)
        domain = f"{case.node.domain}::" if case.node.domain else ""
        raise refuse(
            f"no rule for operator {domain}{case.op} of opset {opset}",
            "write that part of the model with the operators that docs/generated/coverage.md lists",
        )
    if case.tracked:
        return _with_known_sizes(case, _with_rows_once(case, _with_lengths(case, rule)))
    try:
        verdict = rule(case)
    except (Refused, AssertionError):
        return _untracked(case)
    is_tracked = any(fact.axes for fact in verdict.outputs)  # of nothing tracked: an axis that only looks like one
    return _untracked(case) if verdict.needs or is_tracked else verdict


NUMBERS_BEHIND = ("Gather", "Reshape", "Slice")
"""A list of its own: of ARITHMETIC those whose first operand may be data while a number says what is taken of it."""

SIZES_ONLY = MAKING - {"Constant"} | {"Shape", "Size"}
"""Operators that read no data at all."""


def _with_lengths(case: Case, rule: Rule) -> Verdict:
    """Return a rule's verdict; where it handles data alone, operands computed from lengths become one value per row.

    Raises:
        Refused: the rule does not hold.
    """
    verdict = rule(case)
    numbers = [operand for operand in _data_operands(case) if case.fact(operand).is_number]
    if not numbers or verdict.needs or not any(fact.is_plain for fact in verdict.outputs):
        return verdict
    if all(row_value_layout(case, case.node.inputs[operand]) is None for operand in numbers):
        return case.verdict("LN1", "computed from axis lengths", NUMBER)
    spread_per_row(case)
    return rule(case)


def _data_operands(case: Case) -> list[int]:
    """Return the indices of the inputs that are data, not sizes or positions."""
    return [] if case.op in SIZES_ONLY else [0] if case.op in SIZED_BY_OPERANDS else case.present


def _with_rows_once(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict unchanged if no output has the batch in more than one axis.

    Raises:
        Refused: an output has the batch in two axes, so that it combines every row with every other row.
    """
    for fact in verdict.outputs:
        if sum(has_rows(axis) for _, axis in fact.axes) > 1:
            raise refuse(
                f"{case.op} lets every row of the batch meet every other one: rows of one batch would mix",
                "keep the batch one axis, in the same place of both operands",
            )
    return verdict


def _with_known_sizes(case: Case, verdict: Verdict) -> Verdict:
    """Return the verdict, if every size besides batch and padded axes is known from the inputs.

    Raises:
        Refused: shape inference knows no rank, or invented a name for a size. It may not know the results of
            a vendor's operator: a node that reads them is refused.
    """
    read = [(case.node.inputs[operand], case.fact(operand)) for operand in _data_operands(case)]
    results = [(value, fact) for value, fact in zip(case.node.outputs, verdict.outputs, strict=True) if fact.axes]
    for value, fact in (*read, *results):
        dims = () if value is None else dims_of(value)
        if dims is None and case.node.domain not in ("", "ai.onnx") and any(value is result for result, _ in results):
            continue
        if dims is None:
            raise refuse(
                f"{case.op} meets a tensor of which shape inference does not know how many axes it has",
                "compute its shape from axis lengths in a plainer way, or with other operators",
            )
        for axis, size in enumerate(dims):
            if fact.axis(axis) is not None:
                continue
            if not is_known(case, size):
                raise refuse(
                    f"{case.op} meets an axis of unknown size {size}",
                    "cut by bounds that follow from axis lengths, and keep an entry at least",
                )
    return verdict


def rule_of(domain: str, op: str, opset: int) -> Rule | None:
    """Return the rule of an operator in an opset; None where there is none."""
    found = RULES.get(("" if domain == "ai.onnx" else domain, op))
    if isinstance(found, Versioned):
        return found.rule if found.covers(opset) else None
    return found


def _is_arithmetic(case: Case) -> bool:
    """Whether the node computes with axis lengths and constants alone."""
    facts = [case.fact(operand) for operand in case.present]
    if case.node.domain or case.op not in ARITHMETIC or any(fact.axes for fact in facts):
        return False
    if ("", case.op) in MEETING and any(case.is_of_rows(operand) for operand in case.present):
        return False
    if not any(fact.is_number for fact in facts):
        return False
    data_first = case.op in NUMBERS_BEHIND and not case.fact(0).is_number
    return not data_first and not any(case.depends(size) for size in case.out_dims())


def _arithmetic(case: Case) -> Verdict:
    """Return the verdict on arithmetic with axis lengths: a plain value where shape inference shows it is constant."""
    known = [case.known(output) for output in range(len(case.node.outputs))]
    facts = [
        NUMBER
        if numbers is None or any(case.depends(number) or not is_known(case, number) for number in numbers)
        else _fixed(numbers)
        for numbers in known
    ]
    return case.verdict("LN1", "arithmetic on axis lengths", *facts)


def _fixed(numbers: Sequence[Dim]) -> Fact:
    """Return the fact of numbers that are the same for every length."""
    fixed = [number for number in numbers if isinstance(number, int)]
    return Fact() if len(fixed) != len(numbers) else Fact(contents=((VALID, of_array(np.array(fixed, np.int64))),))


def _untracked(case: Case) -> Verdict:
    """Return the verdict on a node without tracked operands, which computes the same in both programs."""
    facts = [Fact(contents=((VALID, whole_range(output.dtype)),)) for output in case.node.outputs]
    return case.verdict("PL", "nothing padded and no batch reaches it", *facts)
