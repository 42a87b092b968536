"""The page of operators is what the rule table says, and no operator is without a word."""

import types
from pathlib import Path

import pytest

from compiler.passes import pass_kinds
from compiler.proof import coverage
from compiler.proof.coverage import OPSETS, PAGE, WRITTEN_BY, covered, defined_operators, main, page
from compiler.proof.facts.registry import Table, Versioned, named_refusal

ROOT = Path(__file__).resolve().parents[3]


def test_no_operator_is_without_rule_or_named_refusal() -> None:
    lacking = {each.op: each.lacking for each in covered() if each.lacking}
    assert lacking.pop("Constant") == tuple(OPSETS), "what has no operands needs no rule"
    assert not lacking, f"give each a rule, or name why it is refused: {lacking}"


def test_the_page_is_what_the_code_writes(tmp_path: Path) -> None:
    written = tmp_path / "coverage.md"
    main(["--write", str(written)])
    assert written.read_text(encoding="utf-8") == page()
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), "run python -m compiler.proof.coverage"


def test_opsets_of_operators() -> None:
    defined = defined_operators()
    assert defined["Add"] == tuple(OPSETS)
    assert defined["Attention"] == (23,)
    assert defined["Gelu"] == (20, 21, 22, 23)
    assert "Upsample" not in defined and "Swish" not in defined


def test_a_table_with_gaps_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = {
        ("", "Add"): Versioned(lambda case: case.verdict("X", "x"), since=19),
        ("", "Det"): named_refusal("is a test", "none"),
        ("com.acme", "Twice"): lambda case: case.verdict("X", "x"),
    }
    module = types.SimpleNamespace(__name__="compiler.proof.rules.made", TABLE=table)
    monkeypatch.setattr(coverage, "MODULES", (module,))
    found = {each.op: each for each in covered()}
    assert (found["Add"].module, found["Add"].lacking) == ("made", (17, 18))
    assert found["Mul"].lacking == tuple(OPSETS)
    assert found["Det"].refusal == "is a test" and not found["Det"].lacking
    text = page()
    assert "| Det | 17-23 |  | is a test |" in text
    assert "| Twice | any | `made` |  |" in text and "## com.acme: 1 with a rule, 0 refused by name" in text


def test_passes_that_write_operators_as_others_are_passes() -> None:
    assert set(WRITTEN_BY.values()) <= set(pass_kinds())
    assert set(WRITTEN_BY) <= set(defined_operators())
