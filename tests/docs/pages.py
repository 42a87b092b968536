"""What the pages hold that can be run: fenced blocks by language, and commands named in a line of text."""

import dataclasses
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

LANGUAGES = {
    "sh": "commands, run in the order of the page",
    "python": "a file of the reader's, by the name in front of the block",
    "yaml": "a recipe, by the name in front of the block, or a part of one",
    "text": "what the commands above it print",
    "mermaid": "a picture",
}

FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`([\w.]+\.\w+)`[^\n`]*:\s*\Z")
COMMAND = re.compile(r"(?:\.venv/bin/)?(?:python |build\.py |make |pip )")


def pages() -> list[Path]:
    """Every page for readers."""
    folders = ("docs", "examples", "benchmarks", "distributions")
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*.md"))])


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        page: where it stands.
        line: of its first line.
        language: one of LANGUAGES, or what the page writes instead.
        text: without the fences.
        name: of the file that it is, or None.
    """

    page: Path
    line: int
    language: str
    text: str
    name: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, int]]:
        """The lines of a block of commands without remarks, each with the exit code that it ends in."""
        lines = [re.split(r"(?:^|\s+)# ", line, maxsplit=1) for line in self.text.replace("\\\n", " ").splitlines()]
        codes = [re.match(r"exit code (\d+)", line[1]) if len(line) > 1 else None for line in lines]
        return [
            (line[0].strip(), int(code[1]) if code else 0)
            for line, code in zip(lines, codes, strict=True)
            if line[0].strip()
        ]

    @property
    def is_recipe(self) -> bool:
        """Whether it is a whole recipe, not a part of one."""
        found = yaml.safe_load(self.text)
        return isinstance(found, dict) and {"name", "graphs", "data", "targets", "gates"} <= set(found)


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        name = NAMED.search(text[: match.start()])
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, match[1], match[2], name[1] if name else None))
    return found


def problems(page: Path) -> list[str]:
    """What of a page no test would find, or run."""
    text = page.read_text(encoding="utf-8")
    found = blocks(page)
    wrong = [
        f"{block}: expected a block in one of {', '.join(LANGUAGES)}, got {block.language or 'no language'!r}"
        for block in found
        if block.language not in LANGUAGES
    ]
    wrong += [
        f"{block}: expected the name of the file in front of it, as in `run.py`:, got none"
        for block in found
        if block.language == "python" and block.name is None
    ]
    wrong += [
        f"{block}: expected {block.name} in a command, a recipe or a file of the page, got it in none"
        for block in found
        if block.language == "python"
        and block.name is not None
        and not any(block.name.removesuffix(".py") in other.text for other in found if other != block)
    ]
    ran = {block.line for block in found if block.language == "sh"}
    wrong += [
        f"{block}: expected commands above what they print, got none"
        for block in found
        if block.language == "text" and not any(line < block.line for line in ran)
    ]
    if len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) != 2 * len(found):
        wrong.append(f"{page.name}: expected a fence at the start of its line for each block, got another count")
    outside = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    wrong += [
        f"{page.name}:{number}: expected commands between ``` fences, got an indented block"
        for number, line in enumerate(outside.splitlines(), start=1)
        if re.match(r"(\t| {4,})\S", line) and COMMAND.search(line)
    ]
    return wrong


def named_commands(page: Path) -> Iterator[list[str]]:
    """Commands in `backticks`, as words."""
    outside = FENCE.sub("", page.read_text(encoding="utf-8"))
    for text in re.findall(r"`([^`]+)`", outside):
        if COMMAND.match(text):
            yield shlex.split(text.replace("\n", " "))
