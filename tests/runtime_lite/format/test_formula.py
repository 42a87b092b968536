"""Formulas mean what Python means by them, and a hostile text is stopped before it costs anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_lite import BundleRefused
from runtime_lite.format.formula import MAX_FORMULA_DEPTH, parse_formula

SIZES = {"time": 7, "text": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("time", 7),
        ("12", 12),
        ("(time - 1) // 2 + 1", 4),
        ("time-1-1", 5),
        ("time // 2 // 2", 1),
        ("2 + time * 3", 23),
        ("-time // 2", -4),
        ("-(-time // 2)", 4),
        ("--time", 7),
        ("2 * -text", -6),
        ("min(time, text)", 3),
        ("max(time, text, 9, 2 * text)", 9),
        ("min(max(time - 5, 0), text) * 2", 4),
        (" ( time ) ", 7),
        ("min(text, 2 - 1) - max(1, 2)", -1),
    ],
)
def test_a_formula_has_the_value_that_python_gives_it(text: str, value: int) -> None:
    assert parse_formula(text).value(SIZES) == value


FORMULAS = st.recursive(
    st.sampled_from(["time", "text", "0", "1", "2", "17"]),
    lambda inner: (
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*", "//"]), inner)
        | st.builds("({})".format, inner)
        | st.builds("-{}".format, inner)
        | st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner)
    ),
    max_leaves=8,
)


@given(FORMULAS, st.integers(0, 50), st.integers(1, 50))
def test_any_formula_has_the_value_that_python_gives_it(text: str, time: int, words: int) -> None:
    sizes = {"time": time, "text": words}
    try:
        expected = eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(sizes))
    except ZeroDivisionError:
        with pytest.raises(BundleRefused, match="expected a divisor other than 0"):
            parse_formula(text).value(sizes)
    else:
        assert parse_formula(text).value(sizes) == expected


@given(st.text(max_size=30) | st.text("time+-*/(), 0129mnax_", max_size=40))
def test_any_text_is_read_or_refused_with_a_sentence(text: str) -> None:
    try:
        formula = parse_formula(text)
    except BundleRefused as refusal:
        message = str(refusal)
    else:
        message = str(formula.axes)
    assert message.isprintable()


def test_a_formula_names_its_axes() -> None:
    assert parse_formula("min(time, 2 * text) - time").axes == {"time", "text"}
    assert parse_formula("7").axes == frozenset()


WRONG = {
    "empty": ("", "expected a number, an axis name or a parenthesis, got 'the end'"),
    "call": (
        "__import__('os').system('id')",
        "expected integers, axis names, + - * // min() max() and parentheses, got",
    ),
    "function of another name": ("open(time)", "expected the end, got '('"),
    "attribute": ("time.__class__", "expected integers, axis names, + - * // min() max() and parentheses, got '.__"),
    "index": ("time[0]", "got '[0]'"),
    "text": ('"time"', "expected integers, axis names"),
    "power": ("9 ** 9 ** 9", "expected a number, an axis name or a parenthesis, got '*'"),
    "true division": ("time / 2", "got '/ 2'"),
    "shift": ("1 << time", "got '<< time'"),
    "comparison": ("time < 2", "got '< 2'"),
    "keyword": ("time if time else 1", "expected the end, got 'if'"),
    "lambda": ("lambda: 0", "got ': 0'"),
    "walrus": ("(time := 5)", "got ':= 5)'"),
    "line break": ("time\n+ 1", "got '\\n+ 1'"),
    "comment": ("time # 1", "got '# 1'"),
    "fraction": ("1.5", "got '.5'"),
    "exponent": ("1e9", "expected the end, got 'e9'"),
    "digits without end": ("1" * 11, "expected the end, got '1'"),
    "arabic digits": ("\u0661", "expected integers"),
    "letters of other alphabets": ("t\u0456me", "expected integers"),
    "half open": ("(time", "expected ')', got the end"),
    "closed twice": ("(time))", "expected the end, got ')'"),
    "two names": ("time text", "expected the end, got 'text'"),
    "operator at the end": ("time +", "got 'the end'"),
    "min of one": ("min(time)", "expected ',', got ')'"),
    "min of nothing": ("min()", "expected a number, an axis name or a parenthesis, got ')'"),
    "min without parentheses": ("min + 1", "expected '(', got '+'"),
    "too long": ("time + " * 40 + "1", "expected at most 200 characters, got 281"),
    "too deep": ("(" * 60 + "1" + ")" * 60, f"expected at most {MAX_FORMULA_DEPTH} levels, got more"),
    "too many signs": ("-" * 150 + "1", f"expected at most {MAX_FORMULA_DEPTH} levels, got more"),
    "functions without end": ("min(" * 40, f"expected at most {MAX_FORMULA_DEPTH} levels, got more"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_formula_is_refused(case: str) -> None:
    text, sentence = WRONG[case]
    with pytest.raises(BundleRefused) as refusal:
        parse_formula(text)
    message = str(refusal.value)
    assert sentence in message
    assert message.startswith("formula ") and message.endswith("; rebuild the bundle")
    assert message.isprintable()


@pytest.mark.parametrize("text", ["1 // 0", "1 // (time - 7)", "time // (text * 0)", "0 * (1 // 0)"])
def test_a_division_by_zero_is_the_bundles_fault(text: str) -> None:
    with pytest.raises(BundleRefused, match="expected a divisor other than 0, got 0 at"):
        parse_formula(text).value(SIZES)


@pytest.mark.parametrize("text", ["*".join(["time"] * 40), "9999999999 * 9999999999", "-9999999999 * 9999999999 + 5"])
def test_a_number_beyond_64_bits_is_the_bundles_fault(text: str) -> None:
    with pytest.raises(BundleRefused, match="expected numbers of at most 64 bits, got more at"):
        parse_formula(text).value({"time": 2**31 - 1})
