"""Parses axis sizes as integer expressions over axis names, and brings each one into a single normal form."""

import ast
import functools
import operator
import warnings
from collections.abc import Callable
from typing import TypeAlias

import sympy

Dim: TypeAlias = int | sympy.Expr
"""A dimension: a number, or an integer expression over axis names."""


@functools.lru_cache(maxsize=100_000)
def expression(text: str) -> Dim:
    """Parse a dimension such as `cache + 16` over axis names into its normal form; a constant comes back as int.

    The text may come from a file that nobody trusts, so it is read as arithmetic and never evaluated as code;
    anything else, and arithmetic that gives no number, is the name of an axis.
    """
    if text.isidentifier():
        return symbol(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            parsed = sympy.sympify(_arithmetic(ast.parse(text, mode="eval").body))
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError):
        return symbol(text)
    if parsed.is_number:
        return int(parsed) if parsed.is_Integer else symbol(text)
    return symbol(text) if parsed.has(sympy.zoo, sympy.nan, sympy.oo) else normal_form(parsed)


@functools.lru_cache(maxsize=100_000)
def normal_form(size: Dim) -> Dim:
    """Return one spelling per size, so that equal sizes compare equal.

    floor(floor(a/b)/c) is floor(a/(b*c)), integers leave the floor, quotients in it are cancelled, and a remainder is
    written as a quotient.
    """
    if isinstance(size, int):
        return size
    if size.is_Atom:
        return int(size) if size.is_Integer else size
    parts = [sympy.sympify(normal_form(part)) for part in size.args]
    if isinstance(size, sympy.ceiling):
        return normal_form(-sympy.floor(-parts[0]))
    if isinstance(size, sympy.Mod):
        top, bottom = parts
        return normal_form(top - bottom * sympy.floor(top / bottom))
    if isinstance(size, sympy.floor):
        inner = sympy.expand(parts[0])
        has_quotients = any(power.exp.is_negative and power.base.free_symbols for power in inner.atoms(sympy.Pow))
        return _normal_floor(sympy.cancel(inner) if has_quotients else inner)
    whole = size.func(*parts)
    whole = sympy.expand(whole) if whole.is_Mul or whole.is_Add or whole.is_Pow else whole
    return int(whole) if whole.is_Integer else whole


def _normal_floor(inner: sympy.Expr) -> Dim:
    constant, rest = inner.as_coeff_Add()
    if rest.is_Mul and len(rest.args) == 2 and isinstance(rest.args[1], sympy.floor):
        share = rest.args[0]
        if share.is_Rational and share.p == 1 and (constant * share.q).is_Integer:
            return _normal_floor(sympy.expand((rest.args[1].args[0] + constant * share.q) * share))
    numerator, denominator = sympy.fraction(sympy.together(-inner))
    if rest.could_extract_minus_sign() and numerator.is_integer:  # rounded up, written with floor
        return normal_form(-sympy.floor((numerator + denominator - 1) / denominator))
    outside = sympy.floor(constant)
    result = sympy.floor(rest + constant - outside) + outside
    return int(result) if result.is_Integer else result


def _power(base: Dim, exponent: Dim) -> Dim:
    """Return a power for a size; large exponents in untrusted text are refused."""
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise ValueError(f"{base}**{exponent} is no size")
    return base**exponent


_OPERATORS: dict[type[ast.operator], Callable[[Dim, Dim], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: sympy.floor(sympy.Rational(1) * a / b),
    ast.Div: lambda a, b: sympy.Rational(1) * a / b,
    ast.Mod: sympy.Mod,
    ast.Pow: _power,
}
_FUNCTIONS = {
    "Min": sympy.Min,
    "Max": sympy.Max,
    "Mod": sympy.Mod,
    "Abs": sympy.Abs,
    "floor": sympy.floor,
    "ceiling": sympy.ceiling,
}


def _arithmetic(tree: ast.expr) -> Dim:
    match tree:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_arithmetic(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_arithmetic(left), _arithmetic(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_arithmetic, arguments))
    raise ValueError(f"{ast.dump(tree)} is no arithmetic")


def symbol(name: str) -> sympy.Symbol:
    """Return the SymPy symbol of an axis."""
    return sympy.Symbol(name, integer=True, nonnegative=True)


def written(size: Dim) -> str:
    """Return a size as a formula of integers, names, `+ - * //`, `min` and `max`, for readers without SymPy.

    Raises:
        ValueError: it contains another function.
    """
    if isinstance(size, int) or size.is_Atom:
        return str(size)
    match size:
        case sympy.floor():
            top, bottom = sympy.fraction(sympy.together(size.args[0]))
            return f"({written(sympy.expand(top))})//{_factor(bottom)}"
        case sympy.Mod():
            top, bottom = size.args
            return written(top - bottom * sympy.floor(top / bottom))
        case sympy.Min() | sympy.Max():
            return f"{'min' if isinstance(size, sympy.Min) else 'max'}({', '.join(map(written, size.args))})"
        case sympy.Add():
            first, *others = sorted(size.args, key=lambda term: (term.could_extract_minus_sign(), term.is_number))
            return written(first) + "".join(
                f" - {_term(-term)}" if term.could_extract_minus_sign() else f" + {_term(term)}" for term in others
            )
        case sympy.Mul() if all(not factor.is_Rational or factor.is_Integer for factor in size.args):
            return "*".join(map(_factor, size.args))
    raise ValueError(f"{size} is no formula of whole numbers")


def _term(size: sympy.Expr) -> str:
    """Return one of several terms, in parentheses where it is a sum or starts with a minus sign."""
    is_sum = size.is_Add or isinstance(size, sympy.Mod) or size.could_extract_minus_sign()
    return f"({written(size)})" if is_sum else written(size)


def _factor(size: sympy.Expr) -> str:
    """Return one of several factors, or a divisor, in parentheses where it contains `*` or `//`."""
    return f"({written(size)})" if size.is_Mul or isinstance(size, sympy.floor) else _term(size)


def mentions(dim: Dim, axis: str) -> bool:
    """Whether a dimension depends on an axis."""
    return not isinstance(dim, int) and bool(symbol(axis) in dim.free_symbols)


def bounds_of_slice(start: sympy.Expr, end: sympy.Expr, rows: int) -> tuple[sympy.Expr, sympy.Expr] | None:
    """Return the start and the end of a slice, both counted from the front.

    Args:
        start: the start; negative ones count from the end.
        end: the end; a very large one is the size of the axis.
        rows: size of the axis.

    Returns:
        None where it depends on the lengths from which end a bound counts. A bound that counts from the front is valid
        as long as it lies within 0 and `rows`, which is for the caller to ensure.
    """
    first, last = _from_front(start, rows), _from_front(end, rows)
    return None if first is None or last is None else (first, last)


def entries_between(start: sympy.Expr, end: sympy.Expr) -> sympy.Expr:
    """Return the size end - start, simplified: a slice x[-n:] of `end` entries has Min(n, end)."""
    if isinstance(start, sympy.Max):
        gaps = [sympy.sympify(normal_form(end - each)) for each in start.args]
        if any(gap.is_Integer for gap in gaps):
            return sympy.Min(*gaps)
    return sympy.expand(end - start)


def remainder_by(bound: sympy.Expr, rows: sympy.Expr) -> int | None:
    """Return the constant k where a bound is k modulo the number of rows at every length; None for other bounds."""
    nearest = sympy.expand(bound.subs(dict.fromkeys(bound.atoms(sympy.floor), 0)))
    for dividend in (nearest, sympy.expand(nearest - rows)):
        if dividend.is_Integer and sympy.sympify(normal_form(sympy.Mod(dividend, rows))) == bound:
            return int(dividend)
    return None


def _from_front(bound: sympy.Expr, rows: int) -> sympy.Expr | None:
    if bound.is_Integer and bound >= 2**31 - 1:
        return sympy.Integer(rows)
    at_zero = bound.subs(dict.fromkeys(bound.free_symbols, 0))
    slopes = [factor for term, factor in bound.as_coefficients_dict().items() if term.free_symbols]
    falls, rises = all(factor < 0 for factor in slopes), bool(slopes) and all(factor > 0 for factor in slopes)
    if (at_zero < 0 and not rises) or (at_zero == 0 and falls and not bound.is_Integer):
        return rows + bound if falls else None
    return bound
