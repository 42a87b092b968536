"""Every command describes each of its arguments and ends with an example that it accepts itself."""

import argparse
import re
import shlex

import pytest

from compiler.front.commands.arguments import make_parser


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = [action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found.choices)


def undescribed(parser: argparse.ArgumentParser) -> list[str]:
    """Arguments without a description."""
    return [action.dest for action in parser._actions if not (action.help or "").strip()]


def example_of(parser: argparse.ArgumentParser) -> str:
    """The one example at the end of a command's help; empty where there is none."""
    found = re.search(r"\nexample:\n  python build\.py (\S[^\n]*)\n\Z", parser.format_help())
    return found[1] if found else ""


@pytest.mark.parametrize("name", ["", *commands()])
def test_a_command_describes_its_arguments_and_ends_with_an_example(name: str) -> None:
    parser = commands()[name] if name else make_parser()
    assert undescribed(parser) == []
    assert parser.description
    given = shlex.split(example_of(parser))
    assert given, f"{name} --help ends without an example"
    assert make_parser().parse_args(given).command == (name or None)


def test_an_undescribed_argument_and_a_missing_example_are_seen() -> None:
    parser = argparse.ArgumentParser(epilog="see the manual")
    parser.add_argument("--dark")
    assert (undescribed(parser), example_of(parser)) == (["dark"], "")
