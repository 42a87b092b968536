"""Finds the shortest lengths at which the original is defined: no division by 0, no index or size out of range.

    x / (T - 1)                   needs T - 1 to be 1 or more: NaN and infinity are no answer to compare with
    x[arange(T) - 3]              needs T to be 3 or more: with fewer entries the original does not run
    reshape(x, [2, T // 4, 8])    needs T to be 4 or more: for a size of 0 a Reshape copies that of its operand

Sizes are compared exactly. Other values of lengths are computed for the shortest lengths, one after the other, up to
the first at which they are defined: the first length for which anything is claimed. That holds for every value that
follows from lengths alone: one number, one per row, or a tensor laid out as data is, such as the weight 1/T of each
frame, or a count of the ones in a mask that lengths fill.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
import sympy

from compiler.errors import Refused
from compiler.graph.lengths.symbolic_entries import constant_everywhere, never_zero
from compiler.graph.lengths.symbolic_values import is_placeholder, same, symbolic_values_of
from compiler.graph.model import nodes_of, source_of
from compiler.graph.operators.reshapes import copies_zeros
from compiler.graph.sizes.expressions import Dim, symbol
from compiler.graph.sizes.growth import never_falls, never_negative
from compiler.proof.facts.case import Case
from compiler.proof.facts.facts import Fact, refuse
from compiler.proof.facts.layout import Side, symbols_of
from compiler.proof.facts.shape_only import Lengths, ShapeOnly

DIVISORS = {"Div": 1, "Mod": 1, "Reciprocal": 0}
"""Operators that divide, and the operand that they divide by."""

ROOTS = {"Log": 1, "Sqrt": 0}
"""Operators of one operand that have no value below a number."""

NOT_EVERYWHERE = frozenset({"Acos", "Acosh", "Asin", "Atanh", "Pow", "ReduceLogSum"})
"""A list of its own: other operators that have no finite value for some numbers."""


class Known(NamedTuple):
    """The known facts about lengths, before the needs of a graph are derived.

    Attributes:
        least: lengths that are needed in any case, by axis: 1 / (T - 2) means something at T = 1, and nothing at T = 2.
        named: what lengths make of sizes that shape inference does not know, by the name that it made up for each.
    """

    least: Mapping[str, int] = MappingProxyType({})
    named: Mapping[sympy.Symbol, Dim] = MappingProxyType({})

    def size(self, size: Dim) -> sympy.Expr:
        """Return a size over axis names, with the known names substituted."""
        whole = sympy.sympify(size)
        return whole.subs(self.named) if self.named else whole


NOTHING = Known()
"""Lengths are as short as callers may want them."""

MOST = 256
"""Most lengths that are tried for the first one that means something."""

Meets = Callable[[np.ndarray, Lengths], bool]
"""Whether what was computed for some lengths means something."""


def needs_of_graph(
    model: ir.Model, batch: str | None, sides: Mapping[str, Side], known: Known = NOTHING
) -> dict[Dim, None]:
    """Return the sizes that must be at least 1 for a graph to be valid, before padding.

    Args:
        model: the graph, in which lengths are known from shapes alone.
        batch: the batch axis, or None.
        sides: by name, which end of each padded axis holds the valid entries.
        known: sizes that are known already.

    Raises:
        Refused: with node, op and source line; a length may be divided by 0, or no length that was tried is valid.
    """
    needs: dict[Dim, None] = {}
    for node in nodes_of(model):
        case = Case(node, [None if value is None else Fact() for value in node.inputs], batch, sides)
        try:
            needs |= dict.fromkeys(needs_of(case, known))
        except Refused as refused:
            raise refused.at(node=str(node.name), op=node.op_type, source=source_of(node)) from None
    return needs


def needs_of(case: Case, known: Known = NOTHING) -> tuple[Dim, ...]:
    """Return the sizes that must be at least 1 for a node to be valid, where its operands depend on lengths.

    Args:
        case: the node.
        known: sizes that are known already.

    Raises:
        Refused: a length may be divided by 0, or no length that was tried is valid.
    """
    if case.node.domain not in ("", "ai.onnx"):
        return ()
    if case.op in DIVISORS:
        return _needs_of_number(case, DIVISORS[case.op], 1, known, divides=True)
    if case.op in ROOTS:
        return _needs_of_number(case, 0, ROOTS[case.op], known, divides=False)
    if case.op in NOT_EVERYWHERE:
        (output,) = case.node.outputs
        is_judged = _of_lengths(output) is not None and _is_of_rows(case, case.out_dims())
        return _first(case, output, lambda image, _: bool(np.isfinite(image).all()), known) if is_judged else ()
    if case.op == "Gather" and case.array(0) is not None:
        return legal_from(case, 1, [case.dims(0)[case.axis()]], known)
    if case.op == "ConstantOfShape":
        told = symbolic_values_of(case.node.inputs[0]) or ()
        return tuple(size for dim in told for size in _needs_of_size(case, dim, 0, known, divides=False) or ())
    if case.op == "Reshape" and copies_zeros(case.node):
        return _not_copied(case, known)
    return ()


def _not_copied(case: Case, known: Known) -> tuple[Dim, ...]:
    """Return the computed sizes of a Reshape that must not be 0, as a 0 copies the operand's size.

    Raises:
        Refused: a size is 0 at every length.
    """
    told, needs = symbolic_values_of(case.node.inputs[1]) or (), list[Dim]()
    dims = case.dims() if told else ()
    for axis, dim in enumerate(told):
        if axis < len(dims) and same(dim, dims[axis]):
            continue
        if dim == 0 and case.array(1) is None and not (axis < len(dims) and same(case.out_dims()[axis], dims[axis])):
            raise refuse(
                f"Reshape to no entries along axis {axis}: it takes the size of its operand instead, at every length",
                "see that some entries are left in front of it, or leave it out",
            )
        needs += (_needs_of_size(case, dim, 1, known, divides=False) or ()) if symbols_of(dim) else ()
    return tuple(needs)


def _needs_of_number(case: Case, operand: int, first: int, known: Known, *, divides: bool) -> tuple[Dim, ...]:
    """Return the sizes that must be at least 1 for a number to reach a minimum, or to differ from 0.

    Raises:
        Refused: a whole number may be divided by 0, or no length that was tried is valid.
    """
    value, fixed = case.node.inputs[operand], case.array(operand)
    if divides and fixed is not None and fixed.dtype.kind in "iu" and not fixed.all():
        raise refuse(f"{case.op} of whole numbers by 0 never runs", "divide by another number")
    if value is None or _of_lengths(value) is None:
        return ()
    held = symbolic_values_of(value) or _alike(value)
    needs = [None] if held is None else [_needs_of_size(case, size, first, known, divides=divides) for size in held]
    sizes = [size for need in needs if need is not None for size in need]
    if None not in needs:
        return tuple(sizes)
    if divides and value.dtype is not None and value.dtype.is_integer():
        if never_zero(value):
            return tuple(sizes)
        raise refuse(
            f"{case.op} by {value.name!r}, which follows from axis lengths and may be 0 for some",
            "divide by a number that never is, such as Max(number, 1)",
        )
    if not _is_of_rows(case, case.dims(operand)):
        return tuple(sizes)  # of positions, some of which the original leaves without a value at every length

    def meets(array: np.ndarray, lengths: Lengths) -> bool:
        is_valid = array != 0 if divides else array >= first if first == 0 else array > 0
        return bool(np.isfinite(array).all() and is_valid.all())

    return (*sizes, *_first(case, value, meets, known))


def _is_of_rows(case: Case, dims: Sequence[Dim]) -> bool:
    """Whether a value has one entry per row."""
    return all(dim == 1 or str(dim) == case.batch for dim in dims)


def _of_lengths(value: ir.Value | None) -> ShapeOnly | None:
    """Return a value as a function of lengths; None where it reads data or no size."""
    if value is None:
        return None
    try:
        function = ShapeOnly([value])
    except ValueError:
        return None
    return function if function.read else None


def _alike(value: ir.Value) -> tuple[Dim, ...] | None:
    """Return the number that a value holds everywhere, as a tuple; None where it is unknown or varies."""
    number = constant_everywhere(value)
    return None if number is None else (number,)


def _needs_of_size(case: Case, size: Dim, least: int, known: Known, *, divides: bool) -> tuple[Dim, ...] | None:
    """Return the sizes that must be at least 1 for a known number to reach a minimum, or not be 0; else None."""
    alone = known.size(size)
    if any(is_placeholder(name) for name in symbols_of(alone)):
        return None  # it may be 0
    if case.batch is not None:
        alone = alone.subs(symbol(case.batch), 1)
    alone = sympy.fraction(sympy.together(alone))[0]
    if alone.is_number:
        return () if (alone != 0 if divides else alone >= least) else None
    if divides and alone.is_Mul:
        parts = [_needs_of_size(case, part, least, known, divides=True) for part in alone.args]
        return None if None in parts else tuple(size for part in parts if part is not None for size in part)
    shifted, first = alone + 1 - least, min(_shortest(case, name) for name in symbols_of(alone))
    for candidate in (shifted, -alone) if divides else (shifted,):
        if never_negative(candidate - 1, first):
            return ()
        if never_falls(candidate):
            return (candidate,)
    return None


def legal_from(
    case: Case, operand: int, sizes: Sequence[Dim], known: Known = NOTHING, *, components: bool = False
) -> tuple[Dim, ...]:
    """Return the sizes that must be at least 1 for indices computed from lengths to lie within their axes.

    Args:
        case: the node.
        operand: which input holds the indices.
        sizes: sizes of the axes that are indexed.
        known: sizes that are known already.
        components: whether the last axis of the indices holds one index per axis.

    Raises:
        Refused: no length that was tried gives such indices.
    """
    value = case.node.inputs[operand]
    if value is None or symbolic_values_of(value) == ():
        return ()

    def meets(array: np.ndarray, lengths: Lengths) -> bool:
        counts = [size if isinstance(size, int) else int(size.subs(dict(lengths))) for size in sizes]
        columns = [array[..., component] for component in range(len(counts))] if components else [array]
        return all(
            bool((column >= -count).all() and (column < count).all())
            for column, count in zip(columns, counts, strict=True)
        )

    names = {name for size in sizes for name in symbols_of(size)}
    return _first(case, value, meets, known, names)


def _first(
    case: Case, value: ir.Value, meets: Meets, known: Known, others: Set[sympy.Symbol] = frozenset()
) -> tuple[Dim, ...]:
    """Return the sizes that must be at least 1 for lengths to reach the first valid one.

    Raises:
        Refused: no length that was tried is valid. Axes that are not padded have any length.
    """
    function = _of_lengths(value)
    if function is None:
        return ()
    read = set(function.names) | others
    names = {name for read_size in read for name in symbols_of(known.size(read_size))}
    if any(is_placeholder(name) for name in names):
        return ()
    tracked = [name for name in names if str(name) in case.sides]
    lengths = {name: max(_shortest(case, name), known.least.get(str(name), 0)) for name in names}
    for more in range(MOST):
        tried = lengths | {name: lengths[name] + more for name in tracked}
        tried |= {name: int(known.size(name).subs(tried)) for name in read & known.named.keys()}
        try:
            (array,) = function.at(tried)
        except ValueError:
            continue
        if meets(array, tried):
            return tuple(name - (tried[name] - 1) for name in tracked if tried[name] > _shortest(case, name))
    if any(str(name) not in (case.batch, *case.sides) for name in names):
        return ()
    raise refuse(
        f"{case.op} by {value.name!r}, which follows from axis lengths and means nothing for any up to {MOST}",
        "keep the number above 0 and the index within the axis for all long inputs, as by Max and Min",
    )


def _shortest(case: Case, name: sympy.Symbol) -> int:
    """Return the shortest length of an axis that callers may use: 0 for a window, else 1."""
    return 0 if case.sides.get(str(name)) is Side.RIGHT else 1
