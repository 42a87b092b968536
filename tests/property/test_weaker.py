"""What is left out of the draw can only refuse more or claim less."""

import ast

import pytest

from tests.property.mutations import _changes
from tests.property.weaker import caution, is_margin, is_only_stricter


def drawn(text: str) -> set[str]:
    """What the changes make of a function's only statement, without those that are left out."""
    tree = ast.parse(text)
    cautious = caution(tree)
    found = set()
    for at, node in enumerate(ast.walk(tree)):
        for kind, change in _changes(node):
            if is_only_stricter(node, kind, cautious) or is_margin(node, kind):
                continue
            fresh = ast.parse(text)
            target = next(each for number, each in enumerate(ast.walk(fresh)) if number == at)
            found.add(ast.unparse(change(target)))
    return found


def test_a_guard_is_dropped_or_loses_what_it_names_and_is_not_made_stricter() -> None:
    assert drawn("if a or b: raise Refused") == {"pass", "a", "b"}
    assert drawn("if a and b: raise Refused") == {"pass"}
    assert drawn("if not (a and b): raise Refused") == {"pass", "a", "b"}
    assert drawn("if x is None: raise Refused") == {"pass"}


@pytest.mark.parametrize(
    ("guard", "weaker"),
    [
        ("x <= 7", {"x < 7"}),
        ("x < 7", set()),
        ("not x < 7", {"x <= 7", "8"}),
        ("x > 7", {"8"}),
        ("x in (a, b)", {"x in (a,)", "x in (b,)"}),
        ("x not in (a, b)", set()),
        ("any(f(x) for x in y if g(x))", {"all((f(x) for x in y if g(x)))"}),
        ("all(f(x) for x in y)", set()),
        ("all(f(x) for x in y if g(x))", {" for x in y"}),
    ],
)
def test_comparisons_in_a_guard_change_towards_accepting(guard: str, weaker: set[str]) -> None:
    assert drawn(f"if {guard}: raise Refused") == {"pass", *weaker}


def test_claiming_nothing_is_as_cautious_as_refusing() -> None:
    assert drawn("ANYTHING if a or b else c") == {"a", "b", "type(ANYTHING)(0.0, 0.0)"}
    assert drawn("c if a or b else ANYTHING") == {"type(ANYTHING)(0.0, 0.0)"}


def test_whatever_decides_between_two_claims_is_changed_both_ways() -> None:
    assert drawn("if x < 7:\n    y = z") == {"x <= 7", "if not x < 7:\n    y = z", "8"}


def test_a_margin_may_be_hit() -> None:
    assert drawn("y = x > 1e-30") == {"0.0"}
    assert "x >= 0.0" in drawn("y = x > 0.0")
