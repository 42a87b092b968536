"""Rules MM: products, where a padded axis is kept (MM1) or summed over (MM2).

MatMul and Gemm are judged as the Einsum they are. Padding that is summed over has to add exactly zero: it is zero in
one factor, and finite in all others, since 0 * NaN and 0 * infinity are NaN.
"""

import itertools
import math
import weakref
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from compiler import ir as graphs
from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.data_only import on_data
from compiler.analysis.facts import Assumption, Fact, Region, Verdict, refuse
from compiler.analysis.interval import ANYTHING, LONGEST, ZERO, Interval
from compiler.analysis.layout import Axis, has_rows, is_padded
from compiler.analysis.registry import Table
from compiler.analysis.transfer import limits_of, stored
from compiler.operator_views.axes import axis_of

MOVED = ("Cast", "Dropout", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators through which weights come from a Softmax to the sum."""

ZERO_OR_NAN = Interval(0.0, 0.0, nan=True)
"""What a Softmax gives masked entries."""

TYPICAL = 256
"""Entries of an axis of symbolic size, where the smaller one of two values is chosen."""


def matmul(case: Case) -> Verdict:
    """MatMul of any ranks, as the Einsum it is."""
    ranks = case.rank(0), case.rank(1)
    if 0 in ranks:
        raise refuse("MatMul of a scalar", "multiply elementwise")
    batch = [f"batch {at}" for at in range(max(max(ranks) - 2, 0))]
    first = batch[len(batch) - max(ranks[0] - 2, 0) :] + (["row", "summed"] if ranks[0] > 1 else ["summed"])
    second = batch[len(batch) - max(ranks[1] - 2, 0) :] + (["summed", "column"] if ranks[1] > 1 else ["summed"])
    result = batch + (["row"] if ranks[0] > 1 else []) + (["column"] if ranks[1] > 1 else [])
    return product(case, [first, second], result)


def gemm(case: Case) -> Verdict:
    """Gemm: a matrix product of two matrices, transposed or not, plus a broadcast term."""
    first = ["summed", "row"] if case.int_attribute("transA", 0) else ["row", "summed"]
    second = ["column", "summed"] if case.int_attribute("transB", 0) else ["summed", "column"]
    term = ["row", "column"][2 - case.rank(2) :] if case.has(2) else None
    alpha, beta = case.attribute("alpha", 1.0), case.attribute("beta", 1.0)
    assert isinstance(alpha, float) and isinstance(beta, float)
    return product(case, [first, second], ["row", "column"], term, alpha, beta)


def einsum(case: Case) -> Verdict:
    """Einsum, with or without an explicit result."""
    equation = str(case.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    if len(written) != len(case.facts):
        raise refuse(f"Einsum of {len(case.facts)} inputs with equation {equation!r}", "write one term per input")
    terms = [_labels(term, case.rank(operand), equation) for operand, term in enumerate(written)]
    if any(len(set(term)) != len(term) for term in terms):
        raise refuse(f"Einsum takes a diagonal in {equation!r}", "take the diagonal by a gather")
    rest = sorted({label for term in terms for label in term if label.startswith(_DOTS)})
    if arrow:
        before, dots, behind = right.partition("...")
        result = [*before, *(rest if dots else []), *behind]
    else:
        once = [label for label in left if label.isalpha() and left.count(label) == 1]
        result = [*rest, *sorted(once)]
    return product(case, terms, result)


_DOTS = "axis "


def _labels(term: str, rank: int, equation: str) -> list[str]:
    """One label per axis; those that an ellipsis stands for are counted from their right end."""
    before, dots, behind = term.partition("...")
    left_out = rank - len(before) - len(behind)
    if left_out < 0 or (left_out and not dots):
        raise refuse(f"Einsum of {rank} axes with term {term!r} of {equation!r}", "write one letter per axis")
    return [*before, *(f"{_DOTS}{1000 - at}" for at in range(left_out, 0, -1)), *behind]


def product(
    case: Case,
    terms: Sequence[Sequence[str]],
    result: Sequence[str],
    added: Sequence[str] | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Verdict:
    """A sum of products over the labels that are not in the result: alpha * sum of products + beta * operand 2.

    Args:
        case: the node; its first operands are the factors.
        terms: labels of the factors' axes.
        result: labels of the output's axes.
        added: labels of the last axes of operand 2, where it is added to the product.
        alpha: factor of the product.
        beta: factor of what is added.

    Raises:
        Refused: a label is padded in one factor and has other entries in another, or rows would be summed.
    """
    layouts = _layouts(case, terms)
    cleaned: list[str] = []
    assumes: list[Assumption] = []
    for label in [label for label in layouts if label not in result and is_padded(layouts[label])]:
        assumes += _clean(case, terms, result, label, cleaned)
        cleaned.append(label)
    layouts = _layouts(case, terms)  # a fill may have given a shared factor its batch
    if any(has_rows(axis) for label, axis in layouts.items() if label not in result):
        raise refuse(f"{case.op} sums over the batch axis: rows of one batch would mix", "keep the batch apart")
    if added is not None:
        _join_added(case, added, layouts)
    dtype = case.node.outputs[0].dtype or case.dtype()

    def content(region: Region) -> Interval:
        labels = {result[at] for at in region}
        total = _total(case, terms, result, labels, dtype)
        if alpha != 1.0:
            total = _held(iv.multiply(iv.constant(alpha), total), dtype)
        if added is None:
            return total
        other = _read(case.fact(2), added, labels)
        if beta != 1.0:
            other = _held(iv.multiply(iv.constant(beta), other), dtype)
        return _held(iv.add(total, other), dtype)

    out = case.output({at: layouts[label] for at, label in enumerate(result) if label in layouts}, content)
    if cleaned:
        return case.verdict("MM2", "the summed padding adds exactly zero", out, assumes=dict.fromkeys(assumes))
    return case.verdict("MM1", "no padded axis is summed over", out, pointwise=True)


# Layouts


def _layouts(case: Case, terms: Sequence[Sequence[str]]) -> dict[str, Axis]:
    """The layout of every tracked label."""
    found: dict[str, Axis] = {}
    for operand, term in enumerate(terms):
        for at, layout in case.fact(operand).axes:
            if found.setdefault(term[at], layout) != layout:
                raise refuse(
                    f"{case.op} pairs {_text(found[term[at]])} with {_text(layout)}", "pad and join both operands alike"
                )
    for operand, term in enumerate(terms):
        for at, label in enumerate(term):
            if label in found and case.fact(operand).axis(at) is None and case.dims(operand)[at] != 1:
                raise refuse(
                    f"{case.op} pairs {_text(found[label])} with {case.dims(operand)[at]} unpadded entries",
                    "pad and join both operands alike",
                )
    return found


def _join_added(case: Case, added: Sequence[str], layouts: dict[str, Axis]) -> None:
    """What is added has the layout of the product, or one entry."""
    for at, label in enumerate(added):
        own = case.fact(2).axis(at)
        if own != layouts.get(label) and (own is not None or case.dims(2)[at] != 1):
            other = "another layout" if own is None else _text(own)
            raise refuse(f"{case.op} adds a term of {other} along its axis {at}", "add it after the product")


def _text(layout: Axis) -> str:
    return " * ".join(map(str, layout))


# Padding that is summed over


def _clean(
    case: Case, terms: Sequence[Sequence[str]], result: Sequence[str], label: str, cleaned: Sequence[str]
) -> list[Assumption]:
    """Make the padding of a summed label add zero at the valid places of the result, with as few fills as possible.

    It does where it is zero in one factor and finite in the others. Places in the padding of labels cleaned before add
    zero already.

    Returns:
        What is taken for granted of factors that have no padding there: that zeros times them are zeros.

    Raises:
        Refused: such a factor is a constant that is not finite.
    """
    holders = [
        (operand, term.index(label))
        for operand, term in enumerate(terms)
        if label in term and case.fact(operand).axis(term.index(label)) is not None
    ]

    def summed(operand: int, *, padding: bool) -> Interval:
        """What is read along the summed axes at valid places of the result, in the padding of the label or of any."""
        fact, term = case.fact(operand), terms[operand]
        return iv.hull(
            *(
                fact.content(region)
                for region in fact.regions
                if not any(term[at] in result or term[at] in cleaned for at in region)
                and (not padding or any(term[at] == label for at in region))
            )
        )

    others = [
        operand
        for operand in range(len(terms))
        if operand not in dict(holders) and not summed(operand, padding=False).is_finite
    ]
    for operand in others:
        if case.array(operand) is not None:
            raise refuse(
                f"{case.op} multiplies zeros with its input {operand}, which may hold infinities",
                "keep constants and masks finite",
            )

    def adds_nothing(operand: int) -> bool:
        padding = summed(operand, padding=True)
        return padding.is_zero or (padding == ZERO_OR_NAN and _is_softmax(case.node.inputs[operand]))

    for operand, at in holders:
        if not summed(operand, padding=True).is_finite and not adds_nothing(operand):
            case.fill(operand, at, 0.0)
    if not any(adds_nothing(operand) for operand, _ in holders):
        operand, at = min(holders, key=lambda holder: _cost(case, holder[0]))
        case.fill(operand, at, 0.0)
    return [Assumption(operand, "finite") for operand in others]


def _is_softmax(value: ir.Value | None) -> bool:
    """Whether a Softmax gave a value, moved about since: beside a masked entry that is NaN, the valid ones are, too."""
    while value is not None and (node := value.producer()) is not None and graphs.is_op(node, *MOVED):
        value = node.inputs[0]
    return value is not None and graphs.is_op(value.producer(), "Softmax")


def _cost(case: Case, operand: int) -> tuple[bool, float]:
    """What it takes to overwrite padding: a place for the batch, and one pass over the value."""
    fact, dims = case.fact(operand), case.dims(operand)
    has_place = fact.rows_axis is not None or case.batch is None or (dims[0] == 1 and fact.axis(0) is None)
    return not has_place, math.prod(float(dim) if isinstance(dim, int) else TYPICAL for dim in dims)


# Bounds


def _read(fact: Fact, term: Sequence[str], labels: Iterable[str]) -> Interval:
    """What lies in the padding of some labels, and in no other."""
    return fact.content(at for at in fact.padded if term[at] in labels)


def _total(
    case: Case, terms: Sequence[Sequence[str]], result: Sequence[str], labels: set[str], dtype: ir.DataType
) -> Interval:
    """Bounds of the sum of products at the places of a region, given by labels."""
    facts = [case.fact(operand) for operand in range(len(terms))]
    summed = sorted({term[at] for fact, term in zip(facts, terms, strict=True) for at in fact.padded} - set(result))
    subsets = itertools.chain.from_iterable(itertools.combinations(summed, n) for n in range(len(summed) + 1))
    parts = [
        [_read(fact, term, labels | set(subset)) for fact, term in zip(facts, terms, strict=True)] for subset in subsets
    ]
    if not all(content.is_finite for part in parts for content in part):
        return ANYTHING
    parts = [part for part in parts if not any(content.is_zero for content in part)]
    if not parts:
        return ZERO
    sizes = _summed_sizes(case, terms, result)
    bounds = [_counted(iv.hull(*(_multiplied(part) for part in parts)), sizes.values())]
    for operand in range(len(terms) if len(terms) == 2 else 0):
        axes = {label: at for at, label in enumerate(terms[operand]) if label not in result}
        sums = _absolute_sums(case, operand, list(axes.values()))
        if sums is not None:
            repeated = [n for label, n in sizes.items() if label not in axes or case.dims(operand)[axes[label]] == 1]
            other = max(part[1 - operand].magnitude for part in parts)
            bounds.append(_counted(iv.bounded(sums * other), repeated))
    return _held(min(bounds, key=lambda bound: bound.magnitude), dtype)


def _summed_sizes(case: Case, terms: Sequence[Sequence[str]], result: Sequence[str]) -> dict[str, float]:
    """How many entries lie along every summed label."""
    sizes: dict[str, float] = {}
    for operand, term in enumerate(terms):
        for label, dim in zip(term, case.dims(operand), strict=True):
            if label not in result:
                sizes[label] = max(sizes.get(label, 1.0), float(dim) if isinstance(dim, int) else LONGEST)
    return sizes


def _counted(one: Interval, sizes: Iterable[float]) -> Interval:
    """A sum of as many terms as there are entries, or fewer."""
    count = math.prod(sizes)
    if count == 1.0:
        return one
    return Interval(min(one.low * count, 0.0), max(one.high * count, 0.0)) if one.is_finite else ANYTHING


def _multiplied(factors: Sequence[Interval]) -> Interval:
    whole = factors[0]
    for factor in factors[1:]:
        whole = iv.multiply(whole, factor)
    return whole


def _held(bound: Interval, dtype: ir.DataType) -> Interval:
    """What a type holds of a sum: where one term may overflow, the next may be infinite with the other sign."""
    held = stored(bound, dtype)
    return held if held.is_finite or limits_of(dtype) is not None else ANYTHING


_SUMS: weakref.WeakKeyDictionary[ir.Value, dict[tuple[int, ...], float]] = weakref.WeakKeyDictionary()


def _absolute_sums(case: Case, operand: int, axes: Sequence[int]) -> float | None:
    """The largest sum of absolute values over the summed axes, of a constant or of probabilities; else None."""
    value = case.node.inputs[operand]
    if value is None or not axes:
        return None
    if len(axes) == 1 and sums_to_one(value, axes[0] - case.rank(operand)):
        return 1.1
    array = case.array(operand)
    if array is None or array.dtype.kind not in "fiu":
        return None
    known = _SUMS.setdefault(value, {})
    key = tuple(axes)
    if key not in known:
        known[key] = float(np.abs(array, dtype=np.float64).sum(axis=key).max(initial=0.0))
    return known[key]


def sums_to_one(value: ir.Value | None, axis: int) -> bool:
    """Whether a value holds, along an axis counted from the back, what a Softmax gave, some of it set to zero."""
    node = None if value is None else value.producer()
    if value is None or node is None:
        return False
    if graphs.is_op(node, "Softmax"):
        rank = len(graphs.dims_of(value) or ())
        return rank > 0 and axis_of(node, rank) == axis + rank
    if graphs.is_op(node, "Identity", "Dropout", "Where"):
        zeros = [each for each in node.inputs if (array := graphs.array_of(each)) is not None and not array.any()]
        kept = node.inputs[0]
        if node.op_type == "Where":
            if len(zeros) != 1 or node.inputs[0] in zeros:
                return False
            kept = node.inputs[1] if node.inputs[2] is zeros[0] else node.inputs[2]
        same_shape = kept is not None and graphs.dims_of(kept) == graphs.dims_of(value)
        return same_shape and sums_to_one(kept, axis)
    return False


TABLE: Table = {("", "MatMul"): on_data(matmul), ("", "Gemm"): on_data(gemm), ("", "Einsum"): on_data(einsum)}
