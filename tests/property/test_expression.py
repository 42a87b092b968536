"""Texts of dimensions come from files that nobody trusts: they are arithmetic, or the name of an axis."""

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compiler.graph.model import Dim, expression, symbol

TOKENS = ("cache", "batch", "16", "0", "-1", "+", "-", "*", "/", "//", "%", "(", ")", ",", "Min", "Max", "floor", "Mod",
          "ceiling", "**", ".", "[", "]", "lambda", ":", "__import__", "'os'", "True", "None", "1e9", "not", " ", "1j",
          "and", "if", "else", "for", "in", "=", "~")  # fmt: skip


def is_dim(dim: Dim) -> bool:
    return (isinstance(dim, int) and not isinstance(dim, bool)) or isinstance(dim, sympy.Expr)


@settings(max_examples=400)
@given(st.lists(st.sampled_from(TOKENS), max_size=12).map("".join))
def test_any_mixture_of_tokens_gives_a_dimension(text: str) -> None:
    assert is_dim(expression(text))


@settings(max_examples=200)
@given(st.text(max_size=30))
@example("\0")
@example("-" * 9000 + "1")
@example("(" * 300 + "1" + ")" * 300)
@example("9" * 5000)
def test_any_text_gives_a_dimension(text: str) -> None:
    assert is_dim(expression(text))


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('x')", "open('/etc/passwd')", "exec('x')", "9**9**9", "[].__class__", "f'{1}'",
     "(lambda: 1)()", "print(1)", "1/0", "0/0", "Mod(1, 0)", "1 % 0", "floor(1, 2)", "Min()", "True", "1/2", "cache/0",
     "Min(cache, 1/0)", "batch-size.x", "1if 1else 2"],
)  # fmt: skip
def test_hostile_texts_are_names(text: str) -> None:
    assert expression(text) == symbol(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("16", 16), ("cache + 16", symbol("cache") + 16), ("2*(cache + 1) - cache", symbol("cache") + 2), ("7//2", 3),
     ("cache - cache", 0), ("Min(cache, 3)", sympy.Min(symbol("cache"), 3)), ("-3 + 5", 2), ("Mod(7, 4)", 3)],
)  # fmt: skip
def test_arithmetic_is_read(text: str, expected: Dim) -> None:
    assert expression(text) == expected
