"""Parses and evaluates output sizes as formulas over axis names, e.g. `(time - 1) // 2 + 1`, without `eval`.

    sum     = product (("+" | "-") product)*
    product = factor (("*" | "//") factor)*
    factor  = "-" factor | integer | axis | ("min" | "max") "(" sum ("," sum)+ ")" | "(" sum ")"

Numbers are integers; `//` rounds down, as in Python. A formula comes from an untrusted manifest: its length, its depth
and all intermediate numbers are bounded, and any fault in it makes the bundle invalid. No axis is named `min` or `max`.
"""

import functools
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from runtime_lite.errors import BundleRefused, show

MAX_FORMULA_TEXT = 200
MAX_FORMULA_DEPTH = 20
MAX_FORMULA_VALUE = 2**63 - 1

_FUNCTIONS: dict[str, Callable[[int, int], int]] = {"min": min, "max": max}
_OPERATORS = _FUNCTIONS | {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv}
_TOKEN = re.compile(r" *([0-9]{1,10}|[A-Za-z_][A-Za-z0-9_]{0,63}|//|[-+*(),]) *")


@dataclass(frozen=True)
class Formula:
    """A parsed formula.

    Attributes:
        text: the formula as written.
        postfix: integers, axis names and operators in postfix order; an operator takes the two values before it.
        axes: all axis names in the formula.
    """

    text: str
    postfix: tuple[int | str, ...]
    axes: frozenset[str]

    def value(self, sizes: Mapping[str, int]) -> int:
        """Return the value of the formula for given sizes of its axes.

        Raises:
            BundleRefused: a divisor is 0, or a number needs more than 64 bits.
            KeyError: an axis has no size.
        """
        stack: list[int] = []
        for item in self.postfix:
            if isinstance(item, int):
                stack.append(item)
            elif item in _OPERATORS:
                right, left = stack.pop(), stack.pop()
                if item == "//" and right == 0:
                    _refuse(self.text, "a divisor other than 0", f"0 at {show(self._used(sizes))}")
                stack.append(_OPERATORS[item](left, right))
            else:
                stack.append(sizes[item])
            if abs(stack[-1]) > MAX_FORMULA_VALUE:
                _refuse(self.text, "numbers of at most 64 bits", f"more at {show(self._used(sizes))}")
        return stack[0]

    def _used(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {axis: sizes[axis] for axis in sorted(self.axes)}


@functools.lru_cache(maxsize=4096)
def parse_formula(text: str) -> Formula:
    """Parse a formula; a single axis name is one.

    Raises:
        BundleRefused: the text is too long, too deep, or no formula.
    """
    if len(text) > MAX_FORMULA_TEXT:
        _refuse(text, f"at most {MAX_FORMULA_TEXT} characters", str(len(text)))
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse(text, "integers, axis names, + - * // min() max() and parentheses", show(text[position:]))
        tokens.append(match[1])
        position = match.end()
    parser = _Parser(text, tokens)
    parser.read_sum(0)
    if parser.rest:
        _refuse(text, "the end", show(parser.rest[-1]))
    names = (item for item in parser.postfix if isinstance(item, str) and item not in _OPERATORS)
    return Formula(text, tuple(parser.postfix), frozenset(names))


class _Parser:
    """A recursive-descent parser that converts a list of tokens to postfix order."""

    def __init__(self, text: str, tokens: list[str]) -> None:
        self.text = text
        self.rest = tokens[::-1]
        self.postfix: list[int | str] = []

    def read_sum(self, depth: int) -> None:
        self._read_product(depth)
        while self._next_is("+", "-"):
            sign = self.rest.pop()
            self._read_product(depth)
            self.postfix.append(sign)

    def _read_product(self, depth: int) -> None:
        self._read_factor(depth)
        while self._next_is("*", "//"):
            sign = self.rest.pop()
            self._read_factor(depth)
            self.postfix.append(sign)

    def _read_factor(self, depth: int) -> None:
        if depth > MAX_FORMULA_DEPTH:
            _refuse(self.text, f"at most {MAX_FORMULA_DEPTH} levels", "more")
        token = self.rest.pop() if self.rest else "the end"
        if token == "-":
            self.postfix.append(0)
            self._read_factor(depth + 1)
            self.postfix.append("-")
        elif token.isdecimal():
            self.postfix.append(int(token))
        elif token == "(":
            self.read_sum(depth + 1)
            self._take(")")
        elif token in _FUNCTIONS:
            self._take("(")
            self.read_sum(depth + 1)
            self._take(",")
            self.read_sum(depth + 1)
            self.postfix.append(token)
            while self._next_is(","):
                self.rest.pop()
                self.read_sum(depth + 1)
                self.postfix.append(token)
            self._take(")")
        elif token.isidentifier():
            self.postfix.append(token)
        else:
            _refuse(self.text, "a number, an axis name or a parenthesis", show(token))

    def _next_is(self, *tokens: str) -> bool:
        return bool(self.rest) and self.rest[-1] in tokens

    def _take(self, token: str) -> None:
        if not self._next_is(token):
            _refuse(self.text, repr(token), show(self.rest[-1]) if self.rest else "the end")
        self.rest.pop()


def _refuse(text: str, expected: str, got: str) -> NoReturn:
    raise BundleRefused(f"formula {show(text)}: expected {expected}, got {got}; rebuild the bundle")
