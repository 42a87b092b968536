"""Each message that docs/refusals.md quotes is one that the code can give."""

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "refusals.md"

GAP = "\x00"
"""Stands for what a message computes."""


def quoted() -> list[str]:
    """The first column of the table of messages."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|[^|]+\|[^|]+\|$", text, re.MULTILINE)


@cache
def messages() -> frozenset[str]:
    """Every text of the code with gaps for what is computed, and its parts joined where they follow each other."""
    found = set()
    for folder in ("compiler", "runtime_lite"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.add(
                        "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


def is_given(message: str) -> bool:
    """Whether some text of the code has all words of a message in their order, and gaps at most where it has some."""
    parts = re.split(r"<[^>]+>", message)
    return any(_in_order(parts, text) for text in messages())


def _in_order(parts: list[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


@pytest.mark.parametrize("message", quoted())
def test_quoted_message_is_in_the_code(message: str) -> None:
    assert is_given(message)


def test_table_is_found() -> None:
    assert len(quoted()) >= 25


def test_message_that_is_not_given_is_seen() -> None:
    assert not is_given("expected one of fixed, buckets and doors, got <none>")
    assert not is_given("got <n>, expected the name of a pass")
