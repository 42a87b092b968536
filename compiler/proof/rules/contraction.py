"""Proves how padding and batching act on MatMul, Gemm and Einsum: along kept axes (rule MM1), along summed ones (MM2).

MatMul and Gemm are judged as the Einsum they are. Padding that is summed over has to add exactly zero: it is zero in
one factor, and finite in all others, since 0 * NaN and 0 * infinity are NaN.
"""

import itertools
import math
import weakref
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from compiler.graph import model as graphs
from compiler.graph.operators.axes import axis_of
from compiler.proof.facts import interval as iv
from compiler.proof.facts.case import Case
from compiler.proof.facts.data_only import on_data
from compiler.proof.facts.facts import Assumption, Fact, Region, Verdict, refuse
from compiler.proof.facts.interval import ANYTHING, LONGEST, ZERO, Interval
from compiler.proof.facts.layout import Axis, has_rows, is_padded
from compiler.proof.facts.registry import Table
from compiler.proof.facts.transfer import limits_of, stored

MOVED = ("Cast", "Dropout", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
"""Operators through which weights come from a Softmax to the sum."""

ZERO_OR_NAN = Interval(0.0, 0.0, nan=True)
"""What a Softmax gives masked entries."""

TYPICAL = 256
"""Entries of an axis of symbolic size, where the smaller one of two values is chosen."""


def matmul(case: Case) -> Verdict:
    """Judge MatMul of any ranks, as the Einsum it is."""
    ranks = case.rank(0), case.rank(1)
    if 0 in ranks:
        raise refuse("MatMul of a scalar", "multiply elementwise")
    batch = [f"batch {at}" for at in range(max(max(ranks) - 2, 0))]
    first = batch[len(batch) - max(ranks[0] - 2, 0) :] + (["row", "summed"] if ranks[0] > 1 else ["summed"])
    second = batch[len(batch) - max(ranks[1] - 2, 0) :] + (["summed", "column"] if ranks[1] > 1 else ["summed"])
    result = batch + (["row"] if ranks[0] > 1 else []) + (["column"] if ranks[1] > 1 else [])
    return product(case, [first, second], result)


def gemm(case: Case) -> Verdict:
    """Judge Gemm: a product of two matrices, transposed or not, plus a broadcast term."""
    first = ["summed", "row"] if case.int_attribute("transA", 0) else ["row", "summed"]
    second = ["column", "summed"] if case.int_attribute("transB", 0) else ["summed", "column"]
    term = ["row", "column"][2 - case.rank(2) :] if case.has(2) else None
    alpha, beta = case.attribute("alpha", 1.0), case.attribute("beta", 1.0)
    assert isinstance(alpha, float) and isinstance(beta, float)
    return product(case, [first, second], ["row", "column"], term, alpha, beta)


def einsum(case: Case) -> Verdict:
    """Judge Einsum, with or without an explicit result."""
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
    """Return one label per axis; those of an ellipsis are counted from its right end."""
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
    """Judge a sum of products over the labels that are not in the result: alpha * sum of products + beta * operand 2.

    Args:
        case: the node; its first operands are the factors.
        terms: labels of the factors' axes.
        result: labels of the output's axes.
        added: labels of the last axes of operand 2, where it is added to the product.
        alpha: factor of the product.
        beta: factor of the added term.

    Raises:
        Refused: a label is laid out differently in two factors, or rows would be summed.
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
        labels = {result[axis] for axis in region}
        total = _total(case, terms, result, labels, dtype)
        if alpha != 1.0:
            total = _held(iv.multiply(iv.constant(alpha), total), dtype)
        if added is None:
            return total
        other = _read(case.fact(2), added, labels)
        if beta != 1.0:
            other = _held(iv.multiply(iv.constant(beta), other), dtype)
        return _held(iv.add(total, other), dtype)

    out = case.output({axis: layouts[label] for axis, label in enumerate(result) if label in layouts}, content)
    if cleaned:
        return case.verdict("MM2", "the summed padding adds exactly zero", out, assumes=dict.fromkeys(assumes))
    return case.verdict("MM1", "no padded axis is summed over", out, pointwise=True)


# Layouts


def _layouts(case: Case, terms: Sequence[Sequence[str]]) -> dict[str, Axis]:
    """Return the layout of every tracked label."""
    layouts: dict[str, Axis] = {}
    for operand, term in enumerate(terms):
        for axis, layout in case.fact(operand).axes:
            if layouts.setdefault(term[axis], layout) != layout:
                raise refuse(
                    f"{case.op} pairs {_text(layouts[term[axis]])} with {_text(layout)}",
                    "pad and join both operands alike",
                )
    for operand, term in enumerate(terms):
        for axis, label in enumerate(term):
            if label in layouts and case.fact(operand).axis(axis) is None and case.dims(operand)[axis] != 1:
                raise refuse(
                    f"{case.op} pairs {_text(layouts[label])} with {case.dims(operand)[axis]} unpadded entries",
                    "pad and join both operands alike",
                )
    return layouts


def _join_added(case: Case, added: Sequence[str], layouts: dict[str, Axis]) -> None:
    """Require that an added term has the layout of the product, or size 1, along each axis."""
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
    """Fill as little padding of a summed label as needed, so that it adds zero to valid entries of the result.

    Padding adds zero where it is zero in one factor and finite in the others. The padding of labels cleaned before adds
    zero already.

    Returns:
        The assumptions on factors without padding there: that zero times their entries is zero.

    Raises:
        Refused: such a factor is a constant with infinite or NaN entries.
    """
    holders = [
        (operand, term.index(label))
        for operand, term in enumerate(terms)
        if label in term and case.fact(operand).axis(term.index(label)) is not None
    ]

    def summed(operand: int, *, padding: bool) -> Interval:
        """Return the interval of what valid entries of the result sum, in a label's padding or anywhere."""
        fact, term = case.fact(operand), terms[operand]
        return iv.hull(
            *(
                fact.content(region)
                for region in fact.regions
                if not any(term[padded_axis] in result or term[padded_axis] in cleaned for padded_axis in region)
                and (not padding or any(term[padded_axis] == label for padded_axis in region))
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

    for operand, axis in holders:
        if not summed(operand, padding=True).is_finite and not adds_nothing(operand):
            case.fill(operand, axis, 0.0)
    if not any(adds_nothing(operand) for operand, _ in holders):
        operand, axis = min(holders, key=lambda holder: _cost(case, holder[0]))
        case.fill(operand, axis, 0.0)
    return [Assumption(operand, "finite") for operand in others]


def _is_softmax(value: ir.Value | None) -> bool:
    """Whether a value is a Softmax's, possibly moved: where a masked entry is NaN, valid entries are, too."""
    while value is not None and (node := value.producer()) is not None and graphs.is_op(node, *MOVED):
        value = node.inputs[0]
    return value is not None and graphs.is_op(value.producer(), "Softmax")


def _cost(case: Case, operand: int) -> tuple[bool, float]:
    """Return the cost of filling padding: whether an axis for the batch is missing, and the size of the value."""
    fact, dims = case.fact(operand), case.dims(operand)
    has_place = fact.rows_axis is not None or case.batch is None or (dims[0] == 1 and fact.axis(0) is None)
    return not has_place, math.prod(float(dim) if isinstance(dim, int) else TYPICAL for dim in dims)


# Bounds


def _read(fact: Fact, term: Sequence[str], labels: Iterable[str]) -> Interval:
    """Return the interval of entries in the padding of exactly these labels."""
    return fact.content(at for at in fact.padded if term[at] in labels)


def _total(
    case: Case, terms: Sequence[Sequence[str]], result: Sequence[str], labels: set[str], dtype: ir.DataType
) -> Interval:
    """Return bounds of the sum of products in a region, given by its labels."""
    facts = [case.fact(operand) for operand in range(len(terms))]
    summed = sorted({term[axis] for fact, term in zip(facts, terms, strict=True) for axis in fact.padded} - set(result))
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
        axes = {label: axis for axis, label in enumerate(terms[operand]) if label not in result}
        sums = _absolute_sums(case, operand, list(axes.values()))
        if sums is not None:
            repeated = [n for label, n in sizes.items() if label not in axes or case.dims(operand)[axes[label]] == 1]
            other = max(part[1 - operand].magnitude for part in parts)
            bounds.append(_counted(iv.bounded(sums * other), repeated))
    return _held(min(bounds, key=lambda bound: bound.magnitude), dtype)


def _summed_sizes(case: Case, terms: Sequence[Sequence[str]], result: Sequence[str]) -> dict[str, float]:
    """Return the number of entries along every summed label."""
    sizes: dict[str, float] = {}
    for operand, term in enumerate(terms):
        for label, dim in zip(term, case.dims(operand), strict=True):
            if label not in result:
                sizes[label] = max(sizes.get(label, 1.0), float(dim) if isinstance(dim, int) else LONGEST)
    return sizes


def _counted(one: Interval, sizes: Iterable[float]) -> Interval:
    """Return bounds of a sum of at most as many terms as there are entries."""
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
    """Return bounds of a sum as stored in a type; unbounded where a partial sum may overflow."""
    held = stored(bound, dtype)
    return held if held.is_finite or limits_of(dtype) is not None else ANYTHING


_SUMS: weakref.WeakKeyDictionary[ir.Value, dict[tuple[int, ...], float]] = weakref.WeakKeyDictionary()


def _absolute_sums(case: Case, operand: int, axes: Sequence[int]) -> float | None:
    """Return the largest sum of absolute values over the summed axes of a constant or of probabilities; else None."""
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
    """Whether the entries along an axis, counted from the back, are a Softmax's, or zero in place of them."""
    node = None if value is None else value.producer()
    if value is None or node is None:
        return False
    if graphs.is_op(node, "Softmax"):
        rank = len(graphs.dims_of(value) or ())
        return rank > 0 and axis_of(node, rank) == axis + rank
    if graphs.is_op(node, "Identity", "Dropout", "Where"):
        zeros = [
            constant for constant in node.inputs if (array := graphs.array_of(constant)) is not None and not array.any()
        ]
        weights = node.inputs[0]
        if node.op_type == "Where":
            if len(zeros) != 1 or node.inputs[0] in zeros:
                return False
            weights = node.inputs[1] if node.inputs[2] is zeros[0] else node.inputs[2]
        same_shape = weights is not None and graphs.dims_of(weights) == graphs.dims_of(value)
        return same_shape and sums_to_one(weights, axis)
    return False


TABLE: Table = {("", "MatMul"): on_data(matmul), ("", "Gemm"): on_data(gemm), ("", "Einsum"): on_data(einsum)}
