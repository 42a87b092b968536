"""The lengths for which a proof holds: the shortest that give every size an entry, the longest that tables allow."""

import json
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir
import onnx_shape_inference
import sympy

from compiler import ir as house
from compiler.analysis.facts import refuse
from compiler.analysis.layout import symbols_of
from compiler.analysis.propagate import Derivation
from compiler.ir import Dim, symbol
from compiler.sizes import bounds_of_cut

Limit = tuple[sympy.Expr, int]
"""A size that may not exceed a number: rows looked up in a table of so many."""

FURTHEST = 2**20
"""Lengths up to here are tried: 65 seconds of audio at 16 kHz."""


def least_lengths(derivation: Derivation, start: Mapping[str, int]) -> dict[str, int]:
    """The smallest length per padded axis from which on every size in `at_least_one` is 1 or more.

    Args:
        derivation: the proof.
        start: smallest length of each axis that callers may want: 1, or 0 for a window that may be empty.

    Sizes are floor-linear in one axis each, with slopes that are not negative, so the first length that fits is enough.

    Raises:
        Refused: a size never reaches 1, or joins several axes in a way that no single minimum describes.
    """
    least = dict(start)
    sizes: dict[Dim, None] = {
        size: None for each in derivation.judged for size in each.verdict.at_least_one if not isinstance(size, int)
    }
    for size in map(sympy.sympify, sizes):
        for name in [name for name in start if symbol(name) in symbols_of(size)]:
            least[name] = max(least[name], _least(size, name, start))
    return least


def _least(size: sympy.Expr, name: str, names: Collection[str]) -> int:
    """The smallest length of one axis with all others at 0 (a window may be empty) that gives the size an entry."""
    others = {symbol(other): 0 for other in names if other != name}
    alone = size.subs(others)
    if alone.is_number:
        return 1
    low, high = 0, 1
    while not _holds(alone, name, high):
        low, high = high, high * 2
        if high > FURTHEST:
            raise refuse(f"a size of {size} holds no entry for lengths up to {FURTHEST}", "check the axis", axis=name)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _holds(alone, name, middle) else (middle, high)
    return high if low > 0 or not _holds(alone, name, 0) else 0


def _holds(size: sympy.Expr, name: str, length: int) -> bool:
    return bool(size.subs(symbol(name), length) >= 1)


def infer_settled(model: ir.Model) -> tuple[Limit, ...]:
    """Infer shapes, reading `table[:size]` as `size` entries; the sizes that tables limit.

    Shape inference writes Min(rows, size), for a table may be too short. Then the unpadded program fails where the rows
    meet `size` entries, so lengths are limited instead, and sizes stay comparable.
    """
    house.infer_shapes(model)
    while _divide_sizes(model):
        house.prune(model)
        house.forget_shapes(model)
        house.infer_shapes(model)
    limits = {limit: None for node in model.graph for limit in _limits(node)}
    if limits:
        settled = {sympy.Min(rows, size): size for size, rows in limits}
        for node in model.graph:
            for output in node.outputs:
                _settle(output, settled)
    return tuple(limits)


def _divide_sizes(model: ir.Model) -> int:
    """Let readers of an exact quotient of sizes, as in batch*time // batch, read the size itself; how many did.

    Shape inference does not divide.
    """
    known: dict[tuple[sympy.Expr | int, int], ir.Value] = {}
    replaced = 0
    for node in model.graph:
        output = node.outputs[0]
        rank = -1 if output.shape is None else len(output.shape)
        numbers = [house.integers_of(value) for value in node.inputs if value is not None]
        if house.is_op(node, "Div") and house.integers_of(output) is None and all(n and len(n) == 1 for n in numbers):
            (top,), (bottom,) = (number for number in numbers if number is not None)
            quotient = sympy.cancel(sympy.sympify(top) / bottom) if bottom != 0 else sympy.nan
            same = known.get((quotient, rank))
            if same is not None and output.uses():
                ir.convenience.replace_all_uses_with(output, same)
                replaced += 1
        mine = house.integers_of(output)
        if mine is not None and len(mine) == 1:
            known.setdefault((mine[0], rank), output)
    return replaced


def _limits(node: ir.Node) -> list[Limit]:
    """Sizes cut from a fixed number of entries."""
    if not house.is_op(node, "Slice") or node.inputs[0] is None:
        return []
    before, after = house.dims_of(node.inputs[0]), house.dims_of(node.outputs[0])
    found: list[Limit] = []
    for rows, size in zip(before or (), after or (), strict=False):
        if isinstance(rows, int) and isinstance(size, sympy.Min):
            found += [(each, rows) for each in size.args if not each.is_number and sympy.Min(rows, each) == size]
    return found + _limits_of_bounds(node, before or ())


def _limits_of_bounds(node: ir.Node, dims: Sequence[Dim]) -> list[Limit]:
    """Bounds of a cut that are computed from sizes have to stay within the entries."""
    starts, ends, axes = (house.integers_of(value) for value in (*node.inputs, None, None, None)[1:4])
    found: list[Limit] = []
    for start, end, axis in zip(starts or (), ends or (), axes or (), strict=False):
        rows = dims[axis] if isinstance(axis, int) and axis < len(dims) else None
        if not isinstance(rows, int) or isinstance(start, int):
            continue
        bounds = bounds_of_cut(start, sympy.sympify(end), rows)
        if bounds is not None:
            found += [(-bounds[0], 0), (bounds[1], rows)]
    return [(size, most) for size, most in found if not size.is_number]


def _settle(value: ir.Value, settled: Mapping[sympy.Expr, sympy.Expr]) -> None:
    dims = house.dims_of(value)
    if dims is not None and any(not isinstance(dim, int) and dim.has(sympy.Min) for dim in dims):
        value.shape = ir.Shape([_text(_replaced(dim, settled)) for dim in dims])
    noted = value.metadata_props.get(onnx_shape_inference.SYM_DATA_KEY)
    if noted is not None and "Min" in noted:
        sizes = [each if isinstance(each, int) else house.expression(each) for each in json.loads(noted)]
        known = [_replaced(each, settled) for each in sizes]
        value.metadata_props[onnx_shape_inference.SYM_DATA_KEY] = json.dumps([_text(each) for each in known])


def _replaced(size: Dim, settled: Mapping[sympy.Expr, sympy.Expr]) -> Dim:
    return size if isinstance(size, int) else size.subs(settled)


def _text(size: Dim) -> int | str:
    return size if isinstance(size, int) else int(size) if size.is_Integer else str(size)


def longest_lengths(limits: Sequence[Limit], names: Collection[str]) -> dict[str, int]:
    """The largest number of slots per axis for which every limited size fits its table."""
    most: dict[str, int] = {}
    for size, rows in limits:
        for name in names:
            if size.free_symbols == {symbol(name)} and bool(size.subs(symbol(name), FURTHEST) > rows):
                low, high = 0, FURTHEST
                while high - low > 1:
                    middle = (low + high) // 2
                    low, high = (middle, high) if bool(size.subs(symbol(name), middle) <= rows) else (low, middle)
                most[name] = min(most.get(name, low), low)
    return most
