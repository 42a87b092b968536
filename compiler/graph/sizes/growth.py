"""Compares sizes that grow with a length exactly, by evaluating them until their growth becomes periodic.

Sums, floors of quotients, and smaller and larger ones of such: beyond the last place where two branches cross, a size
grows by the same amount in every period. So two sizes that agree up to there and for two periods more agree for ever.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy

from compiler.graph.sizes.expressions import Dim, normal_form

MOST_LENGTHS = 1_000_000
"""Lengths that are tried; sizes that repeat later are not compared, which only refuses more."""

_quotient = sympy.Function("quotient")


def function_of(size: Dim, names: Sequence[sympy.Basic]) -> Callable[..., Any]:
    """Return a size as an exact function of the values of its names, integers or arrays of them.

    Raises:
        ValueError: it has other names.
    """
    arguments = [sympy.Dummy(integer=True) for _ in names]
    inner = sympy.sympify(normal_form(size)).subs(dict(zip(names, arguments, strict=True)))
    if inner.free_symbols - set(arguments):
        raise ValueError(f"{size} is not known")
    whole = inner.replace(
        lambda part: isinstance(part, sympy.floor),
        lambda part: _quotient(*sympy.fraction(sympy.together(part.args[0]))),
    )
    named = {
        "quotient": operator.floordiv,
        "min": lambda *parts: functools.reduce(np.minimum, parts),
        "max": lambda *parts: functools.reduce(np.maximum, parts),
    }
    function: Callable[..., Any] = sympy.lambdify(arguments, whole, [named, "math"])
    return function


def number(size: Dim, sizes: Mapping[sympy.Basic, int]) -> int:
    """Return a size as a number.

    Args:
        size: an expression over axis names, or over other parts of sizes.
        sizes: the number that each of these is.

    Raises:
        ValueError: it has other names, or is not an integer.
    """
    if isinstance(size, int):
        return size
    value = _function(size, tuple(sizes))(*sizes.values())
    if value != int(value):
        raise ValueError(f"{size} is {value}")
    return int(value)


@functools.lru_cache(maxsize=4096)
def _function(size: sympy.Expr, names: tuple[sympy.Basic, ...]) -> Callable[..., Any]:
    return function_of(size, names)


def period_of(size: sympy.Expr) -> int:
    """Return a number of steps after which a size grows by the same amount everywhere, far enough out."""
    if isinstance(size, sympy.floor):
        inner, divisor = sympy.fraction(sympy.together(size.args[0]))
        return period_of(inner) * int(divisor) if divisor.is_Integer else MOST_LENGTHS
    return math.lcm(1, *(period_of(part) for part in size.args))


def lengths_for(sizes: Sequence[Dim], first: int) -> tuple[np.ndarray, int] | None:
    """Return the lengths at which sizes of one name have to be compared, and their common period; None if too many.

    Two branches a*n + b and c*n + d that are not parallel cross before n = |b - d| / |a - c|. The numerator is at most
    the sum of all numbers in the sizes and one per floor, the denominator at least one over the period.
    """
    parts = [sympy.sympify(normal_form(size)) for size in sizes]
    period = math.lcm(1, *(period_of(part) for part in parts))
    numbers = sum(
        abs(int(fraction.p)) + int(fraction.q)
        for part in parts
        for fraction in part.atoms(sympy.Rational)
        if fraction.is_finite
    )
    floors = sum(len(part.atoms(sympy.floor)) for part in parts)
    last = (numbers + floors + 1) * period
    if last + 2 * period > MOST_LENGTHS:
        return None
    return np.arange(first, first + last + 2 * period + 1, dtype=np.int64), period


def values_of(size: Dim, name: sympy.Basic, lengths: np.ndarray) -> np.ndarray:
    """Return the values of a size at every length."""
    return np.broadcast_to(np.asarray(function_of(size, [name])(lengths)), lengths.shape)


def agree(a: Dim, b: Dim, name: sympy.Basic, first: int) -> bool:
    """Whether two sizes of one name are equal at all lengths from a first one on."""
    tried = lengths_for((a, b), first)
    if tried is None:
        return False
    lengths, _ = tried
    return bool((values_of(a, name, lengths) == values_of(b, name, lengths)).all())


def agree_up_to(a: Dim, b: Dim, name: sympy.Basic, last: int) -> bool:
    """Whether two sizes are equal for all values of a name from 0 to a last one, and of another name from 1 on.

    False where that cannot be shown.
    """
    others = (sympy.sympify(a).free_symbols | sympy.sympify(b).free_symbols) - {name}
    if len(others) > 1:
        return False
    other = next(iter(others), sympy.Symbol("none"))
    both = [[sympy.sympify(size).subs(name, value) for size in (a, b)] for value in range(last + 1)]
    try:
        return all(agree(one, two, other, 1) for one, two in both)
    except ValueError:
        return False


@functools.lru_cache(maxsize=4096)
def never_negative(size: Dim, first: int = 0) -> bool:
    """Whether a size of one name is at least 0 at every length from a first one on; False where unknown."""
    if isinstance(size, int):
        return size >= 0
    names = sorted(size.free_symbols, key=str)
    tried = lengths_for((size,), first) if len(names) == 1 else None
    if tried is None:
        return False
    lengths, period = tried
    values = values_of(size, names[0], lengths)
    return bool((values >= 0).all() and (values[-period:] >= values[-2 * period : -period]).all())


@functools.lru_cache(maxsize=4096)
def never_falls(size: Dim) -> bool:
    """Whether a size never falls when lengths grow; False where that is unknown.

    Terms of one name are tried together up to where they repeat; a term of several names must consist of parts that are
    not negative and do not fall.
    """
    if isinstance(size, int):
        return True
    together: dict[frozenset[sympy.Basic], sympy.Expr] = {}
    for term in sympy.Add.make_args(sympy.expand(size)):
        names = frozenset(term.free_symbols)
        together[names] = together.get(names, sympy.Integer(0)) + term
    return all(_rises(part) if len(names) > 1 else _grows(part) for names, part in together.items())


def _grows(size: sympy.Expr) -> bool:
    """Whether a size of one name never falls."""
    if size.is_number:
        return True
    (name,) = size.free_symbols
    tried = lengths_for((size,), 0)
    return tried is not None and bool((np.diff(values_of(size, name, tried[0])) >= 0).all())


def _rises(size: sympy.Expr) -> bool:
    """Whether a size of several names consists of parts that cannot fall."""
    if size.is_Add or isinstance(size, sympy.floor | sympy.Min | sympy.Max):
        return all(_rises(part) for part in size.args)
    if size.is_Mul or (size.is_Pow and size.exp.is_Integer and size.exp > 0):
        return all((part.is_number or never_falls(part)) and part.is_nonnegative for part in size.args)
    return len(size.free_symbols) < 2 and never_falls(size)


def grows_by(size: Dim, axis: str) -> int | None:
    """Return the number of frames that a call adds to a cache, which may be sliced to the newest; None if not fixed.

    Args:
        size: size of the returned cache, as an expression of its size as an input.
        axis: the name of that size.
    """
    if isinstance(size, int) or [str(name) for name in size.free_symbols] != [axis]:
        return None
    (name,) = size.free_symbols
    added = [size.subs(name, length) - length for length in (0, 1)]
    return int(added[0]) if added[0] == added[1] and added[0].is_Integer and added[0] > 0 else None


@functools.lru_cache(maxsize=4096)
def truncated(top: sympy.Expr, bottom: sympy.Expr) -> sympy.Expr | None:
    """Return the quotient of integers, which Div rounds towards zero; None where the dividend's sign is unknown.

    A size that is empty for short inputs, as time - 3, is 0 or more for all valid lengths. A number that is positive
    for short inputs and negative for longer ones, as 3 - time, is rounded accordingly.

    Args:
        top: a size, the negative of one, or a difference of sizes.
        bottom: what divides it, not 0.
    """
    if bottom.is_negative:
        return truncated(-top, -bottom)
    exact = sympy.cancel(top / bottom)
    if exact.is_number:
        return sympy.Integer(int(exact))
    if exact.is_integer:
        return exact
    if not bottom.is_nonnegative and not never_falls(bottom):
        return None
    if top.is_nonnegative or (never_falls(top) and not top.is_negative):
        return sympy.floor(exact)
    if not never_falls(-top):
        return None
    if top.subs(dict.fromkeys(top.free_symbols, 0)) <= 0:
        return -sympy.floor(-exact)
    return sympy.Max(sympy.floor(exact), 0) - sympy.Max(sympy.floor(-exact), 0)
