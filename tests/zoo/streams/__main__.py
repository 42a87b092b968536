"""`python -m tests.zoo.streams [family ...]` builds and follows the steps, and writes their rows of the page."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from compiler.errors import SlipwayError
from tests.zoo.streams.families import FAMILIES, GROUPS
from tests.zoo.streams.family import StepFamily
from tests.zoo.streams.prove import follow

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "streaming_zoo.md"
CALLS = 100

HEAD = """# The streaming zoo

Steps of streaming models in tiny configurations with random weights, written as their authors write them, or those of
transformers (`pip install transformers==5.23.0`), captured from a recipe that lists inputs, states and axes only.
**Built** means: the passes of a build went through, the checker replayed every step of the proof, and the stated number
of chained *calls* of three rows that began at different times, past the end of every window, equal the module run on
each row alone; NaN, infinities and 1e30 in free slots and in rows that have not begun change no bit. *Tries* counts the
recipes until one was right: 1 is the first plain one. *Error* is the largest difference, relative to values above 1.
**Refused** gives the reason: a build stops there.

`python -m tests.zoo.streams [step ...]` builds them and writes their rows of this page.

Of {all} steps {built} are built.
"""

COLUMNS = "| step | result | tries | calls | nodes | steps proved | error |\n|---|---|---|---|---|---|---|"


def main(arguments: list[str]) -> int:
    """Follow the chosen families and write their rows of the page; the others stay."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.streams", description=__doc__)
    parser.add_argument("families", nargs="*", help="all by default")
    parser.add_argument("--calls", type=int, default=CALLS, help="chained calls of every row")
    options = parser.parse_args(arguments)
    for family in FAMILIES:
        if not options.families or family.name in options.families:
            row = _row(family, options.calls)
            print(row, flush=True)
            PAGE.write_text(page({**rows_of(PAGE.read_text(encoding="utf-8")), family.name: row}), encoding="utf-8")
    return 0


def _row(family: StepFamily, calls: int) -> str:
    try:
        found = follow(family, calls)
    except SlipwayError as error:
        place = error.place
        told = f"{place.op or place.stage}: {error.message}".replace("\n", " ")
        return f"| {family.name} | refused: {told} | {family.tries} | | | | |"
    figures = f"{calls} | {found.nodes} | {found.replayed} | {found.error:.0e}"
    return f"| {family.name} | built | {family.tries} | {figures} |"


def rows_of(text: str) -> dict[str, str]:
    """The rows of a page by step."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| step ")]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows}


def page(rows: Mapping[str, str]) -> str:
    """The page of all families that have a row."""
    built = sum("| built |" in row for row in rows.values())
    lines = [HEAD.format(all=len(rows), built=built)]
    for title, families in GROUPS.items():
        lines.append(f"## {title[0].upper()}{title[1:]}\n\n{COLUMNS}")
        lines += [rows[family.name] for family in families if family.name in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
