"""Every word of the glossary is one that the code uses, defined once, and the words that a reader meets are there."""

import re
from functools import cache

import pytest

from tests.docs.pages import ROOT, pages

GLOSSARY = ROOT / "docs" / "glossary.md"

ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)

WANTED = (
    "axis bucket bundle cache-axis certificate chunk culprit fact feed form frames gate layout pass pin "
    "placement poison real-length recipe refusal region replay rule segment stand-in state stream target"
    " true-length variant window"
)
"""Words that pages and messages lean on."""


@cache
def entries() -> list[tuple[str, str]]:
    return ENTRY.findall(GLOSSARY.read_text(encoding="utf-8"))


@cache
def code() -> str:
    files = [path for folder in ("compiler", "runtime_lite") for path in sorted((ROOT / folder).rglob("*.py"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def pattern_of(word: str) -> str:
    """The word in docstrings, messages and names: `real_length`, `RealLength`, real length; one or several."""
    return r"[\s_-]*".join(re.escape(part) for part in re.split(r"[\s-]", word)) + "s?"


@pytest.mark.parametrize("word", [word for word, _ in entries()])
def test_word_occurs_in_the_code(word: str) -> None:
    assert re.search(rf"(?<![a-z]){pattern_of(word)}", code(), re.IGNORECASE)


def test_no_word_is_defined_twice_and_each_line_is_an_entry() -> None:
    words = [re.sub(r"[\s-]", "", word.lower()).removesuffix("s") for word, _ in entries()]
    assert [word for word in words if words.count(word) > 1] == []
    lines = [line for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line.startswith("-")]
    assert len(lines) == len(entries())


def test_words_stand_in_the_order_of_the_alphabet() -> None:
    for part in GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]:
        words = [word for word, _ in ENTRY.findall(part)]
        assert words == sorted(words)


def test_words_that_pages_lean_on_are_there() -> None:
    known = {word.replace(" ", "-") for word, _ in entries()}
    assert sorted(set(WANTED.split()) - known) == []


def test_other_pages_do_not_define_words() -> None:
    """One place for each word."""
    elsewhere = [page.name for page in pages() if page != GLOSSARY and ENTRY.search(page.read_text(encoding="utf-8"))]
    assert elsewhere == []
