"""Rules MM: products, where a padded axis is kept (MM1) or summed over (MM2)."""

import weakref
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from compiler.analysis import interval as iv
from compiler.analysis.case import Case
from compiler.analysis.facts import Region, Verdict, refuse
from compiler.analysis.interval import ZERO, Interval
from compiler.analysis.layout import Axis, has_rows, is_padded
from compiler.analysis.registry import Table

LARGEST_SUM = 2.0**24
"""Entries that a contraction over an axis of symbolic size is taken to sum at most."""


def matmul(case: Case) -> Verdict:
    """MatMul of any ranks, as the Einsum it is."""
    ranks = case.rank(0), case.rank(1)
    letters = iter("abcdefghijklmnopqrstuvw")
    batch = [next(letters) for _ in range(max(max(ranks) - 2, 0))]
    first = batch[len(batch) - max(ranks[0] - 2, 0) :] + (["x", "z"] if ranks[0] > 1 else ["z"])
    second = batch[len(batch) - max(ranks[1] - 2, 0) :] + (["z", "y"] if ranks[1] > 1 else ["z"])
    result = batch + (["x"] if ranks[0] > 1 else []) + (["y"] if ranks[1] > 1 else [])
    return _product(case, [first, second], result)


def gemm(case: Case) -> Verdict:
    """Gemm: a matrix product of two matrices, transposed or not, plus a broadcast term."""
    first = ["z", "x"] if case.int_attribute("transA", 0) else ["x", "z"]
    second = ["y", "z"] if case.int_attribute("transB", 0) else ["z", "y"]
    if not case.has(2):
        return _product(case, [first, second], ["x", "y"])
    term = ["x", "y"][2 - case.rank(2) :]
    return _product(case, [first, second], ["x", "y"], term)


def einsum(case: Case) -> Verdict:
    """Einsum with an explicit result and no ellipsis."""
    equation = str(case.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = [list(term) for term in left.split(",")]
    if not arrow or "." in equation or len(terms) != len(case.facts):
        raise refuse(f"Einsum with equation {equation!r}", "write the equation with an explicit result and no ellipsis")
    if any(len(set(term)) != len(term) for term in terms):
        raise refuse(f"Einsum takes a diagonal in {equation!r}", "take the diagonal by a gather")
    return _product(case, terms, list(right))


def _product(case: Case, terms: Sequence[list[str]], result: list[str], added: list[str] | None = None) -> Verdict:
    """A sum of products over the labels that are not in the result.

    Args:
        case: the node.
        terms: labels of the factors' axes.
        result: labels of the output's axes.
        added: labels of a third operand that is added to the product.

    Raises:
        Refused: a label is padded in one factor and has other entries in another, or rows would be summed.
    """
    layouts = _layouts(case, terms)
    summed = [label for label in layouts if label not in result]
    for label in summed:
        if has_rows(layouts[label]):
            raise refuse(f"{case.op} sums over the batch axis: rows of one batch would mix", "keep the batch apart")
        if is_padded(layouts[label]):
            _clean(case, terms, label, summed)
    if added is not None:
        for axis, layout in case.fact(2).axes:
            if layouts.get(added[axis], layout) != layout or case.dims(2)[axis] == 1:
                raise refuse(f"{case.op} adds a term of another layout", "add it after the product")
            layouts[added[axis]] = layout
    axes = {result.index(label): layout for label, layout in layouts.items() if label in result}
    count = _summed_entries(case, terms, result)

    def content(region: Region) -> Interval:
        labels = {result[at] for at in region}
        total = _sum_of_products(case, terms, labels, summed, count)
        if added is None:
            return total
        fact = case.fact(2)
        beta = case.attribute("beta", 1.0)
        own = frozenset(at for at, label in enumerate(added) if label in labels and at in fact.padded)
        scale = iv.constant(float(beta) if isinstance(beta, int | float) else 1.0)
        return iv.add(_scaled(case, total), iv.multiply(scale, fact.content(own)))

    out = case.output(axes, content)
    if summed and any(is_padded(layouts[label]) for label in summed):
        return case.verdict("MM2", "the summed padding adds exactly zero", out)
    return case.verdict("MM1", "no tracked axis is summed over", out, pointwise=True)


def _scaled(case: Case, total: Interval) -> Interval:
    alpha = case.attribute("alpha", 1.0)
    return iv.multiply(iv.constant(float(alpha) if isinstance(alpha, int | float) else 1.0), total)


def _layouts(case: Case, terms: Sequence[list[str]]) -> dict[str, Axis]:
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


def _text(layout: Axis) -> str:
    return " * ".join(map(str, layout))


def _clean(case: Case, terms: Sequence[list[str]], label: str, summed: Sequence[str]) -> None:
    """Padding that is summed over must be zero in one factor and finite in the others, where kept axes are valid."""
    holders = [(operand, term.index(label)) for operand, term in enumerate(terms) if label in term]
    for operand, term in enumerate(terms):
        if label not in term and not case.fact(operand).valid.is_finite:
            raise refuse(f"{case.op} sums zeros times numbers that may be infinite", "keep constants and masks finite")

    def padding(operand: int, at: int) -> Interval:
        fact, term = case.fact(operand), terms[operand]
        free = {axis for axis in fact.padded if term[axis] in summed}
        return iv.hull(*(fact.content(region) for region in fact.regions if at in region and region <= free))

    zero = {operand for operand, at in holders if padding(operand, at).is_zero}
    for operand, at in holders:
        others = zero - {operand}
        if not padding(operand, at).is_finite and (
            len(holders) == 1 or others or len(zero) == 0 or operand not in zero
        ):
            case.fill(operand, at, 0.0)
            zero.add(operand)
    if not zero:
        operand, at = _cheapest(case, holders)
        case.fill(operand, at, 0.0)


def _cheapest(case: Case, holders: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The factor to overwrite: one with a batch axis, of the lower rank."""
    return min(holders, key=lambda each: (case.fact(each[0]).rows_axis is None, case.rank(each[0]), -each[0]))


def _summed_entries(case: Case, terms: Sequence[list[str]], result: list[str]) -> float:
    """How many products one output entry sums."""
    sizes: dict[str, float] = {}
    for operand, term in enumerate(terms):
        for label, dim in zip(term, case.dims(operand), strict=True):
            if label not in result:
                size = float(dim) if isinstance(dim, int) else LARGEST_SUM
                sizes[label] = max(sizes.get(label, 1.0), size)
    return float(np.prod(list(sizes.values()))) if sizes else 1.0


def _sum_of_products(
    case: Case, terms: Sequence[list[str]], labels: set[str], summed: Sequence[str], count: float
) -> Interval:
    """Bounds of the sum at the places of a region, padded and valid entries of the summed axes together."""
    contents = [_read(case, operand, term, labels, summed) for operand, term in enumerate(terms)]
    if any(content.is_zero for content in contents):
        return ZERO if all(content.is_finite for content in contents) else iv.ANYTHING
    if not all(content.is_finite for content in contents):
        return iv.ANYTHING
    for operand, term in enumerate(terms):  # a constant factor: its own sums of absolute values
        sums = _absolute_sums(case, operand, [at for at, label in enumerate(term) if label not in labels])
        if sums is not None and len(terms) == 2:
            return iv.bounded(sums * contents[1 - operand].magnitude)
    product = contents[0]
    for content in contents[1:]:
        product = iv.multiply(product, content)
    low, high = min(product.low * count, 0.0), max(product.high * count, 0.0)
    return Interval(low, high) if count > 1 else product


def _read(case: Case, operand: int, term: list[str], labels: set[str], summed: Sequence[str]) -> Interval:
    fact = case.fact(operand)
    fixed = frozenset(at for at in fact.padded if term[at] in labels)
    free = [at for at in fact.padded if term[at] in summed]
    regions: list[Region] = [fixed]
    for at in free:
        regions += [region | {at} for region in regions]
    return iv.hull(*(fact.content(region) for region in regions))


_SUMS: "weakref.WeakKeyDictionary[ir.Value, float]" = weakref.WeakKeyDictionary()


def _absolute_sums(case: Case, operand: int, axes: Sequence[int]) -> float | None:
    """The largest sum of absolute values of a constant matrix over its contracted axis; None for anything else."""
    value = case.node.inputs[operand]
    array = case.array(operand)
    if value is None or array is None or array.ndim < 2 or not np.issubdtype(array.dtype, np.floating):
        return None
    if value not in _SUMS:
        sums = [float(np.abs(array.astype(np.float64)).sum(axis=at).max(initial=0.0)) for at in range(array.ndim)]
        _SUMS[value] = max(sums[-2:])
    return _SUMS[value]


TABLE: Table = {("", "MatMul"): matmul, ("", "Gemm"): gemm, ("", "Einsum"): einsum}
