"""`python -m tests.zoo.streams [family ...]` builds and follows the steps, and writes docs/streaming_zoo.md."""

import argparse
import sys
from pathlib import Path

from compiler.errors import SlipwayError
from tests.zoo.streams.families import FAMILIES, GROUPS
from tests.zoo.streams.prove import follow

PAGE = Path(__file__).parents[3] / "docs" / "streaming_zoo.md"
CALLS = 100

HEAD = """# The streaming zoo

Steps of streaming models in tiny configurations with random weights, written as their authors write them and captured
from a recipe that lists inputs, states and axes only, at the first try. **Built** means: the passes of a build went
through, the checker replayed every step of the proof, and {calls} chained calls of three rows that began at different
times, past the end of every window, equal the module run on each row alone; NaN, infinities and 1e30 in free slots and
in rows that have not begun change no bit. *Error* is the largest difference, relative to values above 1.
**Refused** gives the reason: a build stops there.

`python -m tests.zoo.streams` builds them all and writes this page.

Of {all} steps {built} are built.
"""


def main(arguments: list[str]) -> int:
    """Follow the chosen families; the page is written when all were."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo.streams", description=__doc__)
    parser.add_argument("families", nargs="*", help="all by default")
    chosen = parser.parse_args(arguments).families
    rows: dict[str, str] = {}
    for family in FAMILIES:
        if not chosen or family.name in chosen:
            rows[family.name] = _row(family.name)
            print(rows[family.name], flush=True)
    if not chosen:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


def _row(name: str) -> str:
    (family,) = (each for each in FAMILIES if each.name == name)
    try:
        found = follow(family, CALLS)
    except SlipwayError as error:
        place = error.place
        return f"| {name} | refused: {place.op or place.stage}: {error.message} | | | |".replace("\n", " ")
    return f"| {name} | built | {found.nodes} | {found.replayed} | {found.error:.0e} |"


def page(rows: dict[str, str]) -> str:
    """The page of all families."""
    built = sum("| built |" in row for row in rows.values())
    lines = [HEAD.format(calls=CALLS, all=len(rows), built=built)]
    for title, families in GROUPS.items():
        lines.append(
            f"## {title.capitalize()}\n\n| step | result | nodes | steps proved | error |\n|---|---|---|---|---|"
        )
        lines += [rows[family.name] for family in families]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
