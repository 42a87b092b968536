"""Whether what a page names is there: commands with options, targets of make, recipes, links with their headings."""

import argparse
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from compiler.front.commands.arguments import make_parser
from runtime_lite import __main__ as runtime_commands
from tests.docs.pages import FENCE, ROOT, named_commands


def problems(page: Path) -> list[str]:
    """What a page names in its text and is not there; blocks of commands are judged one by one."""
    text = page.read_text(encoding="utf-8")
    found = [fault(given, whole=False) for given in named_commands(page) if len(given) > 1]
    recipes = set(re.findall(r"RECIPE=(\w+\.yaml)", text))
    found += [f"{name} is no recipe" for name in sorted(recipes) if not (ROOT / "recipes" / name).is_file()]
    found += list(_broken_links(page))
    return [each for each in found if each is not None]


def words(command: str) -> list[str]:
    """A command of one process, without its environment, its folder and the place of the checkout."""
    command = re.sub(r"^\(cd \w+ && (.*)\)$", r"\1", command)
    split = shlex.split(command)
    while split and re.fullmatch(r"[A-Z_]+=.*", split[0]):
        del split[0]
    return [re.sub(r"^~/slipway/", "", word) for word in split]


def fault(given: list[str], *, whole: bool) -> str | None:
    """Why a command cannot be what it says; None where it is known.

    Args:
        given: its words.
        whole: whether it stands there to be run; else only what it names must be there.
    """
    while given and re.fullmatch(r"(\.venv/bin/)?python", given[0]):
        given = given[1:]
    start = " ".join(given[:2])
    if given[:1] == ["build.py"]:
        return _refused(make_parser(), given[1:], whole=whole)
    if start == "-m runtime_lite":
        return _refused(runtime_commands._parser(), given[2:], whole=whole)
    if given[:1] == ["-m"]:
        return None if start == "-m pip" or importlib.util.find_spec(given[1]) else f"{given[1]} is no module"
    if given[:1] == ["make"]:
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        return None if given[1] in targets else f"{given[1]} is no target of make"
    return None


def _refused(parser: argparse.ArgumentParser, given: list[str], *, whole: bool) -> str | None:
    if not whole:
        named = {word for word in given if word.startswith("--")} | {word for word in given[:1] if word.islower()}
        unknown = named - _known(parser)
        return f"{', '.join(sorted(unknown))}: unknown to {parser.prog}" if unknown else None
    try:
        parser.parse_args(given)
    except SystemExit:
        return f"{parser.prog} refuses {shlex.join(given)}"
    return None


def _known(parser: argparse.ArgumentParser) -> set[str]:
    """Options and commands that a parser knows, and those of its commands."""
    known = {option for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            known |= {*action.choices, *(name for child in action.choices.values() for name in _known(child))}
    return known


def _broken_links(page: Path) -> Iterator[str]:
    outside = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", outside):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{path} is linked to and is not there"
        elif heading and heading not in headings(target):
            yield f"{link} is linked to, and the page has no such heading"


def headings(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    outside = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
