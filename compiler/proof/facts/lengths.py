"""Computes the axis lengths for which a proof holds: the shortest with no empty size, the longest that tables allow."""

import dataclasses
import functools
import json
from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir
import onnx_shape_inference
import sympy

from compiler.graph import model as graphs
from compiler.graph.lengths.symbolic_values import SymbolicValues, at_zero, symbolic_values_of
from compiler.graph.model import Dim, symbol
from compiler.graph.operators.axes import axis_of
from compiler.graph.operators.pads import pad_of
from compiler.graph.operators.slices import slice_of
from compiler.graph.sizes.expressions import bounds_of_slice, normal_form, remainder_by
from compiler.graph.sizes.growth import agree_up_to, never_falls, never_negative
from compiler.graph.sizes.held_numbers import held_numbers
from compiler.proof.facts.facts import refuse
from compiler.proof.facts.layout import symbols_of

Limit = tuple[sympy.Expr, int]
"""A size and its upper limit, e.g. the rows of a lookup table. A falling size is a lower limit of the inputs."""


@dataclasses.dataclass(frozen=True, eq=False)
class Longest:
    """The longest that an axis may be.

    Attributes:
        slots: its entries.
        size: the size that would be too large for longer ones.
        most: the largest that it may be.
        node: the node that computes it, or takes as many entries.
    """

    slots: int
    size: sympy.Expr
    most: int
    node: ir.Node

    def __str__(self) -> str:
        node, output = self.node, self.node.outputs[0]
        held = f"entries of {self.most}" if graphs.is_op(node, "Slice") else f"as {output.dtype}, up to {self.most}"
        where = graphs.source_of(node)
        return f"{node.op_type} {node.name} takes {self.size} {held}{where and f' ({where})'}"


SETTLED = (sympy.Min, sympy.Max, sympy.floor)
"""What a limit may settle in a size."""

FURTHEST = 2**20
"""Lengths up to here are tried: 65 seconds of audio at 16 kHz."""


def least_lengths(
    at_least_one: Collection[Dim], start: Mapping[str, int], limits: Collection[Limit] = ()
) -> dict[str, int]:
    """Return the smallest length per padded axis from which on every size is at least 1.

    Args:
        at_least_one: sizes that must be at least 1.
        start: smallest length of each axis that callers may want: 1, or 0 for a window that may be empty.
        limits: upper bounds of sizes; sizes that fall with length need long enough inputs.

    Sizes are floor-linear in each axis with non-negative slopes, so the first length that fits suffices. Axes of new
    frames are solved before those of caches, which are empty at the start of a stream.

    Raises:
        Refused: a size never reaches 1, or joins several axes in a way that no single minimum describes.
    """
    least = dict(start)
    sizes: dict[Dim, None] = {size: None for size in at_least_one if not isinstance(size, int)}
    sizes |= {most - size + 1: None for size, most in limits if never_falls(-size)}
    for name in sorted(start, key=lambda name_of_axis: -start[name_of_axis]):
        others = least if start[name] == 0 else start
        for size in map(sympy.sympify, sizes):
            if symbol(name) in symbols_of(size):
                least[name] = max(least[name], _least(size, name, others))
    return least


def smallest(size: Dim, least: Mapping[str, int]) -> int:
    """Return a size at the least lengths of its axes; 0 where it is not known to grow with them."""
    if isinstance(size, int):
        return size
    found = size.subs({symbol(name): length for name, length in least.items()})
    return int(found) if found.is_number and never_falls(size) else 0


def _least(size: sympy.Expr, name: str, lengths: Mapping[str, int]) -> int:
    """Return the smallest length of one axis, with the others at their shortest, at which a size is at least 1."""
    others = {symbol(other): length for other, length in lengths.items() if other != name}
    alone = size.subs(others)
    if alone.is_number:
        return 1
    low, high = 0, 1
    while not _holds(alone, name, high):
        low, high = high, high * 2
        if high > FURTHEST:
            raise refuse(
                f"a size of {size} holds no entry for lengths up to {FURTHEST}",
                "take a smaller number off the length, or name another axis in the recipe",
                axis=name,
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _holds(alone, name, middle) else (middle, high)
    return high if low > 0 or not _holds(alone, name, 0) else 0


def _holds(size: sympy.Expr, name: str, length: int) -> bool:
    return bool(size.subs(symbol(name), length) >= 1)


def infer_settled(model: ir.Model, behind: Collection[str] = ()) -> dict[Limit, ir.Node]:
    """Infer shapes, reading `table[:size]` as `size` entries; return the limits that this sets, with their nodes.

    Args:
        model: the graph.
        behind: axes padded behind their valid entries; `x[-3:]` of one is read as 3 entries, for inputs that have them.

    Shape inference writes Min(rows, size), for a table may be too short. Then the unpadded program fails where the rows
    meet `size` entries, so lengths are limited instead, and sizes stay comparable. The same is done where Max(0, size)
    entries are added, or left out in front of the last ones.
    """
    graphs.forget_shapes(model)  # sizes settled by an earlier call would hide the limit
    graphs.infer_shapes(model)
    while _divide_sizes(model):  # fewer quotients are read each time: one that is not read any more is pruned
        graphs.prune(model)
        graphs.forget_shapes(model)
        graphs.infer_shapes(model)
    limits: dict[Limit, ir.Node] = {}
    remainders: dict[Limit, sympy.Expr] = {}
    for node in model.graph:
        for limit in (*_limits(node), *_last_entries(node, behind), *_first_entries(node, behind)):
            limits.setdefault(limit, node)
        for limit, quotient in _remainders(node, behind):
            limits.setdefault(limit, node)
            remainders[limit] = quotient
    if limits:
        settled: dict[sympy.Expr, sympy.Expr] = dict.fromkeys(remainders.values(), sympy.Integer(0))
        for size, most in limits:
            room = sympy.sympify(graphs.expression(str(most - size)))
            settled |= {sympy.Min(most, size): size, sympy.Max(0, room): room, sympy.Max(0, -room): sympy.Integer(0)}
            if most < 0:  # a lower limit of -most, which implies every smaller limit
                settled |= {sympy.Min(-size, fewer): sympy.Integer(fewer) for fewer in range(1, -most + 1)}
        for node in model.graph:
            for output in node.outputs:
                _settle(output, settled)
    return _limits_of_types(model) | limits


def _limits_of_types(model: ir.Model) -> dict[Limit, ir.Node]:
    """Return limits that keep sizes within the type they are computed in: integers wrap around, floats round.

    Floats are limited where they are converted to integers; as data they are computed again from true lengths.
    """
    limits: dict[Limit, ir.Node] = {}
    known: SymbolicValues = {}
    for node in model.graph:
        output = node.outputs[0]
        if not _is_integer(output) or graphs.array_of(output) is not None or symbolic_values_of(output, known) is None:
            continue
        for value in (output, *_rounded(node)):
            for limit in (
                limit_of_number
                for number in symbolic_values_of(value, known) or ()
                for limit_of_number in _held(number, value.dtype)
            ):
                limits.setdefault(limit, value.producer() or node)
    return limits


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _rounded(node: ir.Node) -> list[ir.Value]:
    """Return the non-integer values that a node's integer result is computed from."""
    found: dict[ir.Value, None] = {}
    waiting = [node]
    while waiting:
        values = [value for value in waiting.pop().inputs if value is not None and not _is_integer(value)]
        waiting += [maker for value in values if value not in found and (maker := value.producer()) is not None]
        found |= dict.fromkeys(values)
    return list(found)


@functools.lru_cache(maxsize=4096)
def _held(number: Dim, dtype: ir.DataType | None) -> tuple[Limit, ...]:
    """Return limits that keep a number within its type, where some length exceeds it."""
    names = symbols_of(number)
    if isinstance(number, int) or dtype is None or len(names) != 1:
        return ()
    least, most = held_numbers(dtype)
    far = number.subs(dict.fromkeys(names, FURTHEST))
    below = far < least or (least == 0 and not never_negative(normal_form(number), 1))
    return (*([(number, most)] if far > most else []), *([(-number, -least)] if below else []))


def _divide_sizes(model: ir.Model) -> int:
    """Replace exact quotients of sizes, such as that of batch*time by batch, with the size itself; return how many.

    Shape inference does not divide.
    """
    known: dict[tuple[sympy.Expr | int, int], ir.Value] = {}
    replaced = 0
    for node in model.graph:
        output = node.outputs[0]
        rank = -1 if output.shape is None else len(output.shape)
        numbers = [graphs.integers_of(value) for value in node.inputs if value is not None]
        if graphs.is_op(node, "Div") and graphs.integers_of(output) is None and all(n and len(n) == 1 for n in numbers):
            (top,), (bottom,) = (number for number in numbers if number is not None)
            quotient = sympy.cancel(sympy.sympify(top) / bottom) if bottom != 0 else sympy.nan
            same = known.get((quotient, rank))
            if same is not None and output.uses():
                ir.convenience.replace_all_uses_with(output, same)
                replaced += 1
        mine = graphs.integers_of(output)
        if mine is not None and len(mine) == 1:
            known.setdefault((mine[0], rank), output)
    return replaced


def _limits(node: ir.Node) -> list[Limit]:
    """Return the limits of slices from a fixed number of entries, and of sizes that choose between programs."""
    pad = pad_of(node, graphs.integers_of)
    if pad is not None:
        return [limit for pair in pad.added.values() for amount in pair for limit in _grown(amount)]
    if not graphs.is_op(node, "Slice"):
        return []
    limits: list[Limit] = []
    for rows, size in zip(_dims(node.inputs[0]), _dims(node.outputs[0]), strict=False):
        limits += _taken(rows, size)
    for start, end, _, rows in _slice_bounds(node):
        if isinstance(rows, int):
            limits += [*_taken(rows, end), *_left_over(rows, start), *_bounds(rows, start, end)]
    return [(size, most) for size, most in limits if not size.is_number]


def _dims(value: ir.Value | None) -> tuple[Dim, ...]:
    """Return the shape of a value; empty where it is unknown."""
    return (None if value is None else graphs.dims_of(value)) or ()


def _slice_bounds(node: ir.Node) -> Iterator[tuple[Dim, Dim, int, Dim]]:
    """Yield start, end, axis and axis size of every axis that a Slice names."""
    view = slice_of(node)
    if view is None or not (before := _dims(view.data)):
        return
    for sliced in view.axis_slices(graphs.integers_of) or ():
        if sliced.start is not None and sliced.end is not None:
            yield sliced.start, sliced.end, sliced.axis, before[sliced.axis]


def _grows_behind(rows: Dim, behind: Collection[str]) -> bool:
    """Whether an axis depends on input lengths alone and is padded behind its valid entries."""
    return not isinstance(rows, int) and {str(name) for name in rows.free_symbols} <= set(behind)


def _last_entries(node: ir.Node, behind: Collection[str]) -> list[Limit]:
    """Return limits for `x[-n:]` along an axis padded behind: x has at least n entries."""
    after = _dims(node.outputs[0])
    return [
        (-sympy.sympify(rows), start)
        for start, end, axis, rows in _slice_bounds(node)
        if isinstance(start, int) and start < 0 and end == graphs.END and _grows_behind(rows, behind)
        and after[axis] == sympy.Min(-start, rows)
    ]  # fmt: skip


def _first_entries(node: ir.Node, behind: Collection[str]) -> list[Limit]:
    """Return limits for `x[:n]` in Concat(x[n:], x[:n]), which rolls x: x has at least n entries."""
    makers = [None if value is None else value.producer() for value in node.inputs]
    slices = [maker for maker in makers if maker is not None and graphs.is_op(maker, "Slice")]
    sources = {source for maker in slices if (source := maker.inputs[0]) is not None}
    if not graphs.is_op(node, "Concat") or len(slices) != len(makers) or len(makers) < 2 or len(sources) != 1:
        return []
    before = _dims(sources.pop())
    axis = axis_of(node, len(before or ()))
    if not before or not _grows_behind(before[axis], behind):
        return []
    rows = sympy.sympify(before[axis])
    sizes = [dims[axis] for maker in slices if (dims := graphs.dims_of(maker.outputs[0]))]
    few = [argument for size in sizes if isinstance(size, sympy.Min) for argument in size.args if argument.is_Integer]
    return [(-rows, -int(argument)) for argument in few if sympy.Min(argument, rows) in sizes]


def _remainders(node: ir.Node, behind: Collection[str]) -> list[tuple[Limit, sympy.Expr]]:
    """Return limits for slices of x at k modulo its length, as in a rolled x: x has more than k entries.

    Returns:
        The limits, each with the quotient that is 0 within it.
    """
    limits = []
    for start, end, _, rows in _slice_bounds(node):
        if not _grows_behind(rows, behind):
            continue
        shifts = (None if isinstance(bound, int) else remainder_by(bound, rows) for bound in (start, end))
        for shift in shifts:
            if shift is not None and shift != -1:
                least = shift + 1 if shift >= 0 else -shift
                limits.append(((-rows, -least), sympy.floor((least - 1) / rows)))
    return limits


def _grown(amount: Dim) -> list[Limit]:
    """Return the limits under which an amount of added entries, such as Max(0, time - 4), is not clipped at 0."""
    inner = _above_zero(amount)
    return [] if inner is None or not never_falls(inner) else [(sympy.sympify(normal_form(-inner)), 0)]


def _taken(rows: Dim, size: Dim) -> list[Limit]:
    """Return limits for Min(rows, size) entries: size is at most the number of rows."""
    if not isinstance(rows, int) or not isinstance(size, sympy.Min):
        return []
    return [(each, rows) for each in size.args if not each.is_number and sympy.Min(rows, each) == size]


def _left_over(rows: int, start: Dim) -> list[Limit]:
    """Return limits for the last entries, from Max(0, rows - size) on: at most all rows; of one row, any length."""
    inner = _above_zero(start)
    most = None if inner is None or not never_falls(-inner) else at_zero(inner)
    if inner is None or most is None or most > rows:
        return []
    size = sympy.sympify(normal_form(most - inner))
    return [(-size, -1)] if most == 1 else [(size, most)]


def _above_zero(number: Dim) -> sympy.Expr | None:
    """Return the x of a size Max(0, x); None for other sizes."""
    if isinstance(number, int) or not isinstance(number, sympy.Max):
        return None
    parts = [each for each in number.args if each != 0]
    return parts[0] if len(parts) == 1 and len(number.args) == 2 else None


def _bounds(rows: int, start: Dim, end: Dim) -> list[Limit]:
    """Return limits that keep computed slice bounds within the entries."""
    bounds = None if isinstance(start, int | sympy.Max) else bounds_of_slice(start, sympy.sympify(end), rows)
    return [] if bounds is None else [(-bounds[0], 0), (bounds[1], rows)]


def _settle(value: ir.Value, settled: Mapping[sympy.Expr, sympy.Expr]) -> None:
    dims = graphs.dims_of(value)
    if dims is not None and any(not isinstance(dim, int) and dim.has(*SETTLED) for dim in dims):
        value.shape = ir.Shape([_text(_replaced(dim, settled)) for dim in dims])
    noted = value.metadata_props.get(onnx_shape_inference.SYM_DATA_KEY)
    if noted is not None and any(function in noted for function in ("Min", "Max", "Mod", "floor")):
        sizes = [each if isinstance(each, int) else graphs.expression(each) for each in json.loads(noted)]
        known = [_replaced(each, settled) for each in sizes]
        value.metadata_props[onnx_shape_inference.SYM_DATA_KEY] = json.dumps([_text(each) for each in known])


def _replaced(size: Dim, settled: Mapping[sympy.Expr, sympy.Expr]) -> Dim:
    """Return a size with settled terms substituted repeatedly: Min(2, n, Min(2, n) - 1) is 1 from n = 2 on."""
    while not isinstance(size, int) and (known := size.subs(settled)) != size:
        size = known
    return size


def _text(size: Dim) -> int | str:
    return size if isinstance(size, int) else int(size) if size.is_Integer else str(size)


def longest_lengths(limits: Mapping[Limit, ir.Node], names: Collection[str]) -> dict[str, Longest]:
    """Return the largest number of slots per axis at which every limited size fits its table or type."""
    most: dict[str, Longest] = {}
    for (size, rows), node in limits.items():
        for name in names:
            if size.free_symbols == {symbol(name)} and bool(size.subs(symbol(name), FURTHEST) > rows):
                low, high = 0, FURTHEST
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if bool(size.subs(symbol(name), middle) <= rows) else (low, middle)
                if name not in most or low < most[name].slots:
                    most[name] = Longest(low, size, rows, node)
    return most


def with_slots(limits: Mapping[Limit, ir.Node], slots: Mapping[str, int]) -> dict[Limit, ir.Node]:
    """Return the limits with the slots of caches in place of their lengths, where a size also grows with others."""
    fixed = {symbol(name): number for name, number in slots.items()}
    found: dict[Limit, ir.Node] = {}
    for (size, most), node in limits.items():
        is_joined = len(size.free_symbols) > 1 and never_falls(size)
        found.setdefault((sympy.sympify(size.subs(fixed)) if is_joined else size, most), node)
    return found


def require_one_length(limits: Mapping[Limit, ir.Node], names: Collection[str]) -> None:
    """Require that every size with an upper limit grows with one length alone, which can then be limited.

    Raises:
        Refused: `table[: time + others]`: lengths that fit one by one need not fit together.
    """
    for (size, most), node in limits.items():
        joined = sorted(str(name) for name in size.free_symbols)
        if len(joined) < 2 or never_falls(-size) or never_negative(sympy.sympify(most - size)):
            continue
        if not set(joined).isdisjoint(names):
            raise refuse(
                f"{node.op_type} takes {size} entries of {most}: no limit of {' or '.join(joined)} alone keeps to that",
                "slice the table by one length at a time, or compute its entries of arange",
            ).at(node=str(node.name), op=node.op_type, source=graphs.source_of(node))


def keeps_all_counted(size: Dim, counted: Dim, cache: str, slots: int) -> bool:
    """Whether the newest frames that fit the slots are as many as are counted, for every cache length.

    Lengths go from 0 to the number of slots: a state returned unchanged has all its slots when full, but not before.
    False where that cannot be shown.
    """
    kept, wanted = (sympy.Min(each, slots) for each in (size, counted))
    return bool(kept == wanted) or agree_up_to(kept, wanted, symbol(cache), slots)
