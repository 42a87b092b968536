"""Derives symbolic expressions, valid at all lengths, for the entries of values that depend on lengths alone.

    frames = Range(0, time, 1)                  entry [k] is k
    Less(frames, ReduceSum(mask of ones))       k < time for every k below time: True at every length
    Equal(Shape(x)[1], 30)                      True at one length, False at others: nothing is derived

An entry is an expression over its own places and axis names, a truth value, or nothing at all where a value has no
entry. What cannot be decided for every place and every length is not derived: no length is tried.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
import sympy

from compiler.graph.lengths.symbolic_values import symbolic_values_of
from compiler.graph.model import array_of, dims_of, int_attribute, integers_of, is_op
from compiler.graph.operators.axes import axis_of, axis_operand, perm_of
from compiler.graph.operators.reductions import Reduction, reduction_of
from compiler.graph.operators.traits import COMPARISONS, PICKING
from compiler.graph.sizes.expressions import Dim, normal_form
from compiler.graph.sizes.growth import never_negative
from compiler.graph.sizes.held_numbers import can_hold

FURTHEST = 2**31 - 1
"""Numbers from here on are beyond every length."""

PLACES = tuple(sympy.Symbol(f"place{axis}", integer=True, nonnegative=True) for axis in range(12))
"""The place of an entry along every axis."""

EMPTY = "no entry"

Entry: TypeAlias = sympy.Expr | bool | str
"""A number, a truth value, or `EMPTY`."""


class Unknown(Exception):
    """Nothing is derived."""


class SymbolicEntries:
    """Derives entries.

    Args:
        filled: graph inputs that hold one number whatever their shape: ones in a mask, a length among the inputs.
    """

    def __init__(self, filled: Mapping[ir.Value, Dim] | None = None) -> None:
        self.filled = filled or {}
        self.known: dict[ir.Value, Entry | None] = {}

    def of(self, value: ir.Value | None) -> Entry:
        """Return the symbolic entry of a value as a function of its position.

        Raises:
            Unknown: the entry depends on data, or cannot be derived.
        """
        if value is None:
            raise Unknown
        if value not in self.known:
            self.known[value] = None
            with contextlib.suppress(Unknown):
                self.known[value] = self._found(value)
        entry = self.known[value]
        if entry is None:
            raise Unknown
        return entry

    def _found(self, value: ir.Value) -> Entry:
        array = array_of(value)
        if array is not None:
            return _of_array(array)
        if value in self.filled:
            number = sympy.sympify(self.filled[value])
            if value.dtype == ir.DataType.BOOL:
                return bool(number)
            if not number.is_Integer and (value.dtype is None or not value.dtype.is_integer()):
                raise Unknown  # lengths are rounded from some on
            return number
        known = symbolic_values_of(value) if value.dtype is not None and value.dtype.is_integer() else None
        if known and len(set(known)) == 1:
            return sympy.sympify(normal_form(known[0]))
        node = value.producer()
        rule = None if node is None or node.domain not in ("", "ai.onnx") else RULES.get(node.op_type)
        if node is None or rule is None:
            raise Unknown
        entry = rule(self, node)
        if isinstance(entry, sympy.Basic) and not can_hold(value.dtype, normal_form(entry)):
            raise Unknown  # lengths and places wrap around from some on, or are rounded
        return entry

    def numbers(self, node: ir.Node) -> list[sympy.Expr]:
        """Return the symbolic entries of a node's operands at the position of its output.

        Raises:
            Unknown: one cannot be derived, or is not a number.
        """
        rank = len(_dims(node.outputs[0]))
        found = [self.spread(value, rank) for value in node.inputs if value is not None]
        return [_number(each) for each in found]

    def spread(self, value: ir.Value | None, rank: int) -> Entry:
        """Return the symbolic entry of an operand broadcast to a result with `rank` axes."""
        entry = self.of(value)
        own = _dims(value)
        shift = rank - len(own)
        return _placed(entry, {at: 0 if dim == 1 else PLACES[at + shift] for at, dim in enumerate(own)})


def counted_axis(value: ir.Value, entry: int | None = None) -> int | None:
    """Return the axis along which a value holds 0, 1, 2, ... for all lengths; None where there is none.

    Args:
        value: the value.
        entry: which entry of the last axis is meant; None for the value itself.
    """
    try:
        held, dims = SymbolicEntries().of(value), list(_dims(value))
    except Unknown:
        return None
    if entry is not None:
        last = len(dims) - 1
        held, dims = _placed(held, {last: entry}), dims[:-1]
    if isinstance(held, bool | str):
        return None
    held = _placed(held, {axis: 0 for axis, dim in enumerate(dims) if dim == 1})
    counts = [PLACES[axis] if dim != 1 else sympy.Integer(0) for axis, dim in enumerate(dims)]
    return next((axis for axis, count in enumerate(counts) if held == count), None)


def stays_below(value: ir.Value, size: Dim) -> bool:
    """Whether every entry of a value lies in [0, size) for all lengths."""
    try:
        held, dims = _number(SymbolicEntries().of(value)), _dims(value)
        return _is_never_negative(held, dims) and _is_never_negative(size - 1 - held, dims)
    except Unknown:
        return False


def never_zero(value: ir.Value) -> bool:
    """Whether no entry of a value is 0, for all lengths."""
    entries = SymbolicEntries()
    try:
        held, dims = _number(entries.of(value)), _dims(value)
        return any(_is_never_negative(difference, dims) for difference in (held - 1, -held - 1))
    except Unknown:
        node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx") or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Max":
        return any(operand is not None and _is_positive(entries, operand) for operand in node.inputs)
    return node.op_type in PICKING and never_zero(node.inputs[0])


def _is_positive(entries: SymbolicEntries, value: ir.Value) -> bool:
    """Whether every entry of a value is 1 or more for all lengths."""
    try:
        return _is_never_negative(_number(entries.of(value)) - 1, _dims(value))
    except Unknown:
        return False


def constant_everywhere(value: ir.Value) -> sympy.Expr | None:
    """Return the number, over axis names, that a value holds at every position; None where unknown or varying."""
    try:
        held = _number(SymbolicEntries().of(value))
    except Unknown:
        return None
    return held if _is_alike(held) else None


def uniform_values(values: Sequence[ir.Value], filled: Mapping[ir.Value, Dim]) -> dict[ir.Value, np.ndarray]:
    """Return the values that hold one number at every position for all lengths, with that number.

    A value that is empty at every length has a number of shape [0].
    """
    entries, numbers = SymbolicEntries(filled), {}
    for value in values:
        try:
            held = entries.of(value)
        except Unknown:
            continue
        dtype = bool if value.dtype is None else value.dtype.numpy()
        if isinstance(held, str):
            numbers[value] = np.zeros(0, dtype)
        elif isinstance(held, bool) or held.is_Integer:
            numbers[value] = np.array([held if isinstance(held, bool) else int(held)], dtype)
    return numbers


# What is proved


def _is_never_negative(entry: sympy.Expr, dims: Sequence[Dim]) -> bool:
    """Whether a symbolic entry is at least 0 at every position of axes of these sizes, for all lengths."""
    least = sympy.expand(sympy.sympify(normal_form(entry)))
    for part in least.atoms(sympy.Min, sympy.Max):
        if part.free_symbols & set(PLACES):
            return _of_extreme(least, part, dims)
    for axis, dim in enumerate(dims):
        way = _direction(least, PLACES[axis])
        if way is None:
            return False
        if way:
            least = sympy.expand(least.subs(PLACES[axis], 0 if way > 0 else dim - 1))
    names = sorted(least.free_symbols, key=str)
    if len(names) <= 1:
        return never_negative(normal_form(least), 0)
    return bool(least.is_polynomial(*names)) and all(number >= 0 for number in sympy.Poly(least, *names).coeffs())


def _of_extreme(entry: sympy.Expr, part: sympy.Expr, dims: Sequence[Dim]) -> bool:
    """Whether an entry that contains a Min or Max is at least 0: one argument suffices, or all are needed."""
    factor = sympy.expand(entry).coeff(part)
    if not factor.is_number or sympy.expand(entry - factor * part).has(part):
        return False
    one_is_enough = (factor > 0) == isinstance(part, sympy.Max)
    cases = (_is_never_negative(entry.subs(part, each), dims) for each in part.args)
    return any(cases) if one_is_enough else all(cases)


def _direction(entry: sympy.Expr, place: sympy.Symbol) -> int | None:
    """Return 1 where an entry never falls along an axis, -1 where it never rises, 0 where constant, None if unknown."""
    if place not in entry.free_symbols:
        return 0
    if entry == place:
        return 1
    if isinstance(entry, sympy.floor | sympy.Min | sympy.Max) or entry.is_Add:
        ways = {_direction(part, place) for part in entry.args} - {0}
        return ways.pop() if len(ways) == 1 else None
    if entry.is_Mul:
        moving = [part for part in entry.args if place in part.free_symbols]
        others = sympy.Mul(*(part for part in entry.args if place not in part.free_symbols))
        way = _direction(moving[0], place) if len(moving) == 1 else None
        if way is not None and others.is_number:
            return way if others > 0 else -way
        if way is not None and (others.is_nonnegative or others.is_nonpositive):
            return way if others.is_nonnegative else -way
    return None


def _compared(name: str, difference: sympy.Expr, dims: Sequence[Dim]) -> bool:
    """Return the truth of a comparison of a difference with 0, for every position and length."""
    holds = {
        "Greater": (difference - 1, -difference),
        "GreaterOrEqual": (difference, -difference - 1),
        "Less": (-difference - 1, difference),
        "LessOrEqual": (-difference, difference - 1),
    }
    if name == "Equal":
        if difference == 0:
            return True
        if any(_is_never_negative(bound, dims) for bound in (difference - 1, -difference - 1)):
            return False
        raise Unknown
    always, never = holds[name]
    if _is_never_negative(always, dims):
        return True
    if _is_never_negative(never, dims):
        return False
    raise Unknown


# Operators


def _dims(value: ir.Value | None) -> tuple[Dim, ...]:
    dims = None if value is None else dims_of(value)
    if dims is None or len(dims) > len(PLACES):
        raise Unknown
    return dims


def _number(entry: Entry) -> sympy.Expr:
    if isinstance(entry, bool | str):
        raise Unknown
    return entry


def _truth(entry: Entry) -> bool:
    if not isinstance(entry, bool):
        raise Unknown
    return entry


def _is_alike(entry: Entry) -> bool:
    """Whether an entry is the same at every position."""
    return isinstance(entry, bool | str) or not entry.free_symbols & set(PLACES)


def _placed(entry: Entry, places: Mapping[int, sympy.Expr | int]) -> Entry:
    """Return an entry with its positions substituted."""
    if isinstance(entry, bool | str):
        return entry
    return sympy.expand(entry.subs({PLACES[at]: to for at, to in places.items()}, simultaneous=True))


def _of_array(array: np.ndarray) -> Entry:
    """Return the entry of a constant that is one integer everywhere, or counts along an axis."""
    if array.size == 0:
        return EMPTY
    first = array.reshape(-1)[0]
    if array.dtype.kind == "b" and (array == first).all():
        return bool(first)
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and not float(first).is_integer()):
        raise Unknown
    if (array == first).all():
        return sympy.Integer(int(first))
    for counted, size in enumerate(array.shape):
        shape = [-1 if axis == counted else 1 for axis in range(array.ndim)]
        if size > 1 and array.dtype.kind in "iu" and (array == int(first) + np.arange(size).reshape(shape)).all():
            return PLACES[counted] + int(first)
    raise Unknown


def _cast(entries: SymbolicEntries, node: ir.Node) -> Entry:
    entry, to = entries.of(node.inputs[0]), ir.DataType(int_attribute(node, "to", 1))
    if entry == EMPTY:
        return EMPTY
    if to == ir.DataType.BOOL:
        return entry if isinstance(entry, bool) else not _compared("Equal", _number(entry), _dims(node.inputs[0]))
    number = sympy.Integer(entry) if isinstance(entry, bool) else _number(entry)
    if not to.is_integer() and not number.is_Integer:
        raise Unknown  # lengths are rounded from some on
    return number


def _whole(node: ir.Node) -> None:
    """Require integer operands, as sums and products of floats are rounded from some length on.

    Raises:
        Unknown: an operand is not an integer.
    """
    if any(value is not None and value.dtype is not None and not value.dtype.is_integer() for value in node.inputs):
        raise Unknown


def _arithmetic(function: Callable[..., sympy.Expr]) -> "Rule":
    def rule(entries: SymbolicEntries, node: ir.Node) -> Entry:
        _whole(node)
        return sympy.expand(function(*entries.numbers(node)))

    return rule


def _quotient(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry of a Div or Mod of non-negative integers by a positive constant."""
    _whole(node)
    (top, bottom), dims = entries.numbers(node), _dims(node.outputs[0])
    if not bottom.is_Integer or bottom < 1 or not _is_never_negative(top, dims):
        raise Unknown
    quotient = sympy.floor(top / bottom)
    return quotient if is_op(node, "Div") else top - bottom * quotient


def _extreme(function: Callable[..., sympy.Expr]) -> "Rule":
    """Return the rule of Min or Max, which ignores constants that no length reaches."""
    sign = 1 if function is sympy.Min else -1

    def rule(entries: SymbolicEntries, node: ir.Node) -> Entry:
        numbers = entries.numbers(node)
        near = [each for each in numbers if not (each.is_Integer and sign * int(each) >= FURTHEST)]
        return function(*(near or numbers))

    return rule


def _comparison(entries: SymbolicEntries, node: ir.Node) -> Entry:
    first, second = entries.numbers(node)
    return _compared(node.op_type, sympy.expand(first - second), _dims(node.outputs[0]))


def _negated(entries: SymbolicEntries, node: ir.Node) -> Entry:
    return not _truth(entries.of(node.inputs[0]))


def _joined(decides: bool) -> "Rule":
    """Return the rule of And or Or; one operand that equals `decides` decides alone."""

    def rule(entries: SymbolicEntries, node: ir.Node) -> Entry:
        truths = []
        for value in node.inputs:
            try:
                truths.append(_truth(entries.of(value)))
            except Unknown:
                continue
        if decides in truths:
            return decides
        if len(truths) < len(node.inputs):
            raise Unknown
        return not decides

    return rule


def _selected(entries: SymbolicEntries, node: ir.Node) -> Entry:
    rank = len(_dims(node.outputs[0]))
    try:
        chosen = 1 if _truth(entries.of(node.inputs[0])) else 2
    except Unknown:
        first, second = (entries.spread(value, rank) for value in node.inputs[1:])
        if first != second:
            raise
        return first
    return entries.spread(node.inputs[chosen], rank)


def _range(entries: SymbolicEntries, node: ir.Node) -> Entry:
    _whole(node)
    start, step = (_number(entries.of(node.inputs[at])) for at in (0, 2))
    return sympy.expand(start + step * PLACES[0])


def _expanded(entries: SymbolicEntries, node: ir.Node) -> Entry:
    return entries.spread(node.inputs[0], len(_dims(node.outputs[0])))


def _reshaped(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry after a reshape that adds or removes axes of size 1, or of a constant value."""
    entry, own, dims = entries.of(node.inputs[0]), _dims(node.inputs[0]), _dims(node.outputs[0])
    if _is_alike(entry):
        return entry
    before = [at for at, dim in enumerate(own) if dim != 1]
    after = [at for at, dim in enumerate(dims) if dim != 1]
    if [own[at] for at in before] != [dims[at] for at in after]:
        raise Unknown
    moved = {old: PLACES[new] for old, new in zip(before, after, strict=True)}
    return _placed(entry, dict.fromkeys(range(len(own)), 0) | moved)


def _side_by_side(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry of a Concat of equal operands that do not vary along its axis."""
    found = [entries.of(value) for value in node.inputs]
    axis = axis_of(node, len(_dims(node.outputs[0])))
    first = found[0]
    if any(each != first for each in found) or (isinstance(first, sympy.Basic) and PLACES[axis] in first.free_symbols):
        raise Unknown
    return first


def _transposed(entries: SymbolicEntries, node: ir.Node) -> Entry:
    entry = entries.of(node.inputs[0])
    if entry == EMPTY:
        return EMPTY
    order = perm_of(node, len(_dims(node.inputs[0])))
    return _placed(entry, {old: PLACES[new] for new, old in enumerate(order)})


def _gathered(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry at a constant index of a Gather; any entry of a value that is the same everywhere."""
    entry = entries.of(node.inputs[0])
    if _is_alike(entry):
        return entry
    at = integers_of(node.inputs[1])
    axis = axis_of(node, len(_dims(node.inputs[0])))
    if not is_op(node, "Gather") or at is None or len(at) != 1 or not isinstance(at[0], int) or at[0] < 0:
        raise Unknown
    added = len(_dims(node.inputs[1])) - 1
    behind = range(axis + 1, len(_dims(node.inputs[0])))
    return _placed(entry, {axis: at[0]} | {old: PLACES[old + added] for old in behind})


def _reduction(node: ir.Node) -> Reduction:
    view = reduction_of(node, integers_of)
    if view is None:
        raise Unknown
    return view


def _without(entry: sympy.Expr, view: Reduction) -> Entry:
    """Return an entry at the positions that a reduction leaves."""
    return _placed(entry, {old: PLACES[new] for new, old in view.kept.items()})


def _summed(entries: SymbolicEntries, node: ir.Node) -> Entry:
    _whole(node)
    entry, dims, view = _number(entries.of(node.inputs[0])), _dims(node.inputs[0]), _reduction(node)
    if any(PLACES[at] in entry.free_symbols for at in view.axes):
        raise Unknown
    count = math.prod((sympy.sympify(dims[at]) for at in view.axes), start=sympy.Integer(1))
    return _without(sympy.expand(entry * count), view)


def _extreme_along(sign: int) -> "Rule":
    """Return the rule of ReduceMax or ReduceMin, whose entry lies at one end of a monotonic axis."""

    def rule(entries: SymbolicEntries, node: ir.Node) -> Entry:
        entry, dims, view = _number(entries.of(node.inputs[0])), _dims(node.inputs[0]), _reduction(node)
        for axis in view.axes:
            way = _direction(entry, PLACES[axis])
            if way is None:
                raise Unknown
            entry = sympy.expand(entry.subs(PLACES[axis], dims[axis] - 1 if way * sign > 0 else 0))
        return _without(entry, view)

    return rule


def _counted(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry of a CumSum of values that are equal along its axis."""
    _whole(node)
    entry, dims, named = _number(entries.of(node.inputs[0])), _dims(node.inputs[0]), integers_of(axis_operand(node))
    if named is None or not isinstance(named[0], int):
        raise Unknown
    at = axis_of(node, len(dims), named[0])
    if PLACES[at] in entry.free_symbols:
        raise Unknown
    place = dims[at] - 1 - PLACES[at] if int_attribute(node, "reverse", 0) else PLACES[at]
    return sympy.expand(entry * (place + (0 if int_attribute(node, "exclusive", 0) else 1)))


def _places_of(entries: SymbolicEntries, node: ir.Node) -> Entry:
    """Return the entry of a NonZero whose operand has no nonzero entry."""
    entry = entries.of(node.inputs[0])
    if entry is False or entry == 0 or entry == EMPTY:
        return EMPTY
    raise Unknown


def _filled(entries: SymbolicEntries, node: ir.Node) -> Entry:
    given = node.attributes.get("value")
    return sympy.Integer(0) if given is None else _of_array(given.as_tensor().numpy())


Rule: TypeAlias = Callable[[SymbolicEntries, ir.Node], Entry]

RULES: dict[str, Rule] = {
    "Add": _arithmetic(lambda a, b: a + b),
    "And": _joined(False),
    "Cast": _cast,
    "Concat": _side_by_side,
    "ConstantOfShape": _filled,
    "CumSum": _counted,
    "Div": _quotient,
    "Expand": _expanded,
    "Flatten": _reshaped,
    "Gather": _gathered,
    "GatherElements": _gathered,
    "GatherND": _gathered,
    "Identity": lambda entries, node: entries.of(node.inputs[0]),
    "Max": _extreme(sympy.Max),
    "Min": _extreme(sympy.Min),
    "Mod": _quotient,
    "Mul": _arithmetic(lambda a, b: a * b),
    "Neg": _arithmetic(lambda a: -a),
    "NonZero": _places_of,
    "Not": _negated,
    "Or": _joined(True),
    "Range": _range,
    "ReduceMax": _extreme_along(1),
    "ReduceMin": _extreme_along(-1),
    "ReduceSum": _summed,
    "Reshape": _reshaped,
    "Slice": _gathered,
    "Squeeze": _reshaped,
    "Sub": _arithmetic(lambda a, b: a - b),
    "Tile": _gathered,
    "Transpose": _transposed,
    "Unsqueeze": _reshaped,
    "Where": _selected,
    **dict.fromkeys(COMPARISONS, _comparison),
}
"""How every operator computes entries; of others nothing is derived."""
